// Runs one program in deno, and is the only module that deno loads from a file. It has no permissions, and the program has
// none either: whatever a program may do, it asks the server for, by a frame on standard output.
//
// A frame is u32 length of the payload, u8 kind, u32 stream, payload; numbers little-endian. The stream of an invocation is
// a number that the server chose; that of a host call has the highest bit set, and is chosen here.
//
// The program may change every object that it can reach. So the runner keeps its own copies of what it uses, and neither
// iterates nor spreads arrays. The server believes nothing that comes from here: a program that found a way to write frames
// could only ask what its `ctx` can ask.
import { AsyncLocalStorage } from "node:async_hooks";

const KIND = { LOAD: 1, LOADED: 2, START: 3, HEAD: 4, DATA: 5, END: 6, CANCEL: 7, CREDIT: 8, ERROR: 9, LOG: 10, CALL: 11, ANSWER: 12, DONE: 13 };
const WINDOW = 262144;
const PIECE = 65536;
const LOG_LINE = 8192;
const WAIT_UNTIL_MS = 30000;
const NO_BODY = { __proto__: null, 101: true, 103: true, 204: true, 205: true, 304: true };

// ---- What the runner uses, taken before the program is loaded.
const { apply, ownKeys, deleteProperty } = Reflect;
const { defineProperty, freeze, getOwnPropertyDescriptor, getPrototypeOf } = Object;
const uncurry = (method) => (self, ...rest) => apply(method, self, rest);
const getter = (prototype, name) => uncurry(getOwnPropertyDescriptor(prototype, name).get);
const { parse, stringify } = JSON;
const { min } = Math;
const { isArray } = Array;
const $ = {
  Array, ArrayBuffer, Blob, Error, Headers, Map, Number, Promise, ReadableStream, Request, Response, Set, String, TypeError, Uint8Array, URL,
  AbortController, DOMException,
};
const resolved = Promise.resolve.bind(Promise);
const mapGet = uncurry(Map.prototype.get);
const mapSet = uncurry(Map.prototype.set);
const mapHas = uncurry(Map.prototype.has);
const mapDelete = uncurry(Map.prototype.delete);
const mapForEach = uncurry(Map.prototype.forEach);
const setAdd = uncurry(Set.prototype.add);
const setDelete = uncurry(Set.prototype.delete);
const setForEach = uncurry(Set.prototype.forEach);
const then = uncurry(Promise.prototype.then);
const abort = uncurry(AbortController.prototype.abort);
const signalOf = getter(AbortController.prototype, "signal");
const isAborted = getter(AbortSignal.prototype, "aborted");
const listen = uncurry(EventTarget.prototype.addEventListener);
const unlisten = uncurry(EventTarget.prototype.removeEventListener);
const slice = uncurry(String.prototype.slice);
const startsWith = uncurry(String.prototype.startsWith);
const copyInto = uncurry(getPrototypeOf(Uint8Array.prototype).set);
const moveWithin = uncurry(getPrototypeOf(Uint8Array.prototype).copyWithin);
const bufferOf = getter(getPrototypeOf(Uint8Array.prototype), "buffer"), offsetOf = getter(getPrototypeOf(Uint8Array.prototype), "byteOffset");
const byteLength = getter(getPrototypeOf(Uint8Array.prototype), "byteLength");
/** A part of some bytes, made by no constructor that the program could have put there. */
const subarray = (bytes, from, to) => new $.Uint8Array(bufferOf(bytes), offsetOf(bytes) + from, (to ?? byteLength(bytes)) - from);
const typeTag = getter(getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag);
const viewSet = uncurry(DataView.prototype.setUint32);
const viewGet = uncurry(DataView.prototype.getUint32);
const View = DataView;
const encoder = new TextEncoder(), decoder = new TextDecoder();
const encode = encoder.encode.bind(encoder), decode = decoder.decode.bind(decoder);
const statusOf = getter(Response.prototype, "status");
const headersOf = getter(Response.prototype, "headers");
const bodyOf = getter(Response.prototype, "body");
const requestGet = { __proto__: null };
for (const name of ["method", "url", "headers", "body", "redirect", "signal"]) requestGet[name] = getter(Request.prototype, name);
const appendHeader = uncurry(Headers.prototype.append);
const eachHeader = uncurry(Headers.prototype.forEach);
const getReader = uncurry(ReadableStream.prototype.getReader);
const cancelStream = uncurry(ReadableStream.prototype.cancel);
const readFrom = uncurry(ReadableStreamDefaultReader.prototype.read);
const cancelReader = uncurry(ReadableStreamDefaultReader.prototype.cancel);
const blobBytes = uncurry(Blob.prototype.arrayBuffer);
const createUrl = URL.createObjectURL.bind(URL), revokeUrl = URL.revokeObjectURL.bind(URL);
const toBase64 = uncurry(Uint8Array.prototype.toBase64), fromBase64 = Uint8Array.fromBase64.bind(Uint8Array);
const inspect = Deno.inspect.bind(Deno);
const now = Date.now.bind(Date), queue = queueMicrotask;
const preventDefault = uncurry(Event.prototype.preventDefault);
const original = { fetch, setTimeout, clearTimeout, setInterval, clearInterval };
const read = Deno.stdin.read.bind(Deno.stdin), write = Deno.stdout.writeSync.bind(Deno.stdout), exit = Deno.exit.bind(Deno);
const local = new AsyncLocalStorage();
const runIn = local.run.bind(local), current = local.getStore.bind(local);

