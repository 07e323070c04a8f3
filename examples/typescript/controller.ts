/**
 * Keeps the annotation example.com/keys of every selected ConfigMap at the number of its keys. Any number of these processes
 * share the work.
 *
 *     npm run build && node dist/controller.js [--group G] [--workers N] [--namespace N] [--selector L]
 */
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
  // Writes go to the kube-apiserver, here through informerd's REST side.
  const { resourceVersion } = object.metadata;
  const answer = await fetch(`${server.address}/api/v1/namespaces/${namespace}/configmaps/${name}`, {
    method: 'PATCH',
    headers: { ...server.headers(), 'content-type': 'application/merge-patch+json' },
    body: JSON.stringify({ metadata: { resourceVersion, annotations: { 'example.com/keys': keys } } }),
    signal,
  });
  if (answer.ok) {
    console.log('counted', key, keys);
  } else if (answer.status !== 404 && answer.status !== 409) { // With these it changed meanwhile, so it comes again.
    throw new Error(`${answer.status}: ${await answer.text()}`);
  }
}

try {
  await new Queue<ConfigMap>(values.group, 'v1/configmaps', reconcile, {
    server, workers: Number(values.workers), namespace: values.namespace, labels: values.selector,
  }).run();
} catch (error) {
  console.error(error instanceof InformerdError ? error.message : error);
  process.exitCode = 1;
}
