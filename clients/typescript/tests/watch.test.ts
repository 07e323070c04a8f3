import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { create } from '@bufbuild/protobuf';
import { status } from '@grpc/grpc-js';

import { Cache, InformerdError, watch, type Event, type KubernetesObject, type Server } from '../src/index.js';
import { Retry, Silence } from '../src/retry.js';
import { selectionOf } from '../src/selection.js';
import { Drop, methodOf, Objects, Shape, WatchRequestSchema } from '../src/v1.js';
import { frames } from '../src/watch.js';
import { broken, events, fake, goodbye, kept, refused, reset, script, snapshotEnd, started, type WatchScript } from './fake.js';

const GAP = [
  'ADDED n/a 1', 'ADDED n/b 2', 'ADDED n/c 3', 'ADDED n/d 4', 'SYNCED',
  'DELETED n/b 2?', 'ADDED n/b 6', 'ADDED n/f 5', 'DELETED n/f 7', 'MODIFIED n/d 8', 'ADDED n/e 9', 'DELETED n/a 1?',
  'DELETED n/e 10',
];
const FIRST = [started(), events('1', '+a1', '+b2', '+c3', '+d4'), snapshotEnd()];
// a is gone, b was made anew, c is the same, d has changed, e is new, f came and went meanwhile.
const THEN = [events('', '+b6/x', '+c3', '+f5'), events('', '-f7', '+d8', '+e9'), snapshotEnd(), events('2', '-e10')];

function line(event: Event<KubernetesObject>): string {
  if (event.type === 'SYNCED') {
    return 'SYNCED';
  }
  const { key, object } = event;
  if (object) {
    const { name, uid, resourceVersion } = object.metadata;
    assert.deepEqual([name, uid, resourceVersion], [key.name, key.uid, key.resourceVersion]);
    assert.deepEqual(object['spec'], { nodeName: 'ä' });
  }
  return `${event.type} ${key} ${key.resourceVersion}${object ? '' : '?'}`;
}

async function told(server: Server, count: number, logger = kept()): Promise<string[]> {
  const lines: string[] = [];
  for await (const event of watch('v1/pods', { server, logger })) {
    if (lines.push(line(event)) === count) {
      break;
    }
  }
  return lines;
}

describe('a watch', () => {
  test('gives up a stream that fell silent, and waits for a slow consumer', async (t) => {
    const server = await fake(t, script(started(), snapshotEnd()));
    const { path, requestSerialize, responseDeserialize } = methodOf(Objects.method.watch);
    const request = create(WatchRequestSchema);
    const call = server.client().makeServerStreamRequest(path, requestSerialize, responseDeserialize, request);
    const seen: unknown[] = [];
    const loop = async (): Promise<void> => {
      for await (const { frame } of frames(call, undefined, 300)) {
        seen.push(frame.case);
        await new Promise((resolve) => setTimeout(resolve, 500));
      }
    };
    await assert.rejects(loop(), Silence);
    assert.deepEqual(seen, ['started', 'snapshotEnd']);
    assert.equal(typeof new Retry(server.address, 'watch', false, kept()).afterError(new Silence()), 'number');
  });

  test('goes on from its token and tells nothing twice', async (t) => {
    const tokens: string[] = [];
    const resumed: WatchScript = (call) => {
      tokens.push(Buffer.from(call.request.start.value as Uint8Array).toString());
      // The last frame may come a second time.
      return script(started(true), events('2', '~a3'), events('3', '-b4', '+c5'))(call);
    };
    const first = broken(started(), events('1', '+a1', '+b2'), snapshotEnd(), events('2', '~a3'));
    const server = await fake(t, first, broken(), broken(), resumed); // One outage.
    const logger = kept();
    const lines = await told(server, 6, logger);
    assert.deepEqual(lines, ['ADDED n/a 1', 'ADDED n/b 2', 'SYNCED', 'MODIFIED n/a 3', 'DELETED n/b 4', 'ADDED n/c 5']);
    assert.deepEqual(tokens, ['2']);
    assert.equal(logger.lines.length, 2, logger.lines.join('\n'));
    assert.match(logger.lines[0] ?? '', RegExp(`informerd at ${server.address} does not answer; trying again`));
    assert.match(logger.lines[1] ?? '', /answers again/);
  });

  test('tells what went while nobody looked', async (t) => {
    const over = await fake(t, broken(...FIRST), script(started(), ...THEN));
    const within = await fake(t, script(...FIRST, reset(), ...THEN));
    for (const server of [over, within]) {
      assert.deepEqual(await told(server, GAP.length), GAP);
    }
  });

  test('continues a snapshot that was cut', async (t) => {
    const rest = script(started(true), events('whole', '+b2'), snapshotEnd());
    const server = await fake(t, broken(started(), events('half', '+a1')), rest);
    assert.deepEqual(await told(server, 3), ['ADDED n/a 1', 'ADDED n/b 2', 'SYNCED']);
  });

  test('comes back after a goodbye without a word', async (t) => {
    const first: WatchScript = async (call) => {
      await script(started(), snapshotEnd(), goodbye('bye'))(call);
      call.end();
    };
    const logger = kept();
    const server = await fake(t, first, script(started(true), events('1', '+a1')));
    assert.deepEqual(await told(server, 2, logger), ['SYNCED', 'ADDED n/a 1']);
    assert.deepEqual(logger.lines, []);
  });

  test('gives up a token that is refused', async (t) => {
    const again: WatchScript = (call) =>
      call.request.start.case === 'resumeToken'
        ? refused(status.INVALID_ARGUMENT, 'INVALID')(call)
        : script(started(), events('2', '+b5'), snapshotEnd())(call);
    const first = broken(started(), events('1', '+a1'), snapshotEnd());
    const server = await fake(t, first, refused(status.INVALID_ARGUMENT, 'INVALID'), again);
    assert.deepEqual(await told(server, 4), ['ADDED n/a 1', 'SYNCED', 'ADDED n/b 5', 'DELETED n/a 1?']);
  });

  for (const [code, reason, final] of [
    [status.NOT_FOUND, 'UNKNOWN_RESOURCE', true],
    [status.INVALID_ARGUMENT, 'INVALID', true],
    [status.PERMISSION_DENIED, 'FORBIDDEN', true],
    [status.UNAUTHENTICATED, 'UNAUTHENTICATED', true],
    [status.FAILED_PRECONDITION, 'EXCLUDED', true],
    [status.FAILED_PRECONDITION, 'STALE', false],
    [status.UNAVAILABLE, 'NOT_SYNCED', false],
    [status.INTERNAL, 'INTERNAL', false],
    // Not informerd's word.
    [status.NOT_FOUND, undefined, false],
    [status.UNIMPLEMENTED, undefined, false],
  ] as const) {
    test(`${final ? 'ends with' : 'tries again after'} ${status[code]} ${reason ?? ''}`, async (t) => {
      const server = await fake(t, refused(code, reason), script(started(), snapshotEnd()));
      if (!final) {
        assert.deepEqual(await told(server, 1), ['SYNCED']);
        return;
      }
      await assert.rejects(told(server, 1), (error: InformerdError) => {
        assert(error instanceof InformerdError);
        assert.deepEqual([error.code, error.reason], [code, reason]);
        assert(error.message.includes(`informerd at ${server.address}, watch of v1/pods: ${status[code]}: no`));
        assert.equal(error.message.includes('kubectl api-resources'), reason === 'UNKNOWN_RESOURCE');
        return true;
      });
    });
  }

  test('ends when its signal aborts', async (t) => {
    const server = await fake(t, script(started(), events('1', '+a1'), snapshotEnd()));
    const over = new AbortController();
    const lines: string[] = [];
    for await (const event of watch('v1/pods', { server, signal: over.signal, logger: kept() })) {
      if (lines.push(line(event)) === 2) {
        setTimeout(() => over.abort(), 20);
      }
    }
    assert.deepEqual(lines, ['ADDED n/a 1', 'SYNCED']);
  });
});