// ---- What a program finds: a list, so that a new version of deno adds nothing by itself.
const KEPT = `Object Function Array Number parseFloat parseInt Infinity NaN undefined Boolean String Symbol Date Promise RegExp Error
AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError globalThis JSON Math Intl ArrayBuffer Atomics Uint8Array
Int8Array Uint16Array Int16Array Uint32Array Int32Array BigUint64Array BigInt64Array Uint8ClampedArray Float16Array Float32Array Float64Array
DataView Map BigInt Set Iterator WeakMap WeakSet Proxy Reflect FinalizationRegistry WeakRef decodeURI decodeURIComponent encodeURI
encodeURIComponent escape unescape eval isFinite isNaN queueMicrotask AbortController AbortSignal Blob ByteLengthQueuingStrategy CloseEvent
CompressionStream CountQueuingStrategy CryptoKey CustomEvent DecompressionStream DOMException QuotaExceededError ErrorEvent Event EventTarget
File FileReader FormData Headers MessageEvent Performance PerformanceEntry PerformanceMark PerformanceMeasure PromiseRejectionEvent
ProgressEvent ReadableStream ReadableStreamDefaultReader Request Response TextDecoder TextEncoder TextDecoderStream TextEncoderStream
TransformStream URL URLPattern URLSearchParams MessageChannel MessagePort WritableStream WritableStreamDefaultWriter
WritableStreamDefaultController ReadableByteStreamController ReadableStreamBYOBReader ReadableStreamBYOBRequest
ReadableStreamDefaultController TransformStreamDefaultController atob btoa crypto Crypto SubtleCrypto performance global reportError structuredClone Temporal SuppressedError DisposableStack AsyncDisposableStack SharedArrayBuffer WebAssembly self
onunhandledrejection onerror`;
/** Loads what of Node a program names, which takes longer than all else and needs `Deno`; then removes what it may not have. */
async function confine(usesNode, names) {
  const buffer = usesNode ? (globalThis.process.version, globalThis.Buffer) : undefined;
  for (const name of names) await import(`node:${name}`);
  const kept = new Set(KEPT.split(/\s+/));
  // Not the symbols: one has the listeners below.
  for (const key of ownKeys(globalThis)) if (typeof key === "string" && !kept.has(key)) deleteProperty(globalThis, key);
  if (usesNode) globalThis.Buffer = buffer;
  for (const [name, value] of Object.entries(provided)) globalThis[name] = value;
}
/** What a program finds instead of deno's own. */
const provided = { __proto__: null };

// ---- Frames.
function send(kind, stream, payload) {
  const length = payload === undefined ? 0 : byteLength(payload);
  const frame = new $.Uint8Array(9 + length);
  const view = new View(bufferOf(frame));
  viewSet(view, 0, length, true);
  frame[4] = kind;
  viewSet(view, 5, stream, true);
  if (length) copyInto(frame, payload, 9);
  for (let at = 0; at < 9 + length;) at += write(at ? subarray(frame, at) : frame);
}
const sendJson = (kind, stream, value) => send(kind, stream, encode(stringify(value)));
function sendCredit(stream, bytes) {
  const payload = new $.Uint8Array(4);
  viewSet(new View(bufferOf(payload)), 0, bytes, true);
  send(KIND.CREDIT, stream, payload);
}

