// Against the real broker, which SPENDONCE_BIN names.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { LeaseClient, LeaseUnavailableError, OutcomeUnknownError } from "../dist/index.js";
import { atEnd, binding, failure, scratch } from "./fake.mjs";

const bin = process.env["SPENDONCE_BIN"];
const options = { skip: bin ? false : "SPENDONCE_BIN names no spendonce to test with", timeout: 60_000 };
const run = promisify(execFile);
const actorFile = fileURLToPath(new URL("actor.mjs", import.meta.url));

/** A program that ends with the test. */
function program(t, command, args, env = {}, stderr = "inherit") {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["pipe", "pipe", stderr] });
  const exited = once(child, "exit");
  atEnd(t, async () => {
    child.kill("SIGCONT");
    child.kill("SIGTERM");
    await exited;
  });
  return { child, exited };
}

/** A broker of this test's own, which has said that it listens. */
async function broker(t, dir = scratch(t)) {
  const path = join(dir, "run", "broker.sock");
  const { child, exited } = program(t, bin, ["lease", "serve", "--socket", path, "--state-dir", join(dir, "state")], {}, "pipe");
  const lines = createInterface({ input: child.stderr })[Symbol.asyncIterator]();
  const { value: first } = await lines.next();
  assert.ok(first?.endsWith(`listens at ${path}`), first);
  const stop = async () => {
    child.kill("SIGTERM");
    assert.deepEqual(await exited, [0, null]);
  };
  return { path, dir, child, stop };
}

/** A client in a process of its own; see actor.mjs. */
function actor(t, env, command = process.execPath, args = []) {
  const { child, exited } = program(t, command, [...args, actorFile], env);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    child,
    async call(...call) {
      child.stdin.write(`${JSON.stringify(call)}\n`);
      return JSON.parse((await lines.next()).value);
    },
    async value(...call) {
      const { value, code } = await this.call(...call);
      assert.equal(code, undefined);
      return value;
    },
    async code(...call) {
      const { value, code } = await this.call(...call);
      assert.equal(value, undefined);
      return code;
    },
    async end() {
      child.stdin.end();
      assert.deepEqual(await exited, [0, null]);
    },
  };
}

const code = async (promise) => (await failure(promise)).code;

test("an anchor mints, consumes once and is refused a replay", options, async (t) => {
  const { path } = await broker(t);
  const client = new LeaseClient({ socketPath: path });
  const session = await client.registerAnchor(0);
  assert.equal((await client.registerAnchor(0)).sessionId, session.sessionId);
  assert.equal((await client.authenticate()).sessionId, session.sessionId);
  const bound = { compactionEpoch: 0, requestEpoch: 2 ** 53 - 1, hSource: '<&>"\\', hPayload: "~".repeat(256), schemaVersion: 1 };
  const token = await client.mint(bound);
  assert.notEqual(token, await client.mint(bound));
  assert.deepEqual(await client.consume(token), bound);
  assert.equal(await code(client.consume(token)), "TOKEN_REPLAY");
  assert.equal(await code(client.consume(`A${token}`)), "TOKEN_MALFORMED");
});

test("what descends from the anchor belongs to its session", options, async (t) => {
  const { path } = await broker(t);
  const anchor = actor(t, { SPENDONCE_SOCKET: path });
  await anchor.value("registerAnchor", 3);
  assert.equal((await anchor.value("child", "authenticate")).generation, 3);
  const token = await anchor.value("child", "child", "mint", binding);
  assert.deepEqual(await anchor.value("child", "consume", token), binding);
  assert.equal(await anchor.code("child", "child", "consume", token), "TOKEN_REPLAY");
});

test("a sibling of the anchor is a stranger, and the token stays", options, async (t) => {
  const { path } = await broker(t);
  const anchor = actor(t, { SPENDONCE_SOCKET: path });
  const env = await anchor.value("registerAnchor", 0);
  const token = await anchor.value("mint", binding);
  const stranger = actor(t, env);
  assert.equal(await stranger.code("authenticate"), "NOT_DESCENDANT");
  assert.equal(await stranger.code("mint", binding), "NOT_DESCENDANT");
  assert.equal(await stranger.code("child", "consume", token), "NOT_DESCENDANT");
  assert.deepEqual(await anchor.value("consume", token), binding);
});

