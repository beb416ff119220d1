// The authorization server: oidc-provider with its own login pages, JWTs for any requested resource, and dynamic client
// registration. Its keys can change while it runs, as an operator would do it: another configuration, the same data.
import { createServer } from "node:http";
import { exportJWK, generateKeyPair } from "jose";
import Provider from "oidc-provider";

// The issuer's data, kept across configurations.
class Kept {
  constructor(all, model) {
    Object.assign(this, { all, model });
  }
  key = (id) => `${this.model}:${id}`;
  find = async (id) => this.all.get(this.key(id));
  findByUid = async (uid) => [...this.all.values()].find((payload) => payload.uid === uid);
  findByUserCode = async (code) => [...this.all.values()].find((payload) => payload.userCode === code);
  destroy = async (id) => void this.all.delete(this.key(id));
  consume = async (id) => void ((await this.find(id)).consumed = Math.floor(Date.now() / 1000));
  // Expiry is judged by the entry's own claims.
  upsert = async (id, payload) => void this.all.set(this.key(id), payload);
  async revokeByGrantId(grant) {
    for (const [key, payload] of this.all) if (payload.grantId === grant) this.all.delete(key);
  }
}

export class Issuer {
  // Lifetime of access tokens in seconds, by resource: cases differ.
  lives = new Map();
  events = { granted: 0, refreshed: 0, revoked: 0, registered: 0 };
  keys = [];
  // Everything that must never be printed: tokens, codes, verifiers.
  secrets = new Set();
  #kept = new Map();
  #grants = new Set();

  static async start() {
    const issuer = new Issuer();
    issuer.server = createServer((request, response) => issuer.callback(request, response));
    await new Promise((done) => issuer.server.listen(0, "127.0.0.1", done));
    issuer.url = `http://127.0.0.1:${issuer.server.address().port}`;
    await issuer.rotate();
    return issuer;
  }

  // Signs with a new key; the old public keys stay or go.
  async rotate({ keep = true } = {}) {
    const { privateKey } = await generateKeyPair("ES256", { extractable: true });
    const key = { ...(await exportJWK(privateKey)), kid: `key-${this.keys.length + 1}-${Date.now()}`, use: "sig", alg: "ES256" };
    this.keys = keep ? [key, ...this.keys] : [key];
    const provider = new Provider(this.url, this.#configuration());
    provider.on("grant.success", (context) => {
      const { code, code_verifier, device_code, refresh_token } = context.oidc.params;
      const { access_token: access, refresh_token: refresh } = context.body;
      for (const secret of [access, refresh, code, code_verifier, device_code, refresh_token]) {
        if (secret) this.secrets.add(secret);
      }
      this.events[context.oidc.params.grant_type === "refresh_token" ? "refreshed" : "granted"] += 1;
      if (context.oidc.entities.Grant) this.#grants.add(context.oidc.entities.Grant.jti);
    });
    provider.on("registration_create.success", () => (this.events.registered += 1));
    provider.on("refresh_token.destroyed", () => (this.events.revoked += 1));
    this.provider = provider;
    this.callback = provider.callback();
    return key.kid;
  }

  // Revokes all grants of users, as an administrator can: no refresh token is valid any more.
  async endGrants() {
    for (const id of this.#grants) await (await this.provider.Grant.find(id))?.destroy();
    this.#grants.clear();
  }

  #configuration() {
    const signed = { accessTokenFormat: "jwt", jwt: { sign: { alg: "ES256" } }, scope: "mcp" };
    return {
      adapter: (model) => new Kept(this.#kept, model),
      jwks: { keys: this.keys },
      cookies: { keys: ["a key of the test"] },
      scopes: ["mcp", "offline_access"],
      clientAuthMethods: ["none"],
      clientDefaults: { id_token_signed_response_alg: "ES256" },
      pkce: { required: () => true },
      rotateRefreshToken: true,
      issueRefreshToken: async (_, client) => client.grantTypeAllowed("refresh_token"),
      findAccount: async (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
      features: {
        registration: { enabled: true },
        deviceFlow: { enabled: true },
        revocation: { enabled: true },
        resourceIndicators: {
          enabled: true,
          useGrantedResource: async () => true,
          getResourceServerInfo: async (_, resource) => ({
            ...signed,
            audience: resource,
            accessTokenTTL: this.lives.get(resource) ?? 600,
          }),
        },
      },
    };
  }

  async stop() {
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }
}
