//! The world of the canaries: servers that are given secrets and repeat them, and a client that sends its own.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::canary;
use crate::reload::program::{Daemon, mcp_host};
use crate::secrets::echo::request;

/// Prints everything that it was given, and fails.
const SHOUTS: &str = "env >&2; echo \"given: $0 $*\" >&2; exit 3";
/// Prints one of its secrets, and works.
const ECHO: &str = "echo \"told: $SECRET\" >&2; exec \"$0\" __demo-server";

/// A site with servers that refuse everybody and repeat the whole request, one that works, and one that works with a token.
pub(crate) struct World {
    origin: String,
    /// All requests that it got.
    got: Arc<Mutex<String>>,
}

impl World {
    /// Starts the site; it ends with the test.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let got = Arc::<Mutex<String>>::default();
        let (seen, at) = (got.clone(), origin.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, at) = (seen.clone(), at.clone());
                std::thread::spawn(move || serve(stream, &seen, &at));
            }
        });
        Self { origin, got }
    }

    /// Returns all requests that the servers of the site got.
    pub(crate) fn got(&self) -> String {
        self.got.lock().unwrap().clone()
    }

    /// Returns a config with secrets in every place that takes one.
    pub(crate) fn config(&self, home: &Path) -> Value {
        std::fs::write(home.join("secret.env"), format!("OF_FILE_SECRET='{}'\n", canary("env-file"))).unwrap();
        std::fs::write(home.join("argument.txt"), format!("{}\n", canary("argument-of-file"))).unwrap();
        let gives = format!("printf '{{\"X-Given\": \"%s\"}}' '{}'", canary("header-helper"));
        std::fs::write(home.join("gives.sh"), gives).unwrap();
        let once = json!({ "maxRetries": 0 });
        let refuses = |key: &str, value: Value| {
            let mut server = json!({ "type": "http", "url": format!("{}/refuses", self.origin), "restart": once });
            server[key] = value;
            server
        };
        let url = self.origin.replace("http://", &format!("http://user:{}@", canary("url-password")));
        json!({
            "inputs": [{ "id": "asked", "type": "promptString", "password": true }],
            "mcpServers": {
                "echo": {
                    "command": "/bin/sh", "args": ["-c", ECHO, env!("CARGO_BIN_EXE_mcp-host")],
                    "env": { "SECRET": canary("env") },
                },
                "shouts": {
                    "command": "/bin/sh", "restart": once, "envFile": "secret.env",
                    "args": ["-c", SHOUTS, format!("--token={}", canary("argument")), "--password", canary("argument-next"),
                        "${file:argument.txt}"],
                    "env": { "VARIABLE_SECRET": "${CANARY_VARIABLE}", "INHERITED_SECRET": null },
                },
                "in-url": refuses("url", format!("{url}/refuses").into()),
                "query": refuses("url", format!("{}/refuses?key={}", self.origin, canary("url-query")).into()),
                "header": refuses("headers", json!({ "x-secret": canary("header") })),
                "asked": refuses("headers", json!({ "x-secret": "${input:asked}" })),
                "bearer": refuses("auth", json!({ "type": "bearer", "token": canary("bearer") })),
                "api-key": refuses("auth", json!({ "type": "api-key", "apiKey": canary("api-key") })),
                "basic": refuses("auth", json!({ "type": "basic", "username": "ada", "password": canary("basic") })),
                "helper": refuses("headersHelper", json!(["/bin/sh", home.join("gives.sh")])),
                "works": { "type": "http", "era": "legacy", "url": format!("{}/works", self.origin) },
                "guarded": {
                    "type": "http", "era": "legacy", "url": format!("{}/guarded", self.origin),
                    "auth": { "type": "oauth", "grant": "client-credentials", "clientId": "c", "clientSecret": canary("client-secret") },
                },
            },
            "host": {
                "auth": { "type": "bearer", "clients": { "ann": hash("client-token") } },
                "metrics": { "token": hash("metrics-token") },
            },
        })
    }

    /// Starts a daemon of a config of this world, and waits until its servers have started or failed.
    pub(crate) fn daemon(home: &Path, config: &Value) -> Daemon {
        std::fs::write(home.join("mcp.json"), config.to_string()).unwrap();
        let mut command: Command = mcp_host(home, &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0", "-vv"]);
        command.env("PATH", "/usr/bin:/bin").env("CANARY_VARIABLE", canary("env-of-variable"));
        command.env("INHERITED_SECRET", canary("env-inherited")).env("MCP_HOST_INPUT_ASKED", canary("input"));
        let daemon = Daemon::start(command);
        for server in ["✓ echo", "✓ works", "✓ guarded", " shouts ", " in-url ", " query ", " basic ", " helper "]
        {
            daemon.hears(server);
        }
        daemon
    }
}

