// One client on the official TypeScript SDK that tries every feature of server-everything.
//
//   client.mjs [options] --url URL
//   client.mjs [options] -- COMMAND ARGUMENTS...
//
// --sdk 1 is `@modelcontextprotocol/sdk`, --sdk 2 `@modelcontextprotocol/client`, which also speaks 2026-07-28.
// The lines it prints and the options are those of ../python/client.py.
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual, parseArgs } from 'node:util';

const FEATURES = 'list,echo,progress,sampling,elicitation,roots,annotated,resources,prompts,logging,subscription';
const INTERACTIVE = ['get-roots-list', 'trigger-elicitation-request', 'trigger-sampling-request'];
const { values: options, positionals: command } = parseArgs({
  allowPositionals: true,
  options: {
    url: { type: 'string' },
    sdk: { type: 'string', default: '1' },
    prefix: { type: 'string', default: '' },
    'uri-prefix': { type: 'string', default: '' },
    mark: { type: 'string', default: 'mark-n' },
    number: { type: 'string', default: '2002' },
    steps: { type: 'string', default: '4' },
    rounds: { type: 'string', default: '1' },
    think: { type: 'string', default: '0' },
    era: { type: 'string', default: 'any' },
    features: { type: 'string', default: FEATURES },
  },
});
const { mark, prefix, 'uri-prefix': uriPrefix } = options;
const number = Number(options.number);
const steps = Number(options.steps);
const rounds = Number(options.rounds);
const uri = `${uriPrefix}demo://resource/dynamic/text/${number}`;

const logs = [];
const updates = [];
const answers = {
  sample: () => ({ role: 'assistant', content: { type: 'text', text: `sampled by ${mark}` }, model: mark, stopReason: 'endTurn' }),
  elicit: () => ({ action: 'accept', content: { name: mark, integer: number } }),
  roots: async () => {
    await sleep(1000 * Number(options.think));
    return { roots: [{ uri: `file:///${mark}`, name: mark }] };
  },
  log: params => logs.push(JSON.stringify(params.data)),
  update: params => updates.push(params.uri),
};
const info = { name: 'interop', version: '1' };
const capabilities = { roots: {}, sampling: {}, elicitation: { form: {}, url: {} } };

/** The two SDKs differ in how handlers are set and in the arguments of requests; the rest is the same. */
async function connect() {
  const spawn = { command: command[0], args: command.slice(1), env: process.env, stderr: 'inherit' };
  if (options.sdk === '1') {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const { SSEClientTransport } = await import('@modelcontextprotocol/sdk/client/sse.js');
    const types = await import('@modelcontextprotocol/sdk/types.js');
    const client = new Client(info, { capabilities });
    client.setRequestHandler(types.CreateMessageRequestSchema, request => answers.sample(request.params));
    client.setRequestHandler(types.ElicitRequestSchema, request => answers.elicit(request.params));
    client.setRequestHandler(types.ListRootsRequestSchema, () => answers.roots());
    client.setNotificationHandler(types.LoggingMessageNotificationSchema, message => answers.log(message.params));
    client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, message => answers.update(message.params));
    const Remote = options.url?.endsWith('/sse') ? SSEClientTransport : StreamableHTTPClientTransport;
    const transport = options.url ? new Remote(new URL(options.url)) : new StdioClientTransport(spawn);
    await client.connect(transport);
    return { client, transport, modern: false, callTool: (params, more) => client.callTool(params, undefined, more) };
  }
  const { Client, StreamableHTTPClientTransport, LOG_LEVEL_META_KEY } = await import('@modelcontextprotocol/client');
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  const mode = { legacy: 'legacy', modern: { pin: '2026-07-28' } }[options.era] ?? 'auto';
  const client = new Client(info, { capabilities, versionNegotiation: { mode } });
  client.setRequestHandler('sampling/createMessage', request => answers.sample(request.params));
  client.setRequestHandler('elicitation/create', request => answers.elicit(request.params));
  client.setRequestHandler('roots/list', () => answers.roots());
  client.setNotificationHandler('notifications/message', message => answers.log(message.params));
  client.setNotificationHandler('notifications/resources/updated', message => answers.update(message.params));
  const transport = options.url ? new StreamableHTTPClientTransport(new URL(options.url)) : new StdioClientTransport(spawn);
  await client.connect(transport);
  const modern = client.getNegotiatedProtocolVersion() >= '2026';
  const _meta = modern ? { [LOG_LEVEL_META_KEY]: 'debug' } : undefined;
  return { client, transport, modern, callTool: (params, more) => client.callTool({ ...params, ...(_meta && { _meta }) }, more) };
}

function expect(condition, what) {
  if (!condition) throw new Error((typeof what === 'string' ? what : JSON.stringify(what)).slice(0, 600));
}

async function until(found, seconds) {
  const end = Date.now() + seconds * 1000;
  while (!found()) {
    expect(Date.now() < end, `nothing came within ${seconds} s`);
    await sleep(20);
  }
}

