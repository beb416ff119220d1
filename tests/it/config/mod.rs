//! Configs: one file of each client as its users have it, ours, and those that must be rejected.

mod first_hour;

use std::path::PathBuf;

use mcp_host::config::{Config, Error, HostSettings, LoadRequest, Problem, Remote, Server, Transport, Vars, load};

/// Loads a file of this repository with these variables and a home.
fn read(file: &str, vars: &[(&str, &str)]) -> Result<Config, Error> {
    let vars = Vars::from_iter(vars.iter().copied());
    let home = Some(PathBuf::from("/home/ada"));
    load(&LoadRequest { files: vec![file.into()], vars, home, ..LoadRequest::default() })
}

/// Returns the outcome of a client's file: one server per line with its settings that differ from the defaults, and the
/// notes.
fn fixture(name: &str, vars: &[(&str, &str)]) -> String {
    let folder = "tests/fixtures/config/";
    let config = read(&format!("{folder}{name}"), vars).unwrap_or_else(|error| panic!("{error}"));
    let servers = config.servers.iter().map(describe);
    // Whether others may read a checkout is not the file's doing.
    let notes = config.notes.iter().filter(|note| !note.message.starts_with("other users"));
    let notes = notes.map(|note| format!("note {}\n", note.to_string().replace(folder, "")));
    let text: String = servers.chain(notes).collect();
    text.replace(concat!(env!("CARGO_MANIFEST_DIR"), "/"), "")
}

pub(crate) fn describe(server: &Server) -> String {
    let transport = match &server.transport {
        Transport::Stdio(stdio) => {
            let env = stdio.env.iter().map(|(name, value)| format!(" {name}={}", value.expose()));
            let forward = stdio.forward_env.iter().map(|name| format!(" {name}=*"));
            let cwd = stdio.cwd.iter().map(|cwd| format!(" in {}", cwd.display()));
            let rest: String = env.chain(forward).chain(cwd).collect();
            format!("stdio {} {:?}{rest}", stdio.command, stdio.args)
        }
        Transport::Http(remote) => describe_remote("http", remote),
        Transport::Sse(remote) => describe_remote("sse", remote),
        Transport::Auto(remote) => describe_remote("auto", remote),
        other => format!("{other:?}"),
    };
    let line = server.source.line.unwrap_or_default();
    let plain = Server::new(&server.name, server.transport.clone()).expect("it has a name");
    let settings = |server: &Server| {
        [
            ("start", format!("{:?}", server.start)),
            ("required", server.required.to_string()),
            ("start timeout", format!("{:?}", server.start_timeout)),
            ("call timeout", format!("{:?}", server.call_timeout)),
            ("retries", server.restart.max_retries.to_string()),
            ("include", format!("{:?}", server.include_tools)),
            ("exclude", format!("{:?}", server.exclude_tools)),
            ("about", server.description.clone().unwrap_or_default()),
            ("disabled:", server.disabled.clone().unwrap_or_default()),
            ("unusable:", server.unusable.as_ref().map(ToString::to_string).unwrap_or_default()),
        ]
    };
    let differing = settings(server).into_iter().zip(settings(&plain)).filter(|(ours, plain)| ours != plain);
    let differing: String = differing.map(|((name, value), _)| format!("  {name} {value}\n")).collect();
    format!("{} (line {line}): {transport}\n{differing}", server.alias)
}

fn describe_remote(kind: &str, remote: &Remote) -> String {
    let headers = remote.headers.iter().map(|(name, value)| format!(" {name}: {}", value.expose()));
    let helper = remote.headers_helper.as_ref().map(|helper| {
        let words: Vec<&String> = std::iter::once(&helper.program).chain(&helper.args).collect();
        format!(" headers by {words:?}")
    });
    format!("{kind} {}{}{}", remote.url, headers.collect::<String>(), helper.unwrap_or_default())
}

#[test]
fn claude_desktop() {
    insta::assert_snapshot!(fixture("claude-desktop.json", &[]), @r#"
    filesystem (line 3): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "/Users/ada/Desktop", "/Users/ada/Downloads"]
    github (line 7): stdio docker ["run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"] GITHUB_PERSONAL_ACCESS_TOKEN=ghp_0123456789abcdef
    linear (line 12): stdio npx ["-y", "mcp-remote", "https://mcp.linear.app/sse"]
    note claude-desktop.json:10: server "github": env.GITHUB_PERSONAL_ACCESS_TOKEN: a secret is written in this file
    note claude-desktop.json:13: server "linear": command: mcp-remote is not needed here; give its URL as `url`
    note claude-desktop.json:17: not about servers, ignored: `globalShortcut`
    "#);
}

