// The official TypeScript client, doing all that the reference server has an
// answer to. Standard input says how to reach the server; standard output gets
// each message that passes the client's transport, and how each scenario went,
// a line of JSON each.
import { createHash } from "node:crypto";
import { text } from "node:stream/consumers";
import { InMemoryTaskStore } from "@modelcontextprotocol/sdk/experimental/tasks";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CreateMessageRequestSchema,
  CreateTaskResultSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  ResultSchema,
} from "@modelcontextprotocol/sdk/types.js";

const way = JSON.parse(await text(process.stdin));
const patience = way.patience_ms;

// What is said.

const emit = (line) => process.stdout.write(JSON.stringify(line, shorten) + "\n");
let current = "";

function shorten(_key, value) {
  if (typeof value !== "string" || value.length < 1 << 16) return value;
  return `${value.length} characters, sha256 ${createHash("sha256").update(value).digest("hex")}`;
}

function check(holds, what) {
  if (!holds) throw new Error(what);
}

function equal(got, want) {
  check(JSON.stringify(got) === JSON.stringify(want), `got ${JSON.stringify(got)?.slice(0, 300)}`);
}

// The client.

function transport() {
  if (way.command) {
    const [command, ...args] = way.command;
    return new StdioClientTransport({ command, args, env: way.env, stderr: "inherit" });
  }
  // This client takes a stream that ended with an error as an answer for one
  // that broke, and asks for it again; this server then says once more all that
  // it has said to anybody since. What is compared is what is said once.
  const options = { requestInit: { headers: { Authorization: `Bearer ${way.token}` } }, reconnectionOptions: { maxRetries: 0 } };
  const url = new URL(way.url);
  return way.kind === "sse" ? new SSEClientTransport(url, options) : new StreamableHTTPClientTransport(url, options);
}

const client = new Client(
  { name: "drive", version: "1" },
  {
    taskStore: new InMemoryTaskStore(),
    capabilities: {
      roots: { listChanged: true },
      sampling: {},
      elicitation: { form: {}, url: {} },
      tasks: { list: {}, cancel: {}, requests: { sampling: { createMessage: {} }, elicitation: { create: {} } } },
    },
  },
);

const heard = []; // messages of the server's own accord, in their order
const listeners = new Set();

// hear waits for the first message from the place mark on that fits.
async function hear(what, fits, mark = 0) {
  const find = () => heard.slice(mark).find(fits);
  const late = new Promise((_, reject) => setTimeout(reject, patience, new Error(`${what} did not come`)).unref());
  for (;;) {
    const found = find();
    if (found) return found;
    await Promise.race([late, new Promise((resolve) => listeners.add(resolve))]);
  }
}

const logged = (pattern) => (m) => m.method === "notifications/message" && pattern.test(m.params.data);

let roots = [{ uri: "file:///home/one", name: "One" }, { uri: "file:///home/zwei%20%C3%BC", name: "Zwei ü" }];
let elicited = []; // what a person answers next

async function answer(request, extra, result) {
  if (!request.params.task) return result;
  const task = await extra.taskStore.createTask({ ttl: request.params.task.ttl });
  await extra.taskStore.storeTaskResult(task.taskId, "completed", result);
  return { task };
}
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots }));
client.setRequestHandler(CreateMessageRequestSchema, (request, extra) =>
  answer(request, extra, { role: "assistant", model: "m1", stopReason: "endTurn", content: { type: "text", text: "sampled ü" } }));
client.setRequestHandler(ElicitRequestSchema, (request, extra) => answer(request, extra, elicited.shift() ?? { action: "cancel" }));

const options = { timeout: patience };
const call = (name, args = {}, more = {}) => client.callTool({ name, arguments: args }, undefined, { ...options, ...more });
const said = async (name, args, more) => (await call(name, args, more)).content.map((c) => c.text ?? c.type);
const ask = (method, params) => client.request({ method, params }, ResultSchema, options);

async function refused(code, promise) {
  try {
    await promise;
  } catch (error) {
    if (error.code === code) return error;
    throw error;
  }
  throw new Error("it was not refused");
}

// What is done. The names are the rows of the comparison.

