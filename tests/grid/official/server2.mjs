// The tools of the grid's official servers on the TypeScript SDK 2: `server2.mjs stdio`, or `server2.mjs http PORT`.
import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { acceptedContent, createMcpHandler, inputRequired, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const text = said => ({ content: [{ type: 'text', text: said }] });
const who = z.object({ name: z.string() });

function make() {
  const server = new McpServer({ name: 'grid-typescript2', version: '1' }, { capabilities: { tools: {} } });
  server.registerTool('echo', { inputSchema: z.object({ message: z.string() }) }, async ({ message }) => text(`Echo: ${message}`));
  server.registerTool(
    'trigger-long-running-operation',
    { inputSchema: z.object({ duration: z.number(), steps: z.number() }) },
    async ({ duration, steps }, ctx) => {
      const progressToken = ctx.mcpReq._meta?.progressToken;
      for (let step = 1; step <= steps && progressToken !== undefined; step++) {
        await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: step, total: steps } });
      }
      return text(`Long running operation completed. Duration: ${duration}, Steps: ${steps}.`);
    },
  );
  server.registerTool('trigger-sampling-request', { inputSchema: z.object({ prompt: z.string() }) }, async ({ prompt }, ctx) => {
    const sampled = ctx.mcpReq.inputResponses?.sample;
    if (sampled) return text(`sampled: ${JSON.stringify(sampled.content)}`);
    const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
    return inputRequired({ inputRequests: { sample: inputRequired.createMessage({ messages, maxTokens: 10 }) } });
  });
  server.registerTool('trigger-elicitation-request', { inputSchema: z.object({}) }, async (_, ctx) => {
    const person = acceptedContent(ctx.mcpReq.inputResponses, 'who', who);
    if (person) return text(`- Name: ${person.name}`);
    return inputRequired({ inputRequests: { who: inputRequired.elicit({ message: 'Who?', requestedSchema: who }) } });
  });
  server.registerTool('get-roots-list', { inputSchema: z.object({}) }, async (_, ctx) => {
    const found = ctx.mcpReq.inputResponses?.roots;
    if (found) return text(found.roots.map(root => root.uri).join(' '));
    return inputRequired({ inputRequests: { roots: inputRequired.listRoots() } });
  });
  return server;
}

if (process.argv[2] === 'stdio') serveStdio(make);
else createServer(toNodeHandler(createMcpHandler(make))).listen(Number(process.argv[3]), '127.0.0.1');
