// Parse Server on Postgres: `npm install parse-server express` in .bench/parse-server, then `make bench ARGS=data`.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, port, databaseURI] = process.argv.slice(2);
const from = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(from.resolve(name)).href);
const { ParseServer } = await load("parse-server");
const express = (await load("express")).default;

const server = new ParseServer({
	databaseURI,
	appId: "bench",
	masterKey: "master",
	masterKeyIps: ["127.0.0.1", "::1", "::ffff:127.0.0.1"],
	serverURL: `http://127.0.0.1:${port}/parse`,
	allowClientClassCreation: true,
	silent: true,
	logsFolder: null,
});
await server.start();
express().use("/parse", server.app).listen(Number(port), "127.0.0.1");
