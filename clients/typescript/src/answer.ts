import { decodeBinding, isCounter, type Binding } from "./binding.js";
import { refusalCode, type RefusalCode } from "./errors.js";
import { Session } from "./session.js";

/** The most bytes that a request or an answer has, its newline included. */
export const maxFrame = 65_536;

/** What an answer says: what was asked for, or a refusal; or why it is no answer. */
export type Verdict<T> = { readonly granted: T } | { readonly refused: RefusalCode } | { readonly flaw: string };

type Members = Readonly<Record<string, unknown>>;

/** Takes what was asked for out of an answer; undefined if it is not there. */
export type Grant<T> = (members: Members) => T | undefined;

/**
 * Judges all the bytes that the broker sent. One object on one line is an
 * answer, with each name once and with numbers spelled as the protocol spells
 * them. Members and codes that only a later broker has are no flaw.
 */
export function judge<T>(bytes: Uint8Array, grant: Grant<T>): Verdict<T> {
  if (bytes.length === 0) return { flaw: "it is empty" };
  if (bytes.length > maxFrame) return { flaw: "it is too long" };
  const end = bytes.indexOf(0x0a);
  if (end === -1) return { flaw: "it is cut off" };
  if (end !== bytes.length - 1) return { flaw: "more follows its line" };

  const members = readObject(bytes.subarray(0, end));
  if (members === undefined) return { flaw: "it is not one JSON object of the protocol's form" };
  if (members["ok"] === false && typeof members["code"] === "string") return { refused: refusalCode(members["code"]) };
  if (members["ok"] !== true || "code" in members) return { flaw: "it neither grants nor refuses" };
  const granted = grant(members);
  return granted === undefined ? { flaw: "it does not grant what was asked for" } : { granted };
}

function readObject(line: Uint8Array): Members | undefined {
  let value: unknown;
  let names = 0;
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(line);
    value = JSON.parse(text, function (this: unknown, _name: string, member: unknown) {
      if (!Array.isArray(this)) names++;
      return member;
    });
  } catch {
    return undefined; // the error quotes the answer
  }
  if (!text.startsWith("{") || !text.endsWith("}")) return undefined;
  const bare = text.replace(/"[^"\\]*(?:\\.[^"\\]*)*"/g, "");
  // Of equal names JSON.parse keeps the last one; every one has its colon. The
  // whole value was counted as a member, too.
  if (bare.replace(/[^:]/g, "").length !== names - 1) return undefined;
  // 1.0, 1e0 and -0 would be read as integers.
  if (/[-.]|\d[eE]/.test(bare)) return undefined;
  return value as Members;
}

/** 256 bits in base64url: 43 characters, and the last one has two bits to spare. */
function isId(value: unknown): value is string {
  return typeof value === "string" && /^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/.test(value);
}

/** The session of a registration or an authentication, if it is the one that was asked for. */
export function session(expected: { readonly sessionId?: string; readonly generation: number }): Grant<Session> {
  return ({ session_id: id, runtime_generation: generation }) => {
    if (!isId(id) || (expected.sessionId !== undefined && id !== expected.sessionId)) return undefined;
    if (!isCounter(generation) || generation !== expected.generation) return undefined;
    return new Session(id, generation);
  };
}

export const token: Grant<string> = (members) => (isId(members["token"]) ? members["token"] : undefined);

export const binding: Grant<Binding> = (members) => decodeBinding(members["binding"]);
