// Agents on the SDK of A2A for JavaScript, and its client, for the tests of A2A.
import { once } from "node:events";
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { AgentCard, Role, TaskState } from "@a2a-js/sdk";
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } from "@a2a-js/sdk/server/express";
import express from "express";
import { userKey } from "./harness.mjs";

export const bindings = ["JSONRPC", "HTTP+JSON"];
const cardPath = "/.well-known/agent-card.json";

export const part = (value, $case = "text", mediaType = "text/plain", more = {}) => ({ content: { $case, value }, metadata: undefined, filename: "", mediaType, ...more });
const message = (role, text, more = {}) => ({
  messageId: crypto.randomUUID(), contextId: "", taskId: "", role, parts: [part(text)], metadata: undefined, extensions: [], referenceTaskIds: [], ...more,
});

// say is a message of a user, as a request to send it.
export const say = (text, more = {}, rest = {}) => ({ tenant: "", message: message(Role.ROLE_USER, text, more), configuration: undefined, metadata: undefined, ...rest });

// words are all texts of a message or of a task's artifacts.
export const words = (v) => (v?.parts ? [v] : v?.artifacts ?? []).flatMap((x) => x.parts).map((p) => p.content.value).join("");

// An Executor does what the first word of a message says. It keeps what it was
// asked, and which tasks are to stop.
class Executor {
  asked = [];
  stopped = new Set();

  async execute(request, bus) {
    this.asked.push({ text: words(request.userMessage), message: request.userMessage, task: request.taskId, context: request.contextId, tenant: request.request.tenant });
    const { taskId, contextId, task } = request;
    const at = { taskId, contextId, metadata: undefined };
    const status = (state, text) => AgentEvent.statusUpdate({
      ...at, status: { state, message: text && message(Role.ROLE_AGENT, text, { taskId, contextId }), timestamp: new Date().toISOString() },
    });
    const artifact = (id, text, append, lastChunk) => AgentEvent.artifactUpdate({
      ...at, artifact: { artifactId: id, name: "answer", description: "", parts: [part(text)], metadata: undefined, extensions: [] }, append, lastChunk,
    });
    const [how] = words(request.userMessage).split(" ");
    if (how === "echo") {
      bus.publish(AgentEvent.message(message(Role.ROLE_AGENT, words(request.userMessage), { contextId })));
      return bus.finished();
    }
    if (how === "parts") { // all that came, and what else an answer may hold
      bus.publish(AgentEvent.message(message(Role.ROLE_AGENT, "", { contextId, parts: request.userMessage.parts, metadata: { "x402.payment.status": "payment-required", deep: { n: [1, 2.5, null, "é"] } }, extensions: ["https://example.com/x"] })));
      return bus.finished();
    }
    if (how === "throw") throw new Error("the executor breaks");
    bus.publish(AgentEvent.task(task ?? { id: taskId, contextId, status: { state: TaskState.TASK_STATE_SUBMITTED, message: undefined, timestamp: new Date().toISOString() }, artifacts: [], history: [request.userMessage], metadata: undefined }));
    bus.publish(status(TaskState.TASK_STATE_WORKING));
    const ends = { ask: TaskState.TASK_STATE_INPUT_REQUIRED, login: TaskState.TASK_STATE_AUTH_REQUIRED, fail: TaskState.TASK_STATE_FAILED, reject: TaskState.TASK_STATE_REJECTED };
    if (ends[how]) {
      bus.publish(status(ends[how], `${how}: what now?`));
      return bus.finished();
    }
    for (let i = 0; how === "long" && !this.stopped.has(taskId) && i < 1000; i++) await sleep(10); // until it is cancelled
    if (this.stopped.has(taskId)) {
      bus.publish(status(TaskState.TASK_STATE_CANCELED));
      return bus.finished();
    }
    const told = task ? `resumed with <${words(request.userMessage)}>` : `done: é${"x".repeat(500)}`;
    bus.publish(artifact("a1", told.slice(0, 6), false, false));
    bus.publish(artifact("a1", told.slice(6), true, true));
    bus.publish(status(TaskState.TASK_STATE_COMPLETED));
    bus.finished();
  }

  cancelTask = async (taskId) => void this.stopped.add(taskId);
}

