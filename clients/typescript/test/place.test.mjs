import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmodSync, chownSync, cpSync, lchownSync, lstatSync, mkdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { InputInvalidError, LeaseClient, LeaseUnavailableError, SocketUnsafeError } from "../dist/index.js";
import { atEnd, clientOf, failure, granted, scratch, token } from "./fake.mjs";

const run = promisify(execFile);

/** A directory of this mode, whatever the umask is. */
function directory(path, mode) {
  mkdirSync(path);
  chmodSync(path, mode);
  return path;
}

/** Listens there and grants; tells how many connections came. */
async function grantAt(t, path) {
  const seen = { connections: 0 };
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    seen.connections++;
    socket.resume().on("end", () => socket.end(granted.consume_token));
  });
  await new Promise((resolve) => server.listen(path, resolve));
  atEnd(t, () => server.close());
  return seen;
}

const asRoot = process.geteuid() === 0 ? false : "only root can give a directory away";
const other = 12_345;

for (const { name, skip = false, make, refused } of [
  { name: "a directory of ours is good", make: (base) => directory(join(base, "d"), 0o700) },
  { name: "others may look into it", make: (base) => directory(join(base, "d"), 0o755) },
  {
    name: "a directory above it that all may write to is good if it is sticky",
    make: (base) => directory(join(directory(join(base, "w"), 0o1777), "d"), 0o700),
  },
  {
    name: "a link of ours above it is good",
    make: (base) => {
      directory(join(directory(join(base, "a"), 0o700), "d"), 0o700);
      symlinkSync("./a/../a", join(base, "l"));
      return join(base, "l", "d");
    },
  },
  {
    name: "an absolute link of ours above it is good",
    make: (base) => {
      directory(join(directory(join(base, "a"), 0o700), "d"), 0o700);
      symlinkSync(join(base, "a"), join(base, "l"));
      return join(base, "l", "d");
    },
  },
  {
    name: "a way with points and slashes is good",
    make: (base) => `${directory(join(base, "d"), 0o700)}/.././/d/`,
  },
  { name: "the group may write to it", refused: /others may write/, make: (base) => directory(join(base, "d"), 0o770) },
  { name: "all may write to it", refused: /others may write/, make: (base) => directory(join(base, "d"), 0o702) },
  {
    name: "all may write to it, and it is sticky",
    refused: /others may write/,
    make: (base) => directory(join(base, "d"), 0o1777),
  },
  {
    name: "all may write above it",
    refused: /others may write/,
    make: (base) => directory(join(directory(join(directory(join(base, "w"), 0o777), "x"), 0o700), "d"), 0o700),
  },
  {
    name: "it is a link",
    refused: /or a link to one/,
    make: (base) => {
      symlinkSync(directory(join(base, "d"), 0o700), join(base, "l"));
      return join(base, "l");
    },
  },
  {
    name: "a link above it leads through a directory that all may write to",
    refused: /others may write/,
    make: (base) => {
      directory(join(directory(join(base, "a"), 0o700), "d"), 0o700);
      directory(join(base, "w"), 0o777);
      symlinkSync("../a", join(base, "w", "second"));
      symlinkSync("w/second", join(base, "first"));
      return join(base, "first", "d");
    },
  },
  {
    name: "it is another user's",
    skip: asRoot,
    refused: /belongs to user 12345/,
    make: (base) => {
      const path = directory(join(base, "d"), 0o700);
      chownSync(path, other, other);
      return path;
    },
  },
  {
    name: "a directory above it is another user's",
    skip: asRoot,
    refused: /on the way to it, belongs to user 12345/,
    make: (base) => {
      const above = directory(join(base, "a"), 0o755);
      const path = directory(join(above, "d"), 0o700);
      chownSync(above, other, other);
      return path;
    },
  },
  {
    name: "a link above it is another user's",
    skip: asRoot,
    refused: /on the way to it, belongs to user 12345/,
    make: (base) => {
      directory(join(directory(join(base, "a"), 0o700), "d"), 0o700);
      symlinkSync("a", join(base, "l"));
      lchownSync(join(base, "l"), other, other);
      return join(base, "l", "d");
    },
  },
]) {
  test(`the socket's directory: ${name}`, { skip }, async (t) => {
    const dir = make(scratch(t));
    const seen = await grantAt(t, join(dir, "s"));
    const call = clientOf(`${dir}/s`).consume(token);
    if (refused === undefined) {
      await call;
      assert.equal(seen.connections, 1);
    } else {
      const error = await failure(call);
      assert.ok(error instanceof SocketUnsafeError);
      assert.match(error.message, refused);
      assert.equal(seen.connections, 0, "nothing is sent");
    }
  });
}

