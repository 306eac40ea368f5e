import assert from "node:assert/strict";
import { test } from "node:test";

import { AnswerInvalidError, LeaseUnavailableError, OutcomeUnknownError, RefusedError } from "../dist/index.js";
import { answering, binding, clientOf, failure, granted, listen, refused, sessionId, token } from "./fake.mjs";

const session = granted.authenticate.trim();
const spent = granted.consume_token.trim();
const all = `${session.slice(0, -1)},"token":"${token}",${spent.slice(11)}`;
const bound = spent.slice(spent.indexOf('"binding":') + '"binding":'.length, -1);

/** Answers of no protocol, to any of the requests: name, bytes. */
const broken = [
  ["half a line", session],
  ["an empty line", "\n"],
  ["two answers", `${session}\n${session}\n`],
  ["a line and a byte", `${session}\n `],
  ["an empty line first", `\n${session}\n`],
  ["a space before it", ` ${session}\n`],
  ["a space behind it", `${session} \n`],
  ["a carriage return", `${session}\r\n`],
  ["a byte order mark", `\ufeff${session}\n`],
  ["a NUL", `\0${session}\n`],
  ["bytes that are not UTF-8", Buffer.concat([Buffer.from('{"ok":false,"code":"'), Buffer.of(0xff), Buffer.from('"}\n')])],
  ["no JSON", `{"ok":true,"token":"${token}}\n`],
  ["a list", `[${session}]\n`],
  ["a string", `"${token}"\n`],
  ["null", "null\n"],
  ["an empty object", "{}\n"],
  ["a list without end", `${"[".repeat(65_000)}\n`],
  ["deep lists", `{"ok":${"[".repeat(30_000)}${"]".repeat(30_000)}}\n`],
  ["ok as a string", `${all.replace("true", '"true"')}\n`],
  ["ok as a number", `${all.replace("true", "1")}\n`],
  ["ok as null", '{"ok":null,"code":"BUSY"}\n'],
  ["not ok as a number", '{"ok":0,"code":"BUSY"}\n'],
  ["ok missing", '{"code":"TOKEN_REPLAY"}\n'],
  ["ok twice", '{"ok":true,"ok":false,"code":"TOKEN_REPLAY"}\n'],
  ["ok twice, once escaped", '{"ok":true,"\\u006fk":false,"code":"TOKEN_REPLAY"}\n'],
  ["code twice", '{"ok":false,"code":"BUSY","code":"TOKEN_REPLAY"}\n'],
  ["a code of another type", '{"ok":false,"code":7}\n'],
  ["a refusal without a code", '{"ok":false}\n'],
  ["a grant with a code", `{"code":"BUSY",${all.slice(1)}\n`],
  ["ok in the prototype", `{"__proto__":${session}}\n`],
  ["nothing that was asked for", '{"ok":true}\n'],
  ["what was asked for in the prototype", `{"ok":true,"__proto__":${spent}}\n`],
  ["a string with a colon in the place of a name", '{"ok":false,"code":"a:b","code":"BUSY"}\n'],
  ["too many bytes", `{"ok":true,"x":"${"x".repeat(65_536)}"}\n`],
  ["bytes without end", Buffer.alloc(4 << 20, 0x20)],
];

for (const [name, bytes] of broken) {
  test(`an answer is refused: ${name}`, async (t) => {
    const { path, requests } = await answering(t, bytes);
    const client = clientOf(path);
    assert.ok((await failure(client.authenticate())) instanceof AnswerInvalidError);
    for (const call of [client.consume(token), client.mint(binding)]) {
      const error = await failure(call);
      assert.ok(error instanceof OutcomeUnknownError);
      assert.ok(error.cause instanceof AnswerInvalidError);
      assert.equal(error.retryable, false);
    }
    assert.equal(requests.length, 3);
  });
}

test("one answer can grant everything", async (t) => {
  const { path } = await answering(t, `${all}\n`);
  assert.equal((await clientOf(path).authenticate()).sessionId, sessionId);
  assert.equal(await clientOf(path).mint(binding), token);
  assert.deepEqual(await clientOf(path).consume(token), binding);
});