/// Returns the hash of a token, as configs have it.
fn hash(kind: &str) -> String {
    let hash: String = Sha256::digest(canary(kind)).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hash}")
}

fn serve(mut stream: TcpStream, got: &Mutex<String>, origin: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some((head, body)) = request(&mut reader) {
        let body = String::from_utf8_lossy(&body).into_owned();
        *got.lock().unwrap() += &format!("{head}{body}\n");
        let (status, heads, said) = answer(origin, &head, &body);
        let length = said.len();
        let text = format!(
            "HTTP/1.1 {status}\r\n{heads}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{said}"
        );
        let _ = stream.write_all(text.as_bytes());
    }
}

/// Returns the status, more headers, and the body of the answer to a request.
fn answer(origin: &str, head: &str, body: &str) -> (&'static str, String, String) {
    let line = head.lines().next().unwrap_or_default();
    let path = line.split([' ', '?']).nth(1).unwrap_or_default();
    let told = |value: Value| ("200 OK", String::new(), value.to_string());
    let known = format!("authorization: bearer {}", canary("access-token"));
    match (line.split(' ').next().unwrap_or_default(), path) {
        ("GET", "/.well-known/oauth-protected-resource/guarded") => {
            told(json!({ "resource": format!("{origin}/guarded"), "authorization_servers": [origin] }))
        }
        ("GET", "/.well-known/oauth-authorization-server") => told(json!({
            "issuer": origin, "authorization_endpoint": format!("{origin}/authorize"),
            "token_endpoint": format!("{origin}/token"), "code_challenge_methods_supported": ["S256"],
            "grant_types_supported": ["client_credentials"], "token_endpoint_auth_methods_supported": ["client_secret_post"],
        })),
        ("POST", "/token") => {
            told(json!({ "access_token": canary("access-token"), "token_type": "Bearer", "expires_in": 3600 }))
        }
        ("POST", "/guarded") if !head.to_ascii_lowercase().contains(&known) => {
            let challenge =
                format!("Bearer resource_metadata=\"{origin}/.well-known/oauth-protected-resource/guarded\"");
            ("401 No", format!("www-authenticate: {challenge}\r\n"), String::new())
        }
        ("POST", "/guarded" | "/works") => mcp(body),
        ("GET", "/guarded" | "/works") => ("405 No", String::new(), String::new()),
        ("DELETE", _) => told(json!({})),
        _ => ("500 Oops", String::new(), json!({ "said": format!("{head}{body}") }).to_string()),
    }
}

