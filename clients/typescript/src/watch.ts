import { setTimeout } from 'node:timers/promises';

import type { ClientDuplexStream, ClientReadableStream } from '@grpc/grpc-js';

import { Follower, type Event, type KubernetesObject } from './follower.js';
import { Retry, Silence, type Logger } from './retry.js';
import { selectionOf, type Selected } from './selection.js';
import { find, type Server } from './server.js';
import { methodOf, Objects } from './v1.js';

/** What a watch and a queue have in common. */
export interface WatchOptions extends Selected {
  /** By default the one that `find()` finds. */
  server?: Server;
  /** Ends it without an error. */
  signal?: AbortSignal;
  /** By default the console, on standard error. */
  logger?: Logger;
}

/** Bookmarks come every minute: a stream that says nothing for so much longer is broken. */
const SILENCE = 180_000;

const WATCH = methodOf(Objects.method.watch);

/**
 * Tells the objects of a selection as ADDED, SYNCED, and then every change, each once.
 *
 * It goes on when the connection is lost, informerd is restarted, or the way back is no longer known; what was deleted in
 * between is told then. It ends with `break`, when the signal aborts, or with an `InformerdError`. A loop body that is slow
 * delays this watch alone.
 */
export function watch<T = KubernetesObject>(
  resource: string,
  options: WatchOptions = {},
): AsyncGenerator<Event<T>, void, void> {
  return told(resource, new Follower<T>(selectionOf(resource, options)), options);
}

async function* told<T>(
  resource: string,
  follower: Follower<T>,
  options: WatchOptions,
): AsyncGenerator<Event<T>, void, void> {
  const { signal, logger = console } = options;
  const server = options.server ?? (await find());
  const retry = new Retry(server.address, `watch of ${resource}`, server.tokenFile !== undefined, logger);
  while (!signal?.aborted) {
    let wait: number;
    retry.begins();
    try {
      const client = server.client();
      try {
        const call = client.makeServerStreamRequest(
          WATCH.path,
          WATCH.requestSerialize,
          WATCH.responseDeserialize,
          follower.request(),
          server.metadata(),
        );
        for await (const response of frames(call, signal, SILENCE)) {
          retry.alive();
          yield* follower.frame(response);
        }
      } finally {
        client.close();
      }
      wait = retry.afterGoodbye(follower.waitMs);
    } catch (error) {
      if (signal?.aborted) {
        return;
      }
      wait = follower.forgets(error) ? 0 : retry.afterError(error);
    }
    await pause(wait, signal);
  }
}

/**
 * The messages of a call, which is over when the loop is, or when the signal aborts. It throws when one is waited for in vain
 * for `silenceMs`; a slow consumer is no silence.
 */
export async function* frames<T>(
  call: ClientReadableStream<T> | ClientDuplexStream<never, T>,
  signal: AbortSignal | undefined,
  silenceMs?: number,
): AsyncGenerator<T, void, void> {
  const cancel = (): void => call.cancel();
  let silent = false;
  let timer: NodeJS.Timeout | undefined;
  const wait = (): void => {
    timer = silenceMs === undefined ? undefined : globalThis.setTimeout(() => ((silent = true), cancel()), silenceMs);
  };
  call.on('error', () => {}); // The loop throws it; one that comes after the loop means nothing.
  signal?.addEventListener('abort', cancel);
  try {
    if (signal?.aborted) {
      return;
    }
    wait();
    for await (const message of call) {
      clearTimeout(timer);
      yield message as T;
      wait();
    }
  } catch (error) {
    throw silent ? new Silence(`nothing was heard for ${(silenceMs ?? 0) / 1000} s`) : error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', cancel);
    cancel();
  }
}

export async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await setTimeout(ms, undefined, signal && { signal }).catch(() => {}); // Aborted: the caller looks at the signal.
}