// serve serves an express application, or any handler, until the test ends.
export async function serve(t, handler) {
  const server = http.createServer(handler);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

// card is the card of an agent at base.
export const card = (base, more = {}) => ({
  name: "peer", description: "An agent on the SDK for JavaScript.", version: "1.2.3", provider: { organization: "interop", url: `${base}/about` },
  supportedInterfaces: bindings.map((protocolBinding, i) => ({ url: base + ["/rpc", "/v"][i], protocolBinding, tenant: "", protocolVersion: "1.0" })),
  capabilities: { streaming: true, pushNotifications: false, extendedAgentCard: true, extensions: [] },
  securitySchemes: { key: { scheme: { $case: "httpAuthSecurityScheme", value: { description: "", scheme: "Bearer", bearerFormat: "" } } } },
  securityRequirements: [{ schemes: { key: { list: [] } } }],
  defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain"],
  skills: [{ id: "talk", name: "talk", description: "It talks.", tags: ["talk"], examples: [], inputModes: [], outputModes: [], securityRequirements: [] }],
  signatures: [{ protected: "e30", signature: "AAAA", header: undefined }], ...more,
});

// peer starts an agent on the SDK, whose card names these bindings,
// and serves A2A 0.3 beside 1.0 when legacy is set. It keeps the heads of the
// requests that its bindings got.
export async function peer(t, named = bindings, legacy = false) {
  t.mock.method(console, "error", () => {}); // the SDK tells it of each refusal
  const app = express();
  const base = await serve(t, app);
  const executor = new Executor();
  const heads = [];
  const own = card(base);
  if (legacy) own.supportedInterfaces.push(...own.supportedInterfaces.map((i) => ({ ...i, protocolVersion: "0.3" })));
  own.supportedInterfaces = own.supportedInterfaces.filter((i) => named.includes(i.protocolBinding));
  const requestHandler = new DefaultRequestHandler(own, new InMemoryTaskStore(), executor, undefined, undefined, undefined, async () => ({ ...own, name: "peer, extended" }));
  const options = { requestHandler, userBuilder: UserBuilder.noAuthentication, legacyCompat: { enabled: legacy } };
  app.use(cardPath, agentCardHandler({ ...options, agentCardProvider: requestHandler }));
  app.use((req, _, next) => {
    heads.push({ method: req.method, url: req.url, headers: req.headers, raw: req.rawHeaders });
    next();
  });
  app.use("/rpc", jsonRpcHandler(options));
  app.use("/v", restHandler(options));
  return { url: base, executor, heads, card: own };
}

// client is the SDK's client of the agent whose card stands below base, over one
// binding only; legacy: in A2A 0.3.
export async function client(base, binding, headers = {}, legacy = false) {
  const fetchImpl = (url, init = {}) => fetch(url, { ...init, headers: { authorization: `Bearer ${userKey}`, ...Object.fromEntries(new Headers(init.headers)), ...headers } });
  const options = { fetchImpl, legacyCompat: { enabled: legacy } };
  const transport = binding === "JSONRPC" ? new JsonRpcTransportFactory(options) : new RestTransportFactory(options);
  const below = base.includes("/a2a/") ? new URL(base).pathname + cardPath : undefined;
  const cardResolver = new DefaultAgentCardResolver(options);
  const factory = new ClientFactory({ transports: [transport], cardResolver });
  if (legacy) { // the card without its interfaces of 1.0
    const told = await cardResolver.resolve(base, below);
    return factory.createFromAgentCard({ ...told, supportedInterfaces: told.supportedInterfaces.filter((i) => i.protocolVersion.startsWith("0.3")) });
  }
  return factory.createFromUrl(base, below);
}

// collect reads a stream to its end.
export async function collect(stream) {
  const all = [];
  for await (const event of stream) all.push(event);
  return all;
}

// alike makes what is the same of two answers to the same request: ids are named
// in the order in which they come, and times are left out. So is the lineage that
// the bus gave a message on its way, of which the agent's history tells. An error
// that comes as the one event of a stream (A14) is what the client says is its
// cause: docs/decisions/0070-errors-before-a-stream.md.
export function alike(value) {
  const names = new Map();
  const named = (id) => id && (names.has(id) || names.set(id, `id ${names.size}`), names.get(id));
  const walk = (v, key) => {
    if (v instanceof Error && /^SSE event contained an error/.test(v.message)) v = v.cause;
    if (v instanceof Error) return { error: v.constructor.name, code: v.envelopeCode ?? v.code, reason: v.reason, message: walk(v.message) };
    if (Array.isArray(v)) return v.map((x) => walk(x));
    if (key === "metadata" && v?.agentbus) {
      const { agentbus, ...rest } = v;
      return Object.keys(rest).length > 0 ? walk(rest) : undefined;
    }
    if (v && typeof v === "object") return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, walk(x, k)]));
    if (["id", "taskId", "contextId", "messageId"].includes(key)) return named(v);
    if (key === "timestamp") return v && "then";
    if (typeof v === "string") return v.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, named);
    return v;
  };
  return walk(value);
}

export { AgentCard, TaskState, sleep };
