// What is published: its files, and that a program elsewhere can use it.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { scratch } from "./fake.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const readme = readFileSync(join(root, "README.md"), "utf8");
const run = promisify(execFile);
const npm = (cwd, ...args) => run("npm", args, { cwd, env: { ...process.env, npm_config_audit: "false", npm_config_fund: "false" } });

test("the package holds what was built, its README and its license", async () => {
  const { stdout } = await npm(root, "pack", "--dry-run", "--json");
  const modules = readdirSync(join(root, "src")).map((name) => name.replace(/\.ts$/, ""));
  assert.deepEqual(
    JSON.parse(stdout)[0].files.map(({ path }) => path).sort(),
    ["LICENSE", "README.md", "package.json", ...modules.flatMap((name) => [`dist/${name}.d.ts`, `dist/${name}.js`])].sort(),
  );
});

test("the package depends on nothing and runs nothing when it is installed", () => {
  for (const member of ["dependencies", "optionalDependencies", "peerDependencies", "bundleDependencies", "bin"]) {
    assert.equal(manifest[member], undefined);
  }
  assert.deepEqual(Object.keys(manifest.scripts).sort(), ["build", "test"]);
});

test("the lock file pins what package.json names, and no other source than the registry", () => {
  const { packages } = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8"));
  for (const [name, version] of Object.entries(manifest.devDependencies)) {
    assert.match(version, /^\d+\.\d+\.\d+$/);
    assert.equal(packages[`node_modules/${name}`].version, version);
  }
  for (const [path, { integrity, resolved, hasInstallScript }] of Object.entries(packages)) {
    if (path === "") continue;
    assert.match(path, /^node_modules\/(typescript|@typescript\/typescript-[a-z0-9-]+|@types\/node|undici-types)$/);
    assert.match(integrity, /^sha512-/);
    assert.equal(resolved, undefined, "the registry that npm is set up for");
    assert.equal(hasInstallScript, undefined);
  }
});

test("the source imports nothing but three modules that Node and Bun have", () => {
  for (const name of readdirSync(join(root, "src"))) {
    for (const [, from] of readFileSync(join(root, "src", name), "utf8").matchAll(/(?:from|import)\s*\(?"([^"]+)"/g)) {
      assert.match(from, /^(node:(fs|net|path)|\.\/[a-z]+\.js)$/, name);
    }
  }
});

/** A project that has installed the packed package, and nothing else, without a network. */
async function project(t, type = "module") {
  const dir = scratch(t);
  const { stdout } = await npm(root, "pack", "--json", "--pack-destination", dir);
  writeFileSync(join(dir, "package.json"), JSON.stringify({ name: "project", private: true, type }));
  await npm(dir, "install", "--offline", "--ignore-scripts", join(dir, JSON.parse(stdout)[0].filename));
  return dir;
}

test("an installed package is imported by plain node", async (t) => {
  const dir = await project(t);
  writeFileSync(
    join(dir, "program.js"),
    `import { LeaseClient, LeaseUnavailableError } from "@spendonce/lease";
     const client = new LeaseClient({ socketPath: "/nowhere/broker.sock" });
     await client.registerAnchor(0).catch((error) => console.log(error instanceof LeaseUnavailableError, error.code));`,
  );
  const { stdout } = await run(process.execPath, ["program.js"], { cwd: dir });
  assert.equal(stdout, "true BROKER_UNAVAILABLE\n");
});

test("all that is exported", async () => {
  assert.deepEqual(Object.keys(await import("../dist/index.js")).sort(), [
    "AnswerInvalidError",
    "InputInvalidError",
    "LeaseClient",
    "LeaseError",
    "LeaseUnavailableError",
    "OutcomeUnknownError",
    "RefusedError",
    "Session",
    "SocketUnsafeError",
  ]);
});

