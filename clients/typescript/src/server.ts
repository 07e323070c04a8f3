import { existsSync, readFileSync } from 'node:fs';
import { BlockList, isIP } from 'node:net';

import { Client, credentials, Metadata, type ChannelCredentials, type ClientOptions } from '@grpc/grpc-js';

const SIDECAR = 'http://127.0.0.1:8001';
const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';

const OPTIONS: ClientOptions = {
  'grpc.max_receive_message_length': 64 << 20, // An object may be larger than gRPC's 4 MiB.
  'grpc.keepalive_time_ms': 30_000,
  'grpc.keepalive_timeout_ms': 20_000,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 5_000,
  'grpc.primary_user_agent': 'informerd-typescript',
  'grpc.enable_http_proxy': 0, // informerd is near, and a proxy must not see the token.
};

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8);
LOOPBACK.addAddress('::1', 'ipv6');

interface Files {
  /** The CA of an https:// address, in PEM; without it, those that Node brings. */
  caFile?: string | undefined;
  /** A file with a bearer token. */
  tokenFile?: string | undefined;
}

/** What `find` looks for. Each stands before the variable of the same meaning. */
export interface Found extends Files {
  /** http://ADDRESS:PORT, https://ADDRESS:PORT or unix:///PATH. */
  address?: string;
  /** How long to wait for an informerd to answer, by default a second. */
  probeTimeoutMs?: number;
}

/** An informerd. A token is never sent in plain text to another machine. Both files are read for every stream. */
export class Server {
  readonly address: string;
  readonly caFile: string | undefined;
  readonly tokenFile: string | undefined;
  /** Whether a token may be sent there. */
  readonly safe: boolean;
  readonly #target: string;
  readonly #secure: boolean;

  constructor(address: string, files: Files = {}) {
    this.address = address.includes('://') ? address : `http://${address}`;
    this.caFile = files.caFile;
    this.tokenFile = files.tokenFile;
    const [, scheme, host, port] = /^(https?):\/\/(\[[^\]/]+\]|[^[\]/:@?#]+):(\d+)\/*$/.exec(this.address) ?? [];
    const socket = this.address.startsWith('unix:///');
    if (!socket && !(scheme && host && Number(port) > 0 && Number(port) < 65536)) {
      throw new TypeError(
        `${JSON.stringify(address)} is no address: want http://ADDRESS:PORT, https://ADDRESS:PORT or unix:///PATH`,
      );
    }
    this.#secure = scheme === 'https';
    this.#target = socket ? this.address : `${host}:${port}`;
    this.safe = socket || this.#secure || isLoopback((host ?? '').replace(/[[\]]/g, ''));
    if (this.tokenFile && !this.safe) {
      throw new TypeError(`${this.address}: a token is not sent in plain text to another machine; use https`);
    }
  }

  /** A connection for the stubs in `informerd/v1`. Calls take `server.metadata()`. */
  client(): Client {
    return new Client(this.#target, this.#credentials(), OPTIONS);
  }

  /** The token, as its file has it now, for requests to `address` that are not of gRPC. */
  headers(): Record<string, string> {
    return this.tokenFile ? { authorization: `Bearer ${readFileSync(this.tokenFile, 'utf8').trim()}` } : {};
  }

  /** The same for calls of the stubs. */
  metadata(): Metadata {
    return Metadata.fromHttp2Headers(this.headers());
  }

  /** Whether an informerd is there and ready. No credentials are shown to what might be something else. */
  async answers(timeoutMs: number): Promise<boolean> {
    const client = this.client();
    // grpc.health.v1.Health/Check of "informerd.v1.Objects", whose answer is SERVING. Nobody else has that service.
    const request = Buffer.concat([Buffer.from([0x0a, 20]), Buffer.from('informerd.v1.Objects')]);
    const bytes = (message: Buffer): Buffer => message;
    const deadline = Date.now() + timeoutMs;
    const answer = await new Promise<Buffer | undefined>((resolve) => {
      client.makeUnaryRequest('/grpc.health.v1.Health/Check', bytes, bytes, request, { deadline }, (_, found) =>
        resolve(found),
      );
    });
    client.close();
    return answer?.equals(Buffer.from([8, 1])) ?? false;
  }

  #credentials(): ChannelCredentials {
    if (!this.#secure) {
      return credentials.createInsecure();
    }
    return credentials.createSsl(this.caFile ? readFileSync(this.caFile) : null);
  }
}

function isLoopback(host: string): boolean {
  const family = isIP(host);
  return host === 'localhost' || (family !== 0 && LOOPBACK.check(host, family === 6 ? 'ipv6' : 'ipv4'));
}

/**
 * The informerd that the arguments or INFORMERD_ADDRESS, INFORMERD_CA_FILE and INFORMERD_TOKEN_FILE name.
 *
 * Without an address it is a sidecar at http://127.0.0.1:8001, or else the pod's in-cluster address if an informerd answers
 * there. The token and CA of the pod's service account are the defaults for an address that was named; a sidecar that was
 * only guessed gets no credentials.
 *
 * `account` is the directory of the pod's service account.
 */
export async function find(wanted: Found = {}, account = ACCOUNT): Promise<Server> {
  const ofPod = (name: string): string | undefined => {
    const path = `${account}/${name}`;
    return existsSync(path) ? path : undefined;
  };
  const environment = process.env;
  const address = wanted.address || environment['INFORMERD_ADDRESS'];
  const caFile = wanted.caFile || environment['INFORMERD_CA_FILE'] || ofPod('ca.crt');
  const given = wanted.tokenFile || environment['INFORMERD_TOKEN_FILE'] || undefined;
  const token = ofPod('token');
  if (address === 'off') {
    throw new TypeError("INFORMERD_ADDRESS is 'off'");
  }
  if (address) {
    const named = new Server(address, { caFile, tokenFile: given });
    return !given && named.safe ? new Server(address, { caFile, tokenFile: token }) : named;
  }
  const guess = new Server(SIDECAR, { caFile, tokenFile: given });
  const host = environment['KUBERNETES_SERVICE_HOST'];
  const port = environment['KUBERNETES_SERVICE_PORT'];
  const timeout = wanted.probeTimeoutMs ?? 1000;
  if (host && port && token && !(await guess.answers(timeout))) {
    const led = new Server(`https://${host.includes(':') ? `[${host}]` : host}:${port}`, { caFile, tokenFile: given ?? token });
    if (await led.answers(timeout)) {
      return led;
    }
  }
  return guess;
}
