// Preloaded into the suite: every `initialize` offers CONFORMANCE_HANDSHAKE, whatever revision the suite itself offers.
const version = process.env.CONFORMANCE_HANDSHAKE;
const { fetch } = globalThis;

function pinned(body) {
  if (typeof body !== "string" || !body.includes('"initialize"')) return body;
  try {
    const message = JSON.parse(body);
    if (message.method !== "initialize" || !message.params?.protocolVersion) return body;
    return JSON.stringify({ ...message, params: { ...message.params, protocolVersion: version } });
  } catch {
    return body; // Some scenarios send invalid JSON on purpose.
  }
}

if (version) globalThis.fetch = (url, options) => fetch(url, options?.body ? { ...options, body: pinned(options.body) } : options);
