// Clients of the official TypeScript SDK. Each has a session and a call under way when the daemon is killed.
//
//   clients.mjs URL COUNT
//
// Prints `ready` once all calls run, waits for a line, and then prints what became of them, as JSON: how many calls each client
// made after the restart, how the calls under way ended, and every error of a transport.
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [url, count] = [process.argv[2], Number(process.argv[3])];
const errors = [];
const clients = [];
for (let number = 0; number < count; number++) {
  const client = new Client({ name: 'restarted', version: '1' });
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  client.onerror = error => errors.push(String(error?.message ?? error));
  clients.push({ client, transport, id: transport.sessionId });
}
const begun = [];
const waiting = clients.slice(0, 5).map(({ client }, number) => {
  let say;
  begun.push(new Promise(resolve => { say = resolve; }));
  const call = client.callTool({ name: 'it__wait', arguments: { ts: number } }, undefined, { onprogress: () => say() });
  return call.then(result => (result.isError ? result._meta?.['mcp-host/error']?.kind : 'answered'), error => `error: ${error.message}`);
});
await Promise.all(begun);
console.log('ready');
await once(createInterface({ input: process.stdin }), 'line');
let went = 0;
await Promise.all(clients.map(async ({ client, transport, id }, number) => {
  const listed = await client.listTools();
  const said = await client.callTool({ name: 'it__echo', arguments: { ts: number } });
  if (listed.tools.length === 2 && said.content[0].text.includes(String(number)) && transport.sessionId === id) went++;
}).map(work => work.catch(error => errors.push(`request: ${error.message}`))));
const ended = await Promise.all(waiting);
process.stdout.write(`${JSON.stringify({ went, ended, errors: errors.map(error => error.slice(0, 200)) })}\n`, () => process.exit(0));
