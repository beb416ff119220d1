//! Servers for the mistakes: a good shell server, and sites on loopback.

use std::sync::OnceLock;

use serde_json::json;
use tokio::runtime::Runtime;

use super::scene::Scene;
use crate::auth::site::{Asked, Site, Told};

/// A good shell server with the tools `add` and `big`. It runs `on_start` first.
pub(super) fn good(on_start: &str) -> String {
    let add = json!({
        "name": "add", "description": "Adds two numbers.",
        "inputSchema": {
            "type": "object", "required": ["a", "b"],
            "properties": { "a": { "type": "number" }, "b": { "type": "number" }, "note": { "type": "string" } },
        },
    });
    let big = json!({
        "name": "big", "description": "Answers with a long text.",
        "inputSchema": { "type": "object", "properties": { "kib": { "type": "integer" } } },
    });
    let tools = json!({ "tools": [add, big] });
    let script = r#"#!/bin/sh
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
START
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\|"[^"]*"\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply 'TOOLS' ;;
    *'"tools/call"'*'"big"'*)
      printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' "$id"
      head -c "$(printf %s "$line" | sed 's/.*"kib": *\([0-9]*\).*/\1/')k" /dev/zero | tr '\0' x
      printf '"}]}}\n' ;;
    *'"tools/call"'*) reply '{"content":[{"type":"text","text":"done"}]}' ;;
    *'"id":'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}\n' "$id" ;;
  esac
done
"#;
    script.replace("START", on_start).replace("TOOLS", &tools.to_string())
}

impl Scene {
    /// Puts the good server into `~/bin/good-server`.
    pub(super) fn has_a_good_server(&self) {
        self.program("~/bin/good-server", &good(""));
    }

    /// Starts a site; `{site}` in files and lines stands for its URL. Its answers may depend on the request.
    pub(super) fn has_a_site(&mut self, answer: impl Fn(&Asked) -> Told + Send + Sync + 'static) -> Site {
        let site = runtime().block_on(Site::start(|_| answer));
        self.hide(site.url.trim_start_matches("http://"), "127.0.0.1:PORT");
        site
    }
}

/// The runtime of the sites of all mistakes.
pub(super) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap())
}

/// Returns the text of a config with this one server.
pub(super) fn config(name: &str, entry: &str) -> String {
    format!("{{\n  \"mcpServers\": {{\n    \"{name}\": {entry}\n  }}\n}}\n")
}
