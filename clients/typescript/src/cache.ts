import type { Event, KubernetesObject } from './follower.js';
import { watch, type WatchOptions } from './watch.js';

export interface CacheOptions<T> extends WatchOptions {
  /** Called after each change, in order, with what the cache had before. */
  changed?: (event: Exclude<Event<T>, { type: 'SYNCED' }>, old: T | undefined) => void;
}

/**
 * Keeps the objects of one selection, as an informer does. What it returns is shared and must not be changed. It holds each
 * selected object once, and nothing piles up.
 */
export class Cache<T = KubernetesObject> {
  readonly #events: AsyncGenerator<Event<T>, void, void>;
  readonly #changed: CacheOptions<T>['changed'];
  readonly #objects = new Map<string, T>();
  /** Settles when everything that was there at first is in the cache; rejects if `run` ends before. */
  readonly synced: Promise<void>;
  #settle!: { resolve: () => void; reject: (error: unknown) => void };

  constructor(resource: string, options: CacheOptions<T> = {}) {
    this.#events = watch<T>(resource, options);
    this.#changed = options.changed;
    this.synced = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));
    this.synced.catch(() => {}); // Nobody has to wait for it.
  }

  /** Keeps the cache until the signal aborts, or throws an `InformerdError`. It is called once. */
  async run(): Promise<void> {
    try {
      for await (const event of this.#events) {
        if (event.type === 'SYNCED') {
          this.#settle.resolve();
          continue;
        }
        const name = event.key.toString();
        const old = this.#objects.get(name);
        if (event.type === 'DELETED') {
          this.#objects.delete(name);
        } else {
          this.#objects.set(name, event.object);
        }
        this.#changed?.(event, old);
      }
      this.#settle.reject(new Error('the cache was ended before it had synced'));
    } catch (error) {
      this.#settle.reject(error);
      throw error;
    }
  }

  /** The namespace is empty for types without namespaces. */
  get(namespace: string, name: string): T | undefined {
    return this.#objects.get(namespace ? `${namespace}/${name}` : name);
  }

  /** All objects, in no order. */
  values(): IterableIterator<T> {
    return this.#objects.values();
  }

  get size(): number {
    return this.#objects.size;
  }
}
