// Better Auth with its users in memory: `npm install better-auth` in .bench/better-auth, then `make bench ARGS=auth`.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [folder, port] = process.argv.slice(2);
const from = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(from.resolve(name)).href);
const { betterAuth } = await load("better-auth");
const { memoryAdapter } = await load("better-auth/adapters/memory");
const { bearer } = await load("better-auth/plugins");
const { toNodeHandler } = await load("better-auth/node");

const auth = betterAuth({
	baseURL: `http://127.0.0.1:${port}`,
	secret: "a secret of thirty-two characters or more",
	database: memoryAdapter({ user: [], session: [], account: [], verification: [] }),
	emailAndPassword: { enabled: true },
	rateLimit: { enabled: false },
	plugins: [bearer()],
});
createServer(toNodeHandler(auth)).listen(Number(port), "127.0.0.1");
