// A protected MCP server on the official SDK: its own token checks, its own metadata, and one tool that says whose token it got.
import { createRemoteJWKSet, jwtVerify, decodeProtectedHeader } from "jose";
import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";
import { InvalidTokenError } from "@modelcontextprotocol/sdk/server/auth/errors.js";
import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

export async function protectedServer(issuer) {
  const app = createMcpExpressApp();
  const listening = await new Promise((done) => {
    const server = app.listen(0, "127.0.0.1", () => done(server));
  });
  const origin = `http://127.0.0.1:${listening.address().port}`;
  const resource = `${origin}/mcp`;
  const keys = createRemoteJWKSet(new URL(`${issuer.url}/jwks`), { cooldownDuration: 0 });
  const verifier = {
    async verifyAccessToken(token) {
      try {
        const { payload } = await jwtVerify(token, keys, { issuer: issuer.url, audience: resource });
        const extra = { subject: payload.sub, token: payload.jti, key: decodeProtectedHeader(token).kid };
        return { token, clientId: payload.client_id, scopes: payload.scope.split(" "), expiresAt: payload.exp, extra };
      } catch (error) {
        throw new InvalidTokenError(`the token is not good: ${error.code}`);
      }
    },
  };
  const place = `${origin}/.well-known/oauth-protected-resource/mcp`;
  app.get("/.well-known/oauth-protected-resource/mcp", (_, response) =>
    response.json({ resource, authorization_servers: [issuer.url], scopes_supported: ["mcp"] }),
  );
  const bearer = requireBearerAuth({ verifier, requiredScopes: ["mcp"], resourceMetadataUrl: place });
  app.post("/mcp", bearer, async (request, response) => {
    const server = new McpServer({ name: "protected", version: "1" });
    server.registerTool("whoami", { description: "Says whose token it got" }, ({ authInfo }) => ({
      content: [{ type: "text", text: JSON.stringify(authInfo.extra) }],
    }));
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    response.on("close", () => void transport.close().then(() => server.close()));
    await server.connect(transport);
    await transport.handleRequest(request, response, request.body);
  });
  app.all("/mcp", bearer, (_, response) => response.status(405).end());
  const stop = () => {
    listening.closeAllConnections();
    return new Promise((done) => listening.close(done));
  };
  return { resource, stop };
}
