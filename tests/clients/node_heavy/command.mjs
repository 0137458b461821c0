// Runs the command line of a coding agent, whose model is scripted: it does what the prompt's commands say.
import { execFile } from "node:child_process";

/** What a command writes to its standard output. */
export const output = (program, given, env = {}) =>
  new Promise((resolve, reject) => {
    const options = { env: { ...process.env, ...env }, timeout: 60_000, maxBuffer: 1 << 24 };
    const child = execFile(program, given, options, (error, written, errors) =>
      error ? reject(new Error(`${error.message}\n${written}\n${errors}`.slice(-1500))) : resolve(written),
    );
    child.stdin.end();
  });

/** What its commands do with the tools of an MCP server, which it gives names with a prefix. */
export const prompt = ([name, given], prefix = "mcp__baobab__") => `Do this:\n/call ${prefix}${name} ${JSON.stringify(given)}`;
