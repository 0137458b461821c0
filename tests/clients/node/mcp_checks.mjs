// What a client of one of the MCP SDKs for TypeScript shows.
import { toolChecks } from "./checks.mjs";

export const checksOf = (client) => {
  const call = async ([name, given]) => (await client.callTool({ name, arguments: given })).content[0].text;
  return {
    connect: async () => (await client.listTools()).tools.map((tool) => tool.name),
    ...toolChecks(call),
  };
};
