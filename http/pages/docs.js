// The API reference: reads the server's OpenAPI 3.1 document and renders it.
// Text from the document or an answer is inserted as text nodes only; keys are only in this module's memory.

const METHODS = ["get", "put", "post", "patch", "delete", "head", "options", "trace"];
const TEXT_LIMIT = 1_000_000; // bytes of an answer that are drawn
const PAINT_LIMIT = 150_000; // characters of JSON that are coloured
const keys = new Map(); // header name -> secret
const operations = [];
const source = new URL("openapi.json", document.baseURI);
const byId = (id) => document.getElementById(id);
const say = (text) => { byId("page-status").textContent = text; };
const entriesOf = (map) => Object.entries(map ?? {});
const valuesOf = (map) => Object.values(map ?? {});
const hasValue = (value) => value !== undefined && value !== null;
let doc = {};

// ---- Elements ----

/** h("p.note", {title: "t", click: listener}, "text", element, [more]) */
function h(spec, ...parts) {
	const [tag, ...classes] = spec.split(".");
	const element = document.createElement(tag);
	if (classes.length) element.className = classes.join(" ");
	for (const part of parts.flat(9)) {
		if (!hasValue(part) || part === false) continue;
		if (typeof part !== "object" || part instanceof Node) element.append(part);
		else for (const [name, value] of Object.entries(part)) {
			if (typeof value === "function") element.addEventListener(name, value);
			else if (hasValue(value) && value !== false) element.setAttribute(name, value === true ? "" : value);
		}
	}
	return element;
}

const code = (value) => h("code", typeof value === "string" ? value : JSON.stringify(value));
const mustMark = () => h("span.required", "required");
const problem = (...parts) => h("p.problem", { role: "alert" }, parts);
const comma = (parts) => parts.flatMap((part, at) => (at ? [", ", part] : [part]));

/** A disclosure whose inside is built when it is first opened: recursive schemas end here. */
function lazy(summary, build) {
	const details = h("details", h("summary", summary));
	details.addEventListener("toggle", () => details.append(h("div", build())), { once: true });
	return details;
}

function copyButton(what, text) {
	return h("button.copy", { type: "button", "aria-label": `Copy ${what}`, async click({ target }) {
		// Plain http has no clipboard.
		const isCopied = await navigator.clipboard?.writeText(text()).then(() => true, () => false);
		target.textContent = isCopied ? "Copied" : "Please select it";
		say(target.textContent);
		setTimeout(() => { target.textContent = "Copy"; }, 1600);
	} }, "Copy");
}

const codeBlock = (label, content) => h("figure",
	h("figcaption", label, copyButton(label, () => content.textContent)),
	h("pre", { tabindex: 0, role: "region", "aria-label": label }, content));