test("an anchor inside another one has a session of its own", options, async (t) => {
  const { path } = await broker(t);
  const outer = actor(t, { SPENDONCE_SOCKET: path });
  const env = await outer.value("registerAnchor", 0);
  const token = await outer.value("mint", binding);
  const inner = await outer.value("child", "registerAnchor", 9);
  assert.notEqual(inner.SPENDONCE_SESSION_ID, env.SPENDONCE_SESSION_ID);
  assert.deepEqual(await outer.value("consume", token), binding);
});

test("a session ends with its anchor", options, async (t) => {
  const { path } = await broker(t);
  const anchor = actor(t, { SPENDONCE_SOCKET: path });
  const env = await anchor.value("registerAnchor", 0);
  await anchor.end();
  assert.equal(await actor(t, env).code("authenticate"), "SESSION_UNKNOWN");
});

test("a higher generation revokes the tokens of before", options, async (t) => {
  const { path } = await broker(t);
  const client = new LeaseClient({ socketPath: path });
  const { sessionId } = await client.registerAnchor(1);
  const token = await client.mint(binding);
  const of = (generation) => new LeaseClient({ socketPath: path, sessionId, generation });
  assert.equal((await client.registerAnchor(2)).sessionId, sessionId);
  assert.equal(await code(client.consume(token)), "TOKEN_REPLAY");
  assert.equal(await code(of(1).consume(token)), "GENERATION_STALE");
  assert.equal(await code(of(3).authenticate()), "GENERATION_UNKNOWN");
  assert.equal(await code(client.registerAnchor(1)), "GENERATION_STALE");
  assert.equal((await client.authenticate()).generation, 2, "a refused registration leaves the client as it was");
});

test("of 64 that consume at once exactly one does", options, async (t) => {
  const { path } = await broker(t);
  const client = new LeaseClient({ socketPath: path });
  await client.registerAnchor(0);
  const token = await client.mint(binding);
  const ends = await Promise.allSettled(Array.from({ length: 64 }, () => client.consume(token)));
  const granted = ends.filter(({ status }) => status === "fulfilled");
  assert.deepEqual(granted, [{ status: "fulfilled", value: binding }]);
  assert.equal(ends.filter(({ reason }) => reason?.code === "TOKEN_REPLAY").length, 63);
});

test("of 64 in eight processes that consume at once exactly one does", options, async (t) => {
  const { path } = await broker(t);
  const client = new LeaseClient({ socketPath: path });
  await client.registerAnchor(0);
  const token = await client.mint(binding);
  const actors = Array.from({ length: 8 }, () => actor(t, client.environment()));
  await Promise.all(actors.map((each) => each.value("authenticate"))); // all of them are there
  const ends = (await Promise.all(actors.map((each) => each.value("consumeMany", token, 8)))).flat();
  assert.deepEqual(
    ends.filter(({ code: refusal }) => refusal !== "TOKEN_REPLAY"),
    [{ value: binding }],
  );
  assert.equal(ends.length, 64);
});

test("too many pending tokens are refused until there is room", options, async (t) => {
  const { path } = await broker(t);
  const client = new LeaseClient({ socketPath: path });
  await client.registerAnchor(0);
  const tokens = [];
  while (tokens.length < 256) {
    tokens.push(...(await Promise.all(Array.from({ length: 64 }, () => client.mint(binding)))));
  }
  assert.equal(new Set(tokens).size, 256);
  const error = await failure(client.mint(binding));
  assert.equal(error.code, "TOKEN_CAPACITY");
  assert.equal(error.retryable, true);
  await client.consume(tokens[0]);
  await client.mint(binding);
});

test("a broker that stopped is missed, and its successor knows the token", options, async (t) => {
  const first = await broker(t);
  const client = new LeaseClient({ socketPath: first.path });
  await client.registerAnchor(0);
  const token = await client.mint(binding);
  await first.stop();
  const error = await failure(client.consume(token));
  assert.ok(error instanceof LeaseUnavailableError);
  assert.match(error.message, /no broker is running .*`spendonce lease serve`/);
  await broker(t, first.dir);
  assert.deepEqual(await client.consume(token), binding);
});

