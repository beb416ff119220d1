//! A small server over stdio with one tool, which the stages make of this program.

use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};

/// Serves one request after the other until the input ends. `tool` gives the definition, and `act` the text of a result
/// from the params of a call.
pub(crate) fn serve(name: &str, tool: impl Fn() -> Value, act: impl Fn(&Value) -> Value) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        let result = match message["method"].as_str() {
            Some("initialize") => Some(json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": name, "version": "1" },
            })),
            Some("tools/list") => Some(json!({ "tools": [tool()] })),
            Some("tools/call") => Some(json!({ "content": [{ "type": "text", "text": act(&message["params"]) }] })),
            Some("ping") => Some(json!({})),
            _ if message["id"].is_null() => continue,
            _ => None,
        };
        let mut answer = json!({ "jsonrpc": "2.0", "id": message["id"] });
        match result {
            Some(result) => answer["result"] = result,
            None => answer["error"] = json!({ "code": -32601, "message": "no such method" }),
        }
        writeln!(output, "{answer}")?;
    }
    Ok(())
}
