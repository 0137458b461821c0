// What a client of one of the MCP SDKs for TypeScript shows.
import { APPROVAL, REFUSAL, SEARCH, VALUE, approve } from "./checks.mjs";

export const checksOf = (client) => {
  const call = async ([name, given]) => (await client.callTool({ name, arguments: given })).content[0].text;
  return {
    connect: async () => (await client.listTools()).tools.map((tool) => tool.name),
    value: () => call(VALUE),
    search: () => call(SEARCH),
    refusal: () => call(REFUSAL),
    approval: async () => {
      const asked = await call(APPROVAL);
      await approve();
      return asked + (await call(APPROVAL));
    },
  };
};
