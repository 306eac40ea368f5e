import assert from "node:assert/strict";
import { test } from "node:test";

import { InputInvalidError, LeaseClient } from "../dist/index.js";
import { answering, binding, clientOf, failure, granted, sessionId, token } from "./fake.mjs";

const grant = ({ action }) => granted[action];

test("requests are one line each, with exactly the members of the protocol", async (t) => {
  const { path, requests } = await answering(t, grant);
  const client = clientOf(path);
  assert.deepEqual(await client.consume(token), binding);
  assert.equal(await client.mint(binding), token);
  assert.equal((await client.authenticate()).generation, 7);
  assert.equal((await client.registerAnchor(7)).sessionId, sessionId);
  const identity = `"session_id":"${sessionId}","runtime_generation":7`;
  const bound = '{"compaction_epoch":1,"request_epoch":2,"h_source":"sha256:aa","h_payload":"sha256:bb","schema_version":3}';
  assert.deepEqual(requests, [
    `{"action":"consume_token",${identity},"token":"${token}"}\n`,
    `{"action":"mint_token",${identity},"binding":${bound}}\n`,
    `{"action":"authenticate",${identity}}\n`,
    '{"action":"register_anchor","runtime_generation":7}\n',
  ]);
});

test("a registration gives the client its session", async (t) => {
  const { path, requests } = await answering(t, grant);
  const client = new LeaseClient({ socketPath: path });
  const error = await failure(client.mint(binding));
  assert.match(error.message, /no session: register an anchor, or start/);
  await client.registerAnchor(7);
  await client.mint(binding);
  assert.equal(JSON.parse(requests[1]).session_id, sessionId);
  assert.equal(JSON.parse(requests[1]).runtime_generation, 7);
});

const wrong = {
  compactionEpoch: [-1, 0.5, NaN, Infinity, 2 ** 53, "1", 1n, null, undefined, {}, [1], true],
  requestEpoch: [-1, 2 ** 53, "0", null, undefined],
  hSource: ["", " ", "a b", "a\n", "a\0", "ä", "\ud800", "a".repeat(257), 1, null, undefined, ["a"], Buffer.from("a")],
  hPayload: ["", "a\tb", "a".repeat(257), undefined],
  schemaVersion: [0, -1, 1.5, 2 ** 53, "1", null, undefined],
};
for (const [name, values] of Object.entries(wrong)) {
  test(`a binding with a wrong ${name} is not sent`, async (t) => {
    const { path, requests } = await answering(t, grant);
    for (const value of values) {
      const error = await failure(clientOf(path).mint({ ...binding, [name]: value }));
      assert.ok(error instanceof InputInvalidError);
      assert.match(error.message, new RegExp(`binding's ${name} is not`));
    }
    assert.equal(requests.length, 0);
  });
}

test("a binding is five members, no more and no fewer", async (t) => {
  const { path, requests } = await answering(t, grant);
  const { hSource: _, ...without } = binding;
  for (const value of [null, undefined, "x", 1, [], {}, without, { ...binding, hPaylaod: "x" }, { ...binding, token }]) {
    assert.ok((await failure(clientOf(path).mint(value))) instanceof InputInvalidError);
  }
  assert.equal(requests.length, 0);
});

test("the largest binding is sent as it is", async (t) => {
  const digest = "!~".repeat(128);
  const largest = { compactionEpoch: 2 ** 53 - 1, requestEpoch: 0, hSource: digest, hPayload: '"\\'.repeat(128), schemaVersion: 2 ** 53 - 1 };
  const { path } = await answering(t, ({ action, binding: bound }) => (bound ? granted[action] : ""));
  assert.equal(await clientOf(path).mint(largest), token);
});

test("a wrong generation is not sent", async (t) => {
  const { path, requests } = await answering(t, grant);
  for (const generation of [-1, 0.5, 2 ** 53, NaN, "0", null, undefined]) {
    assert.ok((await failure(clientOf(path).registerAnchor(generation))) instanceof InputInvalidError);
  }
  assert.equal(requests.length, 0);
});

test("a token is a string, and no longer than a request may be", async (t) => {
  const { path, requests } = await answering(t, grant);
  for (const value of [undefined, null, 7, {}, Buffer.from(token), token.repeat(2000)]) {
    assert.ok((await failure(clientOf(path).consume(value))) instanceof InputInvalidError);
  }
  assert.equal(requests.length, 0);
});

test("options out of their bounds are refused at once", () => {
  const socketPath = "/run/broker.sock";
  for (const options of [
    { socketPath: "broker.sock" },
    { socketPath: "@broker" },
    { socketPath: "\0broker" },
    { socketPath: "/run/a\0b" },
    { socketPath: "" },
    { socketPath: 7 },
    { socketPath: `/${"s".repeat(107)}` },
    { socketPath: `/${"ä".repeat(54)}` },
    { socketPath, sessionId: 7 },
    { socketPath, generation: -1 },
    { socketPath, generation: "0" },
    { socketPath, timeoutMs: 0 },
    { socketPath, timeoutMs: 2 ** 31 },
    { socketPath, timeoutMs: 1.5 },
    { socketPath, retries: -1 },
    { socketPath, retries: 4 },
    { socketPath, retries: NaN },
  ]) {
    assert.throws(() => new LeaseClient(options), InputInvalidError, JSON.stringify(options));
  }
  new LeaseClient({ socketPath: `/${"s".repeat(106)}`, sessionId: undefined, generation: undefined, timeoutMs: undefined, retries: undefined });
});
