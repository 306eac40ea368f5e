import { binding, judge, maxFrame, session, token, type Grant } from "./answer.js";
import { encodeBinding, isCounter, type Binding } from "./binding.js";
import { AnswerInvalidError, InputInvalidError, LeaseUnavailableError, OutcomeUnknownError, RefusedError } from "./errors.js";
import { exchange, type Bounds } from "./exchange.js";
import { checkSocket, defaultSocket, parseGeneration, readGeneration, socketPath, unreachable, type Environment } from "./place.js";
import type { Session } from "./session.js";

export interface LeaseOptions {
  /** Where the broker listens; by default where the environment says. */
  readonly socketPath?: string | undefined;
  /** The session that this process belongs to; not needed to register one. */
  readonly sessionId?: string | undefined;
  readonly generation?: number | undefined;
  /** Bounds each call, its retries included [10000]. */
  readonly timeoutMs?: number | undefined;
  /** How often a call is made again when the broker was busy, or the processes above us changed: 0 to 3 [3]. */
  readonly retries?: number | undefined;
}

export interface CallOptions {
  /** Ends the call. A mint or a consumption that was sent already ends as an OutcomeUnknownError. */
  readonly signal?: AbortSignal | undefined;
}

type Action = "register_anchor" | "authenticate" | "mint_token" | "consume_token";

/** Who asks: the members that all requests but a registration begin with. */
interface Identity {
  readonly sessionId: string;
  readonly generation: number;
}

/**
 * Asks the lease broker. It holds no connection: every call makes one, and
 * calls can run side by side. They reject with a LeaseError, or, when
 * aborted before anything was sent, with the reason of the signal.
 */
export class LeaseClient {
  readonly #path: string;
  readonly #timeout: number;
  readonly #retries: number;
  #sessionId: string | undefined;
  /** A function where it can change from call to call. */
  #generation: number | (() => number) | undefined;

  /** @throws InputInvalidError */
  constructor(options: LeaseOptions = {}) {
    const { sessionId, generation, timeoutMs = 10_000, retries = 3 } = options;
    if (sessionId !== undefined && typeof sessionId !== "string") throw new InputInvalidError("sessionId is not a string");
    if (generation !== undefined) checkGeneration(generation);
    if (!Number.isSafeInteger(timeoutMs) || timeoutMs < 1 || timeoutMs > 2 ** 31 - 1) {
      throw new InputInvalidError("timeoutMs is not an integer from 1 to 2^31-1");
    }
    if (!Number.isSafeInteger(retries) || retries < 0 || retries > 3) {
      throw new InputInvalidError("retries is not an integer from 0 to 3");
    }
    this.#path = socketPath(options.socketPath ?? (process.env["SPENDONCE_SOCKET"] || defaultSocket(process.env)));
    this.#timeout = timeoutMs;
    this.#retries = retries;
    this.#sessionId = sessionId;
    this.#generation = generation;
  }

  /**
   * The client for what `spendonce lease run` put into the environment. A
   * generation file wins over the variable, and is read at each call.
   *
   * @throws InputInvalidError
   */
  static fromEnvironment(env: Environment = process.env): LeaseClient {
    const client = new LeaseClient({
      socketPath: env["SPENDONCE_SOCKET"] || defaultSocket(env),
      sessionId: env["SPENDONCE_SESSION_ID"] || undefined,
    });
    const file = env["SPENDONCE_GENERATION_FILE"];
    const variable = env["SPENDONCE_GENERATION"];
    if (file) client.#generation = () => readGeneration(file);
    else if (variable) client.#generation = parseGeneration(variable, "SPENDONCE_GENERATION");
    return client;
  }

  /**
   * Makes this process the anchor of a session, which this client then uses.
   * The same generation again gives the same session; a higher one keeps its
   * id and revokes all its tokens; a lower one is refused as GENERATION_STALE.
   * The session ends when this process does.
   */
  async registerAnchor(generation: number, options?: CallOptions): Promise<Session> {
    checkGeneration(generation);
    const members = { runtime_generation: generation };
    const registered = await this.#call("register_anchor", members, session({ generation }), options);
    this.#sessionId = registered.sessionId;
    this.#generation = generation;
    return registered;
  }

  /**
   * Proves that this process is the anchor of the session or descends from it,
   * and that the session has this generation. It changes nothing.
   */
  async authenticate(options?: CallOptions): Promise<Session> {
    const identity = this.#identity();
    return this.#call("authenticate", wire(identity), session(identity), options);
  }

