//! Editors and their extensions.

use super::outcome;

#[test]
fn cursor() {
    insta::assert_snapshot!(outcome("cursor/home/.cursor/mcp.json"), @r#"
    time (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000 DEMO_HOME=~/.demo
    remote (line 9): auto http://127.0.0.1:3001/mcp X-Team: core
      login as demo-client with a secret, scopes ["tools:read"]
    old (line 14): auto http://127.0.0.1:3002/sse
    "#);
}

#[test]
fn cursor_a_project() {
    insta::assert_snapshot!(outcome("cursor/project/.cursor/mcp.json"), @r#"files (line 3): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "<project>"] DEMO_FROM_FILE=yes DEMO_PROJECT=project/mcp"#);
}

#[test]
fn vs_code() {
    insta::assert_snapshot!(outcome("vscode/project/.vscode/mcp.json"), @r#"
    time (line 9): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_FROM_FILE=yes DEMO_KEY=demo-key-0000 DEMO_RETRIES=3 in <project>
    files (line 18): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "<project>"]
    remote (line 28): http http://127.0.0.1:3001/mcp X-Team: core
      login as demo-client, scopes []
    old (line 36): sse http://127.0.0.1:3002/sse
    socket (line 37): stdio  []
      unusable: url: "unix" is not an MCP transport and cannot be used; if the server has an http or https endpoint too, write that as `url` with "type": "http"; else set "disabled": true
    note mcp.json:24: server "files": sandbox.filesystem.denyWrite[0]: this host cannot keep a part of what is allowed, so it stays allowed; allow less instead
    note mcp.json:25: server "files": sandbox.network.deniedDomains[0]: this host cannot keep a part of what is allowed, so it stays allowed; allow less instead
    "#);
}

#[test]
fn vs_code_settings_json() {
    insta::assert_snapshot!(outcome("vscode/home/.config/Code/User/settings.json"), @r#"
    everything (line 7): stdio npx ["-y", "@modelcontextprotocol/server-everything"] DEMO_KEY=demo-key-0000
    note settings.json:2: not about servers, ignored: `editor.fontSize`, `chat.mcp.access`
    "#);
}

#[test]
fn visual_studio() {
    insta::assert_snapshot!(outcome("visual-studio/project/.mcp.json"), @r#"
    time (line 6): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000
    remote (line 12): http http://127.0.0.1:3001/mcp Authorization: Bearer demo-key-0000
      no login
    old (line 17): sse http://127.0.0.1:3002/sse
    "#);
}

#[test]
fn windsurf() {
    insta::assert_snapshot!(outcome("windsurf/home/.codeium/windsurf/mcp_config.json"), @r#"
    time (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-of-a-file
      exclude ["convert_time"]
    remote (line 9): auto http://127.0.0.1:3001/mcp X-Key: demo-key-0000
    old (line 13): auto http://127.0.0.1:3002/sse
    off (line 14): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    "#);
}

#[test]
fn zed() {
    insta::assert_snapshot!(outcome("zed/home/.config/zed/settings.json"), @r#"
    time (line 6): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_LEVEL=info
      call timeout 90s
    files (line 14): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "/srv/mcp-demo"]
      call timeout 45s
    remote (line 18): http http://127.0.0.1:3001/mcp X-Team: core
      call timeout 45s
      login as demo-client with a secret, scopes []
    off (line 24): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      call timeout 45s
      disabled: disabled in the config
    note settings.json:3: not about servers, ignored: `theme`, `agent`
    note settings.json:23: server "mcp-server-demo": part of another program, not a server that can be started; left out
    "#);
}

#[test]
fn cline() {
    insta::assert_snapshot!(outcome("cline/home/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"), @r#"
    time (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_LEVEL=info in /srv/mcp-demo
      call timeout 90s
    remote (line 14): http http://127.0.0.1:3001/mcp X-Key: demo-key-0000
      call timeout 90s
      login as demo-client with a secret, scopes []
    old (line 22): sse http://127.0.0.1:3002/sse
    older (line 23): sse http://127.0.0.1:3002/sse
    nested (line 24): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      call timeout 120s
    off (line 25): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    note cline_mcp_settings.json:22: server "old": url: taken for an SSE server, as Cline does without a type
    "#);
}

#[test]
fn roo_code() {
    insta::assert_snapshot!(outcome("roo-code/project/.roo/mcp.json"), @r#"
    time (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000 in <project>
      call timeout 90s
      exclude ["convert_time"]
    remote (line 14): http http://127.0.0.1:3001/mcp X-Team: core
    old (line 20): sse http://127.0.0.1:3002/sse
    off (line 21): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    note mcp.json:11: server "time": watchPaths: files are not watched here, so a change does not restart the server
    "#);
}

#[test]
fn kilo_code() {
    insta::assert_snapshot!(outcome("kilo-code/project/.kilo/kilo.jsonc"), @r#"
    files (line 5): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "/srv/mcp-demo"] DEMO_KEY=demo-key-0000
      start timeout 90s
    remote (line 12): auto http://127.0.0.1:3001/mcp X-Team: core
      no login
    off (line 13): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    note kilo.jsonc:3: not about servers, ignored: `permission`
    "#);
}

#[test]
fn kilo_code_kilocode() {
    insta::assert_snapshot!(outcome("kilo-code/project/.kilocode/mcp.json"), @r#"
    time (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000
      call timeout 90s
      exclude ["convert_time"]
    remote (line 11): http http://127.0.0.1:3001/mcp X-Team: core
    off (line 12): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    "#);
}

#[test]
fn continue_config() {
    insta::assert_snapshot!(outcome("continue/home/.continue/config.yaml"), @r#"
    time (line 8): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000 in /srv/mcp-demo
      start timeout 90s
    remote (line 17): http http://127.0.0.1:3001/mcp X-Team: core Authorization: Bearer demo-key-0000
      no login
    old (line 29): sse http://127.0.0.1:3002/sse
    note config.yaml:1: not about servers, ignored: `name`, `version`, `schema`, `models`
    note config.yaml:23: server "Remote": requestOptions.timeout: of these options only `headers` is used here
    note config.yaml:24: server "Remote": requestOptions.verifySsl: of these options only `headers` is used here
    note config.yaml:25: server "Remote": requestOptions.proxy: of these options only `headers` is used here
    note config.yaml:26: server "Remote": requestOptions.noProxy: of these options only `headers` is used here
    "#);
}

#[test]
fn continue_one_server() {
    insta::assert_snapshot!(outcome("continue/project/.continue/mcpServers/files.json"), @r#"files (line 1): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "/srv/mcp-demo"] DEMO_KEY=demo-key-0000"#);
}

#[test]
fn augment() {
    insta::assert_snapshot!(outcome("augment/home/.augment/settings.json"), @r#"
    time (line 4): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000
    remote (line 9): http http://127.0.0.1:3001/mcp Authorization: Bearer demo-key-0000
      no login
    old (line 10): sse http://127.0.0.1:3002/sse
    note settings.json:2: not about servers, ignored: `model`
    "#);
}

#[test]
fn augment_in_vs_code() {
    insta::assert_snapshot!(outcome("augment/home/.config/Code/User/settings.json"), @r#"files (line 4): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "/srv/mcp-demo"] DEMO_LEVEL=info"#);
}

#[test]
fn trae() {
    insta::assert_snapshot!(outcome("trae/project/.trae/mcp.json"), @r#"
    files (line 3): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "<project>"] DEMO_LEVEL=info
    remote (line 8): auto http://127.0.0.1:3001/mcp X-Team: core
    off (line 9): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    "#);
}

#[test]
fn junie() {
    insta::assert_snapshot!(outcome("junie/project/.junie/mcp/mcp.json"), @r#"
    time (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_LEVEL=info in /srv/mcp-demo
    remote (line 9): auto http://127.0.0.1:3001/mcp X-Team: core
    off (line 10): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    "#);
}

#[test]
fn kiro() {
    insta::assert_snapshot!(outcome("kiro/project/.kiro/settings/mcp.json"), @r#"
    time (line 3): stdio uvx ["mcp-server-time", "--local-timezone", "UTC"] DEMO_KEY=demo-key-0000
      call timeout 90s
      exclude ["convert_time"]
    remote (line 12): auto http://127.0.0.1:3001/mcp X-Team: core
      login as demo-client with a secret, scopes ["tools:read"]
    off (line 18): stdio npx ["-y", "@modelcontextprotocol/server-memory"]
      disabled: disabled in the config
    "#);
}