test("the error says what is wrong with an answer", async (t) => {
  const flaws = [
    [session, /it is cut off/],
    [`${session}\n${session}\n`, /more follows its line/],
    [`${session}${" ".repeat(65_536)}\n`, /it is too long/],
    ["[]\n", /not one JSON object/],
    ['{"ok":1}\n', /neither grants nor refuses/],
    ['{"ok":true}\n', /does not grant what was asked for/],
  ];
  const { path } = await answering(t, (_, count) => flaws[count - 1][0]);
  for (const [, flaw] of flaws) assert.match((await failure(clientOf(path).authenticate())).message, flaw);
});

test("an answer without end is not read to its end", async (t) => {
  const path = await listen(t, (socket) => {
    const more = () => socket.write(Buffer.alloc(65_536, 0x20), (error) => error || setImmediate(more));
    socket.resume().on("end", more);
  });
  const error = await failure(clientOf(path).consume(token));
  assert.match(error.cause.message, /it is too long/);
});

const otherId = `B${sessionId.slice(1)}`;
for (const [name, bytes] of [
  ["another session", session.replace(sessionId, otherId)],
  ["another generation", session.replace(":7", ":8")],
  ["a generation as a string", session.replace(":7", ':"7"')],
  ["a generation with a point", session.replace(":7", ":7.0")],
  ["a generation with an exponent", session.replace(":7", ":7e0")],
  ["a generation twice", session.replace(":7", ':6,"runtime_generation":7')],
  ["no session", session.replace("session_id", "session")],
  ["no generation", session.replace("runtime_generation", "generation")],
]) {
  test(`an authentication is refused: ${name}`, async (t) => {
    const { path } = await answering(t, `${bytes}\n`);
    assert.ok((await failure(clientOf(path).authenticate())) instanceof AnswerInvalidError);
  });
}

for (const [name, id] of [
  ["empty", ""],
  ["too short", sessionId.slice(1)],
  ["too long", `A${sessionId}`],
  ["with padding", `${sessionId.slice(0, 42)}=`],
  ["in plain base64", `+${sessionId.slice(1)}`],
  ["with bits to spare that are set", `${sessionId.slice(0, 42)}B`],
  ["with a newline", `${sessionId.slice(0, 42)}\\n`],
]) {
  test(`an id is refused: ${name}`, async (t) => {
    const { path } = await answering(t, ({ action }) => granted[action].replace(sessionId, id).replace(token, id));
    assert.ok((await failure(clientOf(path).registerAnchor(7))) instanceof AnswerInvalidError);
    assert.ok((await failure(clientOf(path).mint(binding))) instanceof OutcomeUnknownError);
  });
}

for (const [name, value] of [
  ["null", "null"],
  ["a list", "[]"],
  ["a string", '"x"'],
  ["a member too few", bound.replace(/,"schema_version":3/, "")],
  ["a member too many", bound.replace("}", ',"x":1}')],
  ["a member twice", bound.replace("}", ',"schema_version":3}')],
  ["a member by another name", bound.replace("h_source", "H_source")],
  ["a negative epoch", bound.replace('epoch":1', 'epoch":-1')],
  ["an epoch of minus zero", bound.replace('epoch":1', 'epoch":-0')],
  ["an epoch with a point", bound.replace('epoch":1', 'epoch":1.0')],
  ["an epoch with an exponent", bound.replace('epoch":1', 'epoch":1E2')],
  ["an epoch over 2^53-1", bound.replace('epoch":1', 'epoch":9007199254740992')],
  ["an epoch as a string", bound.replace('epoch":1', 'epoch":"1"')],
  ["an epoch of null", bound.replace('epoch":1', 'epoch":null')],
  ["schema version 0", bound.replace('version":3', 'version":0')],
  ["an empty digest", bound.replace("sha256:aa", "")],
  ["a digest with a space", bound.replace("sha256:aa", "a a")],
  ["a digest with a newline", bound.replace("sha256:aa", "a\\n")],
  ["a digest that is not ASCII", bound.replace("sha256:aa", "ä")],
  ["a digest too long", bound.replace("sha256:aa", "a".repeat(257))],
]) {
  test(`a binding is refused: ${name}`, async (t) => {
    const { path } = await answering(t, `{"ok":true,"binding":${value}}\n`);
    const error = await failure(clientOf(path).consume(token));
    assert.ok(error instanceof OutcomeUnknownError);
    assert.match(error.cause.message, /does not grant|not one JSON object/);
  });
}