/** The little Markdown that descriptions use: paragraphs, lists, headings, fences; see inline() for the rest. */
function prose(text) {
	const box = h("div.prose");
	(text ?? "").split(/^\s*```.*$/m).forEach((part, index) => {
		if (index % 2) return box.append(h("pre", { tabindex: 0 }, part.trim()));
		let open = null;
		for (const line of part.split("\n")) {
			const [, marker = "", rest] = /^\s*(?:([-*+]|\d+[.)]|#{1,6})\s+)?(.*)$/.exec(line);
			const list = /^\d/.test(marker) ? "ol" : /^[-*+]/.test(marker) && "ul";
			if (!rest) open = null;
			else if (list && open?.localName !== list) box.append(open = h(list, h("li", inline(rest))));
			else if (list) open.append(h("li", inline(rest)));
			else if (marker) box.append(h("p.heading", inline(rest)));
			else if (open) (open.localName === "p" ? open : open.lastChild).append(" ", ...inline(rest));
			else box.append(open = h("p", inline(rest)));
		}
	});
	return box.firstChild && box;
}

function inline(text) {
	return text.split(/(`[^`]+`|\*\*[^*]+\*\*|\[[^\]]+\]\([^)\s]+\))/).map((piece) => {
		const [, label, href] = /^\[([^\]]+)\]\(((?:https?:|mailto:|[/#])[^)]*)\)$/i.exec(piece) ?? [];
		if (href) return h("a", { href }, label);
		if (/^`.+`$/.test(piece)) return code(piece.slice(1, -1));
		return /^\*\*.+\*\*$/.test(piece) ? h("strong", piece.slice(2, -2)) : piece;
	});
}

/** Indented, coloured JSON. Works on the text, so that large integers keep every digit; other text stays as it is. */
function paint(text) {
	try { JSON.parse(text); } catch { return text; }
	const out = h("span");
	const tokens = text.match(/"(?:\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g);
	let depth = 0;
	tokens.forEach((token, at) => {
		const opens = /^[{[]$/.test(token);
		const closes = /^[}\]]$/.test(token);
		const after = tokens[at + 1];
		depth += opens - closes;
		const turn = () => out.append(`\n${"  ".repeat(depth)}`);
		if (closes && !/^[{[]$/.test(tokens[at - 1])) turn();
		if (token === ":") out.append(": ");
		else if (opens || closes || token === "," || text.length > PAINT_LIMIT) out.append(token);
		else out.append(h(token[0] !== '"' ? "span.literal" : after === ":" ? "span.name" : "span.text", token));
		if (token === "," || (opens && !/^[}\]]$/.test(after))) turn();
	});
	return out;
}

// ---- Schemas ----

/** Follow $ref; what stands beside it wins, as 2020-12 has it. $name remembers the outermost reference. */
function deref(node) {
	for (let hops = 0; typeof node?.$ref === "string" && hops < 20; hops += 1) {
		const { $ref, ...beside } = node;
		const steps = $ref.split("/").slice(1);
		node = { ...steps.reduce((at, step) => at?.[step], doc), $name: steps.at(-1), ...beside };
	}
	return node ?? {};
}

/** One flat schema: references followed, allOf merged, "X or null" folded into X. */
function flatten(raw, depth = 0) {
	if (depth > 12 || typeof raw !== "object") return {};
	let schema = deref(raw);
	const real = choicesOf(schema).filter((choice) => choice.type !== "null");
	if (real.length === 1) {
		const { anyOf, oneOf, ...own } = schema;
		schema = { ...flatten(real[0], depth + 1), ...own, nullable: choicesOf(schema).length > 1 };
	}
	const { allOf = [], ...own } = schema;
	return [...allOf.map((part) => flatten(part, depth + 1)), own].reduce((one, other) => ({
		...one, ...other,
		properties: { ...one.properties, ...other.properties }, required: [...one.required ?? [], ...other.required ?? []],
	}));
}

const choicesOf = (schema) => schema.anyOf ?? schema.oneOf ?? [];
const typesOf = ({ type, properties, items }) =>
	[type ?? (Object.keys(properties ?? {}).length ? "object" : items ? "array" : [])].flat();
const is = (schema, type) => typesOf(schema).includes(type);

function typeName(raw, depth = 0) {
	const schema = flatten(raw);
	const choices = choicesOf(schema);
	if (depth > 3) return "…";
	if (choices.length > 2 && schema.$name) return schema.$name;
	const names = choices.length ? choices.map((choice) => typeName(choice, depth + 1))
		: "const" in schema ? [JSON.stringify(schema.const)]
			: typesOf(schema).map((type) => type === "array" ? `array of ${typeName(schema.items, depth + 1)}`
				: type === "object" && schema.$name || type);
	return [...new Set(schema.nullable ? [...names, "null"] : names)].join(" or ") || "any value";
}

const RULES = {
	exclusiveMinimum: "more than ", exclusiveMaximum: "less than ", multipleOf: "a multiple of ", pattern: "pattern ",
	default: "default ",
};

function rules(schema) {
	const span = (low, high, unit = "") => hasValue(low)
		? (hasValue(high) ? `${low} to ${high}` : `at least ${low}`) + unit : hasValue(high) && `at most ${high}${unit}`;
	const parts = [
		schema.enum && ["one of ", comma(schema.enum.map(code))], schema.format, schema.contentMediaType,
		span(schema.minimum, schema.maximum), span(schema.minLength, schema.maxLength, " characters"),
		span(schema.minItems, schema.maxItems, " items"), schema.uniqueItems && "all different",
		...Object.entries(RULES).map(([key, label]) => hasValue(schema[key]) && [label, code(schema[key])]),
		schema.readOnly && "read only", schema.writeOnly && "write only",
	].filter(Boolean);
	return parts.length > 0 && h("ul.rules", parts.map((part) => h("li", part)));
}

/** A function that draws the rows of a schema, or null when its type name has said everything. */
function inside(raw, depth = 0) {
	const schema = flatten(raw);
	if (depth > 4) return null;
	const choices = choicesOf(schema).filter((choice) => inside(choice, depth + 1));
	if (choices.length) return () => choices.map((choice) => lazy(typeName(choice), inside(choice)));
	if (is(schema, "array")) return inside(schema.items, depth + 1);
	const { properties, patternProperties, additionalProperties: rest, required = [] } = schema;
	const rows = Object.entries({ ...properties, ...patternProperties });
	if (rest && Object.keys(rest).length) rows.push(["any other key", rest]);
	return rows.length === 0 ? null
		: () => h("ul.fields", rows.map(([name, value]) => field(name, value, { required: required.includes(name) })));
}

function field(name, raw, { required, place, description, deprecated }) {
	const schema = flatten(raw);
	const nested = inside(raw);
	const list = is(schema, "array");
	return h("li.field",
		h("p.head", h("code.key", name), h("span.type", typeName(raw)), place && h("span.place", place),
			required && mustMark(), (deprecated || schema.deprecated) && h("span.deprecated", "deprecated")),
		prose(description ?? schema.description), rules(list ? { ...flatten(schema.items), ...schema } : schema),
		nested && lazy(list ? "Fields of each item" : choicesOf(schema).length ? "Its variants" : "Its fields", nested));
}

const schemaView = (raw) => [h("p.head", h("span.type", typeName(raw))), prose(flatten(raw).description),
	rules(flatten(raw)), inside(raw)?.()];

const STRINGS = {
	"date-time": "2030-01-31T09:30:00Z", date: "2030-01-31", email: "ada@example.com", uri: "urn:example:1",
	uuid: "3f1c2f6e-8a55-4c0e-9b51-0d5f7c1e2a34",
};

/** A plausible value. Requests carry what is required, answers everything. */
function example(raw, request, depth = 0) {
	const schema = flatten(raw);
	const value = [schema.example, schema.examples?.[0], schema.const, schema.default, schema.enum?.[0]].find(hasValue);
	if (hasValue(value) || depth > 5) return value ?? null;
	if (choicesOf(schema).length) return example(choicesOf(schema)[0], request, depth + 1);
	const [type] = typesOf(schema);
	if (type === "array") return hasValue(schema.items) && depth < 4 ? [example(schema.items, request, depth + 1)] : [];
	if (type === "integer" || type === "number") return schema.minimum ?? (schema.exclusiveMinimum ?? -1) + 1;
	if (type === "boolean") return true;
	if (type === "null") return null;
	const text = STRINGS[schema.format] ?? "text".padEnd(schema.minLength ?? 0, "t").slice(0, schema.maxLength);
	if (type === "string") return text;
	const { properties = {}, required } = schema;
	return Object.fromEntries(Object.keys(properties).filter((name) => {
		const { example: one, examples, readOnly, writeOnly } = flatten(properties[name]);
		if (request ? readOnly : writeOnly) return false;
		return !request || !required?.length || required.includes(name) || hasValue(one ?? examples);
	}).map((name) => [name, example(properties[name], request, depth + 1)]));
}

/** The example of a media type or parameter, as text; "" without one. */
function exampleText(holder, request) {
	const value = holder.example ?? deref(valuesOf(holder.examples)[0]).value
		?? (hasValue(holder.schema) ? example(holder.schema, request) : "");
	return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

// ---- Reading the document ----

function readTags() {
	const tags = new Map((doc.tags ?? []).map((tag) => [tag.name, { ...tag, operations: [] }]));
	for (const [path, item] of entriesOf(doc.paths)) {
		for (const method of METHODS.filter((each) => item[each])) {
			const op = readOperation(path, method, item);
			const [tag] = op.tags ?? ["other"];
			if (!tags.has(tag)) tags.set(tag, { name: tag, operations: [] });
			tags.get(tag).operations.push(op);
			operations.push(op);
		}
	}
	return [...tags.values()].filter((tag) => tag.operations.length);
}

function readOperation(path, method, item) {
	const own = item[method];
	const id = own.operationId ?? `${method} ${path}`;
	const parameters = [...item.parameters ?? [], ...own.parameters ?? []].map(deref)
		.map((each) => ({ ...each, schema: each.schema ?? valuesOf(each.content)[0]?.schema }));
	const words = [id, path, method, own.tags, own.summary, own.description].join(" ").toLowerCase();
	return {
		...own, id, path, words, method: method.toUpperCase(), auth: readAuth(own.security ?? doc.security ?? []),
		parameters: [...new Map(parameters.map((each) => [`${each.in} ${each.name}`, each])).values()],
		body: own.requestBody && deref(own.requestBody),
		responses: entriesOf(own.responses).map(([status, response]) => ({ ...deref(response), status })),
	};
}

/** Alternatives, each a list of the schemes it needs together; an empty list is "no key". */
const readAuth = (security) => security.map((needs) => Object.entries(needs).map(([name, scopes]) => {
	const scheme = deref(doc.components?.securitySchemes?.[name]);
	const bearer = scheme.type !== "apiKey";
	const header = bearer ? "Authorization" : scheme.in === "header" && scheme.name;
	return { ...scheme, name, scopes, header, prefix: bearer ? "Bearer " : "" };
}));

/** What can go wrong with one status: its x-errors [{code, message, remediation}], and its examples' error bodies. */
function readErrors(response) {
	const examples = response.status[0] < "4" ? [] : valuesOf(response.content)
		.flatMap((media) => [media.example, ...valuesOf(media.examples).map((each) => deref(each).value)]);
	const errorsByCode = new Map();
	for (const value of [...response["x-errors"] ?? [], ...examples]) {
		const error = { ...value, ...typeof value?.error === "string" ? { code: value.error } : value?.error };
		const name = error.code ?? error.type;
		if (name && !errorsByCode.has(name)) errorsByCode.set(name, error);
	}
	return [...errorsByCode];
}

// ---- Sending ----

/** Where the operations live. The page's policy allows its own origin only: another server's address is not used. */
function base() {
	const server = new URL(doc.servers?.[0]?.url ?? ".", source);
	return (server.origin === source.origin ? server : new URL(".", source)).href.replace(/\/$/, "");
}

function refuse(message, control) {
	throw Object.assign(new Error(message), { control });
}

/** The request a form describes. Strict refuses what is missing; else {names} stay in the path, for the curl line. */
function compose(op, form, strict) {
	const query = new URLSearchParams();
	const headers = {};
	let { path } = op;
	for (const { parameter: { name, in: place, required, schema, explode }, control } of form.rows) {
		const { value } = control;
		if (value === "" && required && strict) refuse(`${name} is required.`, control);
		// A URL parser folds dot segments, even encoded ones: the request would reach another operation.
		if (place === "path" && strict && /^\.{1,2}$/.test(value)) refuse(`${name} cannot be "${value}".`, control);
		if (value === "") continue;
		if (place === "path") path = path.replace(`{${name}}`, () => encodeURIComponent(value));
		else if (place === "header") headers[name] = value;
		else {
			const several = explode !== false && is(flatten(schema), "array");
			for (const each of several ? value.split(/\s*,\s*/) : [value]) query.append(name, each);
		}
	}
	const body = form.body?.read(strict);
	// A browser writes the type of a multipart body itself, with its boundary.
	if (body && !body.parts) headers["Content-Type"] = body.type;
	return { url: base() + path + (query.size ? `?${query}` : ""), headers, body };
}

function curlLine(op, form) {
	const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
	const { url, headers, body } = compose(op, form, false);
	const needs = (op.auth.find((each) => each.length) ?? []).filter(({ header }) => header);
	const lines = [
		`curl ${op.method === "GET" ? "" : `-X ${op.method} `}${quote(url)}`,
		...needs.map(({ header, prefix }) =>
			`-H "${header}: ${prefix}$BAOBAB_${prefix ? "KEY" : header.toUpperCase().replace(/\W/g, "_")}"`),
		...Object.entries(headers).map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`),
	];
	const data = (value) => value.name ? `@${value.name}` : value; // a file is sent from the reader's folder
	for (const [name, value] of body?.parts ?? []) lines.push(`-F ${quote(`${name}=${data(value)}`)}`);
	if (body && !body.parts) lines.push(`--data-binary ${quote(data(body.payload))}`);
	return lines.join(" \\\n  ");
}

async function send(op, form, view, signal) {
	const { url, headers, body } = compose(op, form, true);
	const needs = op.auth.find((each) => each.length && each.every(({ header }) => keys.get(header))) ?? [];
	for (const { header, prefix } of needs) headers[header] = prefix + keys.get(header);
	view.replaceChildren(h("p.status", "Waiting for the answer …"));
	const started = performance.now();
	const response = await fetch(url, {
		method: op.method, headers, body: body?.payload, signal, credentials: "omit", cache: "no-store",
	});
	say(`Answer ${response.status}`);
	const status = h("p.status", statusBadge(String(response.status), response.statusText));
	const headerRows = [...response.headers].map(([name, value]) => [h("dt", name), h("dd", value)]);
	const out = h("code");
	const block = codeBlock("Body", out);
	view.replaceChildren(status, h("details", h("summary", "Headers"), h("dl.headers", headerRows)), block);
	const size = await drain(response, out, block);
	status.append(`${Math.round(performance.now() - started)} ms, ${size.toLocaleString("en")} bytes`);
}

/** Draw the body as it arrives, so that event streams can be watched; what is not text becomes a download. */
async function drain(response, out, block) {
	const type = response.headers.get("content-type") ?? "";
	const textual = /json|text|xml|javascript/i.test(type);
	const decoder = new TextDecoder();
	const chunks = [];
	let size = 0;
	for (let reader = response.body?.getReader(), step; reader && !(step = await reader.read()).done;) {
		if (!textual) chunks.push(step.value);
		else if (size < TEXT_LIMIT) out.append(decoder.decode(step.value, { stream: true }));
		size += step.value.length;
	}
	if (!size) block.remove();
	else if (!textual) {
		const href = URL.createObjectURL(new Blob(chunks, { type }));
		block.replaceWith(h("p", h("a", { href, download: "answer" }, `Save ${type || "the body"}`)));
	} else if (size > TEXT_LIMIT) out.append("\n… cut here");
	else if (/json/i.test(type)) out.replaceChildren(paint(out.textContent));
	return size;
}

// ---- The form ----

const PLAIN = { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false" };

const labelled = (name, control, note, required) =>
	h("label", h("span", code(name), h("span.place", note), required && mustMark()), control);

function controlFor(schema, value, required) {
	const flat = flatten(schema);
	if (flat.format === "binary" || flat.contentMediaType) return h("input", { type: "file" });
	const options = is(flat, "boolean") ? [true, false] : flat.enum;
	if (!options) return h("input", PLAIN, { value, placeholder: is(flat, "array") ? "one, two" : flat.default });
	return h("select", !required && h("option", { value: "" }, "not sent"),
		options.map((each) => h("option", { selected: String(each) === value }, String(each))));
}

function bodyForm({ content = {}, required }) {
	const types = Object.keys(content);
	const type = types.find((each) => /json/.test(each)) ?? types[0];
	if (/form-data/.test(type)) return fieldsForm(type, flatten(content[type].schema));
	if (!/json|text|xml|csv/.test(type)) {
		const input = h("input", { type: "file" });
		return { elements: labelled("body", input, type, required), read: () => ({ type, payload: input.files[0] ?? "" }) };
	}
	const text = exampleText(content[type], true);
	const area = h("textarea", { rows: Math.min(14, text.split("\n").length + 1), spellcheck: "false" }, text);
	const readBody = (strict) => {
		try {
			if (strict && area.value && /json/.test(type)) JSON.parse(area.value);
		} catch (error) { refuse(`The body is not JSON: ${error.message}`, area); }
		return area.value ? { type, payload: area.value } : undefined;
	};
	return { elements: labelled("body", area, type, required), read: readBody };
}

function fieldsForm(type, { properties = {}, required = [] }) {
	const rows = Object.entries(properties).map(([name, schema]) =>
		formRow({ name, schema, in: typeName(schema), required: required.includes(name) }));
	const readFields = () => {
		const parts = rows.map(({ parameter, control: { files, value } }) => [parameter.name, files ? files[0] : value])
			.filter(([, value]) => value);
		const payload = new FormData();
		for (const part of parts) payload.append(...part);
		return { type, payload, parts };
	};
	return { elements: rows.map(({ element }) => element), read: readFields };
}

/** A path's names stay empty, and so visible in the curl line, until someone fills them in. */
function formRow(parameter) {
	const { name, in: place, required, schema } = parameter;
	const control = controlFor(schema, required && place !== "path" ? exampleText(parameter, true) : "", required);
	return { parameter, control, element: labelled(name, control, place, required) };
}

function keyFields(op) {
	const headers = new Set(op.auth.flat().map(({ header }) => header).filter(Boolean));
	return [...headers].map((header) => {
		// Not type=password: a password manager would offer to store it.
		const input = h("input.secret", PLAIN, { "data-header": header, value: "", input() {
			keys.set(header, input.value.trim());
			showKeys();
		} });
		return labelled(header === "Authorization" ? "Bearer key" : header, input, "in memory only, gone when you leave");
	});
}

function showKeys() {
	for (const input of document.querySelectorAll("input.secret")) {
		input.value = keys.get(input.dataset.header) ?? "";
	}
}

/** The live curl line, and the form that sends the same request. */
function tryIt(op) {
	const form = {
		rows: op.parameters.filter(({ in: place }) => place !== "cookie").map(formRow),
		body: op.body && bodyForm(op.body),
	};
	const line = h("code");
	const refresh = () => { line.textContent = curlLine(op, form); };
	const view = h("div.answer");
	const stop = h("button", { type: "button", hidden: true }, "Stop");
	const danger = op["x-effect"] === "destructive" || op.method === "DELETE";
	const submit = async (event) => {
		event.preventDefault();
		if (!stop.hidden) return;
		const abort = new AbortController();
		stop.onclick = () => abort.abort();
		stop.hidden = false;
		await send(op, form, view, abort.signal).catch((error) => {
			if (error.name === "AbortError") return view.append("Stopped.");
			error.control?.focus();
			view.replaceChildren(problem(error.control ? "" : "The request failed: ", error.message));
		});
		stop.hidden = true;
	};
	refresh();
	return [codeBlock("curl", line), h("details.try", { toggle: showKeys }, h("summary", "Try it"),
		h("form", { novalidate: true, autocomplete: "off", input: refresh, submit }, keyFields(op),
			form.rows.map(({ element }) => element), form.body?.elements,
			h("p.actions", h(danger ? "button.danger" : "button.go", "Send"), stop), view))];
}

// ---- Drawing ----

const methodBadge = (method) => h(`span.method.${method.toLowerCase()}`, method);
const statusBadge = (status, text = "") => h(`strong.s${status[0]}`, `${status} ${text}`.trim());
const section = (title, ...content) => h("section", h("h4", title), content);

const pathCode = (path) => h("code.path", path.split(/(\{[^}]+\}|\/)/).map((piece) =>
	piece[0] === "{" ? h("span.variable", piece) : piece === "/" ? [h("wbr"), piece] : piece));

function authView({ auth }) {
	const keyed = auth.filter((needs) => needs.length);
	if (!keyed.length) return h("p", "No key needed.");
	return [h("ul", keyed.map((needs) => h("li", needs.map(({ name, scopes, description, header }, at) => [
		at > 0 && " together with ", h("strong", name), header && [" in ", code(header)],
		scopes.length > 0 && [", scope ", comma(scopes.map(code))], description && [". ", inline(description)],
	])))), keyed.length < auth.length && h("p", "Or no key at all, where that is allowed.")];
}

function responseView(response) {
	const [type, media] = entriesOf(response.content)[0] ?? [];
	const errors = readErrors(response);
	return h("li",
		h("p.head", statusBadge(response.status), h("span", inline(response.description ?? ""))),
		errors.length > 0 && h("dl.errors", errors.map(([name, { message, remediation }]) => [h("dt", code(name)),
			h("dd", message && h("span", message), remediation && h("span.remedy", inline(remediation)))])),
		response.headers && lazy("Headers", () => h("ul.fields", Object.entries(response.headers).map(([name, value]) =>
			field(name, deref(value).schema, deref(value))))),
		media?.schema && lazy(["Body ", h("span.place", type)], () => schemaView(media.schema)));
}

const bodyView = (body) => [prose(body.description), entriesOf(body.content).map(([type, media]) => {
	const text = /form-data|octet/.test(type) ? "" : exampleText(media, true);
	return [h("p.head", h("span.place", type), body.required && mustMark()), schemaView(media.schema),
		text && codeBlock("Example body", h("code", paint(text)))];
})];

function operationView(op) {
	const good = op.responses.find(({ status, content }) => status[0] === "2" && content);
	const answer = good && exampleText(Object.values(good.content)[0], false);
	return [
		h("div.words",
			h("p.head.tool", "Tool", code(op.id), copyButton("tool name", () => op.id),
				h("span.place", "the same name over MCP")),
			prose(op.description),
			section("Authorization", authView(op)),
			op.parameters.length > 0 && section("Parameters", h("ul.fields",
				op.parameters.map((each) => field(each.name, each.schema, { ...each, place: each.in })))),
			op.body && section("Request body", bodyView(op.body)),
			section("Responses", h("ul.responses", op.responses.map(responseView)))),
		h("div.hands", tryIt(op), answer && codeBlock(`Answer ${good.status}`, h("code", paint(answer)))),
	];
}

function operationCard(op) {
	const panel = h("div.panel", { hidden: true });
	const effect = op["x-effect"];
	const button = h("button.bar", { "aria-expanded": "false", click: () => op.open(panel.hidden) },
		methodBadge(op.method), pathCode(op.path), h("span.summary", op.summary ?? op.id),
		op.deprecated && h("span.deprecated", "deprecated"), h("code.place", op.id),
		effect && h(`span.effect.${effect}`, effect));
	op.card = h("article", h("h3", button), panel);
	op.open = (wanted) => {
		if (wanted && !panel.firstChild) panel.append(...operationView(op));
		panel.hidden = !wanted;
		button.setAttribute("aria-expanded", String(wanted));
		history.replaceState(null, "", wanted ? op.link.href : location.pathname);
		if (wanted) markCurrent(op);
	};
	return op.card;
}

function drawTag(tag) {
	tag.section = h("section.tag", h("h2", tag.name), prose(tag.description), tag.operations.map(operationCard));
	const summary = h("summary", tag.name, h("span.count", tag.operations.length));
	summary.addEventListener("click", () => { if (!tag.nav.open) tag.section.scrollIntoView(); });
	tag.nav = h("details", summary, h("ul", tag.operations.map((op) => {
		op.link = h("a", { href: `#${encodeURIComponent(op.id)}`, click: () => op.link.hash === location.hash && arrive() },
			methodBadge(op.method), h("span", op.id));
		return h("li", op.link);
	})));
}

