/** What each code of the protocol means to the one who is refused. */
const refusals = {
  BUSY: "the broker has too many connections",
  PEER_REFUSED: "the broker takes no requests from this process: another user, another pid namespace, or a connection that somebody else made",
  FRAME_TOO_LARGE: "the request is too large",
  FRAME_MULTIPLE: "the broker got more than one request",
  FRAME_UNTERMINATED: "the broker got half a request",
  DEADLINE_EXCEEDED: "the request took too long and had no effect",
  FRAME_MALFORMED: "the broker cannot read the request",
  SESSION_ID_FORBIDDEN: "a registration cannot name its session",
  ACTION_UNKNOWN: "the broker does not know this action: it may be older than this client",
  REQUEST_INVALID: "the request has members or values that the broker does not take",
  SESSION_UNKNOWN: "there is no such session, or its anchor has exited",
  NOT_DESCENDANT: "this process does not descend from the session's anchor",
  ANCESTRY_CHANGED: "the processes above this one changed while the broker looked at them",
  GENERATION_STALE: "the session has a higher generation by now",
  GENERATION_UNKNOWN: "the session has not reached this generation",
  TOKEN_MALFORMED: "this is no token",
  TOKEN_REPLAY: "the token is not pending: consumed, revoked, or never one of this session and generation",
  TOKEN_CAPACITY: "too many tokens are pending",
  SESSION_CAPACITY: "too many sessions have living anchors",
  STATE_TOO_LARGE: "the broker's state would grow over its bound",
  STATE_UNAVAILABLE: "the broker could not save the change",
  REFUSAL_UNKNOWN: "the broker refused with a code that this client does not know",
} as const;

/**
 * Why the broker refused. `REFUSAL_UNKNOWN` stands for a code that a later
 * broker may have and this client has not.
 */
export type RefusalCode = keyof typeof refusals;

/** What went wrong on this side of the socket. */
export type LocalCode = "INPUT_INVALID" | "SOCKET_UNSAFE" | "BROKER_UNAVAILABLE" | "ANSWER_INVALID" | "OUTCOME_UNKNOWN";

export type LeaseCode = RefusalCode | LocalCode;

/** Refusals for reasons that pass without anybody mending anything. */
const passing: ReadonlySet<RefusalCode> = new Set([
  "BUSY",
  "DEADLINE_EXCEEDED",
  "ANCESTRY_CHANGED",
  "TOKEN_CAPACITY",
  "SESSION_CAPACITY",
  "STATE_TOO_LARGE",
  "STATE_UNAVAILABLE",
] as const);

/** The wire's code as one of ours. */
export function refusalCode(onTheWire: string): RefusalCode {
  return Object.hasOwn(refusals, onTheWire) ? (onTheWire as RefusalCode) : "REFUSAL_UNKNOWN";
}

/**
 * Every error of this package. Neither it nor its cause holds a token, a
 * session id or any other byte of a request or an answer.
 */
export abstract class LeaseError extends Error {
  abstract readonly code: LeaseCode;
  /** The same call can safely be made again, and may succeed another time. */
  abstract readonly retryable: boolean;

  static {
    this.prototype.name = "LeaseError";
  }
}

/** The broker said no. */
export class RefusedError extends LeaseError {
  readonly code: RefusalCode;
  readonly retryable: boolean;

  constructor(code: RefusalCode) {
    super(`${refusals[code]} (${code})`);
    this.code = code;
    this.retryable = passing.has(code);
  }

  static {
    this.prototype.name = "RefusedError";
  }
}

/** An option, an argument or the environment is not usable. Nothing was sent. */
export class InputInvalidError extends LeaseError {
  readonly code = "INPUT_INVALID";
  readonly retryable = false;

  static {
    this.prototype.name = "InputInvalidError";
  }
}

/** Another user could have put the socket there. Nothing was sent. */
export class SocketUnsafeError extends LeaseError {
  readonly code = "SOCKET_UNSAFE";
  readonly retryable = false;

  static {
    this.prototype.name = "SocketUnsafeError";
  }
}

/**
 * No broker runs, or it gave no answer to a request that changes nothing when
 * it is made twice.
 */
export class LeaseUnavailableError extends LeaseError {
  readonly code = "BROKER_UNAVAILABLE";
  readonly retryable = true;

  static {
    this.prototype.name = "LeaseUnavailableError";
  }
}

/** What came back is not an answer of the protocol. */
export class AnswerInvalidError extends LeaseError {
  readonly code = "ANSWER_INVALID";
  readonly retryable = false;

  static {
    this.prototype.name = "AnswerInvalidError";
  }
}

/**
 * A request to mint or to consume was sent, and no answer to it was
 * understood: it may have been carried out. A token that was to be consumed
 * must be taken as spent. `cause` says what happened instead of an answer.
 */
export class OutcomeUnknownError extends LeaseError {
  readonly code = "OUTCOME_UNKNOWN";
  readonly retryable = false;

  static {
    this.prototype.name = "OutcomeUnknownError";
  }
}
