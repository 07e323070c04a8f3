import { create } from '@bufbuild/protobuf';
import { durationMs } from '@bufbuild/protobuf/wkt';
import { status } from '@grpc/grpc-js';

import { explain } from './retry.js';
import {
  Event_Type,
  WatchRequestSchema,
  type Event as WireEvent,
  type Selection,
  type WatchRequest,
  type WatchResponse,
} from './v1.js';

/** What every object has. Types with more, such as those of `@kubernetes/client-node`, are the callers'. */
export interface KubernetesObject {
  apiVersion?: string;
  kind?: string;
  metadata: {
    name: string;
    namespace?: string;
    uid: string;
    resourceVersion: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    [member: string]: unknown;
  };
  [member: string]: unknown;
}

/** What tells objects apart. */
export class Key {
  constructor(
    /** Empty for types without namespaces. */
    readonly namespace: string,
    readonly name: string,
    readonly uid: string,
    readonly resourceVersion: string,
  ) {}

  /** namespace/name, or name. */
  toString(): string {
    return this.namespace ? `${this.namespace}/${this.name}` : this.name;
  }
}

/** What has become of an object. */
export type Event<T> =
  | { readonly type: 'ADDED' | 'MODIFIED'; readonly key: Key; readonly object: T }
  /** With its last state, which is not known of an object that was deleted while the watch was interrupted. */
  | { readonly type: 'DELETED'; readonly key: Key; readonly object: T | undefined }
  /** Comes once, when all objects that were there at first have been told. */
  | { readonly type: 'SYNCED' };

export function parse<T>(bytes: Uint8Array): T {
  return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8')) as T;
}

/** What one consumer knows, without a wire. */
export class Follower<T> {
  /** The last key that was told of each object, by its name. */
  readonly #held = new Map<string, Key>();
  #synced = false;
  /** What the snapshot had so far; undefined when none is under way. */
  #snapshot: Set<string> | undefined;
  /** After the last frame that was worked through. */
  #token: Uint8Array = new Uint8Array();
  /** What the last goodbye asks for. */
  waitMs = 0;

  constructor(readonly selection: Selection) {}

  request(): WatchRequest {
    this.waitMs = 0;
    const { selection } = this;
    const start = { case: 'resumeToken', value: this.#token } as const;
    return create(WatchRequestSchema, this.#token.length ? { selection, start } : { selection });
  }

  /**
   * Gives up the token if the error may be of the token, such as one of another cluster. A request that is wrong without
   * one is wrong for good.
   */
  forgets(error: unknown): boolean {
    const explained = explain(error);
    const ofToken = explained?.code === status.INVALID_ARGUMENT || explained?.code === status.OUT_OF_RANGE;
    if (!explained?.reason || !ofToken || !this.#token.length) {
      return false;
    }
    this.#token = new Uint8Array();
    return true;
  }

  *frame({ frame, resumeToken }: WatchResponse): Generator<Event<T>, void, void> {
    switch (frame.case) {
      case 'started':
        if (!frame.value.resumed) {
          this.#snapshot = new Set();
        }
        break;
      case 'reset':
        this.#snapshot = new Set();
        break;
      case 'events':
        for (const event of frame.value.events) {
          yield* this.#event(event);
        }
        break;
      case 'snapshotEnd':
        yield* this.#complete();
        break;
      case 'goodbye':
        this.waitMs = frame.value.retryAfter ? durationMs(frame.value.retryAfter) : 0;
    }
    this.#token = resumeToken; // After the frame was worked through, not before.
  }

  /**
   * What the consumer knows already is not told again: over a reconnect a frame may come twice, and a snapshot has
   * everything.
   */
  *#event(event: WireEvent): Generator<Event<T>, void, void> {
    const key = new Key(
      event.key?.namespace ?? '',
      event.key?.name ?? '',
      event.key?.uid ?? '',
      event.key?.resourceVersion ?? '',
    );
    const name = key.toString();
    let held = this.#held.get(name);
    if (event.type === Event_Type.DELETED) {
      if (held) {
        this.#held.delete(name);
        yield { type: 'DELETED', key, object: parse<T>(event.object) };
      }
      return;
    }
    this.#snapshot?.add(name);
    if (held && held.uid !== key.uid) {
      // It was deleted and made anew while nobody looked.
      this.#held.delete(name);
      yield { type: 'DELETED', key: held, object: undefined };
      held = undefined;
    }
    if (held?.resourceVersion !== key.resourceVersion) {
      this.#held.set(name, key);
      yield { type: held ? 'MODIFIED' : 'ADDED', key, object: parse<T>(event.object) };
    }
  }

  /** The snapshot is complete: what it had not is gone. */
  *#complete(): Generator<Event<T>, void, void> {
    const snapshot = this.#snapshot;
    this.#snapshot = undefined;
    for (const [name, key] of snapshot ? this.#held : []) {
      if (!snapshot?.has(name)) {
        this.#held.delete(name);
        yield { type: 'DELETED', key, object: undefined };
      }
    }
    if (!this.#synced) {
      this.#synced = true;
      yield { type: 'SYNCED' };
    }
  }
}
