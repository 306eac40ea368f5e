import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, mkdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { InputInvalidError, LeaseClient } from "../dist/index.js";
import { answering, atEnd, failure, granted, scratch, sessionId, token } from "./fake.mjs";

const from = (socket, env) => LeaseClient.fromEnvironment({ SPENDONCE_SOCKET: socket, SPENDONCE_SESSION_ID: sessionId, ...env });

/** Which generation a client sends. */
async function sent(t, env) {
  const { path, requests } = await answering(t, granted.consume_token);
  await from(path, env).consume(token);
  assert.equal(JSON.parse(requests[0]).session_id, sessionId);
  return JSON.parse(requests[0]).runtime_generation;
}

test("the environment names the session and its generation", async (t) => {
  assert.equal(await sent(t, { SPENDONCE_GENERATION: "0" }), 0);
  assert.equal(await sent(t, { SPENDONCE_GENERATION: "9007199254740991", SPENDONCE_GENERATION_FILE: "" }), 2 ** 53 - 1);
});

test("process.env is the environment", async (t) => {
  const { path, requests } = await answering(t, granted.consume_token);
  const before = { ...process.env };
  atEnd(t, () => {
    process.env = before;
  });
  Object.assign(process.env, { SPENDONCE_SOCKET: path, SPENDONCE_SESSION_ID: sessionId, SPENDONCE_GENERATION: "5" });
  await LeaseClient.fromEnvironment().consume(token);
  await new LeaseClient({ sessionId, generation: 5 }).consume(token);
  assert.equal(requests[0], requests[1]);
});

test("a generation that is spelled otherwise is refused", () => {
  for (const text of ["-1", "+1", "01", "1.0", "1e3", " 1", "1 ", "1\n", "0x1", "x", "9007199254740992", "1".repeat(400), token]) {
    assert.throws(
      () => from("/run/s", { SPENDONCE_GENERATION: text }),
      (error) => error instanceof InputInvalidError && !error.message.includes(token),
    );
  }
});

test("what is missing in the environment is named when it is needed", async (t) => {
  const { path, requests } = await answering(t, ({ action }) => granted[action]);
  for (const [env, missing] of [
    [{ SPENDONCE_SOCKET: path }, /no session/],
    [{ SPENDONCE_SOCKET: path, SPENDONCE_SESSION_ID: "", SPENDONCE_GENERATION: "1" }, /no session/],
    [{ SPENDONCE_SOCKET: path, SPENDONCE_SESSION_ID: sessionId }, /no generation/],
    [{ SPENDONCE_SOCKET: path, SPENDONCE_SESSION_ID: sessionId, SPENDONCE_GENERATION: "" }, /no generation/],
  ]) {
    const client = LeaseClient.fromEnvironment(env);
    const error = await failure(client.authenticate());
    assert.ok(error instanceof InputInvalidError);
    assert.match(error.message, missing);
    assert.match(error.message, /spendonce lease run/);
    assert.throws(() => client.environment(), InputInvalidError);
    assert.equal(requests.length, 0);
  }
  await LeaseClient.fromEnvironment({ SPENDONCE_SOCKET: path }).registerAnchor(7);
});

function generationFile(t, text, mode = 0o600) {
  const path = join(scratch(t), "generation");
  writeFileSync(path, text);
  chmodSync(path, mode);
  return path;
}

test("a generation file wins over the variable and is read at each call", async (t) => {
  const { path, requests } = await answering(t, granted.consume_token);
  const file = generationFile(t, "3\n");
  const client = from(path, { SPENDONCE_GENERATION: "not looked at", SPENDONCE_GENERATION_FILE: file });
  await client.consume(token);
  writeFileSync(`${file}.new`, "12", { mode: 0o600 });
  renameSync(`${file}.new`, file);
  await client.consume(token);
  assert.deepEqual(
    requests.map((frame) => JSON.parse(frame).runtime_generation),
    [3, 12],
  );
});

test("a registration of one's own is not overruled by the file of an outer one", async (t) => {
  const { path, requests } = await answering(t, ({ action }) => granted[action]);
  const client = from(path, { SPENDONCE_GENERATION_FILE: generationFile(t, "3\n") });
  await client.registerAnchor(7);
  await client.consume(token);
  assert.equal(JSON.parse(requests[1]).runtime_generation, 7);
  assert.deepEqual(client.environment(), {
    SPENDONCE_SOCKET: path,
    SPENDONCE_SESSION_ID: sessionId,
    SPENDONCE_GENERATION: "7",
    SPENDONCE_GENERATION_FILE: undefined,
  });
});

const asRoot = process.geteuid() === 0 ? false : "only root can give a file away";
for (const { name, skip = false, make, message } of [
  { name: "missing", make: (t) => join(scratch(t), "x"), message: /cannot be read \(ENOENT\)/ },
  { name: "a relative path", make: () => "generation", message: /not an absolute path/ },
  { name: "empty", make: (t) => generationFile(t, ""), message: /holds no generation/ },
  { name: "two newlines", make: (t) => generationFile(t, "1\n\n"), message: /holds no generation/ },
  { name: "no number", make: (t) => generationFile(t, token), message: /holds no generation/ },
  { name: "a number too long", make: (t) => generationFile(t, "1".repeat(1 << 20)), message: /holds no generation/ },
  { name: "readable by the group", make: (t) => generationFile(t, "1\n", 0o640), message: /mode 0600/ },
  { name: "writable by all", make: (t) => generationFile(t, "1\n", 0o602), message: /mode 0600/ },
  {
    name: "in a directory that all may write to",
    message: /others may write/,
    make: (t) => {
      const dir = join(scratch(t), "d");
      mkdirSync(dir);
      chmodSync(dir, 0o777);
      writeFileSync(join(dir, "generation"), "1\n", { mode: 0o600 });
      return join(dir, "generation");
    },
  },
  {
    name: "a link",
    message: /cannot be read \(ELOOP\)/,
    make: (t) => {
      const file = generationFile(t, "1\n");
      symlinkSync("generation", `${file}.link`);
      return `${file}.link`;
    },
  },
  {
    name: "a directory",
    message: /is not a file of ours/,
    // Inside the scratch directory: what holds that one may be a shared /tmp, which is
    // another reason to refuse.
    make: (t) => {
      const directory = join(scratch(t), "generation");
      mkdirSync(directory, { mode: 0o700 });
      return directory;
    },
  },
  {
    name: "a named pipe",
    message: /is not a file of ours/,
    make: (t) => {
      const path = join(scratch(t), "pipe");
      execFileSync("mkfifo", ["-m", "0600", path]);
      return path;
    },
  },
  {
    name: "another user's",
    skip: asRoot,
    message: /is not a file of ours/,
    make: (t) => {
      const file = generationFile(t, "1\n");
      chownSync(file, 12_345, 12_345);
      return file;
    },
  },
]) {
  test(`a generation file is refused: ${name}`, { skip }, async (t) => {
    const { path, requests } = await answering(t, granted.consume_token);
    const error = await failure(from(path, { SPENDONCE_GENERATION: "1", SPENDONCE_GENERATION_FILE: make(t) }).consume(token));
    assert.ok(error instanceof InputInvalidError);
    assert.match(error.message, message);
    assert.equal(requests.length, 0);
  });
}
