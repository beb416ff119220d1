//! The server that good and bad clients share, over stdin and stdout (2025-11-25): it echoes, reports progress, asks,
//! starts tasks that never end, and has resources to watch.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};

/// The first argument of a process that runs it.
pub(crate) const MODE: &str = "__shared-server";

/// How long a task is kept, in milliseconds. Its process stays with it, and must be gone before the run is over.
const TTL: u64 = 10_000;

/// Serves until its standard input ends.
pub(crate) fn serve() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    // Calls that wait for the answer to a question, by the question's id.
    let mut asked = HashMap::<String, Value>::new();
    let mut count = 0_u64;
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        let id = &message["id"];
        let answer = match message["method"].as_str() {
            None => match id.as_str().and_then(|question| asked.remove(question)) {
                Some(call) => said(&call, &text("answered")),
                None => continue,
            },
            Some("notifications/cancelled") => {
                asked.retain(|_, call| *call != message["params"]["requestId"]);
                continue;
            }
            Some(_) if id.is_null() => continue,
            Some("tools/call") => {
                count += 1;
                let params = &message["params"];
                let words = params["arguments"]["text"].as_str().unwrap_or_default();
                match params["name"].as_str() {
                    Some("ask") => {
                        let question = format!("q{count}");
                        let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
                        let params = json!({ "message": "Who is there?", "requestedSchema": schema });
                        asked.insert(question.clone(), id.clone());
                        json!({ "jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": params })
                    }
                    Some("later") if params["task"].is_object() => {
                        said(id, &json!({ "task": task(&count.to_string()) }))
                    }
                    Some("steps") => {
                        let token = &params["_meta"]["progressToken"];
                        let params = json!({ "progressToken": token, "progress": 1, "message": words });
                        if !token.is_null() {
                            let report =
                                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
                            writeln!(out, "{report}")?;
                        }
                        said(id, &text(words))
                    }
                    _ => said(id, &text(words)),
                }
            }
            Some(method) => said(id, &result(method, &message["params"])),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn said(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn task(id: &str) -> Value {
    let time = "2026-07-28T12:00:00Z";
    json!({ "taskId": id, "status": "working", "createdAt": time, "lastUpdatedAt": time, "ttl": TTL })
}

fn result(method: &str, params: &Value) -> Value {
    match method {
        "initialize" => json!({ "protocolVersion": "2025-11-25", "serverInfo": { "name": "shared", "version": "1" },
            "capabilities": { "tools": {}, "resources": { "subscribe": true },
                "tasks": { "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } } } }),
        "tools/list" => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            let mut later = tool("later");
            later["execution"] = json!({ "taskSupport": "optional" });
            json!({ "tools": [tool("echo"), tool("steps"), tool("ask"), later] })
        }
        "resources/list" => json!({ "resources": [{ "uri": "shared://one", "name": "one" }] }),
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        "tasks/get" | "tasks/cancel" => task(params["taskId"].as_str().unwrap_or_default()),
        "tasks/list" => json!({ "tasks": [] }),
        _ => json!({}),
    }
}
