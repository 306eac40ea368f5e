import assert from "node:assert/strict";
import { test } from "node:test";
import { format, inspect } from "node:util";

import { LeaseClient, Session } from "../dist/index.js";
import { answering, assertNoSecret, clientOf, failure, granted, listen, sessionId, token } from "./fake.mjs";

test("a client shows no session id, however it is looked at", async (t) => {
  const { path } = await answering(t, ({ action }) => granted[action]);
  const registered = new LeaseClient({ socketPath: path });
  const session = await registered.registerAnchor(7);
  assert.equal(session.sessionId, sessionId);
  const environment = LeaseClient.fromEnvironment({ SPENDONCE_SOCKET: path, SPENDONCE_SESSION_ID: sessionId, SPENDONCE_GENERATION: "7" });
  for (const value of [registered, session, environment, clientOf(path), { session, registered }, [session]]) {
    assertNoSecret(value);
    assertNoSecret({ ...value });
    assertNoSecret(format("%s %o %O %j", value, value, value, value));
    assertNoSecret(structuredCloneOf(value));
    assert.equal(inspect(value, { showHidden: true, showProxy: true, depth: null }).includes(sessionId), false);
  }
});

test("a session that a caller makes hides its id, too", () => {
  const session = new Session(sessionId, 3);
  assertNoSecret(session);
  assert.equal(JSON.stringify(session), '{"generation":3}');
  assert.equal(inspect(session), "Session { generation: 3 }");
});

test("a client that waits for its answer shows no token", async (t) => {
  let asked;
  const arrived = new Promise((resolve) => {
    asked = resolve;
  });
  const path = await listen(t, (socket) => socket.resume().on("end", () => asked(socket)));
  const client = clientOf(path);
  const call = client.consume(token);
  const socket = await arrived;
  assertNoSecret(client);
  assertNoSecret({ call });
  socket.destroy();
  assert.equal((await failure(call)).code, "OUTCOME_UNKNOWN");
});

function structuredCloneOf(value) {
  try {
    return structuredClone(value);
  } catch (error) {
    return error;
  }
}