function drawIntro(tags) {
	const { title = "API reference", version, summary, description } = doc.info ?? {};
	document.title = `${title} API reference`;
	byId("page-brand").textContent = title;
	return h("section.intro",
		h("h1", title, version && h("span.version", version)), summary && h("p.lead", summary), prose(description),
		h("p.facts", code(base()), h("span", `${operations.length} operations in ${tags.length} groups`),
			h("a", { href: source.href }, `OpenAPI ${doc.openapi}`)),
		h("p.place", "Each operation is a tool; its operationId is its name over MCP."));
}

// ---- Moving around ----

function markCurrent(op) {
	document.querySelector("nav [aria-current]")?.removeAttribute("aria-current");
	op.link.setAttribute("aria-current", "true");
	op.link.closest("details").open = true;
	op.link.scrollIntoView({ block: "nearest" });
}

function showMenu(wanted) {
	document.body.classList.toggle("menu", wanted);
	byId("page-menu").setAttribute("aria-expanded", String(wanted));
}

/** Open the operation that the address names. */
function arrive() {
	const op = operations.find(({ link }) => link.hash === location.hash);
	if (!op) return;
	showMenu(false);
	op.card.hidden = op.card.parentElement.hidden = false;
	op.open(true);
	op.card.scrollIntoView();
	op.card.querySelector("button").focus({ preventScroll: true });
}