// ---- Bytes in both directions, at most WINDOW of them on their way in each stream.
const incoming = new $.Map(), outgoing = new $.Map();

/** A stream of what the server sends. Its credit is given back as the program takes the pieces. */
function receive(id) {
  const inbox = { first: null, last: null, wake: null, ended: false, failure: null };
  mapSet(incoming, id, inbox);
  return new $.ReadableStream({
    async pull(controller) {
      while (inbox.first === null && !inbox.ended && inbox.failure === null) await new $.Promise((wake) => { inbox.wake = wake; });
      if (inbox.first !== null) {
        const bytes = inbox.first.bytes;
        inbox.first = inbox.first.next;
        controller.enqueue(bytes);
        sendCredit(id, byteLength(bytes));
      } else if (inbox.failure !== null) controller.error(inbox.failure);
      else controller.close();
    },
    cancel() {
      if (mapDelete(incoming, id) && id >= 0x80000000) send(KIND.CANCEL, id);
    },
  }, { highWaterMark: 0 });
}
function wakeInbox(inbox) {
  const wake = inbox.wake;
  inbox.wake = null;
  if (wake) wake();
}
function arrive(id, bytes) {
  const inbox = mapGet(incoming, id);
  if (!inbox) return;
  const node = { bytes, next: null };
  if (inbox.first === null) inbox.first = inbox.last = node;
  else inbox.last = inbox.last.next = node;
  wakeInbox(inbox);
}
function finishInbox(id, failure) {
  const inbox = mapGet(incoming, id);
  if (!inbox) return;
  mapDelete(incoming, id);
  inbox.ended = true;
  inbox.failure = failure;
  wakeInbox(inbox);
}

/** Sends a stream to its end, as the server gives credit. Ends early when `outbox.stopped`. */
async function transmit(id, stream) {
  const outbox = { credit: WINDOW, wake: null, stopped: false };
  mapSet(outgoing, id, outbox);
  const reader = getReader(stream);
  try {
    while (!outbox.stopped) {
      const step = await readFrom(reader);
      if (step.done) break;
      if (typeTag(step.value) !== "Uint8Array") throw new $.TypeError("A body's pieces have to be Uint8Array.");
      const length = byteLength(step.value);
      for (let at = 0; at < length && !outbox.stopped;) {
        while (outbox.credit <= 0 && !outbox.stopped) await new $.Promise((wake) => { outbox.wake = wake; });
        const size = min(length - at, outbox.credit, PIECE);
        if (outbox.stopped) break;
        outbox.credit -= size;
        send(KIND.DATA, id, subarray(step.value, at, at + size));
        at += size;
      }
    }
    if (outbox.stopped) ignore(cancelReader(reader));
    else send(KIND.END, id);
  } finally {
    mapDelete(outgoing, id);
  }
}
function stopOutbox(id) {
  const outbox = mapGet(outgoing, id);
  if (!outbox) return;
  outbox.stopped = true;
  if (outbox.wake) outbox.wake();
}
const nothing = () => {};
function ignore(promise) {
  then(resolved(promise), nothing, nothing);
}

// ---- Host calls.
const calls = new $.Map();
let lastCall = 0;

class HostError extends Error {
  constructor(message, code, remediation) {
    super(message);
    this.name = "HostError";
    this.code = code;
    this.remediation = remediation;
  }
}

function openCall(invocation, member, args, acting) {
  if (!invocation) throw new $.TypeError(`${member} can only be used while a request is handled, not while the module is loaded.`);
  if (invocation.over) throw new $.TypeError(`${member} was used after the invocation had ended. Pass the promise to ctx.waitUntil.`);
  lastCall = (lastCall + 1) & 0x7fffffff;
  const id = 0x80000000 + lastCall;
  const promise = new $.Promise((resolve, reject) => mapSet(calls, id, { resolve, reject, member }));
  const frame = { invocation: invocation.id, member, arguments: args, acting };
  try {
    sendJson(KIND.CALL, id, frame);
  } catch (error) {
    mapDelete(calls, id);
    throw error;
  }
  return { id, promise };
}

