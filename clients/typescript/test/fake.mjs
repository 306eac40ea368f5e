// A broker that does what a test says, and values whose leaking would show.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";

import { LeaseClient } from "../dist/index.js";

export const sessionId = "CanarySessionCanarySessionCanarySessionCanA";
export const token = "CanaryTokenCanaryTokenCanaryTokenCanaryTokA";
export const binding = { compactionEpoch: 1, requestEpoch: 2, hSource: "sha256:aa", hPayload: "sha256:bb", schemaVersion: 3 };

/** What a broker answers that grants everything, by action. */
export const granted = {
  register_anchor: `{"ok":true,"session_id":"${sessionId}","runtime_generation":7}\n`,
  authenticate: `{"ok":true,"session_id":"${sessionId}","runtime_generation":7}\n`,
  mint_token: `{"ok":true,"token":"${token}"}\n`,
  consume_token:
    '{"ok":true,"binding":{"compaction_epoch":1,"request_epoch":2,"h_source":"sha256:aa","h_payload":"sha256:bb","schema_version":3}}\n',
};

export const refused = (code) => `{"ok":false,"code":"${code}"}\n`;

const endings = new WeakMap();

/** Does this when the test ends, after what it was told to do later than this. */
export function atEnd(t, action) {
  if (!endings.has(t)) {
    endings.set(t, []);
    t.after(async () => {
      for (const each of endings.get(t).reverse()) await each();
    });
  }
  endings.get(t).push(action);
}

/** A directory of ours that is gone after the test. */
export function scratch(t) {
  const dir = mkdtempSync(join(tmpdir(), "lease-"));
  atEnd(t, () => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** Listens until the end of the test; each connection is handed to the behaviour. */
export async function listen(t, behaviour) {
  const path = join(scratch(t), "broker.sock");
  const open = new Set();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    open.add(socket);
    socket.on("error", () => {}).on("close", () => open.delete(socket));
    behaviour(socket);
  });
  await new Promise((resolve) => server.listen(path, resolve));
  atEnd(t, () => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  return path;
}

/** Reads a request to its end and sends what `answer` returns for it; undefined: nothing, ever. */
export async function answering(t, answer) {
  const requests = [];
  const path = await listen(t, (socket) => {
    const chunks = [];
    socket.on("data", (chunk) => chunks.push(chunk));
    socket.on("end", () => {
      const frame = Buffer.concat(chunks).toString();
      if (frame === "") return socket.end();
      requests.push(frame);
      const bytes = typeof answer === "function" ? answer(JSON.parse(frame), requests.length) : answer;
      if (bytes !== undefined) socket.end(bytes);
    });
  });
  return { path, requests };
}

export function clientOf(socketPath, options = {}) {
  return new LeaseClient({ socketPath, sessionId, generation: 7, timeoutMs: 20_000, ...options });
}

/** The error of a promise that must reject; nothing in it may be secret. */
export async function failure(promise) {
  const error = await promise.then(
    (value) => assert.fail(`resolved: ${inspect(value)}`),
    (reason) => reason,
  );
  assertNoSecret(error);
  return error;
}

export function assertNoSecret(value) {
  const texts = [String(value), JSON.stringify(value), inspect(value, { showHidden: true, depth: null, getters: true })];
  for (let e = value; e instanceof Error; e = e.cause) texts.push(e.message, String(e.stack));
  for (const text of texts) assert.doesNotMatch(text ?? "", /Canary/);
}
