// A client in a process of its own: each line in is a call as JSON, each line
// out what came of it. "child" makes the call in a child of this process.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { LeaseClient, LeaseError } from "../dist/index.js";

const client = LeaseClient.fromEnvironment();

async function act([method, ...args]) {
  switch (method) {
    case "child":
      return ask(start(client.environment()), args);
    case "registerAnchor":
      await client.registerAnchor(...args);
      return client.environment();
    case "consumeMany":
      return Promise.all(Array.from({ length: args[1] }, () => settle(client.consume(args[0]))));
    default:
      return client[method](...args);
  }
}

const settle = (promise) =>
  promise.then(
    (value) => ({ value }),
    (error) => {
      if (error instanceof LeaseError) return { code: error.code };
      throw error;
    },
  );

function start(env) {
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url)], {
    env: { ...process.env, ...env },
    stdio: ["pipe", "pipe", "inherit"],
  });
  return { child, lines: createInterface({ input: child.stdout })[Symbol.asyncIterator]() };
}

async function ask({ child, lines }, call) {
  child.stdin.end(`${JSON.stringify(call)}\n`);
  const { code, value } = JSON.parse((await lines.next()).value);
  if (code !== undefined) throw Object.assign(new LeaseErrorOfChild(), { code });
  return value;
}

class LeaseErrorOfChild extends LeaseError {}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await settle(act(JSON.parse(line)))));
}
