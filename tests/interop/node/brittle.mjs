// A small server on the official TypeScript SDK that asks at its start, if it may, and dies if refused: the error is not caught.
import { appendFileSync } from 'node:fs';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';

appendFileSync(process.argv[2], `start ${process.pid}\n`);
const server = new McpServer({ name: 'interop-brittle', version: '1.0.0' });
server.registerTool('pid', { description: 'The process this server runs in.', inputSchema: {} }, async () => ({
  content: [{ type: 'text', text: String(process.pid) }],
}));
server.server.oninitialized = async () => {
  if (!server.server.getClientCapabilities()?.sampling) return;
  const content = { type: 'text', text: 'a greeting, please' };
  await server.server.createMessage({ messages: [{ role: 'user', content }], maxTokens: 10 });
};
await server.connect(new StdioServerTransport());
