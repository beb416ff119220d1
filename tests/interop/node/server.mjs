// A small server on the official TypeScript SDK: nested schemas, structured results, `_meta` and links.
import { McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { z } from 'zod';

const server = new McpServer({ name: 'interop-typescript', version: '1.0.0' }, { instructions: 'A server of the interop tests.' });
const shape = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('circle'), radius: z.number().positive() }),
  z.object({ kind: z.literal('box'), width: z.number(), height: z.number() }).strict(),
]);

server.registerTool(
  'area',
  {
    title: 'Area of shapes',
    description: 'Adds up the areas of some shapes.',
    inputSchema: { shapes: z.array(shape).min(1), unit: z.enum(['mm', 'm']).default('m'), tags: z.record(z.string(), z.string()).optional() },
    outputSchema: { area: z.number(), unit: z.string() },
    annotations: { readOnlyHint: true, openWorldHint: false },
    _meta: { 'example.test/owner': { team: 'interop', ranks: [1, 2.5] }, ui: { resourceUri: 'ui://area/view.html' } },
  },
  async ({ shapes, unit }) => {
    const area = shapes.reduce((sum, it) => sum + (it.kind === 'circle' ? 3 * it.radius ** 2 : it.width * it.height), 0);
    const structuredContent = { area, unit };
    return { content: [{ type: 'text', text: JSON.stringify(structuredContent) }], structuredContent, _meta: { 'example.test/cost': 0.25 } };
  },
);
server.registerTool('link', { description: 'A link and an embedded resource.', inputSchema: {} }, async () => ({
  content: [
    { type: 'resource_link', uri: 'interop://note', name: 'note', mimeType: 'text/plain', annotations: { priority: 0.5 } },
    { type: 'resource', resource: { uri: 'interop://notes/embedded', text: 'embedded', _meta: { 'example.test/n': 1 } } },
    { type: 'text', text: 'see interop://note', _meta: { 'example.test/free': true } },
  ],
}));
server.registerTool('refuse', { description: 'Answers with an error of its own.', inputSchema: { why: z.string() } }, async ({ why }) => ({
  content: [{ type: 'text', text: why }],
  isError: true,
}));
server.registerResource('note', 'interop://note', { mimeType: 'text/plain', title: 'A note' }, async uri => ({
  contents: [{ uri: uri.href, text: 'a note of the TypeScript server' }],
}));
server.registerResource('view', 'ui://area/view.html', { mimeType: 'text/html;profile=mcp-app' }, async uri => ({
  contents: [{ uri: uri.href, mimeType: 'text/html;profile=mcp-app', text: '<p>area</p>' }],
}));
server.registerResource('named', new ResourceTemplate('interop://notes/{name}', { list: undefined }), {}, async (uri, { name }) => ({
  contents: [{ uri: uri.href, text: `a note called ${name}` }],
}));
server.registerPrompt('greet', { description: 'A greeting.', argsSchema: { name: z.string() } }, ({ name }) => ({
  messages: [{ role: 'user', content: { type: 'text', text: `Hello, ${name}!` } }],
}));
await server.connect(new StdioServerTransport());