/** Bytes travel as {"$base64": text}; the server's come back as Uint8Array. */
async function pack(value) {
  if (value === undefined) return null;
  if (value instanceof $.Blob) value = new $.Uint8Array(await blobBytes(value));
  if (value instanceof $.ArrayBuffer) value = new $.Uint8Array(value);
  return typeTag(value) === "Uint8Array" ? { $base64: toBase64(value) } : value;
}
function unpack(value) {
  return value !== null && typeof value === "object" && typeof value.$base64 === "string" ? fromBase64(value.$base64) : value;
}
async function call(invocation, member, args, acting = null) {
  const packed = new $.Array(args.length);
  for (let at = 0; at < args.length; at++) packed[at] = await pack(args[at]);
  while (packed.length && args[packed.length - 1] === undefined) packed.length--;
  return unpack(await openCall(invocation, member, packed, acting).promise);
}

function listHeaders(headers) {
  const list = [];
  eachHeader(headers, (value, name) => { list[list.length] = [name, value]; });
  return list;
}

/** Not by a constructor, which would iterate. */
function setHeaders(headers, list) {
  for (let at = 0; at < list.length; at++) appendHeader(headers, list[at][0], list[at][1]);
}

/** Sends a request by a host call that has a body in both directions. */
async function exchange(invocation, member, request, target) {
  const body = requestGet.body(request), signal = requestGet.signal(request);
  if (isAborted(signal)) throw signal.reason;
  const head = {
    method: requestGet.method(request), url: requestGet.url(request), headers: listHeaders(requestGet.headers(request)),
    redirect: requestGet.redirect(request), has_body: body !== null, target,
  };
  const opened = openCall(invocation, member, [head], null);
  const stop = () => {
    const waiting = mapGet(calls, opened.id);
    send(KIND.CANCEL, opened.id);
    stopOutbox(opened.id);
    finishInbox(opened.id, signal.reason);
    if (waiting) {
      mapDelete(calls, opened.id);
      waiting.reject(signal.reason);
    }
  };
  listen(signal, "abort", stop);
  if (body !== null) {
    then(transmit(opened.id, body), undefined, (error) => {
      send(KIND.CANCEL, opened.id);
      const waiting = mapGet(calls, opened.id);
      if (waiting) { mapDelete(calls, opened.id); waiting.reject(error); }
    });
  }
  const answer = await opened.promise;
  if (!answer.has_body) unlisten(signal, "abort", stop);
  const stream = answer.has_body && !NO_BODY[answer.status] ? answer.stream : null;
  const response = new $.Response(stream, { status: answer.status });
  setHeaders(headersOf(response), answer.headers);
  defineProperty(response, "url", { value: answer.url ?? head.url });
  defineProperty(response, "redirected", { value: answer.redirected === true });
  return response;
}

provided.fetch = function fetch(input, init) {
  return then(resolved(), () => {
    const request = new $.Request(input, init);
    const url = requestGet.url(request);
    if (startsWith(url, "data:") || startsWith(url, "blob:")) return original.fetch(request);
    return exchange(current(), "fetch", request, null);
  });
};