/** Checks the types of a program in a project; what the compiler says. */
async function check(dir, options = {}) {
  const compilerOptions = { target: "es2022", module: "nodenext", strict: true, noEmit: true, types: [], lib: ["es2022", "dom"], ...options };
  writeFileSync(join(dir, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*.ts"] }));
  return run(join(root, "node_modules/.bin/tsc"), ["-p", "."], { cwd: dir }).then(
    ({ stdout }) => stdout,
    ({ stdout }) => stdout,
  );
}

const typed = `
import { LeaseClient, LeaseError, RefusedError, Session, type Binding, type LeaseCode, type RefusalCode } from "@spendonce/lease";

export async function use(signal: AbortSignal): Promise<Binding> {
  const client: LeaseClient = LeaseClient.fromEnvironment({ SPENDONCE_SOCKET: "/a", OTHER: undefined });
  const session: Session = await new LeaseClient({ socketPath: "/a", sessionId: "s", generation: 0, timeoutMs: 1, retries: 0 }).authenticate({ signal });
  const id: string = session.sessionId;
  const generation: number = (await client.registerAnchor(0)).generation;
  return client.consume(await client.mint({ compactionEpoch: generation, requestEpoch: 0, hSource: id, hPayload: "x", schemaVersion: 1 }), {});
}

export function narrow(error: unknown): RefusalCode | undefined {
  if (error instanceof RefusedError) return error.code;
  if (error instanceof LeaseError) {
    const code: LeaseCode = error.code;
    const again: boolean = error.retryable;
    return again && code === "BUSY" ? code : undefined;
  }
  return undefined;
}

export const total: Record<RefusalCode, true> = {
  BUSY: true, PEER_REFUSED: true, FRAME_TOO_LARGE: true, FRAME_MULTIPLE: true, FRAME_UNTERMINATED: true, DEADLINE_EXCEEDED: true,
  FRAME_MALFORMED: true, SESSION_ID_FORBIDDEN: true, ACTION_UNKNOWN: true, REQUEST_INVALID: true, SESSION_UNKNOWN: true, NOT_DESCENDANT: true,
  ANCESTRY_CHANGED: true, GENERATION_STALE: true, GENERATION_UNKNOWN: true, TOKEN_MALFORMED: true, TOKEN_REPLAY: true, TOKEN_CAPACITY: true,
  SESSION_CAPACITY: true, STATE_TOO_LARGE: true, STATE_UNAVAILABLE: true, REFUSAL_UNKNOWN: true,
};
`;

test("an installed package has its types, also where types of Node are missing", async (t) => {
  const dir = await project(t);
  writeFileSync(join(dir, "program.ts"), typed);
  assert.equal(await check(dir), "");
});

test("misuse is a type error", async (t) => {
  const dir = await project(t);
  const misuses = [
    "client.mint({ compactionEpoch: 0, requestEpoch: 0, hSource: '', hPayload: '' })",
    "client.mint({ ...binding, extra: 1 })",
    "client.consume(7)",
    "client.registerAnchor('0')",
    "new LeaseClient({ socket: '/a' })",
    "error.code === 'TOKEN_REPLAYED'",
    "new LeaseError('x')",
    "client.sessionId",
    "binding.hSource = 'x'",
  ];
  const head = `import { LeaseClient, LeaseError, type Binding } from "@spendonce/lease";
    declare const client: LeaseClient; declare const error: LeaseError; declare const binding: Binding;\n`;
  writeFileSync(join(dir, "program.ts"), head + misuses.map((line) => `${line};\n`).join(""));
  const wrong = [...(await check(dir)).matchAll(/^program\.ts\((\d+),/gm)].map(([, line]) => Number(line));
  assert.deepEqual([...new Set(wrong)], [...misuses.keys()].map((i) => i + 3));
});

test("the programs in README have the right types", async (t) => {
  const dir = await project(t);
  const programs = [...readme.matchAll(/^```ts\n([^]*?)^```$/gm)];
  assert.equal(programs.length, 3);
  programs.forEach(([, text], i) => writeFileSync(join(dir, `readme${i}.ts`), text));
  assert.equal(await check(dir, { types: ["node"], typeRoots: [join(root, "node_modules/@types")] }), "");
});

test("README names every error with its code", async () => {
  const { LeaseError, ...exported } = await import("../dist/index.js");
  for (const [name, value] of Object.entries(exported)) {
    if (value.prototype instanceof LeaseError) assert.match(readme, new RegExp(`^\\| \`${name}\` \\| \``, "m"));
  }
});
