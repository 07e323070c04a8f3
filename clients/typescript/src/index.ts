/**
 * Reads the caches of informerd by gRPC: `watch` tells the changes of a selection, a `Cache` keeps its objects, and a `Queue`
 * hands its keys to handlers. Each goes on by itself when the connection is lost or informerd is restarted, and ends with an
 * `InformerdError` when trying again cannot help.
 */
export { Cache, type CacheOptions } from './cache.js';
export { Queue, type Handler, type Item, type QueueOptions, type RequeueAfter } from './queue.js';
export { InformerdError, type Logger } from './retry.js';
export type { Selected } from './selection.js';
export { find, Server, type Found } from './server.js';
export { Key, type Event, type KubernetesObject } from './follower.js';
export { watch, type WatchOptions } from './watch.js';
