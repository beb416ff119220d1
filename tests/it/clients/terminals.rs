//! Command-line agents.

use super::outcome;

#[test]
fn claude_code() {
    insta::assert_snapshot!(outcome("claude-code/home/.claude.json"), @r#"
    time (line 5): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_LEVEL=info
      call timeout 90s
    remote (line 13): http http://127.0.0.1:3001/mcp X-Team: core headers by ["printf", "{\"X-Helped\": \"yes\"}"]
      login as demo-client, scopes ["tools:read", "tools:call"]
    old (line 25): sse http://127.0.0.1:3002/sse
    piped (line 26): http http://127.0.0.1:3001/mcp
      unusable: headersHelper: no shell runs this program, and `|` needs one; write it as a list of words, or put it into a script and name that
    socket (line 27): stdio  []
      unusable: type: "ws" is not an MCP transport and cannot be used; if the server has an http or https endpoint too, write that as `url` with "type": "http"; else set "disabled": true
    memory (line 36): stdio npx ["-y", "@modelcontextprotocol/server-memory"] MEMORY_FILE_PATH=/srv/mcp-demo/memory.jsonl in /srv/mcp-demo/shop
    note .claude.json:2: not about servers, ignored: `numStartups`, `theme`
    "#);
}

#[test]
fn claude_code_a_project() {
    insta::assert_snapshot!(outcome("claude-code/project/.mcp.json"), @r#"
    files (line 3): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "/srv/mcp-demo"]
    everything (line 8): http http://127.0.0.1:3001/mcp Authorization: Bearer demo-key-0000
      call timeout 90s
      no login
    "#);
}

#[test]
fn codex() {
    insta::assert_snapshot!(outcome("codex/home/.codex/config.toml"), @r#"
    time (line 5): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_LEVEL=info DEMO_KEY=* DEMO_TEAM=* in /srv/mcp-demo
      start timeout 45.5s
      call timeout 90s
      include ["get_current_time", "convert_time"]
      exclude ["convert_time"]
    memory (line 27): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      start timeout 45s
    remote (line 32): http http://127.0.0.1:3001/mcp X-Region: eu Authorization: Bearer demo-key-0000 X-Team: core headers by ["printf", "{\"X-Helped\": \"yes\"}"]
      no login
    signed-in (line 39): http http://127.0.0.1:3001/mcp
      login as demo-client, scopes ["tools:read"]
    off (line 46): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    note config.toml:1: not about servers, ignored: `model`, `mcp_oauth_credentials_store`, `mcp_oauth_callback_port`
    note config.toml:43: server "signed-in": oauth_resource: not needed here: the server says what it wants
    "#);
}

#[test]
fn gemini_cli() {
    insta::assert_snapshot!(outcome("gemini-cli/home/.gemini/settings.json"), @r#"
    time (line 5): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000 DEMO_MAYBE=nothing in /srv/mcp-demo
      call timeout 90s
      include ["get_current_time", "convert_time"]
      exclude ["convert_time"]
      about Times and zones
    files (line 16): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "/srv/mcp-demo"]
    remote (line 17): http http://127.0.0.1:3001/mcp X-Key: demo-key-0000
      login as demo-client with a secret, scopes ["tools:read"]
    either (line 33): http http://127.0.0.1:3001/mcp
    old (line 34): auto http://127.0.0.1:3002/sse
    socket (line 35): stdio  []
      unusable: tcp: MCP has no WebSocket transport, so this server cannot be used; if the server has an http or https endpoint too, write that as `url` with "type": "http"; else set "disabled": true
    off (line 36): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: named in mcp.excluded of the config
    note settings.json:2: not about servers, ignored: `ui`
    note settings.json:31: server "remote": authProviderType: not needed here: the server says what it wants
    note settings.json:33: server "either": targetAudience: not needed here: the server says what it wants
    note settings.json:33: server "either": targetServiceAccount: not needed here: the server says what it wants
    "#);
}

#[test]
fn qwen_code() {
    insta::assert_snapshot!(outcome("qwen-code/home/.qwen/settings.json"), @r#"
    time (line 5): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000 in /srv/mcp-demo
      start timeout 45s
      call timeout 90s
      include ["get_current_time"]
    remote (line 15): http http://127.0.0.1:3001/mcp X-Team: core
      start timeout 10s
      call timeout 90s
    old (line 16): auto http://127.0.0.1:3002/sse
    off (line 17): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: named in mcp.excluded of the config
    note settings.json:2: not about servers, ignored: `$version`
    "#);
}

#[test]
fn opencode() {
    insta::assert_snapshot!(outcome("opencode/project/opencode.jsonc"), @r#"
    time (line 6): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-of-a-file in /srv/mcp-demo
      start timeout 90s
    remote (line 14): auto http://127.0.0.1:3001/mcp X-Key: demo-key-0000
      start timeout 90s
      login as demo-client with a secret, scopes ["tools:read", "tools:call"]
    keyed (line 22): auto http://127.0.0.1:3002/sse
      no login
    off (line 23): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    note opencode.jsonc:3: not about servers, ignored: `model`
    "#);
}

#[test]
fn opencode_agents() {
    insta::assert_snapshot!(outcome("opencode/project/.agents/mcp.json"), @r#"
    files (line 2): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "/srv/mcp-demo"]
      start timeout 90s
    remote (line 7): auto http://127.0.0.1:3001/mcp
    "#);
}

#[test]
fn crush() {
    insta::assert_snapshot!(outcome("crush/project/crush.json"), @r#"
    time (line 5): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000
      start timeout 90s
      exclude ["convert_time"]
    remote (line 14): http http://127.0.0.1:3001/mcp X-Key: demo-key-0000
      start timeout 90s
    old (line 20): sse http://127.0.0.1:3002/sse X-Team: core
    run (line 21): http http://127.0.0.1:3001/mcp X-Key: $(cat demo.key)
      unusable: headers.X-Key: $(…) would run a command, which a config may not do; use $NAME, and set that variable before the host starts
    off (line 22): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    note crush.json:3: not about servers, ignored: `options`
    "#);
}

#[test]
fn amazon_q() {
    insta::assert_snapshot!(outcome("amazon-q/home/.aws/amazonq/mcp.json"), @r#"
    time (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000
      call timeout 90s
    off (line 10): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    "#);
}

#[test]
fn amazon_q_an_agent() {
    insta::assert_snapshot!(outcome("amazon-q/home/.aws/amazonq/cli-agents/demo.json"), @r#"
    time (line 7): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"]
      call timeout 90s
    remote (line 8): http http://127.0.0.1:3001/mcp X-Team: core
      login as anyone, scopes ["tools:read"]
    note demo.json:3: not about servers, ignored: `name`, `description`, `prompt`, `tools`, `toolAliases`, 6 more
    "#);
}

#[test]
fn warp() {
    insta::assert_snapshot!(outcome("warp/project/.warp/.mcp.json"), @r#"
    time (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_LEVEL=info in /srv/mcp-demo
    later (line 10): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      start Lazy
    remote (line 17): auto http://127.0.0.1:3001/mcp X-Key: demo-key-0000
    "#);
}

#[test]
fn copilot_cli() {
    insta::assert_snapshot!(outcome("copilot-cli/home/.copilot/mcp-config.json"), @r#"
    time (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000 DEMO_TEAM=core DEMO_MAYBE=nothing in /srv/mcp-demo
      call timeout 90s
      include ["get_current_time"]
    remote (line 16): http http://127.0.0.1:3001/mcp X-Key: demo-key-0000
      call timeout 90s
      login as demo-client, scopes ["tools:read"]
    old (line 28): sse http://127.0.0.1:3002/sse
    hidden (line 29): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      include []
    note mcp-config.json:23: server "remote": oauthPublicClient: not needed here: the server says what it wants
    "#);
}

#[test]
fn amp() {
    insta::assert_snapshot!(outcome("amp/home/.config/amp/settings.json"), @r#"
    time (line 6): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000
      include ["get_*"]
    remote (line 12): auto http://127.0.0.1:3001/mcp Authorization: Bearer demo-key-0000
      no login
    note settings.json:2: not about servers, ignored: `amp.notifications.enabled`, `amp.tools.disable`, `amp.mcpPermissions`
    "#);
}

#[test]
fn goose() {
    insta::assert_snapshot!(outcome("goose/home/.config/goose/config.yaml"), @r#"
    time (line 16): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_LEVEL=info DEMO_KEY=*
      call timeout 90s
      include ["get_current_time"]
      about Times and zones
    remote (line 29): http http://127.0.0.1:3001/mcp Authorization: Bearer demo-key-0000 X-Region: eu
      call timeout 90s
      about Everything
      no login
    nested (line 43): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      call timeout 120s
    old (line 51): sse http://127.0.0.1:3002/sse
      about The client itself has given this up
    off (line 64): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    note config.yaml:1: not about servers, ignored: `GOOSE_PROVIDER`, `GOOSE_MODEL`
    note config.yaml:4: server "developer": part of another program, not a server that can be started; left out
    note config.yaml:11: server "todo": part of another program, not a server that can be started; left out
    note config.yaml:57: server "code": part of another program, not a server that can be started; left out
    "#);
}
