/** A server that answers each call by the next of its scripts, and holds what comes after the last one open. */
import type { TestContext } from 'node:test';

import { create, toBinary, type MessageInitShape } from '@bufbuild/protobuf';
import { anyPack } from '@bufbuild/protobuf/wkt';
import * as grpc from '@grpc/grpc-js';

import { ErrorInfoSchema } from '../src/generated/google/rpc/error_details_pb.js';
import { StatusSchema } from '../src/generated/google/rpc/status_pb.js';
import { Server, type Logger } from '../src/index.js';
import { Event_Type, Objects, Queue, serviceOf, WatchResponseSchema, type WatchRequest, type WatchResponse } from '../src/v1.js';

export interface Call<Request, Response> {
  request: Request;
  metadata: grpc.Metadata;
  /** The next request of a stream. */
  next(): Promise<Request>;
  send(response: Response): void;
  end(): void;
  fail(code: grpc.status, reason?: string): void;
}

export type Script<Request, Response> = (call: Call<Request, Response>) => void | Promise<void>;
export type WatchScript = Script<WatchRequest, WatchResponse>;

export async function fake(test: TestContext, ...scripts: Script<any, any>[]): Promise<Server> {
  const left = [...scripts];
  const server = new grpc.Server();
  const answer = (call: any): void => {
    const waiting: ((request: unknown) => void)[] = [];
    const come: unknown[] = [];
    call.on('error', () => {});
    if (!call.request) {
      call.on('data', (request: unknown) => (waiting.length ? waiting.shift()?.(request) : come.push(request)));
    }
    void left.shift()?.({
      request: call.request,
      metadata: call.metadata,
      next: () => new Promise((resolve) => (come.length ? resolve(come.shift()) : waiting.push(resolve))),
      send: (response: unknown) => call.write(response),
      end: () => call.end(),
      fail: (code: grpc.status, reason?: string) => call.emit('error', refusal(code, reason)),
    });
  };
  server.addService(serviceOf(Objects), { watch: answer });
  server.addService(serviceOf(Queue), { work: answer });
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    ),
  );
  test.after(() => server.forceShutdown());
  return new Server(`http://127.0.0.1:${port}`);
}

function refusal(code: grpc.status, reason: string | undefined): Partial<grpc.StatusObject> {
  const metadata = new grpc.Metadata();
  if (reason) {
    const details = [anyPack(ErrorInfoSchema, create(ErrorInfoSchema, { domain: 'informerd.io', reason }))];
    const status = toBinary(StatusSchema, create(StatusSchema, { code, message: 'no', details }));
    metadata.set('grpc-status-details-bin', Buffer.from(status));
  }
  return { code, details: 'no', metadata };
}

export function script(...frames: WatchResponse[]): WatchScript {
  return (call) => frames.forEach((frame) => call.send(frame));
}

export function broken(...frames: WatchResponse[]): WatchScript {
  return (call) => {
    frames.forEach((frame) => call.send(frame));
    // After what was written.
    setImmediate(() => call.fail(grpc.status.UNAVAILABLE));
  };
}

export function refused(code: grpc.status, reason?: string): Script<any, any> {
  return (call) => call.fail(code, reason);
}

function frame(frame: MessageInitShape<typeof WatchResponseSchema>['frame'], token: string): WatchResponse {
  return create(WatchResponseSchema, { resumeToken: Buffer.from(token), frame: frame as WatchResponse['frame'] });
}

export const started = (resumed = false): WatchResponse => frame({ case: 'started', value: { resumed } }, '');
export const reset = (): WatchResponse => frame({ case: 'reset', value: {} }, '');
export const snapshotEnd = (): WatchResponse => frame({ case: 'snapshotEnd', value: {} }, 'snapshot');
export const goodbye = (token: string): WatchResponse => frame({ case: 'goodbye', value: {} }, token);

/** "+a1" "~a2" "-a3": what happened to object a at which revision; "+a1/x": of the uid x. */
export function events(token: string, ...changes: string[]): WatchResponse {
  const made = changes.map((change) => {
    const [what = '', uid] = change.split('/');
    const type = { '+': Event_Type.ADDED, '~': Event_Type.MODIFIED, '-': Event_Type.DELETED }[what[0] as '+' | '~' | '-'];
    const [name, resourceVersion] = [what.slice(1, 2), what.slice(2)];
    const key = { namespace: 'n', name, uid: uid ?? name, resourceVersion };
    return { type, key, object: pod(name, key.uid, resourceVersion) };
  });
  return frame({ case: 'events', value: { events: made } }, token);
}

export function pod(name: string, uid: string, resourceVersion: string): Buffer {
  return Buffer.from(JSON.stringify({ metadata: { namespace: 'n', name, uid, resourceVersion }, spec: { nodeName: 'ä' } }));
}

/** A logger that keeps its lines. */
export function kept(): Logger & { lines: string[] } {
  const lines: string[] = [];
  const keep = (line: string): void => void lines.push(line);
  return { lines, warn: keep, error: keep };
}