test('a cache keeps what the watch tells', async (t) => {
  const server = await fake(t, broken(...FIRST), script(started(), ...THEN));
  const over = new AbortController();
  const changes: string[] = [];
  const cache = new Cache('v1/pods', {
    server,
    signal: over.signal,
    logger: kept(),
    changed: (event, old) => {
      changes.push(`${event.type} ${event.key} ${old?.metadata.resourceVersion}`);
      if (event.type === 'DELETED' && event.key.name === 'e') {
        over.abort();
      }
    },
  });
  const running = cache.run();
  await cache.synced;
  assert.equal(cache.size, 4);
  assert.equal(cache.get('n', 'b')?.metadata.uid, 'b');
  await running;
  assert.deepEqual([...cache.values()].map((object) => object.metadata.name).sort(), ['b', 'c', 'd']);
  assert.deepEqual(changes.slice(4, 6), ['DELETED n/b 2', 'ADDED n/b undefined']);
  assert(changes.includes('MODIFIED n/d 4'));
  const misspelt = new Cache('v1/pods', { server: await fake(t, refused(status.NOT_FOUND, 'UNKNOWN_RESOURCE')) });
  await assert.rejects(misspelt.run(), InformerdError);
  await assert.rejects(misspelt.synced, InformerdError);
});

describe('a selection', () => {
  test('says what the options say', () => {
    const made = selectionOf('apps/v1/deployments', {
      namespace: 'n', names: ['a', 'b'], labels: 'app=web', fields: 'spec.nodeName=node', metadataOnly: true, withoutManagedFields: true,
    });
    const { group, version, resource } = made.resource ?? {};
    assert.deepEqual([group, version, resource], ['apps', 'v1', 'deployments']);
    const [filter] = made.filters;
    assert.deepEqual([filter?.namespace, filter?.names], ['n', ['a', 'b']]);
    assert.deepEqual([filter?.labelSelector, filter?.fieldSelector], ['app=web', 'spec.nodeName=node']);
    assert.deepEqual([made.shape, made.drop], [Shape.METADATA_ONLY, [Drop.MANAGED_FIELDS]]);
  });

  test('needs no version', () => {
    for (const [text, ...parts] of [
      ['pods', '', '', 'pods'], ['v1/pods', '', 'v1', 'pods'], ['deployments.apps', 'apps', '', 'deployments'],
      ['leases.coordination.k8s.io', 'coordination.k8s.io', '', 'leases'],
    ] as const) {
      const { group, version, resource } = selectionOf(text, {}).resource ?? {};
      assert.deepEqual([group, version, resource], parts, text);
    }
    for (const wrong of ['', 'v1/', '/v1/pods', 'a/b/c/d', '.apps', 'pods.', 'v1/pods.apps']) {
      assert.throws(() => watch(wrong), /is no resource/, wrong);
    }
  });
});
