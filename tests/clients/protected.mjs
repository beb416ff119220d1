// A server on the official SDK that wants a login: it takes no token. Prints its port.
import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { InvalidTokenError } from "@modelcontextprotocol/sdk/server/auth/errors.js";
import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";

const app = createMcpExpressApp();
const listening = app.listen(0, "127.0.0.1", () => {
  const { port } = listening.address();
  const place = `http://127.0.0.1:${port}/.well-known/oauth-protected-resource/mcp`;
  const verifier = {
    async verifyAccessToken() {
      throw new InvalidTokenError("no token is good here");
    },
  };
  app.all("/mcp", requireBearerAuth({ verifier, resourceMetadataUrl: place }), (_, response) => response.status(500).end());
  console.log(port);
});
