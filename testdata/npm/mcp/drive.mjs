// A real client of the Model Context Protocol. Its arguments are a transport and what the
// transport needs: http URL, or stdio COMMAND ARGUMENTS; the key is in TRIPHAMMER_API_KEY. Each line of its standard input is a
// question in JSON; it answers with one line. {"op":"leave","call":…} begins a call and goes away
// before its answer.
import { createInterface } from "node:readline";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [kind, ...rest] = process.argv.slice(2);
const transport = kind === "http"
  ? new StreamableHTTPClientTransport(new URL(rest[0]), { requestInit: { headers: { Authorization: `Bearer ${process.env.TRIPHAMMER_API_KEY}` } } })
  : new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env, stderr: "inherit" });
const client = new Client({ name: "drive", version: "1" });
client.onerror = (error) => console.error(error);

const answers = {
  connect: async () => {
    await client.connect(transport);
    return { server: client.getServerVersion(), instructions: client.getInstructions(), capabilities: client.getServerCapabilities() };
  },
  list: async () => (await client.listTools()).tools,
  call: async ({ call }) => client.callTool(call),
  leave: async ({ call }) => {
    const leaving = new AbortController();
    const called = client.callTool(call, undefined, { signal: leaving.signal });
    leaving.abort("gone");
    return called;
  },
  close: async () => client.close(),
};
for await (const line of createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  try {
    console.log(JSON.stringify({ answer: (await answers[question.op](question)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error?.message ?? error) }));
  }
}
