//! Short ways to write definitions, results, and content blocks.

use mcp_host::in_process::Invocation;
use mcp_host::protocol::{ErrorObject, Raw};
use serde_json::{Value, json};

pub(crate) fn tool(name: &str, description: &str, arguments: &[&str]) -> Raw {
    let mut schema = json!({ "type": "object", "properties": {} });
    for argument in arguments {
        schema["properties"][argument] = json!({ "type": "string" });
        schema["required"] = json!(arguments);
    }
    Raw::from_value(&json!({ "name": name, "description": description, "inputSchema": schema }))
}

pub(crate) fn prompt(name: &str, description: &str, arguments: &[&str]) -> Raw {
    let arguments: Vec<_> = arguments.iter().map(|name| json!({ "name": name, "required": true })).collect();
    Raw::from_value(&json!({ "name": name, "description": description, "arguments": arguments }))
}

pub(crate) fn argument(call: &Invocation, name: &str) -> Result<String, ErrorObject> {
    call.arguments.text(name).ok_or_else(|| ErrorObject::invalid_params(format!("`{name}` must be a string")))
}

pub(crate) fn messages(contents: &[Value]) -> Raw {
    let messages: Vec<_> = contents.iter().map(|content| json!({ "role": "user", "content": content })).collect();
    Raw::from_value(&json!({ "messages": messages }))
}

pub(crate) fn answer(content: &str) -> Raw {
    Raw::from_value(&json!({ "content": [text(content)] }))
}

pub(crate) fn failure(content: &str) -> Raw {
    Raw::from_value(&json!({ "content": [text(content)], "isError": true }))
}

pub(crate) fn text(content: &str) -> Value {
    json!({ "type": "text", "text": content })
}

pub(crate) fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

/// One red pixel.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";
/// Half a millisecond of silence.
pub(crate) const WAV: &str = "UklGRigAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQQAAACAgICA";