#[test]
fn claude_code() {
    insta::assert_snapshot!(fixture("claude-code.json", &[("SENTRY_TOKEN", "s3cret")]), @r#"
    sentry (line 11): http https://mcp.sentry.dev/mcp Authorization: Bearer s3cret
      call timeout 120s
    notion (line 17): sse https://mcp.notion.com/sse headers by ["/opt/bin/headers.sh"]
    db (line 23): stdio uvx ["mcp-server-postgres", "--dsn", "${DATABASE_URL}"] PGOPTIONS=-c statement_timeout=5s
      unusable: args[2]: the variable DATABASE_URL is not set; set it before the host starts: export DATABASE_URL=…
    note claude-code.json:2: not about servers, ignored: `numStartups`, `tipsHistory`
    note claude-code.json:5: projects: servers of other projects are not read: /home/ada/src/shop (local-only)
    "#);
}

#[test]
fn cursor() {
    insta::assert_snapshot!(fixture("cursor.json", &[("PLAYWRIGHT_KEY", "pk"), ("FIGMA_TEAM", "core")]), @r#"
    playwright (line 3): stdio npx ["@playwright/mcp@latest", "--output-dir", "/home/ada/shots"] PLAYWRIGHT_BROWSERS_PATH=/opt/browsers API_KEY=pk
    figma (line 10): auto http://127.0.0.1:3845/mcp X-Team: core
    slack (line 14): auto https://mcp.slack.com/mcp
    "#);
}

#[test]
fn vs_code() {
    insta::assert_snapshot!(fixture("vscode.json", &[("MCP_HOST_INPUT_REGION", "eu")]), @r#"
    perplexity (line 8): stdio npx ["-y", "server-perplexity-ask"] PERPLEXITY_API_KEY=${input:perplexity-key} RETRIES=3 in /srv/perplexity
      unusable: env.PERPLEXITY_API_KEY: the input "perplexity-key" (Perplexity API key) has no value; set MCP_HOST_INPUT_PERPLEXITY_KEY
    github (line 17): http https://api.githubcopilot.com/mcp/
    regional (line 18): auto https://eu.example.com/mcp
    "#);
}

#[test]
fn gemini_cli() {
    insta::assert_snapshot!(fixture("gemini.json", &[("TOOLS_PORT", "9000"), ("DB_URL", "postgres://db"), ("TOOLS_KEY", "k")]), @r#"
    python (line 5): stdio python ["-m", "tools.server", "--port", "9000"] DATABASE_URL=postgres://db API_KEY=k in tests/fixtures/config/./mcp_tools/python
      call timeout 15s
      include ["read", "run_shell"]
      exclude ["drop"]
    http (line 15): http https://tools.example.com/mcp X-Plan: free
      call timeout 600s
    auto (line 16): auto https://tools.example.com/auto
    typed (line 17): sse https://tools.example.com/sse
    legacy (line 18): stdio old-server []
      about Kept for reference
      disabled: named in mcp.excluded of the config
    note gemini.json:2: not about servers, ignored: `selectedAuthType`
    note gemini.json:17: server "typed": authProviderType: not needed here: the server says what it wants
    "#);
}

#[test]
fn codex() {
    insta::assert_snapshot!(fixture("codex.toml", &[("FIGMA_OAUTH_TOKEN", "fo"), ("FIGMA_TEAM", "core")]), @r#"
    docs (line 5): stdio npx ["-y", "docs-mcp", "${NOT_A_VARIABLE}"] LOG_LEVEL=warn LOCAL_TOKEN=* REMOTE_TOKEN=*
      start timeout 20.5s
      call timeout 45s
      include ["search", "summarize"]
      exclude ["slow-tool"]
    figma (line 21): http https://mcp.figma.com/mcp X-Figma-Region: us-east-1 Authorization: Bearer fo X-Team: core
      required true
    off (line 29): stdio off-server []
      disabled: disabled in the config
    note codex.toml:1: not about servers, ignored: `model`, `approval_policy`, `mcp_oauth_credentials_store`
    note codex.toml:7: server "docs": args[2]: this kind of file has no variables, left as is
    "#);
}

#[test]
fn windsurf() {
    insta::assert_snapshot!(fixture("windsurf.json", &[("WINDSURF_KEY", "wk")]), @r#"
    remote-http-mcp (line 3): auto https://windsurf.example.com/mcp API_KEY: Bearer wk
      exclude ["delete_repository"]
    brave-search (line 8): stdio npx ["-y", "@modelcontextprotocol/server-brave-search"] BRAVE_API_KEY=brave-key-from-a-file
      disabled: disabled in the config
    "#);
}

#[test]
fn zed() {
    insta::assert_snapshot!(fixture("zed.json", &[]), @r#"
    local (line 6): stdio node ["/opt/server.js", "--stdio"]
      call timeout 90s
    nested (line 12): stdio some-command ["arg-1", "arg-2"] LEVEL=1
    remote (line 16): http https://zed.example.com/mcp X-Team: core
    off (line 18): stdio off []
      disabled: disabled in the config
    note zed.json:3: not about servers, ignored: `theme`, `vim_mode`
    note zed.json:17: server "mcp-server-github": part of another program, not a server that can be started; left out
    "#);
}

#[test]
fn cline() {
    insta::assert_snapshot!(fixture("cline_mcp_settings.json", &[("CLINE_ENV", "test")]), @r#"
    local (line 3): stdio node ["/path/to/server.js"]
    legacy (line 11): sse https://cline.example.com/sse X-Env: test
      call timeout 30s
    modern (line 12): http https://cline.example.com/mcp
    nested (line 13): http https://cline.example.com/nested
      call timeout 5s
    old-name (line 14): http https://cline.example.com/old
    note cline_mcp_settings.json:11: server "legacy": url: taken for an SSE server, as Cline does without a type
    "#);
}

#[test]
fn roo() {
    insta::assert_snapshot!(fixture("roo.json", &[("ROO_TOKEN", "rt")]), @r#"
    files (line 3): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "/workspace"]
      call timeout 300s
    cloud (line 10): http https://roo.example.com/mcp Authorization: Bearer rt
      exclude ["write"]
      disabled: disabled in the config
    note roo.json:7: server "files": watchPaths: files are not watched here, so a change does not restart the server
    "#);
}

#[test]
fn goose() {
    insta::assert_snapshot!(fixture("goose.yaml", &[("REMOTE_TOKEN", "rt"), ("REGION", "not this")]), @r#"
    github (line 10): stdio npx ["-y", "@modelcontextprotocol/server-github", "${NOT_A_VARIABLE}"] LOG_LEVEL=info GITHUB_TOKEN=*
      call timeout 300s
      about GitHub
      unusable: env_keys: the variable GITHUB_TOKEN is not set; goose keeps it in a store of its own: set GITHUB_TOKEN before the host starts
    remote (line 26): http https://goose.example.com/mcp Authorization: Bearer rt X-Region: eu
      call timeout 120s
      disabled: disabled in the config
    nested (line 39): stdio uvx ["mcp-server-fetch"]
    note goose.yaml:1: not about servers, ignored: `GOOSE_PROVIDER`, `GOOSE_MODEL`
    note goose.yaml:4: server "developer": part of another program, not a server that can be started; left out
    note goose.yaml:18: server "github": args[2]: this kind of file has no variables, left as is
    "#);
}

#[test]
fn opencode() {
    insta::assert_snapshot!(fixture("opencode.jsonc", &[("OPENCODE_TOKEN", "ot")]), @r#"
    everything (line 6): stdio npx ["-y", "@modelcontextprotocol/server-everything"] TOKEN=ot HOME_TEXT=${HOME}
      start timeout 10s
    context7 (line 13): auto https://mcp.context7.com/mcp CONTEXT7_API_KEY: brave-key-from-a-file
    note opencode.jsonc:3: not about servers, ignored: `model`
    note opencode.jsonc:19: server "inherited": turns a server on or off that no earlier file has, ignored
    "#);
}

#[test]
fn continue_() {
    insta::assert_snapshot!(fixture("continue.yaml", &[("SQLITE_KEY", "sk"), ("MCP_HOST_INPUT_DOCS_KEY", "dk")]), @r#"
    sqlite-mcp (line 8): stdio npx ["-y", "mcp-sqlite", "/data/test.db"] KEY=sk
      start timeout 20s
    docs (line 17): http https://continue.example.com/mcp X-Client: continue Authorization: Bearer dk
    either (line 25): auto https://continue.example.com/either
    note continue.yaml:1: not about servers, ignored: `name`, `version`, `schema`, `models`
    "#);
}

#[test]
fn seed() {
    insta::assert_snapshot!(fixture("seed.json", &[("GOPHER_ROOT", "/g"), ("SEED_KEY", "sk"), ("SEED_PASSWORD", "open sesame")]), @r#"
    local (line 3): stdio gopher-mcp ["--root", "/g"] GOPHER_TOKEN=${GOPHER_TOKEN}
      call timeout 30s
      retries 3
      about Gopher and Gemini as tools
      unusable: env.GOPHER_TOKEN: the variable GOPHER_TOKEN is not set; set it before the host starts: export GOPHER_TOKEN=…
    keyed (line 13): http https://seed.example.com/mcp X-API-Key: sk
    basic (line 18): sse https://seed.example.com/sse Authorization: Basic YWRhOm9wZW4gc2VzYW1l
      retries 0
    bearer (line 24): http https://seed.example.com/bearer Authorization: Bearer sk
    "#);
}

#[test]
fn bare_map() {
    insta::assert_snapshot!(fixture("bare.json", &[]), @r#"
    fetch (line 2): stdio uvx ["mcp-server-fetch"]
    search (line 3): auto https://bare.example.com/mcp
    "#);
}

/// Loads a text as this file, with these changes to the request; returns one server per line, then the notes or the
/// problems.
fn text_as(name: &str, text: &str, change: impl Fn(&std::path::Path, &mut LoadRequest)) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("it is there");
    let file = root.join(name);
    std::fs::create_dir_all(file.parent().expect("it has one")).expect("a folder");
    std::fs::write(&file, text.replace("~", &root.to_string_lossy())).expect("a file");
    let mut request = LoadRequest { files: vec![file], home: Some(root.clone()), ..LoadRequest::default() };
    change(&root, &mut request);
    let told = match load(&request) {
        Ok(config) => config.servers.iter().map(describe).chain(config.notes.iter().map(line)).collect::<String>(),
        Err(error) => error.problems().iter().map(line).collect(),
    };
    told.replace(&*root.to_string_lossy(), "~")
}

/// Returns the files of a folder, in order.
fn files_in(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    files.sort();
    files
}

/// Every file in `config/failing`, with the servers that cannot be started and why; each file is accepted, and servers
/// not named here are fine.
#[test]
fn first_hour_h4_one_entry_fails_alone() {
    let told = |file: &PathBuf| {
        let config = read(&file.to_string_lossy(), &[]).unwrap_or_else(|error| panic!("{error}"));
        config
            .servers
            .iter()
            .filter_map(|server| server.unusable.clone())
            .flat_map(|unusable| unusable.problems().map(line).collect::<Vec<_>>())
            .collect::<String>()
    };
    let text: String = files_in("config/failing").iter().map(told).collect();
    insta::assert_snapshot!(text.replace("config/failing/", ""), @r#"
    bad-url.toml:2: server "relative": url: not a URL: relative URL without a base
      write the full URL, like "https://example.com/mcp"
    bad-url.toml:5: server "plain": url: plain http beyond this machine can be read and changed on the way
      use https, or add "insecureHttp": true to this entry if you trust the network in between
    bad-url.toml:8: server "login": url: user and password do not belong in the URL
      use "auth": { "type": "basic", … }
    bad-url.toml:11: server "file": url: "file" is not an MCP transport and cannot be used
      if the server has an http or https endpoint too, write that as `url` with "type": "http"; else set "disabled": true
    bad-url.toml:15: server "header": headers.X Team: "X Team" is not a valid header name
    bad-url.toml:15: server "header": headers.X-Line: the value holds a line break or control character
    both-command-and-url.json:6: server "two-ways": url: both `command` (line 4) and `url` (line 6) are given
      keep one, or say which is meant with "type"
    codex-mixed-transport.toml:3: server "mixed": args: only a server with a command has this
    codex-mixed-transport.toml:4: server "mixed": bearer_token: a token may not be written here
      name its variable in bearer_token_env_var
    foreign.json:3: server "home-assistant": url: plain http beyond this machine can be read and changed on the way
      use https, or add "insecureHttp": true to this entry if you trust the network in between
    foreign.json:4: server "grafana": url: plain http beyond this machine can be read and changed on the way
      use https, or add "insecureHttp": true to this entry if you trust the network in between
    foreign.json:5: server "socket": type: "ws" is not an MCP transport and cannot be used
      if the server has an http or https endpoint too, write that as `url` with "type": "http"; else set "disabled": true
    foreign.json:6: server "gemini-old": tcp: MCP has no WebSocket transport, so this server cannot be used
      if the server has an http or https endpoint too, write that as `url` with "type": "http"; else set "disabled": true
    foreign.json:7: server "editor": url: "unix" is not an MCP transport and cannot be used
      if the server has an http or https endpoint too, write that as `url` with "type": "http"; else set "disabled": true
    foreign.json:8: server "typo": url: "htps" is not an MCP transport and cannot be used
      did you mean https://example.com/mcp?
    foreign.json:9: server "helper": headersHelper: no shell runs this program, and `|` needs one
      write it as a list of words, or put it into a script and name that
    foreign.json:10: server "one-text": expected an object, found a string
      write an object with `command`, a program to start, or `url`, an endpoint to connect to
    foreign.json:11: server "unnamed (line 11)": name: a server needs a name
      tool names start with it: write "files", for example
    foreign.json:12: server "seconds": timeout: "60" is not a time
      write it with a unit: "500ms", "1.5s", "2m", "1h"
    list.yaml:4: server "unnamed (line 4)": name: a server needs a name
      tool names start with it: write "files", for example
    unknown-transport.toml:2: server "radio": type: unknown transport "carrier-pigeon"
      use "stdio", "http" or "sse", or leave it out
    unknown-transport.toml:6: server "socket": transport: "ws" is not an MCP transport and cannot be used
      if the server has an http or https endpoint too, write that as `url` with "type": "http"; else set "disabled": true
    "#);
}

/// Every file in `config/invalid`, with everything that is wrong with it.
#[test]
fn refused() {
    let refuse = |file: &PathBuf| match read(&file.to_string_lossy(), &[]) {
        Ok(_) => panic!("{} was taken", file.display()),
        Err(error) => error.problems().iter().map(line).collect::<String>(),
    };
    let text: String = files_in("config/invalid").iter().map(refuse).collect();
    insta::assert_snapshot!(text.replace("config/invalid/", ""), @r#"
    bad-duration.toml:3: server "slow": callTimeout: 30 has no unit
      write it with a unit: "30s" for seconds, or "500ms", "2m", "1h"
    bad-duration.toml:4: server "slow": startTimeout: "soon" is not a time
      write it with a unit: "500ms", "1.5s", "2m", "1h"
    bad-duration.toml:5: server "slow": maxCallTime: must be more than zero
    bad-duration.toml:7: server "slow": restart: maxDelay is shorter than minDelay
    duplicate-alias.toml:4: server "my-files": both this and "My Files" at duplicate-alias.toml:1 become the alias "my-files"
      rename one of them
    duplicate-server.json:4: server "files": given twice, first at duplicate-server.json:3
      rename one of them, or remove it
    empty.json: the file is empty
      begin with: { "mcpServers": { "files": { "command": "…", "args": [] } } }
    host-auth-nobody.toml:5: host.auth.clients: no client has a token
      run `mcp-host token NAME`, and put the line that it prints here
    host-auth.toml:8: host.auth.clients.laptop: this is also the token of "desktop", so it would not identify the caller
      run `mcp-host token NAME`, and put the line that it prints here
    host-auth.toml:10: host.auth.clients.phone: expected "sha256:" and 64 hex digits
      run `mcp-host token NAME`, and put the line that it prints here
    host-auth.toml:11: host.auth.clients.a b: a client cannot be called that
      use up to 64 letters, digits, `.`, `-` and `_`
    host-cluster.toml:7: host.cluster.keys[0]: this is not a key: expected 32 bytes in base64 or hexadecimal
      make one with: openssl rand -base64 32
    host-cluster.toml:9: host.cluster.keys[2]: this key is given twice
      remove one of the two
    host-cluster.toml:11: host.cluster.peers[0]: "10.0.0.5" is not an address with a port
      write "dns:NAME:PORT", or a list of addresses such as ["10.0.0.5:8809", "10.0.0.6:8809"]
    host-cluster.toml:11: host.cluster.peers[1]: "dns:peers:8809" is not an address with a port
      write "dns:NAME:PORT", or a list of addresses such as ["10.0.0.5:8809", "10.0.0.6:8809"]
    host-cluster.toml:11: host.cluster.peers[2]: "10.0.0.6:0" is not an address with a port
      write "dns:NAME:PORT", or a list of addresses such as ["10.0.0.5:8809", "10.0.0.6:8809"]
    host-cluster.toml:12: host.cluster.listen: this is where clients connect (host.listen)
      use another port, such as 8809: only replicas may reach it
    host-cluster.toml:13: host.cluster.address: "here" is not an address with a port
      write "auto", or an address such as "10.0.0.5:8809"
    host-cluster.toml:14: host.cluster.namespace: "a b" is not a namespace
      use up to 64 letters, digits, `.`, `-` and `_`
    host-cluster.toml:15: host.cluster.store: unknown key
      the keys here are address, keys, listen, namespace, peers
    host-cluster.toml:16: host.cluster.beat: unknown key
      the keys here are address, keys, listen, namespace, peers
    host-metrics-token.toml:9: host.metrics.token: this is also the token of "laptop", which opens more than /metrics
      run `mcp-host token --metrics`, and put the line that it prints here
    host-metrics.toml:9: host.metrics.enabled: expected true or false, found a string
      write it without quotes
    host-metrics.toml:10: host.metrics.tools: expected a list, found a string
      write a list with each word in its own quotes: ["files__*"]
    host-metrics.toml:11: host.metrics.token: expected "sha256:" and 64 hex digits
      run `mcp-host token --metrics`, and put the line that it prints here
    host-oauth-nobody.toml:5: host.auth.issuer: is missing
      name the authorization server by its URL, exactly as in its metadata: "https://auth.example.com"
    host-oauth-nobody.toml:5: host.auth.audience: is missing
      name the audience of the tokens: the URL at which clients reach this host, "https://box.example:8808/mcp"
    host-oauth.toml:4: host.auth.resource: is missing
      `audience` is not a URL: set `resource` to the URL at which clients reach this host, "https://box.example:8808/mcp"
    host-oauth.toml:6: host.auth.issuer: "http://auth.example.com" is not an https URL
    host-oauth.toml:8: host.auth.scopes: "\"tools\"" is not a scope
    host-registry.toml:7: host.registry.url: plain http beyond this machine can be changed on the way
      use https
    host-registry.toml:8: host.registry.headers.no name: this cannot be sent as a header
      correct it, or remove it
    host-secrets-keyless.toml:5: host.secrets.store: the encrypted file has no key
      set MCP_HOST_SECRET_KEY, or `host.secrets.keyFile` to a file with it; make one with: openssl rand -base64 32
    host-secrets.toml:5: host.secrets.store: "disk" is not one of auto, keyring, file, memory
    host-secrets.toml:6: host.secrets.keyFile: no-such-file.key cannot be read: No such file or directory (os error 2)
      (umask 077; set -C; openssl rand -base64 32 > no-such-file.key)
    host-tls.toml:5: host.tls: both `cert` and `key` are required
      name two PEM files: the certificate, and its private key
    host-tls.toml:6: host.insecureHttp: expected true or false, found a string
      write it without quotes
    host-values.toml:5: host.listen: 0.0.0.0:8808 can be reached from other machines, and there is neither `host.auth` to identify callers nor `host.tls` to encrypt the traffic
      give clients tokens (`mcp-host token NAME`) and set `host.tls`, or listen on 127.0.0.1 or [::1]
    host-values.toml:6: host.startupWait: 3 has no unit
      write it with a unit: "3s" for seconds, or "500ms", "2m", "1h"
    host-values.toml:7: host.allowedOrigins[0]: "https://example.com/app" is not an origin
      write scheme, host and port alone: "https://app.example.com"
    host-values.toml:10: host.naming.maxLength: 20 is not between 40 and 128
    host-values.toml:11: host.naming.separator: expected 1 to 4 characters, each a letter, a digit, _ or -
    host-values.toml:14: host.limits.message: 1024 has no unit
      write it with a unit: "64KiB", "16MiB"
    host-values.toml:15: host.limits.pendingPerServer: must be more than zero
    host-values.toml:16: host.limits.headers: 1000000 headers: 4096 at most
    host-wide-plain.toml:5: host.listen: [::]:8808 can be reached from other machines, and there is no `host.tls` to encrypt tokens and traffic
      set `host.tls` to a certificate and its key; behind a proxy with TLS, set "insecureHttp": true
    host-wide.toml:5: host.listen: 192.0.2.1:8808 can be reached from other machines, and there is no `host.auth` to identify callers
      give clients tokens (`mcp-host token NAME`), or listen on 127.0.0.1 or [::1]
    lacking-host-features.toml:5: host.sanitizeResults: this build does not have this feature
      remove the key
    lacking-host-features.toml:6: host.validate: this build checks no calls against their schemas
      build mcp-host with the cargo feature `validate`, or write "definitions"
    lacking-host-features.toml:7: host.approval: "tufu" is not one of off, warn, tofu, ask
    lacking-server-features.toml:3: server "local": sanitizeResults: this build does not have this feature
      remove the key
    no-servers.json:1: no servers in this file
      did you mean `mcpServers`?
    not-json.json:3:32: not valid JSON: Expected comma
      | "files": { "command": "npx" "args": [] }
      |                            ^
      put a comma at the mark
    not-toml.toml:2:11: not valid TOML: invalid float, expected `nan`
      | command = npx
      |           ^
    not-toml.toml:3:12: not valid TOML: unclosed array, expected `]`
      | args = ["a"
      |            ^
    not-yaml.yaml:4: not valid YAML: found unexpected end of stream at line 4 column 1, while scanning a quoted scalar at line 3 column 14
    sandbox.toml:3: server "full": sandbox: "full" is no level of this version
      the levels are "off", "default", and "strict"
    sandbox.toml:7: server "listed": sandbox.cpu: this version cannot limit processor time
      remove the key
    sandbox.toml:7: server "listed": sandbox.read[0]: "notes" is not a whole path
      write a path that begins with / or ~/
    sandbox.toml:7: server "listed": sandbox.network[0]: "https://api.example.com" is a URL and not a host
      write "api.example.com", "*.example.com", or "db.example.com:5432"
    sandbox.toml:10: host.sandbox.level: "full" is no level of this version
      the levels are "off", "default", and "strict"
    wrong-types.json:5: server "files": args: expected a list, found a string
      write a list with each word in its own quotes: ["--root", "/srv"]
    wrong-types.json:6: server "files": env: expected an object, found a list
    wrong-types.json:7: server "files": required: expected true or false, found a string
      write it without quotes
    wrong-types.json:8: server "files": maxConcurrent: -1 is not a whole number
    wrong-types.json:9: server "files": sharing: "everyone" is not one of auto, profile, session, host
    wrong-types.json:10: server "files": roots[0]: a root is a file:// URI
    wrong-types.json:12: server "many": pool: 17 connections: 16 at most
    wrong-types.json:13: server "own": pool: with `sharing: "session"` each client has a connection of its own
      remove `pool`, or share connections: "auto"
    wrong-types.json:14: server "nothing": neither `command` nor `url` is given
      give `command`, a program to start, or `url`, an endpoint to connect to
    wrong-types.json:15: server "text": expected an object, found a string
      write an object with `command`, a program to start, or `url`, an endpoint to connect to
    "#);
}

fn line(problem: &Problem) -> String {
    let excerpt = problem.excerpt.as_ref();
    let excerpt = excerpt.map(|excerpt| format!("  | {}\n  | {}^\n", excerpt.line, " ".repeat(excerpt.caret)));
    let help = problem.help.as_ref().map(|help| format!("  {help}\n"));
    format!("{problem}\n{}{}", excerpt.unwrap_or_default(), help.unwrap_or_default())
}

/// The commented file shows the defaults, so nothing in it may differ from them or be unknown.
#[test]
fn ours() {
    let config = read("config/mcp-host.toml", &[("HOME", "/home/ada"), ("GITHUB_TOKEN", "t")]).expect("it is good");
    assert_eq!(config.notes, []);
    let mut host = HostSettings::default();
    // The default path of a key depends on the home.
    host.secrets.key_file = Some("/home/ada/.config/mcp-host/secret.key".into());
    assert_eq!(config.host, host);
    for server in &config.servers {
        let mut plain = Server::new(&server.name, server.transport.clone()).expect("it has a name");
        plain.secrets.clone_from(&server.secrets);
        plain.source = server.source.clone();
        plain.entry.clone_from(&server.entry);
        plain.description = server.description.clone();
        assert_eq!(*server, plain);
    }
    let minimal = read("config/minimal.toml", &[("HOME", "/home/ada")]).expect("it is good");
    insta::assert_snapshot!(describe(&minimal.servers[0]), @r#"files (line 3): stdio npx ["-y", "@modelcontextprotocol/server-filesystem", "/home/ada"]"#);
}
