import { Socket } from "node:net";

import { maxFrame } from "./answer.js";

/** What became of one connection. */
export interface Exchange {
  /** Whether a connection was made: only then can the request have arrived. */
  readonly connected: boolean;
  /** What was received; over {@link maxFrame} bytes only if there was too much. */
  readonly received: Uint8Array;
  /** Why it ended, if not by the end of the stream. */
  readonly fault?: unknown;
}

export interface Bounds {
  /** The time of `performance.now()` at which to give up. */
  readonly deadline: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Sends one frame, half-closes and reads until the other end closes. Bytes
 * that were received count even if writing, or then reading, failed: a broker
 * may refuse and close before it has read the request.
 */
export function exchange(path: string, frame: string, { deadline, signal }: Bounds): Promise<Exchange> {
  return new Promise((resolve) => {
    const socket = new StubbornSocket({ allowHalfOpen: true });
    const chunks: Buffer[] = [];
    let connected = false;
    let size = 0;

    const end = (fault?: unknown): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      socket.destroy();
      resolve({ connected, received: Buffer.concat(chunks), fault });
    };
    // A process that was stopped finds its time over while the answer lies in
    // the socket, so we look there once more.
    const giveUp = (fault: unknown): void => {
      if (connected) setImmediate(() => setImmediate(() => end(fault)));
      else end(fault);
    };
    const expire = (): void => giveUp(Object.assign(new Error("the time for this call is over"), { code: "ETIMEDOUT" }));
    const abort = (): void => giveUp(signal?.reason);

    const timer = setTimeout(expire, Math.max(0, deadline - performance.now()));
    signal?.addEventListener("abort", abort);
    socket
      .on("error", end)
      .on("end", () => end())
      .on("connect", () => (connected = true))
      .on("data", (chunk: Buffer) => {
        chunks.push(chunk);
        size += chunk.length;
        if (size > maxFrame) end();
      })
      .connect(path)
      .end(frame);
  });
}

/** A socket that goes on reading when nobody reads what it writes. */
class StubbornSocket extends Socket {
  override _write(chunk: unknown, encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    super._write(chunk, encoding, () => done());
  }
}