function search(tags, text) {
	const words = text.toLowerCase().split(/\s+/).filter(Boolean);
	let matches = 0;
	for (const tag of tags) {
		const hits = tag.operations.filter((op) => {
			const hit = words.every((word) => op.words.includes(word));
			op.card.hidden = op.link.parentElement.hidden = !hit;
			return hit;
		}).length;
		tag.section.hidden = tag.nav.hidden = !hits;
		tag.nav.open = words.length > 0;
		matches += hits;
	}
	byId("page-none").hidden = matches > 0;
	document.querySelector(".intro").hidden = words.length > 0;
	say(words.length ? `${matches} of ${operations.length} operations` : "");
}

function listen(tags) {
	const box = byId("page-search");
	box.addEventListener("input", () => search(tags, box.value));
	byId("page-menu").addEventListener("click", () => showMenu(!document.body.classList.contains("menu")));
	addEventListener("hashchange", arrive);
	// A page kept for the back button would keep the keys too.
	addEventListener("pagehide", () => {
		keys.clear();
		showKeys();
	});
	addEventListener("keydown", (event) => {
		if (event.key === "Escape") showMenu(false);
		if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.matches("input, textarea, select")) return;
		event.preventDefault();
		box.focus();
	});
}

async function start() {
	const main = byId("page-content");
	try {
		const response = await fetch(source);
		if (!response.ok) throw new Error(`the server answered ${response.status}`);
		doc = await response.json();
		const tags = readTags();
		tags.forEach(drawTag);
		byId("page-nav").replaceChildren(...tags.map((tag) => tag.nav));
		const none = h("p", { id: "page-none", hidden: true }, "No operation matches.");
		main.replaceChildren(drawIntro(tags), none, ...tags.map((tag) => tag.section));
		listen(tags);
		arrive();
	} catch (error) {
		main.replaceChildren(problem(`The OpenAPI document could not be read: ${error.message}. `,
			h("button", { click: () => location.reload() }, "Try again")));
	}
	main.removeAttribute("aria-busy");
}

start();