test("an answer that a later broker may give is taken", async (t) => {
  const padding = ',"later":{"a":[true,null,"x:y\\"z:"],"b":1}}\n';
  const { path } = await answering(t, ({ action }) => granted[action].replace(/}\n$/, padding));
  const client = clientOf(path);
  assert.deepEqual(await client.consume(token), binding);
  assert.equal(await client.mint(binding), token);
  assert.equal((await client.authenticate()).sessionId, sessionId);
});

test("an answer that is spelled with escapes and space is taken", async (t) => {
  const { path } = await answering(t, ({ action }) => granted[action].replaceAll(":", " : ").replaceAll("sha256 : ", "\\u0073ha256\\u003a"));
  assert.deepEqual(await clientOf(path).consume(token), binding);
});

test("an answer of exactly 65,536 bytes is taken, and one more byte refuses it", async (t) => {
  const frame = (length) => {
    const start = `${spent.slice(0, -1)},"x":"`;
    return `${start}${"x".repeat(length - start.length - 3)}"}\n`;
  };
  const { path } = await answering(t, (_, count) => frame(65_535 + count));
  assert.deepEqual(await clientOf(path).consume(token), binding);
  assert.match((await failure(clientOf(path).consume(token))).cause.message, /too long/);
});

test("no answer at all leaves the outcome unknown", async (t) => {
  const { path, requests } = await answering(t, "");
  const error = await failure(clientOf(path).consume(token));
  assert.ok(error instanceof OutcomeUnknownError);
  assert.ok(error.cause instanceof LeaseUnavailableError);
  assert.match(error.message, /must be taken as spent/);
  assert.ok((await failure(clientOf(path).mint(binding))) instanceof OutcomeUnknownError);
  assert.ok((await failure(clientOf(path).authenticate())) instanceof LeaseUnavailableError);
  assert.ok((await failure(clientOf(path).registerAnchor(7))) instanceof LeaseUnavailableError);
  assert.equal(requests.length, 4, "nothing is asked twice");
});

const codes = [
  "PEER_REFUSED",
  "FRAME_TOO_LARGE",
  "FRAME_MULTIPLE",
  "FRAME_UNTERMINATED",
  "DEADLINE_EXCEEDED",
  "FRAME_MALFORMED",
  "SESSION_ID_FORBIDDEN",
  "ACTION_UNKNOWN",
  "REQUEST_INVALID",
  "SESSION_UNKNOWN",
  "NOT_DESCENDANT",
  "GENERATION_STALE",
  "GENERATION_UNKNOWN",
  "TOKEN_MALFORMED",
  "TOKEN_REPLAY",
  "TOKEN_CAPACITY",
  "SESSION_CAPACITY",
  "STATE_TOO_LARGE",
  "STATE_UNAVAILABLE",
];
test("every refusal has its code, and none of these is asked again", async (t) => {
  const { path, requests } = await answering(t, (_, count) => refused(codes[count - 1]));
  for (const code of codes) {
    const error = await failure(clientOf(path).consume(token));
    assert.ok(error instanceof RefusedError);
    assert.equal(error.name, "RefusedError");
    assert.equal(error.code, code);
    assert.ok(error.message.endsWith(`(${code})`));
    assert.equal(error.retryable, /^(DEADLINE|STATE_|.*_CAPACITY)/.test(code));
  }
  assert.equal(requests.length, codes.length);
});

test("a refusal with a code of no protocol is a refusal, and is not repeated", async (t) => {
  const unknown = [token, "LATER_CODE", "", "constructor", "__proto__", "toString", "REFUSAL_UNKNOWN"];
  const { path } = await answering(t, (_, count) => refused(unknown[count - 1]));
  for (const code of unknown) {
    const error = await failure(clientOf(path).consume(token));
    assert.ok(error instanceof RefusedError);
    assert.equal(error.code, "REFUSAL_UNKNOWN", code);
    assert.doesNotMatch(error.message, /LATER|constructor|proto/);
  }
});
