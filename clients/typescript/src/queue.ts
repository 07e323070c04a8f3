import { create } from '@bufbuild/protobuf';
import { durationFromMs, durationMs } from '@bufbuild/protobuf/wkt';
import type { ClientDuplexStream } from '@grpc/grpc-js';

import { Key, parse, type KubernetesObject } from './follower.js';
import { REMINDER, Retry, type Logger } from './retry.js';
import { selectionOf } from './selection.js';
import { find } from './server.js';
import { methodOf, Queue as Service, WorkRequestSchema, type Item as WireItem, type ItemRef, type WorkRequest, type WorkResponse } from './v1.js';
import { frames, pause, type WatchOptions } from './watch.js';

/** A key with what is known of it. */
export interface Item<T> {
  readonly namespace: string;
  readonly name: string;
  /** namespace/name, or name. */
  readonly key: string;
  /** The latest state; undefined if there is no such object, or it is no longer selected. */
  readonly object: T | undefined;
  /**
   * The last state of the object that had this name before, if its deletion has not been handled yet. Together with
   * `object`: it was deleted and made anew.
   */
  readonly deleted: T | undefined;
  /** 1, and one more for each failure since the key last succeeded. */
  readonly attempt: number;
  /** Aborts when informerd has given the key to another worker. */
  readonly signal: AbortSignal;
}

/** Returned by a handler that succeeded and wants the key again after some time, at most a year. */
export interface RequeueAfter {
  requeueAfterMs: number;
}

/**
 * Brings the cluster from the state that is to the state that should be. When it returns, the key is done until its object
 * changes. When it throws, the key comes again after a back-off that grows.
 */
export type Handler<T> = (item: Item<T>) => Promise<RequeueAfter | void> | RequeueAfter | void;

export interface QueueOptions extends WatchOptions {
  /** How many handlers run at once, by default one. */
  workers?: number;
  /** Called once, when every object that was there has been put into the queue, though perhaps not been handled. */
  synced?: () => void;
}

const YEAR = 365 * 24 * 3_600_000;

const WORK = methodOf(Service.method.work);

/**
 * A worker of a group. All workers of a group, in however many processes, share one queue: each key is in one handler's hands
 * at a time, and comes with the latest state of its object.
 */
export class Queue<T = KubernetesObject> {
  readonly #group: string;
  readonly #what: string;
  readonly #handle: Handler<T>;
  readonly #options: QueueOptions;
  readonly #join: WorkRequest;
  #synced = false;

  constructor(group: string, resource: string, handle: Handler<T>, options: QueueOptions = {}) {
    this.#group = group;
    this.#what = `queue ${group} of ${resource}`;
    this.#handle = handle;
    this.#options = options;
    const selections = [selectionOf(resource, options)];
    const value = { group, selections, capacity: options.workers ?? 1 };
    this.#join = create(WorkRequestSchema, { action: { case: 'join', value } });
  }

  /** Works until the signal aborts, or throws an `InformerdError`. It returns when all handlers have. */
  async run(): Promise<void> {
    const { signal, logger = console } = this.#options;
    const server = this.#options.server ?? (await find());
    const retry = new Retry(server.address, this.#what, server.tokenFile !== undefined, logger);
    while (!signal?.aborted) {
      let wait: number;
      retry.begins();
      try {
        const client = server.client();
        try {
          const call = client.makeBidiStreamRequest(
            WORK.path,
            WORK.requestSerialize,
            WORK.responseDeserialize,
            server.metadata(),
          );
          wait = retry.afterGoodbye(await this.#work(call, retry, signal, logger));
        } finally {
          client.close();
        }
      } catch (error) {
        if (signal?.aborted) {
          return;
        }
        wait = retry.afterError(error);
      }
      await pause(wait, signal);
    }
  }

  /** One stream: while it lives, this is a worker of its group. When it ends, what was in hand goes to the others. */
  async #work(call: ClientDuplexStream<WorkRequest, WorkResponse>, retry: Retry, signal: AbortSignal | undefined, logger: Logger): Promise<number> {
    const ended = new AbortController();
    const handlers = new Map<Promise<void>, string>();
    const work = async (item: WireItem): Promise<void> => {
      const answer = await this.#answer(item, ended.signal, logger);
      if (!ended.signal.aborted) {
        call.write(answer);
      }
    };
    call.write(this.#join);
    try {
      for await (const { frame } of frames(call, signal)) {
        retry.alive();
        switch (frame.case) {
          case 'synced':
            if (!this.#synced) {
              this.#synced = true;
              this.#options.synced?.();
            }
            break;
          case 'items':
            for (const item of frame.value.items) {
              const handler = work(item).finally(() => handlers.delete(handler));
              handlers.set(handler, `${item.ref?.namespace}/${item.ref?.name}`); // Never more than the capacity.
            }
            break;
          case 'goodbye':
            return frame.value.retryAfter ? durationMs(frame.value.retryAfter) : 0;
        }
      }
      return 0;
    } finally {
      ended.abort();
      // One that does not heed its signal holds up the worker.
      const told = setInterval(() => {
        const keys = [...handlers.values()].slice(0, 10).join(', ');
        logger.warn(`${this.#what}: the stream is over, and waits for ${handlers.size} handlers: ${keys}`);
      }, REMINDER);
      await Promise.allSettled(handlers.keys());
      clearInterval(told);
    }
  }

  async #answer(item: WireItem, signal: AbortSignal, logger: Logger): Promise<WorkRequest> {
    const ref = item.ref as ItemRef; // Every item has it.
    const { namespace, name } = ref;
    const key = new Key(namespace, name, '', '').toString();
    try {
      const object = item.object && parse<T>(item.object.object);
      const deleted = item.deleted && parse<T>(item.deleted.object);
      const again = await this.#handle({ namespace, name, key, object, deleted, attempt: item.attempt, signal });
      if (!again) {
        return create(WorkRequestSchema, { action: { case: 'done', value: ref } });
      }
      if (!Number.isFinite(again.requeueAfterMs)) {
        throw new TypeError(`requeueAfterMs is ${again.requeueAfterMs}`);
      }
      const delay = durationFromMs(Math.round(Math.min(Math.max(again.requeueAfterMs, 0), YEAR)));
      return create(WorkRequestSchema, { action: { case: 'addAfter', value: { item: ref, delay } } });
    } catch (error) {
      if (!signal.aborted) {
        const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
        logger.error(`queue ${this.#group}: ${key} failed at attempt ${item.attempt}, and comes again: ${text}`);
      }
      return create(WorkRequestSchema, { action: { case: 'retry', value: ref } });
    }
  }
}
