// Better Auth with its users in memory: `npm install better-auth` in .bench/better-auth, then `make bench ARGS=auth`.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, port] = process.argv.slice(2);
const from = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(from.resolve(name)).href);
const { betterAuth } = await load("better-auth");
const { memoryAdapter } = await load("better-auth/adapters/memory");
const { bearer } = await load("better-auth/plugins");

const baseURL = `http://127.0.0.1:${port}`;
const auth = betterAuth({
	baseURL,
	secret: "a secret of thirty-two characters or more",
	database: memoryAdapter({ user: [], session: [], account: [], verification: [] }),
	emailAndPassword: { enabled: true },
	rateLimit: { enabled: false },
	plugins: [bearer()],
});

async function answer({ method, url, headers }, body) {
	const response = await auth.handler(new Request(baseURL + url, { method, headers, body: body.length ? body : undefined }));
	return { response, content: Buffer.from(await response.arrayBuffer()) };
}

// The load is spoken without chunks.
createServer(async (request, reply) => {
	const pieces = [];
	for await (const piece of request) pieces.push(piece);
	const { response, content } = await answer(request, Buffer.concat(pieces));
	reply.writeHead(response.status, { ...Object.fromEntries(response.headers), "content-length": content.length });
	reply.end(content);
}).listen(Number(port), "127.0.0.1");
