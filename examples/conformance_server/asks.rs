//! Questions with a key, as the scenarios of 2026-07-28 ask them: the question, and what the answer says.

use mcp_host::in_process::Invocation;
use mcp_host::protocol::{Method, Outcome, Raw};
use serde_json::{Value, json};

use crate::words::text;

/// Asks the user for one text, under `key`; `None` if the user gave none.
pub(crate) async fn for_text(
    call: &Invocation,
    key: &str,
    message: &str,
    field: &str,
) -> Result<Option<String>, String> {
    let content = form(call, key, message, json!({ field: { "type": "string" } }), field).await?;
    Ok(content.and_then(|content| content.text(field)))
}

/// Asks the user to confirm, under the key `confirm`.
pub(crate) async fn to_confirm(call: &Invocation) -> Result<bool, String> {
    let content = form(call, "confirm", "Please confirm", json!({ "ok": { "type": "boolean" } }), "ok").await?;
    Ok(content.and_then(|content| content.member("ok")?.read().ok()).unwrap_or(false))
}

/// Shows a form, and returns the content if the user accepted.
async fn form(
    call: &Invocation,
    key: &str,
    message: &str,
    fields: Value,
    required: &str,
) -> Result<Option<Raw>, String> {
    let schema = json!({ "type": "object", "properties": fields, "required": [required] });
    let params = json!({ "message": message, "requestedSchema": schema });
    let reply = ask(call, key, Method::Elicit, Some(Raw::from_value(&params))).await?;
    let accepted = reply.text("action").as_deref() == Some("accept");
    Ok(accepted.then(|| reply.member("content").unwrap_or_else(Raw::empty_object)))
}

/// Asks the client's model, under `key`.
pub(crate) async fn the_model(call: &Invocation, key: &str, prompt: &str, tokens: u32) -> Result<String, String> {
    let params = json!({ "messages": [{ "role": "user", "content": text(prompt) }], "maxTokens": tokens });
    let reply = ask(call, key, Method::CreateMessage, Some(Raw::from_value(&params))).await?;
    let reply: Value = reply.read().map_err(|error| error.to_string())?;
    // One block until 2025-06-18, one or more since.
    let block = reply["content"].as_array().and_then(|blocks| blocks.first()).unwrap_or(&reply["content"]);
    Ok(block["text"].as_str().unwrap_or_default().to_owned())
}

/// Asks for the client's roots, under the key `client_roots`, and returns their URIs.
pub(crate) async fn for_roots(call: &Invocation) -> Result<String, String> {
    let reply = ask(call, "client_roots", Method::RootsList, None).await?;
    let roots: Vec<Value> = reply.member("roots").and_then(|roots| roots.read().ok()).unwrap_or_default();
    Ok(roots.iter().filter_map(|root| root["uri"].as_str()).collect::<Vec<_>>().join(", "))
}

async fn ask(call: &Invocation, key: &str, method: Method, params: Option<Raw>) -> Result<Raw, String> {
    let what = method.as_str().to_owned();
    let outcome: Outcome = call.request_as(key, method, params).await;
    outcome.map_err(|error| format!("{what}: {}", error.message))
}
