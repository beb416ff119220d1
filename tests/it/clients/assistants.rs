//! Desktop and web assistants.

use super::outcome;

#[test]
fn claude_desktop() {
    insta::assert_snapshot!(outcome("claude-desktop/home/.config/Claude/claude_desktop_config.json"), @r#"
    files (line 6): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "/srv/mcp-demo"]
    time (line 10): stdio uvx ["mcp-server-time", "--local-timezone=UTC"] DEMO_LEVEL=info
    note claude_desktop_config.json:2: not about servers, ignored: `globalShortcut`, `isUsingBuiltInNodeForMcp`, `preferences`
    "#);
}

#[test]
fn lm_studio() {
    insta::assert_snapshot!(outcome("lm-studio/home/.lmstudio/mcp.json"), @r#"
    time (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_LEVEL=info
      call timeout 90s
    remote (line 9): auto http://127.0.0.1:3001/mcp Authorization: Bearer demo-key-0000
      no login
    "#);
}

#[test]
fn librechat() {
    insta::assert_snapshot!(outcome("librechat/project/librechat.yaml"), @r#"
    time (line 6): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000
      start timeout 45s
      call timeout 90s
      about Times and zones
    memory (line 20): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      start Lazy
    remote (line 24): http http://127.0.0.1:3001/mcp X-Key: demo-key-0000
      login as demo-client with a secret, scopes ["tools:read", "tools:call"]
    keyed (line 42): http http://127.0.0.1:3001/mcp Authorization: Bearer demo-key-0000
      no login
    custom (line 49): http http://127.0.0.1:3001/mcp X-Demo-Key: demo-key-0000
    old (line 57): sse http://127.0.0.1:3002/sse
    socket (line 61): stdio  []
      unusable: type: "websocket" is not an MCP transport and cannot be used; if the server has an http or https endpoint too, write that as `url` with "type": "http"; else set "disabled": true
    personal (line 64): http http://127.0.0.1:3001/mcp X-User: {{LIBRECHAT_USER_ID}} X-Token: {{DEMO_TOKEN}}
    note librechat.yaml:1: not about servers, ignored: `version`, `cache`, `mcpSettings`
    note librechat.yaml:30: server "remote": proxy: a server cannot have a proxy of its own here, ignored
    note librechat.yaml:39: server "remote": oauth_headers: login requests carry no custom headers here, ignored
    note librechat.yaml:68: server "personal": headers.X-User: a placeholder of another program, sent as it is written
    note librechat.yaml:69: server "personal": headers.X-Token: a placeholder of another program, sent as it is written
    note librechat.yaml:70: server "personal": customUserVars: per-user values of that program are not known here, ignored
    note librechat.yaml:74: server "personal": obo: per-user values of that program are not known here, ignored
    "#);
}

#[test]
fn anythingllm() {
    insta::assert_snapshot!(outcome("anythingllm/home/.config/anythingllm-desktop/storage/plugins/anythingllm_mcp_servers.json"), @r#"
    time (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_LEVEL=info
      exclude ["convert_time"]
    later (line 9): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      start Lazy
    remote (line 14): http http://127.0.0.1:3001/mcp X-Team: core
    old (line 15): sse http://127.0.0.1:3002/sse
    "#);
}

#[test]
fn cherry_studio() {
    insta::assert_snapshot!(outcome("cherry-studio/home/.config/CherryStudio/mcp.json"), @r#"
    time-of-day (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_LEVEL=info
      call timeout 90s
      exclude ["convert_time"]
      about Times and zones
    remote (line 21): http http://127.0.0.1:3001/mcp X-Team: core
    off (line 23): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    note mcp.json:22: server "built-in": part of another program, not a server that can be started; left out
    "#);
}