const scenarios = {
  "handshake": async () => {
    const t = transport();
    const send = t.send.bind(t);
    t.send = (message, more) => {
      emit({ scenario: current, dir: ">", message });
      return send(message, more);
    };
    t.onmessage = (message) => {
      emit({ scenario: current, dir: "<", message });
      if (message.method) heard.push(message);
      for (const wake of listeners) wake();
      listeners.clear();
    };
    await client.connect(t, options);
    equal(client.getServerVersion()?.name, "mcp-servers/everything");
    check(client.getInstructions()?.length > 100, "there are no instructions");
  },
  "roots, asked for by the server": async () => {
    await hear("the question", (m) => m.method === "roots/list");
    await hear("the log", logged(/^Roots updated: 2 /));
    equal((await said("get-roots-list"))[0].includes("file:///home/zwei%20%C3%BC"), true);
  },
  "roots, changed": async () => {
    roots = roots.slice(0, 1);
    await client.sendRootsListChanged();
    await hear("the log", logged(/^Roots updated: 1 /));
  },
  "ping": () => client.ping(options),
  "cancellation": async () => {
    const stop = new AbortController();
    const hanging = call("trigger-long-running-operation", { duration: 3, steps: 1 }, { signal: stop.signal });
    hanging.catch(() => {});
    await client.ping(options); // the server has read the call by then, or nearly
    await new Promise((resolve) => setTimeout(resolve, 200));
    stop.abort("enough");
    await hanging.then(() => check(false, "it was answered"), (error) => check(/enough/.test(error), error));
  },
  "tools, listed": async () => {
    const { tools } = await client.listTools({}, options);
    check(tools.length >= 18, `there are ${tools.length}`);
  },
  "tools, called": async () => {
    equal(await said("echo", { message: "Grüße, 世界 \u2028 \ud83d\ude00 \u0000 \"\\" }), ["Echo: Grüße, 世界 \u2028 \ud83d\ude00 \u0000 \"\\"]);
    equal(await said("get-sum", { a: 2.5, b: -1e21 }), ["The sum of 2.5 and -1e+21 is -1e+21."]);
    await call("get-env");
    for (const messageType of ["error", "success", "debug"]) {
      equal((await call("get-annotated-message", { messageType, includeImage: true })).content.length, 2);
    }
    equal((await said("get-tiny-image"))[1], "image");
    for (const location of ["New York", "Chicago", "Los Angeles"]) {
      check((await call("get-structured-content", { location })).structuredContent.humidity > 0, "nothing structured");
    }
    equal((await call("get-resource-links", { count: 10 })).content.length, 11);
    for (const resourceType of ["Text", "Blob"]) {
      check((await call("get-resource-reference", { resourceType, resourceId: 7 })).content[1].resource.uri, "no resource");
    }
  },
  "tools, refused": async () => {
    equal((await call("no-such-tool")).isError, true);
    equal((await call("get-sum", { a: "x" })).isError, true);
  },
  "a list that changes": async () => {
    const mark = heard.length;
    const data = "data:text/plain,hello";
    for (const outputType of ["resource", "resourceLink"]) await call("gzip-file-as-resource", { name: "a.gz", data, outputType });
    await hear("the notification", (m) => m.method === "notifications/resources/list_changed", mark);
    check((await client.readResource({ uri: "demo://resource/session/a.gz" }, options)).contents[0].blob, "no content");
  },
  "progress": async () => {
    // What comes together with the answer does not reach onprogress any more.
    const mark = heard.length;
    equal((await said("trigger-long-running-operation", { duration: 0.4, steps: 4 }, { onprogress: () => {} })).length, 1);
    equal(heard.slice(mark).filter((m) => m.method === "notifications/progress").map((m) => m.params.progress), [1, 2, 3, 4]);
  },
  "20 calls at once": async () => {
    const all = Array.from({ length: 20 }, (_, i) => said("echo", { message: `n${i}` }));
    equal((await Promise.all(all)).flat(), Array.from({ length: 20 }, (_, i) => `Echo: n${i}`));
  },
  "resources": async () => {
    check((await client.listResources({}, options)).resources.length > 5, "too few");
    equal((await client.listResourceTemplates({}, options)).resourceTemplates.length, 2);
    for (const uri of ["demo://resource/static/document/architecture.md", "demo://resource/dynamic/text/3", "demo://resource/dynamic/blob/4"]) {
      equal((await client.readResource({ uri }, options)).contents[0].uri, uri);
    }
    await refused(-32602, client.readResource({ uri: "demo://nowhere" }, options));
  },
  "subscriptions": async () => {
    const uri = "demo://resource/dynamic/text/1";
    await client.subscribeResource({ uri }, options);
    await hear("the log", logged(/^Received Subscribe Resource request/));
    await call("toggle-subscriber-updates");
    equal((await hear("the update", (m) => m.method === "notifications/resources/updated")).params.uri, uri);
    await call("toggle-subscriber-updates");
    await client.unsubscribeResource({ uri }, options);
    await hear("the log", logged(/^Received Unsubscribe Resource request/));
  },
  "prompts": async () => {
    equal((await client.listPrompts({}, options)).prompts.length, 4);
    const get = async (name, args) => (await client.getPrompt({ name, arguments: args }, options)).messages;
    equal((await get("simple-prompt")).length, 1);
    check((await get("args-prompt", { city: "Bern", state: "BE" }))[0].content.text.includes("Bern, BE"), "other arguments");
    equal((await get("completable-prompt", { department: "Sales", name: "Eve" })).length, 1);
    equal((await get("resource-prompt", { resourceType: "Blob", resourceId: "2" }))[1].content.type, "resource");
    await refused(-32602, get("args-prompt", {}));
    await refused(-32602, get("no-such-prompt"));
  },
  "completion": async () => {
    const complete = async (ref, name, value, context) =>
      (await client.complete({ ref, argument: { name, value }, context }, options)).completion.values;
    const prompt = { type: "ref/prompt", name: "completable-prompt" };
    equal(await complete(prompt, "department", "S"), ["Sales", "Support"]);
    equal(await complete(prompt, "name", "", { arguments: { department: "Sales" } }), ["David", "Eve", "Frank"]);
    equal(await complete({ type: "ref/resource", uri: "demo://resource/dynamic/text/{resourceId}" }, "resourceId", "5"), ["5"]);
  },
  "logging": async () => {
    await client.setLoggingLevel("debug", options);
    await call("toggle-simulated-logging");
    await hear("a message", logged(/level.message/));
    await call("toggle-simulated-logging");
    await client.setLoggingLevel("error", options); // then this is not worth a message
    await client.subscribeResource({ uri: "demo://resource/dynamic/text/2" }, options);
  },
  "sampling": async () => {
    check((await said("trigger-sampling-request", { prompt: "say ü", maxTokens: 5 }))[0].includes("sampled ü"), "no sample");
  },
  "elicitation by form": async () => {
    for (const action of ["accept", "decline", "cancel"]) {
      elicited = [{ action, content: action === "accept" ? { name: "Zoë", check: true, integer: 7 } : undefined }];
      check((await said("trigger-elicitation-request")).at(-1).includes(action), "another answer");
    }
  },
  "elicitation by URL": async () => {
    elicited = [{ action: "accept" }];
    const url = "https://example.com/consent?x=%20";
    check((await said("trigger-url-elicitation", { url, elicitationId: "e1" }))[0].includes("completed"), "not completed");
    const error = await refused(-32042, call("trigger-url-elicitation", { url, elicitationId: "e2", errorPath: true }));
    equal(error.data.elicitations[0].mode, "url");
  },
  "tasks of the server": async () => {
    elicited = [{ action: "accept", content: { interpretation: "snake" } }];
    const params = { name: "simulate-research-query", arguments: { topic: "python", ambiguous: true }, task: { ttl: 60000 } };
    const { task } = await client.request({ method: "tools/call", params }, CreateTaskResultSchema, options);
    equal((await client.experimental.tasks.getTask(task.taskId, options)).taskId, task.taskId);
    check((await client.experimental.tasks.listTasks(undefined, options)).tasks.length === 1, "it is not listed");
    const result = await client.experimental.tasks.getTaskResult(task.taskId, ResultSchema, options);
    check(result.content[0].text.includes("python (snake)"), "another result");
  },
  "tasks of the client": async () => {
    check((await said("trigger-sampling-request-async", { prompt: "x", maxTokens: 5 }))[0].includes("sampled ü"), "no sample");
    elicited = [{ action: "accept", content: { name: "Zoë" } }];
    check((await said("trigger-elicitation-request-async"))[0].includes("COMPLETED"), "not completed");
  },
  "unknown methods": async () => {
    await refused(-32601, ask("x/unheard-of", { "": [1.50, null, { deep: "ü" }] }));
    await client.notification({ method: "notifications/x/unheard-of", params: { a: 1 } });
    await client.ping(options);
  },
  "3 MiB": async () => { // the server takes no more than 4
    const message = "0123456789abcdeü".repeat(3 << 16);
    check((await said("echo", { message }))[0] === `Echo: ${message}`, "another text");
  },
};

for (const [name, run] of Object.entries(scenarios)) {
  current = name;
  let error = "";
  try {
    await run();
  } catch (e) {
    error = String(e?.message ?? e) || "failed";
  }
  emit({ scenario: name, error });
  if (error && name === "handshake") break;
}
current = "end";
await Promise.race([client.close(), new Promise((resolve) => setTimeout(resolve, patience).unref())]);
process.stdout.end(() => process.exit());
