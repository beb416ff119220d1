// A client on the official TypeScript SDK that starts a program with the SDK's defaults: with few variables.
//
//   joins.mjs COMMAND ARGUMENTS...
//
// Prints the answer of the tool plain__pid, and the names of the variables that the SDK passes, as JSON.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { getDefaultEnvironment, StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'interop-joins', version: '1' });
await client.connect(new StdioClientTransport({ command, args }));
const { content } = await client.callTool({ name: 'plain__pid', arguments: {} });
await client.close();
console.log(JSON.stringify({ pid: content[0].text, handed: Object.keys(getDefaultEnvironment()) }));
