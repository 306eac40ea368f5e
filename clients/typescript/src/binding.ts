import { InputInvalidError } from "./errors.js";

/** What a token is minted for. Who consumes the token gets it back, and compares. */
export interface Binding {
  /** 0 to 2^53-1. */
  readonly compactionEpoch: number;
  /** 0 to 2^53-1. */
  readonly requestEpoch: number;
  /** A digest: 1 to 256 characters of printable ASCII without space. */
  readonly hSource: string;
  /** A digest, likewise. */
  readonly hPayload: string;
  /** 1 to 2^53-1. */
  readonly schemaVersion: number;
}

interface Rule {
  readonly onTheWire: string;
  readonly holds: (value: unknown) => boolean;
  readonly says: string;
}

const epoch = { holds: isCounter, says: "an integer from 0 to 2^53-1" };
const digest = { holds: isDigest, says: "1 to 256 characters of printable ASCII without space" };
const version = { holds: (v: unknown) => isCounter(v) && v !== 0, says: "an integer from 1 to 2^53-1" };

const rules: Readonly<Record<keyof Binding, Rule>> = {
  compactionEpoch: { onTheWire: "compaction_epoch", ...epoch },
  requestEpoch: { onTheWire: "request_epoch", ...epoch },
  hSource: { onTheWire: "h_source", ...digest },
  hPayload: { onTheWire: "h_payload", ...digest },
  schemaVersion: { onTheWire: "schema_version", ...version },
};

/** A generation or an epoch: an integer that every JSON reader holds exactly. */
export function isCounter(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isDigest(value: unknown): value is string {
  return typeof value === "string" && /^[\x21-\x7e]{1,256}$/.test(value);
}

/**
 * The binding as the protocol spells it. A member too many is refused like one
 * too few: the caller believes it bound, and it would not be.
 */
export function encodeBinding(binding: Binding): Record<string, unknown> {
  if (typeof binding !== "object" || binding === null) {
    throw new InputInvalidError("a binding is an object");
  }
  const given = { ...binding };
  const names = Object.keys(rules);
  if (!Object.keys(given).every((name) => names.includes(name))) {
    throw new InputInvalidError(`a binding has these members and no other: ${names.join(", ")}`);
  }
  return Object.fromEntries(
    Object.entries(rules).map(([name, { onTheWire, holds, says }]) => {
      const value = given[name as keyof Binding];
      if (!holds(value)) throw new InputInvalidError(`the binding's ${name} is not ${says}`);
      return [onTheWire, value];
    }),
  );
}

/** The binding that an answer holds, or undefined if it is none. */
export function decodeBinding(value: unknown): Binding | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const received = value as Readonly<Record<string, unknown>>;
  const members = Object.entries(rules).map(([name, { onTheWire }]) => [name, received[onTheWire]] as const);
  if (Object.keys(received).length !== members.length) return undefined;
  if (!members.every(([name, member]) => rules[name as keyof Binding].holds(member))) return undefined;
  return Object.fromEntries(members) as unknown as Binding;
}