// ---- ctx.
function makeDatabase(invocation, acting) {
  return freeze({
    query: (sql, params) => call(invocation, "db.query", [sql, params ?? []], acting),
    asUser: (id, work) => resolved(work(makeDatabase(invocation, ["user", id]))),
    asAnon: (work) => resolved(work(makeDatabase(invocation, ["anon"]))),
  });
}
const MEMBERS = {
  kv: ["get", "set", "del", "incr", "decr", "setnx", "setex", "cas", "exists", "ttl", "expire", "mget", "mset", "expose", "unexpose", "listRules"],
  storage: ["getUploadUrl", "getDownloadUrl", "put", "get", "list", "delete"],
  substrate: ["propose", "getEntity", "findEntities", "searchMemory", "listMemory", "listSourceArtifacts", "getSourceArtifact", "listActions",
    "getAction", "upsertEntity", "patchEntity", "deleteEntity", "mergeEntities", "wsTicket"],
  idempotency: ["claim"],
};
function makeGroup(invocation, group) {
  const made = {}, names = MEMBERS[group];
  for (let at = 0; at < names.length; at++) made[names[at]] = (...args) => call(invocation, `${group}.${names[at]}`, args);
  return freeze(made);
}
function makeContext(invocation, context, env) {
  const integrations = (acting) => (tool, params) => call(invocation, "integrations.execute", [tool, params ?? {}], acting);
  const meetings = new Proxy(freeze({}), {
    get: (_, name) => typeof name === "string" && name !== "then" ? (...args) => call(invocation, `ai.meetings.${name}`, args) : undefined,
  });
  return {
    ...context.extra,
    user: context.user, caller: context.caller, app: context.app, request: context.request, env,
    db: makeDatabase(invocation, null),
    kv: makeGroup(invocation, "kv"),
    storage: makeGroup(invocation, "storage"),
    idempotency: makeGroup(invocation, "idempotency"),
    substrate: context.app && context.app.substrateOrganizationId ? makeGroup(invocation, "substrate") : null,
    ai: freeze({
      chat: (body) => call(invocation, "ai.chat", [body]),
      embeddings: (body) => call(invocation, "ai.embeddings", [body]),
      images: (body) => call(invocation, "ai.images", [body]),
      meetings,
    }),
    integrations: freeze({ execute: integrations(null), asUser: (id) => freeze({ execute: integrations(["user", id]) }) }),
    waitUntil: (promise) => {
      if (invocation.over) throw new $.TypeError("waitUntil was used after the invocation had ended.");
      invocation.background++;
      const settle = () => { if (--invocation.background === 0 && invocation.settled) invocation.settled(); };
      then(resolved(promise), settle, (error) => { logTo(invocation, "error", ["waitUntil:", error]); settle(); });
    },
    invoke: async (name, body, options) => {
      const method = options?.method ?? "POST", headers = new $.Headers(options?.headers);
      let content = null;
      if (body !== undefined && body !== null && method !== "GET" && method !== "HEAD") {
        const raw = typeof body === "string" || body instanceof $.Blob || body instanceof $.ReadableStream || body instanceof $.ArrayBuffer || typeTag(body);
        content = raw ? body : stringify(body);
        if (!raw && !headers.has("content-type")) headers.set("content-type", "application/json");
      }
      return exchange(invocation, "invoke", new $.Request("http://function/", { method, headers, body: content }), $.String(name));
    },
    step: async (name, work) => {
      const begun = await call(invocation, "step.begin", [name]);
      if (begun.done) return begun.value;
      let value;
      try {
        value = await work();
      } catch (error) {
        await call(invocation, "step.end", [name, { error: $.String(error?.message ?? error) }]);
        throw error;
      }
      const earlier = await call(invocation, "step.end", [name, { value: value === undefined ? null : value }]);
      return earlier ? earlier.value : value;
    },
  };
}

// ---- Logs.
function show(value) {
  return typeof value === "string" ? value : inspect(value, { depth: 4, iterableLimit: 50, strAbbreviateSize: 2000, colors: false });
}
function logTo(invocation, level, args) {
  let text = "";
  for (let at = 0; at < args.length && text.length < LOG_LINE; at++) {
    try {
      text += (at ? " " : "") + show(args[at]);
    } catch {
      text += "[cannot be shown]";
    }
  }
  if (text.length > LOG_LINE) text = `${slice(text, 0, LOG_LINE)} [... cut, ${text.length} characters]`;
  sendJson(KIND.LOG, invocation ? invocation.id : 0, { level, message: text, at: now() });
}
function log(level, args) {
  const invocation = current();
  // After its end, a line belongs to no invocation: the server keeps those for the next one.
  logTo(invocation && !invocation.over ? invocation : null, level, args);
}
const counts = new $.Map(), timers = new $.Map();
provided.console = {
  log: (...args) => log("info", args), info: (...args) => log("info", args), debug: (...args) => log("debug", args),
  warn: (...args) => log("warn", args), error: (...args) => log("error", args), trace: (...args) => log("debug", args),
  dir: (value) => log("info", [value]), dirxml: (value) => log("info", [value]), table: (value) => log("info", [value]),
  assert: (ok, ...args) => { if (!ok) log("error", ["Assertion failed:", args]); },
  count: (label = "default") => { mapSet(counts, label, (mapGet(counts, label) ?? 0) + 1); log("info", [`${label}: ${mapGet(counts, label)}`]); },
  countReset: (label = "default") => { mapDelete(counts, label); },
  time: (label = "default") => { mapSet(timers, label, now()); },
  timeLog: (label = "default", ...args) => log("info", [`${label}: ${now() - mapGet(timers, label)} ms`, args]),
  timeEnd: (label = "default") => { log("info", [`${label}: ${now() - mapGet(timers, label)} ms`]); mapDelete(timers, label); },
  group: (...args) => log("info", args), groupCollapsed: (...args) => log("info", args), groupEnd: nothing, clear: nothing, timeStamp: nothing,
  profile: nothing, profileEnd: nothing,
};
function logUncaught(error) {
  const invocation = current();
  const text = `Uncaught ${error instanceof $.Error ? error.stack ?? error.message : show(error)}`;
  if (invocation && !invocation.over) logTo(invocation, "error", [text]);
  else mapForEach(invocations, (each) => logTo(each, "error", [text]));
}
listen(globalThis, "unhandledrejection", (event) => { preventDefault(event); logUncaught(event.reason); });
listen(globalThis, "error", (event) => { preventDefault(event); logUncaught(event.error); });