async function bounded(seconds, work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${seconds} s`)), seconds * 1000);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

const { client, transport, modern, callTool } = await bounded(60, connect());

// Records every incoming message: the end of the run searches them for marks, and the SDK itself
// loses a progress notification that arrives in one read with the answer.
const heard = [];
const progress = [];
const deliver = transport.onmessage;
transport.onmessage = (message, extra) => {
  heard.push(JSON.stringify(message));
  if (message.method === 'notifications/progress') progress.push([message.params.progress, message.params.total]);
  deliver(message, extra);
};

const call = async (tool, args = {}, more) => {
  const result = await callTool({ name: prefix + tool, arguments: args }, more);
  expect(!result.isError, result);
  return result;
};
const text = async (tool, args) => (await call(tool, args)).content.map(part => part.text).join('\n');

const features = {
  async list() {
    const names = new Set();
    for (let cursor; ; ) {
      const page = await client.listTools(cursor ? { cursor } : {});
      page.tools.forEach(tool => names.add(tool.name));
      if (page.nextCursor === undefined || options.sdk === '2') break; // the second SDK reads all pages by itself
      cursor = page.nextCursor;
    }
    for (const name of [...INTERACTIVE, 'echo', 'get-sum']) expect(names.has(prefix + name), [...names]);
    expect(options.era === 'any' || modern === (options.era === 'modern'), `modern: ${modern}`);
  },
  async echo() {
    expect((await text('echo', { message: mark })) === `Echo: ${mark}`, 'another echo');
  },
  async progress() {
    progress.length = 0;
    const result = await call('trigger-long-running-operation', { duration: 0.1 * steps, steps }, { onprogress() {} });
    expect(result.content[0].text.includes(`Steps: ${steps}`), result);
    expect(isDeepStrictEqual(progress, Array.from({ length: steps }, (_, step) => [step + 1, steps])), progress);
  },
  async sampling() {
    const got = await text('trigger-sampling-request', { prompt: mark, maxTokens: 10 });
    expect(got.includes(`sampled by ${mark}`), got);
  },
  async elicitation() {
    const got = await text('trigger-elicitation-request');
    expect(got.includes(`- Name: ${mark}`) && got.includes(`- Favorite Integer: ${number}`), got);
  },
  async roots() {
    const got = await text('get-roots-list');
    expect(got.includes(`URI: file:///${mark}`) && got.includes('(1 total)'), got);
  },
  async annotated() {
    const result = await call('get-annotated-message', { messageType: 'error', includeImage: true });
    const wanted = [{ priority: 1, audience: ['user', 'assistant'] }, { priority: 0.5, audience: ['user'] }];
    expect(isDeepStrictEqual(result.content.map(part => part.annotations), wanted), result);
  },
  async resources() {
    const { resourceTemplates } = await client.listResourceTemplates();
    const template = `${uriPrefix}demo://resource/dynamic/text/{resourceId}`;
    expect(resourceTemplates.some(each => each.uriTemplate === template), resourceTemplates);
    const { contents } = await client.readResource({ uri });
    expect(contents[0].uri === uri && contents[0].text.startsWith(`Resource ${number}:`), contents);
    const links = (await call('get-resource-links', { count: 2 })).content.slice(1).map(part => part.uri);
    expect(links.length === 2 && links.every(link => link.startsWith(`${uriPrefix}demo://`)), links);
    expect((await client.readResource({ uri: links[0] })).contents[0].uri === links[0], links);
  },
  async prompts() {
    const prompt = await client.getPrompt({ name: `${prefix}args-prompt`, arguments: { city: mark, state: 'X' } });
    expect(prompt.messages[0].content.text === `What's weather in ${mark}, X?`, prompt);
    const answer = await client.complete({
      ref: { type: 'ref/prompt', name: `${prefix}completable-prompt` },
      argument: { name: 'name', value: 'A' },
      context: { arguments: { department: 'Engineering' } },
    });
    expect(isDeepStrictEqual(answer.completion.values, ['Alice']), answer);
  },
  async logging() {
    if (!modern) await client.setLoggingLevel('debug');
    logs.length = 0;
    await call('toggle-simulated-logging');
    try {
      await until(() => logs.some(line => /level/i.test(line)), 12);
    } finally {
      await call('toggle-simulated-logging');
    }
  },
  async subscription() {
    const stream = modern ? await client.listen({ resourceSubscriptions: [uri] }) : undefined;
    if (!modern) await client.subscribeResource({ uri });
    await call('toggle-subscriber-updates');
    try {
      await until(() => updates.length > 0, 12);
      expect(updates.every(each => each === uri), updates);
    } finally {
      await call('toggle-subscriber-updates');
      await (stream ? stream.close() : client.unsubscribeResource({ uri }));
    }
    // The server logs a subscription with its URI: a log message that belongs to one client.
    if (!modern) await until(() => logs.some(line => line.includes(`/text/${number}`)), 5);
  },
};

let failed = 0;
for (let round = 1; round <= rounds; round += 1) {
  for (const feature of options.features.split(',')) {
    const label = rounds === 1 ? feature : `${feature} #${round}`;
    try {
      await bounded(60, features[feature]());
      console.log(`ok ${label}`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL ${label}: ${error}`.replaceAll('\n', ' '));
    }
  }
}
const everything = heard.join('\n');
const foreign = new Set([
  ...(everything.match(/mark-\w+/g) ?? []).filter(each => each !== mark),
  ...(everything.match(/dynamic\/text\/\d{3,}/g) ?? []).filter(each => !each.endsWith(`/${number}`)),
]);
if (foreign.size > 0) failed += 1;
console.log(foreign.size > 0 ? `FAIL only its own messages: ${[...foreign]}` : 'ok only its own messages');
if (options.url && !modern) await transport.terminateSession?.().catch(() => {});
await bounded(15, client.close());
process.exit(failed ? 1 : 0);