  /**
   * Returns a token for the binding, which one process of the session can
   * consume, once, while the session has this generation.
   */
  async mint(bound: Binding, options?: CallOptions): Promise<string> {
    const members = { ...wire(this.#identity()), binding: encodeBinding(bound) };
    return this.#call("mint_token", members, token, options);
  }

  /**
   * Spends a token and returns what it was minted for. Of all calls for one
   * token, in all processes, at most one resolves. After an
   * {@link OutcomeUnknownError} the token must be taken as spent.
   */
  async consume(spent: string, options?: CallOptions): Promise<Binding> {
    if (typeof spent !== "string") throw new InputInvalidError("a token is a string");
    return this.#call("consume_token", { ...wire(this.#identity()), token: spent }, binding, options);
  }

  /**
   * The variables from which {@link fromEnvironment} makes a client of the same
   * session in a child process. They hold the session id.
   */
  environment(): Record<string, string | undefined> {
    const { sessionId, generation } = this.#identity();
    return {
      SPENDONCE_SOCKET: this.#path,
      SPENDONCE_SESSION_ID: sessionId,
      SPENDONCE_GENERATION: String(generation),
      SPENDONCE_GENERATION_FILE: undefined, // an outer session's, which would win
    };
  }

  #identity(): Identity {
    if (this.#sessionId === undefined || this.#generation === undefined) {
      const missing = this.#sessionId === undefined ? "no session" : "no generation";
      throw new InputInvalidError(`${missing}: register an anchor, or start this program with \`spendonce lease run -- COMMAND\``);
    }
    return {
      sessionId: this.#sessionId,
      generation: typeof this.#generation === "function" ? this.#generation() : this.#generation,
    };
  }

  /** Asks, and asks again where a refusal says that a moment later it may be granted. */
  async #call<T>(action: Action, members: object, grant: Grant<T>, { signal }: CallOptions = {}): Promise<T> {
    const frame = `${JSON.stringify({ action, ...members })}\n`;
    if (Buffer.byteLength(frame) > maxFrame) throw new InputInvalidError(`the request has over ${maxFrame} bytes`);
    const bounds = { deadline: performance.now() + this.#timeout, signal };
    for (let attempt = 0; ; attempt++) {
      try {
        signal?.throwIfAborted();
        return await this.#ask(action, frame, grant, bounds);
      } catch (error) {
        // 10, 20, 40 ms and as much again by chance: those who were turned
        // away together must not come back together.
        const pause = 10 * 2 ** attempt * (1 + Math.random());
        if (!isPassing(error) || attempt >= this.#retries || performance.now() + pause >= bounds.deadline) throw error;
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
  }

  /** Asks once. */
  async #ask<T>(action: Action, frame: string, grant: Grant<T>, bounds: Bounds): Promise<T> {
    checkSocket(this.#path);
    const { connected, received, fault } = await exchange(this.#path, frame, bounds);
    if (!connected) {
      if (bounds.signal?.aborted) throw fault;
      // The queue of connections is full.
      if ((fault as NodeJS.ErrnoException).code === "EAGAIN") throw new RefusedError("BUSY");
      throw unreachable(this.#path, fault);
    }
    const verdict = judge(received, grant);
    if ("granted" in verdict) return verdict.granted;
    if ("refused" in verdict) throw new RefusedError(verdict.refused);

    const cause = bounds.signal?.aborted ? fault : noAnswer(fault, received, verdict.flaw);
    switch (action) {
      case "mint_token":
        throw new OutcomeUnknownError("it is not known whether a token was minted: the request was sent, and no answer understood", { cause });
      case "consume_token":
        throw new OutcomeUnknownError("the token must be taken as spent: the request was sent, and no answer understood", { cause });
      default:
        throw cause;
    }
  }
}

/** Whether nothing was done, and a moment later it may be granted. */
function isPassing(error: unknown): boolean {
  if (error instanceof RefusedError) return error.code === "BUSY" || error.code === "ANCESTRY_CHANGED";
  // So Bun reports a connection that was answered and closed before anything
  // was sent. A mint or consumption that was sent ends as another error.
  return error instanceof LeaseUnavailableError && (error.cause as NodeJS.ErrnoException | undefined)?.code === "ECONNRESET";
}

/** Why there is no verdict of the broker. */
function noAnswer(fault: unknown, received: Uint8Array, flaw: string): Error {
  if (fault === undefined && received.length > 0) {
    return new AnswerInvalidError(`what the broker answered breaks the protocol: ${flaw}`);
  }
  const how = (fault as NodeJS.ErrnoException | undefined)?.code ?? "it closed the connection";
  return new LeaseUnavailableError(`the broker gave no answer (${how})`, fault === undefined ? {} : { cause: fault });
}

function wire({ sessionId, generation }: Identity): object {
  return { session_id: sessionId, runtime_generation: generation };
}

function checkGeneration(generation: unknown): void {
  if (!isCounter(generation)) throw new InputInvalidError("a generation is an integer from 0 to 2^53-1");
}
