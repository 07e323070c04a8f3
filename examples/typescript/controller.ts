/**
 * Keeps the annotation example.com/keys of every selected ConfigMap at the number of its keys. Any number of these processes
 * share the work.
 *
 *     npm run build && node dist/controller.js [--group G] [--workers N] [--namespace N] [--selector L]
 */
import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { parseArgs } from 'node:util';

import { find, InformerdError, Queue, type Item, type KubernetesObject } from 'informerd';

interface ConfigMap extends KubernetesObject {
  data?: Record<string, string>;
}

const { values } = parseArgs({
  options: {
    group: { type: 'string', default: 'key-counter' },
    workers: { type: 'string', default: '4' },
    namespace: { type: 'string', default: '' },
    selector: { type: 'string', default: '' },
  },
});
const server = await find();

/** Brings the cluster from the state that is to the state that should be. Called twice, it does nothing the second time. */
async function reconcile({ key, namespace, name, object, signal }: Item<ConfigMap>): Promise<void> {
  if (!object) {
    console.log('gone', key);
    return;
  }
  const keys = String(Object.keys(object.data ?? {}).length);
  if (object.metadata.annotations?.['example.com/keys'] === keys) {
    return;
  }
  const { resourceVersion } = object.metadata;
  const patch = JSON.stringify({ metadata: { resourceVersion, annotations: { 'example.com/keys': keys } } });
  const [status, text] = await write(`/api/v1/namespaces/${namespace}/configmaps/${name}`, patch, signal);
  if (status === 200) {
    console.log('counted', key, keys);
  } else if (status !== 404 && status !== 409) { // With these it changed meanwhile, so it comes again.
    throw new Error(`${status}: ${text}`);
  }
}

/** Writes go to the kube-apiserver, here through informerd's REST side. `fetch` would not trust its CA. */
async function write(path: string, patch: string, signal: AbortSignal): Promise<[number | undefined, string]> {
  const headers = { ...server.headers(), 'content-type': 'application/merge-patch+json' };
  const ca = server.caFile && readFileSync(server.caFile);
  const { request } = server.address.startsWith('https:') ? https : http;
  const answer = await new Promise<http.IncomingMessage>((resolve, reject) =>
    request(server.address + path, { method: 'PATCH', headers, ca, signal }, resolve).on('error', reject).end(patch),
  );
  return [answer.statusCode, (await answer.setEncoding('utf8').toArray()).join('')];
}

try {
  await new Queue<ConfigMap>(values.group, 'v1/configmaps', reconcile, {
    server, workers: Number(values.workers), namespace: values.namespace, labels: values.selector,
  }).run();
} catch (error) {
  console.error(error instanceof InformerdError ? error.message : error);
  process.exitCode = 1;
}
