// A client on the official TypeScript SDK that starts a program as the SDK does where nobody says more: with few variables.
//
//   joins.mjs COMMAND ARGUMENTS...
//
// Prints what the tool plain__pid says, and the names of the variables that the SDK hands down, as JSON.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { getDefaultEnvironment, StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'interop-joins', version: '1' });
await client.connect(new StdioClientTransport({ command, args }));
const { content } = await client.callTool({ name: 'plain__pid', arguments: {} });
await client.close();
console.log(JSON.stringify({ pid: content[0].text, handed: Object.keys(getDefaultEnvironment()) }));