/// Answers as a server with a tool that fails, a prompt, and a resource.
fn mcp(body: &str) -> (&'static str, String, String) {
    let message: Value = serde_json::from_str(body).unwrap_or_default();
    if message["id"].is_null() {
        return ("202 Accepted", String::new(), String::new());
    }
    let text = |kind: &str| json!({ "type": "text", "text": canary(kind) });
    let mut heads = String::new();
    let member = match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            heads = format!("mcp-session-id: {}\r\n", canary("upstream-session"));
            let capabilities = json!({ "tools": {}, "prompts": {}, "resources": {}, "completions": {} });
            json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": { "name": "s", "version": "1" } })
        }
        "tools/list" => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            json!({ "tools": [tool("tell"), tool("fail"), tool("break")] })
        }
        "prompts/list" => json!({ "prompts": [{ "name": "write", "arguments": [{ "name": "topic" }] }] }),
        "resources/list" => json!({ "resources": [{ "name": "today", "uri": "notes://today" }] }),
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        "tools/call" => match message["params"]["name"].as_str() {
            Some("tell") => json!({ "content": [text("tool-result")] }),
            Some("fail") => json!({ "content": [text("tool-failure")], "isError": true }),
            _ => {
                let error = json!({ "code": -32000, "message": format!("cannot: {}", canary("server-error")) });
                let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
                return ("200 OK", heads, answer.to_string());
            }
        },
        "prompts/get" => json!({ "messages": [{ "role": "user", "content": text("prompt-result") }] }),
        "resources/read" => json!({ "contents": [{ "uri": "notes://today", "text": canary("resource-content") }] }),
        "completion/complete" => json!({ "completion": { "values": [canary("completion-result")] } }),
        _ => json!({}),
    };
    ("200 OK", heads, json!({ "jsonrpc": "2.0", "id": message["id"], "result": member }).to_string())
}

/// Sends one request to a daemon over a connection of its own, and returns the whole answer.
fn ask(daemon: &Daemon, line: &str, heads: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", daemon.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(
        stream,
        "{line} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{heads}Content-Length: {}\r\n\r\n{body}",
        daemon.port,
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Acts as a client that puts secrets into everything that it sends. Returns what it was answered.
pub(crate) fn visit(daemon: &Daemon) -> String {
    let bearer = |kind: &str| format!("Authorization: Bearer {}\r\n", canary(kind));
    let own = format!(
        "{}Cookie: sid={}\r\nX-Api-Key: {}\r\nbaggage: key={}\r\n",
        bearer("client-token"),
        canary("client-cookie"),
        canary("client-header"),
        canary("client-baggage"),
    );
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let address = format!("POST /mcp?access_token={}", canary("client-query"));
    let opened = ask(daemon, &address, &own, &hello.to_string());
    let mut headers = opened.lines().filter_map(|line| line.split_once(": "));
    let session = headers.find(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"));
    let (_, session) = session.unwrap_or_else(|| panic!("{opened}"));
    let heads = format!("{own}Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
    let mut all = String::new();
    let mut call = |method: &str, mut params: Value| {
        params["_meta"] = json!({ "example.com/key": canary("meta") });
        let message = json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": params });
        all += &ask(daemon, "POST /mcp", &heads, &message.to_string());
    };
    let text = format!("{} and {}", canary("tool-argument"), canary("tool-argument"));
    call("tools/call", json!({ "name": "echo__echo", "arguments": { "text": text } }));
    call("tools/call", json!({ "name": "echo__echo", "arguments": { canary("argument-name"): 1 } }));
    for tool in ["works__tell", "works__fail", "works__break", "guarded__tell"] {
        call("tools/call", json!({ "name": tool, "arguments": { "token": canary("tool-argument") } }));
    }
    call("prompts/get", json!({ "name": "works__write", "arguments": { "topic": canary("prompt-argument") } }));
    call("resources/read", json!({ "uri": "works+notes://today" }));
    call("resources/read", json!({ "uri": format!("https://example.com/x?token={}", canary("resource-query")) }));
    let argument = json!({ "name": "topic", "value": canary("completion-value") });
    call(
        "completion/complete",
        json!({ "ref": { "type": "ref/prompt", "name": "works__write" }, "argument": argument }),
    );
    all += &ask(daemon, "POST /mcp", &bearer("wrong-token"), &hello.to_string());
    let origin = format!("Origin: http://127.0.0.1:{}\r\n", daemon.port);
    all += &ask(daemon, "POST /console/session", &origin, &json!({ "code": canary("wrong-code") }).to_string());
    all
}

/// Returns the metrics, by the token for them.
pub(crate) fn scrape(daemon: &Daemon) -> String {
    ask(daemon, "GET /metrics", &format!("Authorization: Bearer {}\r\n", canary("metrics-token")), "")
}