test("a broker that was killed leaves a socket that nobody answers at", options, async (t) => {
  const { path, child } = await broker(t);
  child.kill("SIGKILL");
  await once(child, "exit");
  assert.ok(existsSync(path));
  assert.match((await failure(new LeaseClient({ socketPath: path }).registerAnchor(0))).message, /no broker is running/);
});

test("a broker that hangs leaves the outcome unknown", options, async (t) => {
  const { path, child } = await broker(t);
  const client = new LeaseClient({ socketPath: path, timeoutMs: 300 });
  const session = await client.registerAnchor(0);
  const token = await client.mint(binding);
  child.kill("SIGSTOP");
  assert.ok((await failure(client.consume(token))) instanceof OutcomeUnknownError);
  child.kill("SIGCONT");
  const patient = new LeaseClient({ socketPath: path, sessionId: session.sessionId, generation: 0 });
  const again = await patient.consume(token).catch((error) => error.code);
  if (again !== "TOKEN_REPLAY") assert.deepEqual(again, binding, "it was not spent after all, as could not be known");
  assert.equal(await code(patient.consume(token)), "TOKEN_REPLAY");
});

test("under lease run the environment is enough", options, async (t) => {
  const { path, dir } = await broker(t);
  const env = { SPENDONCE_SOCKET: path, SPENDONCE_STATE_DIR: join(dir, "state") };
  const agent = actor(t, env, bin, ["lease", "run", "--no-start", "--generation", "4", "--", process.execPath]);
  assert.equal((await agent.value("authenticate")).generation, 4);
  const token = await agent.value("mint", binding);
  assert.deepEqual(await agent.value("child", "consume", token), binding);
  await agent.end();
});

test("under lease run --stay the client follows the generation file", options, async (t) => {
  const { path, dir } = await broker(t);
  const env = { SPENDONCE_SOCKET: path, SPENDONCE_STATE_DIR: join(dir, "state") };
  const agent = actor(t, env, bin, ["lease", "run", "--no-start", "--stay", "--", process.execPath]);
  assert.equal((await agent.value("authenticate")).generation, 0);
  const token = await agent.value("mint", binding);
  agent.child.kill("SIGUSR1");
  for (;;) {
    // Between the broker's commit and the new file the old generation is stale.
    const { value, code: refusal } = await agent.call("authenticate");
    if (value?.generation === 1) break;
    assert.ok(value?.generation === 0 || refusal === "GENERATION_STALE", refusal);
  }
  assert.equal(await agent.code("consume", token), "TOKEN_REPLAY");
  await agent.end();
});

test("the programs in README do what they say", options, async (t) => {
  const { path, dir } = await broker(t);
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const module = new URL("../dist/index.js", import.meta.url).href;
  const [agent, anchor] = [...readme.matchAll(/^```ts\n([^]*?)^```$/gm)].map(([, text]) => text.replace("@spendonce/lease", module));
  const env = { ...process.env, SPENDONCE_SOCKET: path, SPENDONCE_STATE_DIR: join(dir, "state") };

  writeFileSync(join(dir, "agent.mjs"), agent);
  const { stdout } = await run(bin, ["lease", "run", "--no-start", "--", process.execPath, join(dir, "agent.mjs")], { env });
  assert.equal(stdout, "7\n");

  writeFileSync(join(dir, "hook.mjs"), `import { LeaseClient } from "${module}";\nconsole.log((await LeaseClient.fromEnvironment().authenticate()).generation);`);
  const hook = `spawn(process.execPath, ["${join(dir, "hook.mjs")}"], {`;
  assert.ok(anchor.includes('spawn("my-hook", {'));
  // The hook is waited for, so that it asks before the generation is raised.
  const waiting = anchor.replace('spawn("my-hook", {', `const hook = ${hook}`).replace("\n// When", "\nawait new Promise((resolve) => hook.on('exit', resolve));\n// When");
  writeFileSync(join(dir, "anchor.mjs"), `${waiting}\nconsole.log((await client.authenticate()).generation);`);
  assert.equal((await run(process.execPath, [join(dir, "anchor.mjs")], { env })).stdout, "0\n1\n");
});