test("another user than root takes root's directories above the own one, and not in its place", { skip: asRoot }, async (t) => {
  const base = scratch(t);
  chmodSync(base, 0o755);
  cpSync(new URL("../dist", import.meta.url), join(base, "dist"), { recursive: true });
  writeFileSync(join(base, "package.json"), '{"type":"module"}');
  writeFileSync(
    join(base, "program.js"),
    `import { createServer } from "node:net";
     import { LeaseClient } from "./dist/index.js";
     const server = createServer({ allowHalfOpen: true }, (s) => s.resume().on("end", () => s.end(${JSON.stringify(granted.register_anchor)})));
     await new Promise((resolve) => server.listen("own/s", resolve));
     for (const dir of ["own", "roots"]) {
       const client = new LeaseClient({ socketPath: process.cwd() + "/" + dir + "/s" });
       console.log(await client.registerAnchor(7).then((s) => s.generation, (e) => e.message));
     }
     server.close();`,
  );
  directory(join(base, "roots"), 0o755);
  chownSync(directory(join(base, "own"), 0o700), other, other);
  const { stdout } = await run(process.execPath, ["program.js"], { cwd: base, uid: other, gid: other, env: { HOME: base } });
  assert.match(stdout, /^7\n.*roots belongs to user 0: nothing is sent/);
});

test("a socket of another user is refused", { skip: asRoot }, async (t) => {
  const path = join(scratch(t), "s");
  const seen = await grantAt(t, path);
  chownSync(path, other, other);
  const error = await failure(clientOf(path).consume(token));
  assert.ok(error instanceof SocketUnsafeError);
  assert.match(error.message, /s belongs to user 12345/);
  assert.equal(seen.connections, 0);
});

test("a link to a socket and a file are no sockets", async (t) => {
  const dir = scratch(t);
  await grantAt(t, join(dir, "s"));
  symlinkSync("s", join(dir, "link"));
  writeFileSync(join(dir, "file"), "");
  for (const name of ["link", "file"]) {
    assert.ok((await failure(clientOf(join(dir, name)).consume(token))) instanceof SocketUnsafeError);
  }
});

test("a circle of links is refused", async (t) => {
  const dir = scratch(t);
  symlinkSync("two", join(dir, "one"));
  symlinkSync("one", join(dir, "two"));
  const error = await failure(clientOf(join(dir, "one", "d", "s")).consume(token));
  assert.ok(error instanceof LeaseUnavailableError);
  assert.match(error.message, /cannot be reached \(ELOOP\)/);
});

test("where no broker is, the error says how to start one", async (t) => {
  const dir = scratch(t);
  const stale = join(dir, "stale");
  // Bound, and never listened at by anybody who is still there.
  const server = createServer();
  await new Promise((resolve) => server.listen(`${stale}.bound`, resolve));
  renameSync(`${stale}.bound`, stale);
  await new Promise((resolve) => server.close(resolve));
  for (const path of [join(dir, "s"), join(dir, "nowhere", "s"), join(dir, "stale", "d", "s"), stale]) {
    const error = await failure(clientOf(path).consume(token));
    assert.ok(error instanceof LeaseUnavailableError, String(error));
    assert.equal(error.code, "BROKER_UNAVAILABLE");
    assert.equal(error.retryable, true);
    assert.match(error.message, /no broker is running at .*`spendonce lease serve` .*`spendonce lease run -- COMMAND`/);
  }
});

test("by default the socket is where the environment says", (t) => {
  const base = scratch(t);
  const at = (env) => {
    const client = LeaseClient.fromEnvironment({ SPENDONCE_SESSION_ID: "s", SPENDONCE_GENERATION: "0", ...env });
    return client.environment().SPENDONCE_SOCKET;
  };
  const runtime = { XDG_RUNTIME_DIR: join(base, "run") };
  const state = { SPENDONCE_STATE_DIR: join(base, "state") };
  const xdg = { XDG_STATE_HOME: join(base, "xdg") };
  const home = { HOME: join(base, "home") };
  assert.equal(at({ SPENDONCE_SOCKET: "/a/b", ...runtime, ...state }), "/a/b");
  assert.equal(at({ SPENDONCE_SOCKET: "", ...runtime, ...state }), join(base, "run/spendonce/broker.sock"));

  // Of a directory that systemd makes, we can only see whether it is there.
  const ours = `/run/user/${process.geteuid()}`;
  const made = lstatSync(ours, { throwIfNoEntry: false })?.isDirectory();
  const without = (path) => (made ? `${ours}/spendonce/broker.sock` : join(base, path));
  assert.equal(at({ ...home, ...xdg, ...state, XDG_RUNTIME_DIR: "relative" }), without("state/broker.sock"));
  assert.equal(at({ ...home, ...xdg, SPENDONCE_STATE_DIR: "" }), without("xdg/spendonce/broker.sock"));
  assert.equal(at({ ...home, XDG_STATE_HOME: "relative" }), without("home/.local/state/spendonce/broker.sock"));
  if (!made) assert.throws(() => at({ HOME: "relative" }), InputInvalidError);
});
