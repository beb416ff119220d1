// Calls a tool whose result is cut, by the official SDK for TypeScript, which checks what is left by the output schema; reads the rest
// by pages.
//
//   cut.mjs FOLDER SDK COMMAND ARGUMENT...    FOLDER: where the packages are; SDK: 1 (@modelcontextprotocol/sdk) or 2 (.../client)
//
// Prints nothing, and ends with 0, if what came is valid and the pages are the whole.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [folder, sdk, command, ...args] = process.argv.slice(2);
const require = createRequire(join(folder, 'here.js'));
const { Client } = require(sdk === '1' ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
const { StdioClientTransport } = require(
  sdk === '1' ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio',
);

const client = new Client({ name: 'somebody', version: '1' });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'ignore' }));
const { tools } = await client.listTools();
assert.deepEqual(tools.map(tool => tool.name).sort(), ['read_result', 'tables__rows']);
const text = result => result.content.filter(part => part.type === 'text').map(part => part.text).join('\n');
const head = await client.callTool({ name: 'tables__rows', arguments: {} });
const { rows, all } = head.structuredContent;
assert.ok(rows.length >= 2 && rows.length < all, `${rows.length} rows`);
const [, id] = /with id "([^"]+)"/.exec(text(head));
let whole = '';
for (let page = 1, more = true; more; page += 1) {
  const [body, ...rest] = text(await client.callTool({ name: 'read_result', arguments: { id, page } })).split('\n[mcp-host: page ');
  whole += body;
  more = rest.length > 0;
}
assert.equal(JSON.parse(whole).rows.length, all);
await client.close();