// ---- Timers end with their invocation.
function ownTimer(start, stop, once) {
  return (work, delay, ...args) => {
    const invocation = current();
    let id;
    id = start(() => {
      if (once && invocation) setDelete(invocation.timers, stop_);
      if (typeof work === "function") apply(work, undefined, args);
    }, delay);
    const stop_ = () => stop(id);
    if (invocation) {
      if (invocation.over) stop(id);
      else setAdd(invocation.timers, stop_);
    }
    return id;
  };
}
provided.setTimeout = ownTimer(original.setTimeout, original.clearTimeout, true);
provided.setInterval = ownTimer(original.setInterval, original.clearInterval, false);
provided.clearTimeout = original.clearTimeout;
provided.clearInterval = original.clearInterval;
provided.setImmediate = (work, ...args) => provided.setTimeout(() => apply(work, undefined, args), 0);
provided.clearImmediate = original.clearTimeout;

// ---- The program.
let handler = null, env = freeze({});

function describe(error) {
  if (error instanceof $.Error) {
    return { name: $.String(error.name), message: slice($.String(error.message), 0, 8192), stack: slice($.String(error.stack ?? ""), 0, 16384) };
  }
  let text;
  try {
    text = show(error);
  } catch {
    text = "[cannot be shown]";
  }
  return { name: "Error", message: slice(text, 0, 8192), stack: "" };
}

/** What a module declares as its input: a JSON Schema, or an object of zod or another standard-schema library. */
function findSchema(found) {
  if (found === undefined || found === null) return null;
  const standard = found["~standard"];
  if (standard?.jsonSchema?.input) return standard.jsonSchema.input({ target: "draft-2020-12" });
  return typeof found.toJSONSchema === "function" ? found.toJSONSchema() : standard ? null : found;
}

async function load(message) {
  env = freeze({ ...message.env });
  const values = env;
  await confine(message.uses_node, message.node);
  globalThis.Deno = freeze({ env: freeze({ get: (name) => values[name], has: (name) => name in values, toObject: () => ({ ...values }) }) });
  globalThis.process = { env: { ...values }, platform: "linux", version: "", versions: {}, argv: [], nextTick: (work, ...args) => queue(() => apply(work, undefined, args)) };
  const url = createUrl(new $.Blob([message.code], { type: message.media_type }));
  try {
    const module = await import(url);
    const entry = typeof module.default === "function" ? "default" : typeof module.handler === "function" ? "handler" : null;
    handler = entry ? module[entry] : null;
    sendJson(KIND.LOADED, 0, { entry, schema: message.wants_schema ? findSchema(module.inputSchema) : null, error: null });
  } catch (error) {
    sendJson(KIND.LOADED, 0, { entry: null, schema: null, error: describe(error) });
  } finally {
    revokeUrl(url);
  }
}

const invocations = new $.Map();

function start(id, message) {
  const invocation = { id, over: false, background: 0, settled: null, timers: new $.Set(), control: new $.AbortController() };
  mapSet(invocations, id, invocation);
  runIn(invocation, () => ignore(handle(invocation, message)));
}

