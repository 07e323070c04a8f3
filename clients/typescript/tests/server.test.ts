import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test, type TestContext } from 'node:test';

import * as grpc from '@grpc/grpc-js';

import { find, Server, watch } from '../src/index.js';
import { fake, kept, script, snapshotEnd, started } from './fake.js';

let account = '';
const environment = { ...process.env };

beforeEach(() => {
  account = mkdtempSync(join(tmpdir(), 'informerd-'));
  for (const name of Object.keys(process.env)) {
    if (/^(INFORMERD|KUBERNETES)_/.test(name)) {
      delete process.env[name];
    }
  }
});

afterEach(() => {
  rmSync(account, { recursive: true });
  process.env = { ...environment };
});

function inPod(): void {
  writeFileSync(join(account, 'token'), 'secret\n');
  writeFileSync(join(account, 'ca.crt'), 'a bundle');
}

/** Answers every health check of informerd.v1.Objects with these bytes. */
async function healthy(t: TestContext, answer: number[], credentials: grpc.ServerCredentials): Promise<number> {
  const server = new grpc.Server();
  const bytes = (value: Buffer): Buffer => value;
  const check = {
    path: '/grpc.health.v1.Health/Check', requestStream: false, responseStream: false,
    requestSerialize: bytes, requestDeserialize: bytes, responseSerialize: bytes, responseDeserialize: bytes,
  };
  server.addService({ check }, {
    check: (call: grpc.ServerUnaryCall<Buffer, Buffer>, done: grpc.sendUnaryData<Buffer>) => {
      assert.equal(call.request.toString(), '\n\x14informerd.v1.Objects');
      assert.deepEqual(call.metadata.get('authorization'), [], 'a token was shown before it was known to whom');
      done(null, Buffer.from(answer));
    },
  });
  t.after(() => server.forceShutdown());
  return new Promise((resolve) => server.bindAsync('127.0.0.1:0', credentials, (_, port) => resolve(port)));
}

describe('finding informerd', () => {
  test('who is named gets the token of the pod where it is safe', async () => {
    inPod();
    for (const [address, safe] of [
      ['http://127.0.0.1:8001', true], ['[::1]:8001', true], ['http://localhost:80', true], ['unix:///run/s', true],
      ['https://10.0.0.7:8643', true], ['http://10.0.0.7:8643', false], ['informerd:80', false], ['127.0.0.1.example.com:80', false],
    ] as const) {
      process.env['INFORMERD_ADDRESS'] = address;
      const sent = (await find({}, account)).metadata().get('authorization');
      assert.deepEqual(sent, safe ? ['Bearer secret'] : [], address);
      if (!safe) {
        await assert.rejects(find({ address, tokenFile: 'token' }), /plain text/);
      }
    }
  });

  test('without a name it is a sidecar that gets no token', async () => {
    const found = await find({}, account);
    assert.deepEqual([found.address, found.tokenFile], ['http://127.0.0.1:8001', undefined]);
    inPod();
    const guessed = await find({ probeTimeoutMs: 100 }, account);
    assert.deepEqual([guessed.address, guessed.tokenFile], ['http://127.0.0.1:8001', undefined]);
  });

  test('a pod that is led to informerd goes there', async (t) => {
    inPod();
    const answers = Server.prototype.answers;
    t.after(() => (Server.prototype.answers = answers));
    for (const [host, address] of [['10.0.0.7', 'https://10.0.0.7:8643'], ['fd00::7', 'https://[fd00::7]:8643']] as const) {
      Object.assign(process.env, { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: '8643' });
      Server.prototype.answers = async function () {
        return this.address === address;
      };
      const found = await find({}, account);
      assert.deepEqual(
        [found.address, found.caFile, found.tokenFile],
        [address, join(account, 'ca.crt'), join(account, 'token')],
      );
    }
  });

  test('mistakes are told', async () => {
    for (const wrong of [
      'localhost', 'https://localhost', 'unix://x', 'http://a:1/path', 'ftp://a:1', 'http://:1', 'http://a:x', 'http://a:0', 'a:70000',
      'http://user@a:1',
    ]) {
      await assert.rejects(find({ address: wrong }), /is no address/, wrong);
    }
    await assert.rejects(find({ address: 'off' }), /off/);
  });

  test('only an informerd that is ready answers', async (t) => {
    inPod();
    const insecure = grpc.ServerCredentials.createInsecure();
    const at = async (answer: number[]): Promise<Server> =>
      new Server(`127.0.0.1:${await healthy(t, answer, insecure)}`, { tokenFile: join(account, 'token') });
    assert.equal(await (await at([8, 1])).answers(60_000), true);
    assert.equal(await (await at([8, 2])).answers(60_000), false);
    assert.equal(await (await fake(t)).answers(60_000), false);
    const sockets: Socket[] = [];
    const silent = createServer((socket) => sockets.push(socket)).listen(0, '127.0.0.1');
    t.after(() => [silent.close(), ...sockets.map((socket) => socket.destroy())]);
    await new Promise((resolve) => silent.once('listening', resolve));
    assert.equal(await new Server(`127.0.0.1:${(silent.address() as AddressInfo).port}`).answers(100), false);
  });

  test('the token is read for every stream', async (t) => {
    inPod();
    const tokens: unknown[] = [];
    const server = await fake(t, (call) => {
      tokens.push(call.metadata.get('authorization'));
      return script(started(), snapshotEnd())(call);
    });
    const found = await find({ address: server.address }, account);
    for await (const _ of watch('v1/pods', { server: found, logger: kept() })) {
      break;
    }
    assert.deepEqual(tokens, [['Bearer secret']]);
  });
});
