import { fromBinary } from '@bufbuild/protobuf';
import { anyUnpack, durationMs } from '@bufbuild/protobuf/wkt';
import { status, type ServiceError } from '@grpc/grpc-js';

import { ErrorInfoSchema, RetryInfoSchema } from './generated/google/rpc/error_details_pb.js';
import { StatusSchema } from './generated/google/rpc/status_pb.js';

const FIRST_DELAY = 200;
/** Also of what an error asks for: a client that is told to wait for longer would seem to hang. */
const LONGEST_DELAY = 10_000;
/** An outage is told of when it begins, this often while it lasts, and when it is over. */
export const REMINDER = 30_000;

const PERMANENT: readonly status[] = [
  status.INVALID_ARGUMENT,
  status.NOT_FOUND,
  status.PERMISSION_DENIED,
  status.UNIMPLEMENTED,
];
/** What this informerd is configured not to cache. The other reasons of FAILED_PRECONDITION pass. */
const NOT_CACHED: readonly string[] = ['EXCLUDED', 'NOT_READABLE', 'AGGREGATED', 'OUT_OF_SCOPE', 'UNSUPPORTED'];

/** Takes what is told of outages, retries and failed handlers. */
export interface Logger {
  warn(message: string): void;
  error(message: string): void;
}

/** Trying again does not help against it, such as a misspelt resource. */
export class InformerdError extends Error {
  override readonly name = 'InformerdError';

  constructor(
    message: string,
    readonly code: status,
    /** Of informerd's ErrorInfo, such as UNKNOWN_RESOURCE. */
    readonly reason: string,
    cause: unknown,
  ) {
    super(message, { cause });
  }
}

/** A stream said nothing for too long. */
export class Silence extends Error {}

interface Explained {
  code: status;
  message: string;
  /** Of informerd's ErrorInfo. Without it, an error is the library's or a proxy's word on the connection. */
  reason: string | undefined;
  /** The time of the RetryInfo. */
  askedMs: number;
}

/** `undefined` for an error that is neither of a call, nor of its silence, nor of a file: a mistake in a program, not to be tried again. */
export function explain(error: unknown): Explained | undefined {
  if (!(error instanceof Error)) {
    return undefined;
  }
  if ('syscall' in error || error instanceof Silence) {
    return { code: status.UNKNOWN, message: error.message, reason: undefined, askedMs: 0 };
  }
  if (!('metadata' in error && 'details' in error)) {
    return undefined;
  }
  const { code, details, metadata } = error as ServiceError;
  const explained: Explained = { code, message: details, reason: undefined, askedMs: 0 };
  for (const value of metadata.get('grpc-status-details-bin')) {
    for (const detail of fromBinary(StatusSchema, Buffer.from(value)).details) {
      const info = anyUnpack(detail, ErrorInfoSchema);
      if (info?.domain === 'informerd.io') {
        explained.reason = info.reason;
      }
      const retry = anyUnpack(detail, RetryInfoSchema);
      if (retry?.retryDelay) {
        explained.askedMs = durationMs(retry.retryDelay);
      }
    }
  }
  return explained;
}

function permanent({ code, reason }: Explained, refreshable: boolean): boolean {
  if (reason === undefined) {
    return false;
  }
  if (code === status.UNAUTHENTICATED) {
    return !refreshable;
  }
  return PERMANENT.includes(code) || (code === status.FAILED_PRECONDITION && NOT_CACHED.includes(reason));
}

/** The errors of one watch or queue. */
export class Retry {
  #delay = FIRST_DELAY;
  #began = 0;
  readonly #outage: Outage;
  readonly #refused: Outage;

  constructor(
    readonly address: string,
    readonly what: string,
    /** Another try may succeed where credentials are refused. */
    readonly refreshable: boolean,
    logger: Logger,
  ) {
    this.#outage = outageOf(address, logger);
    this.#refused = new Outage(`${what} at ${address}`, 'fails', 'goes on', logger);
  }

  /** A stream is about to be opened. */
  begins(): void {
    this.#began = performance.now();
  }

  /** informerd has answered on it. */
  alive(): void {
    this.#outage.over();
    this.#refused.over();
  }

  /** How long to wait before the next stream. */
  afterGoodbye(askedMs: number): number {
    this.#settle();
    return Math.max(Math.random() * FIRST_DELAY, Math.min(askedMs, LONGEST_DELAY));
  }

  /** The same, or throws an error that trying again does not help against. */
  afterError(error: unknown): number {
    const explained = explain(error);
    if (!explained) {
      throw error;
    }
    const { code, message, reason, askedMs } = explained;
    if (permanent(explained, this.refreshable)) {
      const hint =
        reason === 'UNKNOWN_RESOURCE'
          ? ' (is it spelt as in `kubectl api-resources`: group, version, and the plural name in lower case?)'
          : '';
      const text = `informerd at ${this.address}, ${this.what}: ${status[code]}: ${message}${hint}`;
      throw new InformerdError(text, code, reason ?? '', error);
    }
    this.#settle();
    (reason === undefined ? this.#outage : this.#refused).failed(`${status[code]}: ${message}`);
    // Clients that were cut off together do not come back together.
    const wait = this.#delay / 2 + Math.random() * this.#delay;
    this.#delay = Math.min(2 * this.#delay, LONGEST_DELAY);
    return Math.max(wait, Math.min(askedMs, LONGEST_DELAY));
  }

  #settle(): void {
    if (performance.now() - this.#began > LONGEST_DELAY) {
      this.#delay = FIRST_DELAY; // It went well for a while.
    }
  }
}

/** What is wrong for now, told of seldom. */
class Outage {
  #since: number | undefined;
  #told = 0;
  #attempts = 0;

  constructor(
    readonly what: string,
    readonly fails: string,
    readonly recovers: string,
    readonly logger: Logger,
  ) {}

  failed(error: string): void {
    const now = performance.now();
    this.#attempts += 1;
    if (this.#since === undefined) {
      this.#since = this.#told = now;
      this.logger.warn(`${this.what} ${this.fails}; trying again: ${error}`);
    } else if (now - this.#told >= REMINDER) {
      this.#told = now;
      const seconds = Math.round((now - this.#since) / 1000);
      this.logger.warn(`${this.what} still ${this.fails} after ${seconds} s and ${this.#attempts} attempts: ${error}`);
    }
  }

  over(): void {
    if (this.#since !== undefined) {
      const seconds = ((performance.now() - this.#since) / 1000).toFixed(1);
      this.logger.warn(`${this.what} ${this.recovers} after ${seconds} s`);
    }
    this.#since = undefined;
    this.#attempts = 0;
  }
}

const outages = new WeakMap<Logger, Map<string, Outage>>();

/** What all watches and queues of an address suffer from is told once to each logger. */
function outageOf(address: string, logger: Logger): Outage {
  const known = outages.get(logger) ?? new Map<string, Outage>();
  outages.set(logger, known);
  const outage = known.get(address) ?? new Outage(`informerd at ${address}`, 'does not answer', 'answers again', logger);
  known.set(address, outage);
  return outage;
}
