import assert from 'node:assert/strict';
import { test } from 'node:test';

import { create } from '@bufbuild/protobuf';
import { status } from '@grpc/grpc-js';

import { InformerdError, Queue, type Item, type KubernetesObject } from '../src/index.js';
import { WorkResponseSchema, type WorkRequest, type WorkResponse } from '../src/v1.js';
import { fake, kept, pod, refused, type Call, type Script } from './fake.js';

type WorkScript = Script<WorkRequest, WorkResponse>;

function items(...names: string[]): WorkResponse {
  const made = names.map((name) => ({ ref: { namespace: 'n', name }, object: { object: pod(name, name, '1') }, attempt: 2 }));
  return create(WorkResponseSchema, { frame: { case: 'items', value: { items: made } } });
}

const synced = create(WorkResponseSchema, { frame: { case: 'synced', value: {} } });
const goodbye = create(WorkResponseSchema, { frame: { case: 'goodbye', value: {} } });

async function joined(call: Call<WorkRequest, WorkResponse>): Promise<void> {
  const { action } = await call.next();
  assert(action.case === 'join');
  const { group, capacity, selections } = action.value;
  assert.deepEqual([group, capacity, selections[0]?.resource?.resource], ['g', 2, 'pods']);
}

test('each key is answered as its handler says', async (t) => {
  const answers: WorkRequest['action'][] = [];
  const first: WorkScript = async (call) => {
    await joined(call);
    for (const name of ['good', 'bad', 'later', 'never', 'before', 'nan', 'wrong']) {
      call.send(items(name));
      answers.push((await call.next()).action);
    }
    call.send(goodbye);
    call.end();
  };
  const second: WorkScript = async (call) => {
    await joined(call);
    call.send(synced);
    call.send(synced);
    setImmediate(() => call.fail(status.UNAVAILABLE));
  };
  const server = await fake(t, first, second, refused(status.NOT_FOUND, 'UNKNOWN_RESOURCE'));
  const logger = kept();
  let times = 0;
  const handle = async (item: Item<KubernetesObject>) => {
    assert.equal(item.object?.metadata.name, item.name);
    assert.deepEqual([item.key, item.deleted, item.attempt, item.signal.aborted], [`n/${item.name}`, undefined, 2, false]);
    if (item.name === 'bad') {
      throw new Error('it failed');
    }
    if (item.name === 'wrong') {
      return true as unknown as undefined;
    }
    const delays: Record<string, number> = { later: 3_600_000.4, never: Number.MAX_VALUE, before: -1, nan: NaN };
    return item.name in delays ? { requeueAfterMs: delays[item.name] as number } : undefined;
  };
  const queue = new Queue('g', 'v1/pods', handle, { workers: 2, server, logger, synced: () => (times += 1) });
  await assert.rejects(queue.run(), (error) => error instanceof InformerdError && /queue g of v1\/pods/.test(error.message));
  const cases = ['done', 'retry', 'addAfter', 'addAfter', 'addAfter', 'retry', 'retry'];
  assert.deepEqual(answers.map((answer) => answer.case), cases);
  const delays = answers.map((answer) => (answer.case === 'addAfter' ? answer.value.delay?.seconds : undefined));
  assert.deepEqual(delays.slice(2, 5), [3600n, 365n * 24n * 3600n, 0n]);
  assert.equal(times, 1);
  assert.equal(logger.lines.filter((line) => line.includes('it failed') && line.includes('n/bad')).length, 1);
});

test('handlers are bounded and learn that their stream has ended', async (t) => {
  let running = 0;
  let both = (): void => {};
  const busy = new Promise<void>((resolve) => (both = resolve));
  const first: WorkScript = async (call) => {
    await joined(call);
    call.send(items('a', 'b'));
    await busy;
    call.fail(status.UNAVAILABLE);
  };
  const handle = async ({ signal }: Item<KubernetesObject>) => {
    if ((running += 1) === 2) {
      both();
    }
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    running -= 1;
  };
  const server = await fake(t, first, refused(status.PERMISSION_DENIED, 'FORBIDDEN'));
  await assert.rejects(new Queue('g', 'v1/pods', handle, { workers: 2, server, logger: kept() }).run(), InformerdError);
  assert.equal(running, 0);
});

test('a worker tells for which handlers it waits', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const first: WorkScript = async (call) => {
    await joined(call);
    call.send(items('stuck'));
  };
  const over = new AbortController();
  const logger = kept();
  let release = (): void => {};
  const handle = async ({ signal }: Item<KubernetesObject>) => {
    signal.addEventListener('abort', () => setTimeout(() => (t.mock.timers.tick(60_000), release()), 20));
    setTimeout(() => over.abort(), 20);
    await new Promise<void>((resolve) => (release = resolve));
  };
  await new Queue('g', 'v1/pods', handle, { workers: 2, server: await fake(t, first), signal: over.signal, logger }).run();
  assert.deepEqual(logger.lines.map((line) => /waits for 1 handlers: n\/stuck/.test(line)), [true, true]);
});

test('a signal ends it when its handlers have returned', async (t) => {
  const held: WorkScript = async (call) => {
    await joined(call);
    call.send(items('a'));
  };
  const over = new AbortController();
  let returned = false;
  const handle = async ({ signal }: Item<KubernetesObject>) => {
    setTimeout(() => over.abort(), 20);
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    await new Promise((resolve) => setTimeout(resolve, 20));
    returned = true;
  };
  await new Queue('g', 'v1/pods', handle, { workers: 2, server: await fake(t, held), signal: over.signal }).run();
  assert(returned);
});