async function handle(invocation, message) {
  const id = invocation.id;
  try {
    const request = new $.Request(message.url, {
      method: message.method, body: message.has_body ? receive(id) : null, signal: signalOf(invocation.control),
    });
    setHeaders(requestGet.headers(request), message.headers);
    const response = await handler(request, makeContext(invocation, message.context, env));
    let status, headers, body;
    try {
      status = statusOf(response), headers = listHeaders(headersOf(response)), body = bodyOf(response);
    } catch {
      sendJson(KIND.ERROR, id, { type: "not_a_response", name: "TypeError", message: `The function returned ${typeof response}, not a Response.`, stack: "" });
      return finish(invocation);
    }
    sendJson(KIND.HEAD, id, { status, headers, has_body: body !== null });
    if (body !== null) await transmit(id, body);
  } catch (error) {
    sendJson(KIND.ERROR, id, { type: "threw", ...describe(error) });
  }
  if (invocation.background > 0) {
    await new $.Promise((resolve) => {
      invocation.settled = resolve;
      original.setTimeout(resolve, WAIT_UNTIL_MS);
    });
  }
  finish(invocation);
}

function finish(invocation) {
  if (invocation.over) return;
  invocation.over = true;
  mapDelete(invocations, invocation.id);
  mapDelete(incoming, invocation.id);
  setForEach(invocation.timers, (stop) => stop());
  send(KIND.DONE, invocation.id);
}

function cancel(id, payload) {
  if (id >= 0x80000000) return stopOutbox(id);
  const invocation = mapGet(invocations, id);
  if (!invocation) return;
  const reason = new $.DOMException(byteLength(payload) ? decode(payload) : "The client closed the connection.", "AbortError");
  finishInbox(id, reason);
  stopOutbox(id);
  abort(invocation.control, reason);
  finish(invocation);
}

/** A host call's answer, or the head of the response of one that has a body. */
function settle(kind, id, payload) {
  const waiting = mapGet(calls, id);
  if (!waiting) return;
  mapDelete(calls, id);
  const message = parse(decode(payload));
  if (kind === KIND.ERROR) waiting.reject(new HostError(message.message, message.code, message.remediation));
  else if (kind === KIND.HEAD) {
    if (message.has_body) message.stream = receive(id);
    waiting.resolve(message);
  } else waiting.resolve(message.value);
}

function take(kind, id, payload) {
  switch (kind) {
    case KIND.LOAD: return ignore(load(parse(decode(payload))));
    case KIND.START: return start(id, parse(decode(payload)));
    case KIND.DATA: return arrive(id, payload);
    case KIND.END: return finishInbox(id, null);
    case KIND.CANCEL: return cancel(id, payload);
    case KIND.HEAD: case KIND.ANSWER: return settle(kind, id, payload);
    case KIND.ERROR:
      if (mapHas(calls, id)) return settle(kind, id, payload);
      return finishInbox(id, new $.TypeError(parse(decode(payload)).message));
    case KIND.CREDIT: {
      const outbox = mapGet(outgoing, id);
      if (!outbox) return;
      outbox.credit += viewGet(new View(bufferOf(payload), offsetOf(payload)), 0, true);
      if (outbox.wake) outbox.wake();
    }
  }
}

// ---- What is slow the first time is done before there is a program: a process may wait for its program.
{
  const request = new $.Request("http://function/", { method: "POST", body: receive(0), signal: signalOf(new $.AbortController()) });
  mapDelete(incoming, 0);
  ignore(runIn(null, () => readFrom(getReader(bodyOf(new $.Response(requestGet.method(request)))))));
  await import("data:application/javascript,");
}

// ---- The loop.
let buffer = new $.Uint8Array(PIECE * 2), filled = 0;
for (;;) {
  if (filled === byteLength(buffer)) {
    const larger = new $.Uint8Array(filled * 2);
    copyInto(larger, buffer);
    buffer = larger;
  }
  const count = await read(subarray(buffer, filled));
  if (count === null) exit(0);
  filled += count;
  let at = 0;
  const view = new View(bufferOf(buffer));
  while (filled - at >= 9) {
    const length = viewGet(view, at, true);
    if (filled - at < 9 + length) break;
    const payload = new $.Uint8Array(length);
    copyInto(payload, subarray(buffer, at + 9, at + 9 + length));
    take(buffer[at + 4], viewGet(view, at + 5, true), payload);
    at += 9 + length;
  }
  if (at) {
    moveWithin(buffer, 0, at, filled);
    filled -= at;
  }
}
