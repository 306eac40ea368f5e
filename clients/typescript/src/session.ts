/**
 * A session: the id that the broker gave to an anchor, and the generation that
 * the anchor gave itself. The id is a secret, so nothing that prints or copies
 * the object shows it; `sessionId` does.
 */
export class Session {
  readonly #id: string;
  readonly generation: number;

  constructor(sessionId: string, generation: number) {
    this.#id = sessionId;
    this.generation = generation;
  }

  get sessionId(): string {
    return this.#id;
  }

  /** What util.inspect shows, whatever its options are. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `Session { generation: ${this.generation} }`;
  }
}
