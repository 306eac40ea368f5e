import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";

import { LeaseUnavailableError, OutcomeUnknownError, RefusedError } from "../dist/index.js";
import { answering, atEnd, binding, clientOf, failure, granted, listen, refused, scratch, sessionId, token } from "./fake.mjs";

const module = new URL("../dist/index.js", import.meta.url).href;

/** Runs JavaScript in another process, which can say lines and be told things. */
function program(t, source, args = [], runtime = process.execPath) {
  const file = join(scratch(t), "program.mjs");
  writeFileSync(file, source);
  const child = spawn(runtime, [file, ...args], { stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(child, "exit");
  atEnd(t, async () => {
    child.kill("SIGKILL");
    await exited;
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return { child, exited, line: async () => (await lines.next()).value };
}

const bun = process.versions["bun"] !== undefined;

/** A server in another process: it goes on while this one stands still. Bun's has a queue of its own size. */
async function foreign(t, behaviour) {
  const path = join(scratch(t), "broker.sock");
  const server = program(
    t,
    `import { createServer } from "node:net";
     const answer = ${JSON.stringify(refused("TOKEN_REPLAY"))};
     const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
       socket.on("error", () => {});
       (${behaviour})(socket);
     });
     server.listen({ path: process.argv[2], backlog: 1 }, () => console.log("listening"));`,
    [path],
    bun ? "node" : process.execPath,
  );
  assert.equal(await server.line(), "listening");
  return { path, server };
}

const standStill = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

test("a refusal that came before the request was written counts", async (t) => {
  const { path } = await foreign(t, (socket) => socket.end(answer, () => socket.destroy()));
  for (let i = 0; i < 5; i++) {
    const call = clientOf(path).consume(token);
    standStill(200); // meanwhile the other end has answered and is gone
    const error = await failure(call);
    if (bun && error.code === "BROKER_UNAVAILABLE") assert.match(error.message, /ECONNRESET/); // it does not let one read
    else assert.equal(error.code, "TOKEN_REPLAY");
  }
});

test("a refusal counts although the request was not read", async (t) => {
  const { path } = await foreign(t, (socket) => setTimeout(() => socket.end(answer, () => socket.destroy()), 100));
  const error = await failure(clientOf(path).consume(token));
  assert.equal(error.code, "TOKEN_REPLAY");
});

test("a connection that is reset without an answer leaves the outcome unknown", async (t) => {
  const { path } = await foreign(t, (socket) => setTimeout(() => socket.destroy(), 100));
  const error = await failure(clientOf(path).consume(token));
  assert.ok(error instanceof OutcomeUnknownError);
  assert.match(error.cause.message, /ECONNRESET/);
  assert.ok((await failure(clientOf(path).authenticate())) instanceof LeaseUnavailableError);
});

test("half an answer and a reset leave the outcome unknown", async (t) => {
  const { path } = await foreign(t, (socket) => setTimeout(() => socket.end(answer.slice(0, 9), () => socket.destroy()), 100));
  assert.ok((await failure(clientOf(path).consume(token))) instanceof OutcomeUnknownError);
});

test("a full queue of connections is a broker that is busy", async (t) => {
  const { path, server } = await foreign(t, () => {});
  server.child.kill("SIGSTOP");
  const waiting = new AbortController();
  const calls = Array.from({ length: 8 }, () => failure(clientOf(path, { retries: 1 }).consume(token, { signal: waiting.signal })));
  const busy = await Promise.race(calls);
  assert.equal(busy.code, bun ? "BROKER_UNAVAILABLE" : "BUSY"); // Bun says ECONNREFUSED
  assert.equal(busy.retryable, true);
  waiting.abort();
  await Promise.all(calls);
});

test("the request is closed before an answer is awaited", async (t) => {
  const path = await listen(t, (socket) => {
    socket.resume().on("end", () => socket.end(granted.consume_token));
  });
  assert.deepEqual(await clientOf(path).consume(token), binding);
});

test("an answer in single bytes is taken", async (t) => {
  const path = await listen(t, (socket) => {
    socket.setNoDelay?.();
    socket.resume().on("end", async () => {
      for (const byte of granted.consume_token) await new Promise((resolve) => socket.write(byte, () => setImmediate(resolve)));
      socket.end();
    });
  });
  assert.deepEqual(await clientOf(path).consume(token), binding);
});

test("a broker that never answers is given up", async (t) => {
  const { path, requests } = await answering(t, undefined);
  const client = clientOf(path, { timeoutMs: 1000 });
  const error = await failure(client.consume(token));
  assert.ok(error instanceof OutcomeUnknownError);
  assert.match(error.cause.message, /ETIMEDOUT/);
  const harmless = await failure(client.authenticate());
  assert.ok(harmless instanceof LeaseUnavailableError);
  assert.equal(harmless.retryable, true);
  assert.equal(requests.length, 2);
});

test("a broker that drips bytes is given up", async (t) => {
  const path = await listen(t, (socket) => {
    const drip = setInterval(() => socket.write(" "), 20);
    socket.resume().on("close", () => clearInterval(drip));
  });
  assert.ok((await failure(clientOf(path, { timeoutMs: 1000 }).consume(token))) instanceof OutcomeUnknownError);
});

test("a whole answer counts although the broker keeps the connection", async (t) => {
  const path = await listen(t, (socket) => socket.resume().on("end", () => socket.write(granted.consume_token)));
  assert.deepEqual(await clientOf(path, { timeoutMs: 1000 }).consume(token), binding);
});

test("a client that was stopped beyond its time takes the answer that has come", async (t) => {
  let answer;
  const asked = new Promise((resolve) => {
    answer = resolve;
  });
  const path = await listen(t, (socket) => socket.resume().on("end", () => answer(socket)));
  const { child, line } = program(
    t,
    `import { LeaseClient } from ${JSON.stringify(module)};
     const client = new LeaseClient({ socketPath: process.argv[2], sessionId: "${sessionId}", generation: 7, timeoutMs: 1500 });
     console.log(await client.consume("${token}").then((b) => b.hSource, (error) => error.code));`,
    [path],
  );
  const socket = await asked;
  child.kill("SIGSTOP");
  while (!/^State:\tT/m.test(readFileSync(`/proc/${child.pid}/status`, "utf8"))) standStill(1);
  socket.end(granted.consume_token);
  await new Promise((resolve) => setTimeout(resolve, 2000));
  child.kill("SIGCONT");
  assert.equal(await line(), "sha256:aa");
});

test("nothing is left behind that keeps the process", async (t) => {
  const { path } = await answering(t, ({ action }) => granted[action]);
  const { exited } = program(
    t,
    `import { LeaseClient } from ${JSON.stringify(module)};
     const client = new LeaseClient({ socketPath: process.argv[2], sessionId: "${sessionId}", generation: 7, timeoutMs: 2 ** 31 - 1 });
     await client.consume("${token}", { signal: new AbortController().signal });`,
    [path],
  );
  assert.deepEqual(await exited, [0, null]);
});

for (const code of ["BUSY", "ANCESTRY_CHANGED"]) {
  test(`${code} is asked again, three times at most`, async (t) => {
    const { path, requests } = await answering(t, ({ action }, count) => (count <= 3 ? refused(code) : granted[action]));
    assert.deepEqual(await clientOf(path).consume(token), binding);
    assert.equal(requests.length, 4);
    assert.equal(new Set(requests).size, 1);
  });

  test(`${code} for the fourth time is the answer`, async (t) => {
    const { path, requests } = await answering(t, refused(code));
    const error = await failure(clientOf(path).consume(token));
    assert.ok(error instanceof RefusedError);
    assert.equal(error.code, code);
    assert.equal(error.retryable, true);
    assert.equal(requests.length, 4);
    await failure(clientOf(path, { retries: 0 }).consume(token));
    assert.equal(requests.length, 5);
  });
}

test("what was lost after a retry is not asked again", async (t) => {
  const { path, requests } = await answering(t, (_, count) => (count === 1 ? refused("BUSY") : ""));
  assert.ok((await failure(clientOf(path).consume(token))) instanceof OutcomeUnknownError);
  assert.equal(requests.length, 2);
});

test("a pause that would outlast the time for the call is not begun", async (t) => {
  let now = 0;
  const clock = globalThis.performance;
  globalThis.performance = { now: () => now };
  atEnd(t, () => {
    globalThis.performance = clock;
  });
  const { path, requests } = await answering(t, () => {
    now = 19_995; // of 20,000: the shortest pause takes 10
    return refused("BUSY");
  });
  assert.equal(await failure(clientOf(path).authenticate()).then(({ code }) => code), "BUSY");
  assert.equal(requests.length, 1);
});

test("an aborted signal sends nothing", async (t) => {
  const { path, requests } = await answering(t, ({ action }) => granted[action]);
  const reason = new Error("changed my mind");
  const signal = AbortSignal.abort(reason);
  for (const call of [
    clientOf(path).consume(token, { signal }),
    clientOf(path).mint(binding, { signal }),
    clientOf(path).authenticate({ signal }),
    clientOf(path).registerAnchor(7, { signal }),
  ]) {
    assert.equal(await failure(call), reason);
  }
  assert.equal(requests.length, 0);
});

test("aborting between the connection and the request sends nothing", async (t) => {
  const { path, requests } = await answering(t, ({ action }) => granted[action]);
  const abort = new AbortController();
  const call = failure(clientOf(path).consume(token, { signal: abort.signal }));
  abort.abort();
  assert.equal((await call).name, "AbortError");
  await clientOf(path).authenticate();
  assert.equal(requests.filter((frame) => frame.includes("consume")).length, 0);
});

test("aborting after the request was sent leaves the outcome unknown", async (t) => {
  const reason = new Error("changed my mind");
  let abort;
  const { path } = await answering(t, () => void abort.abort(reason));
  for (const call of [(c, s) => c.consume(token, s), (c, s) => c.mint(binding, s)]) {
    abort = new AbortController();
    const error = await failure(call(clientOf(path), { signal: abort.signal }));
    assert.ok(error instanceof OutcomeUnknownError);
    assert.equal(error.cause, reason);
  }
  for (const call of [(c, s) => c.authenticate(s), (c, s) => c.registerAnchor(7, s)]) {
    abort = new AbortController();
    assert.equal(await failure(call(clientOf(path), { signal: abort.signal })), reason);
  }
});

test("aborting ends the retries", async (t) => {
  const abort = new AbortController();
  const { path, requests } = await answering(t, () => (abort.abort(), refused("BUSY")));
  const error = await failure(clientOf(path).authenticate({ signal: abort.signal }));
  assert.ok(error.name === "AbortError" || error.code === "BUSY");
  assert.equal(requests.length, 1);
});

test("every call has a connection of its own, and closes it", async (t) => {
  let opened = 0;
  let closed;
  const all = new Promise((resolve) => {
    closed = resolve;
  });
  let open = 0;
  const path = await listen(t, (socket) => {
    opened++;
    open++;
    socket
      .resume()
      .on("end", () => socket.end(granted.consume_token))
      .on("close", () => --open === 0 && opened === 64 && closed());
  });
  const client = clientOf(path);
  await Promise.all(Array.from({ length: 64 }, () => client.consume(token)));
  await all;
  assert.equal(opened, 64);
});
