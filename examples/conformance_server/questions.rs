//! Tools that ask the client by requests of their own (2025-11-25, client features).

use mcp_host::InProcess;
use mcp_host::in_process::Invocation;
use mcp_host::protocol::{ErrorObject, Method, Outcome, Raw};
use serde_json::{Value, json};

use crate::ways::{self, Ways};
use crate::words::{answer, argument, failure, text, tool};

/// Adds the tools, if this server asks by requests.
pub(crate) fn add(server: InProcess, ways: Ways) -> InProcess {
    match ways {
        Ways::Both | Ways::Requests => add_all(server),
        Ways::Results => NAMES.iter().fold(server, |server, name| ways::without(server, name, "needs a session")),
    }
}

fn add_all(server: InProcess) -> InProcess {
    let prompt = tool("test_sampling", "Asks the client's model.", &["prompt"]);
    let message = tool("test_elicitation", "Asks the user for a name and an address.", &["message"]);
    server
        .tool(prompt, |call| Box::pin(sample(call)))
        .tool(message, |call| {
            Box::pin(async move {
                let message = argument(&call, "message")?;
                let reply = elicit(&call, &message, &["username", "email"], &user_fields()).await;
                Ok(reply.map_or_else(|error| failure(&error), |reply| answer(&format!("User response: {reply}"))))
            })
        })
        .tool(tool("test_elicitation_sep1034_defaults", "Asks with a default in each field.", &[]), |call| {
            Box::pin(fill_in(call, "Please review the defaults.", default_fields()))
        })
        .tool(tool("test_elicitation_sep1330_enums", "Asks with each form of a choice.", &[]), |call| {
            Box::pin(fill_in(call, "Please choose.", choice_fields()))
        })
}

const NAMES: [&str; 4] =
    ["test_sampling", "test_elicitation", "test_elicitation_sep1034_defaults", "test_elicitation_sep1330_enums"];

async fn sample(call: Invocation) -> Outcome {
    let message = json!({ "role": "user", "content": text(&argument(&call, "prompt")?) });
    let params = Raw::from_value(&json!({ "messages": [message], "maxTokens": 100 }));
    let reply = match call.request(Method::CreateMessage, Some(params)).await {
        Ok(reply) => reply,
        Err(error) => return Ok(failure(&format!("the client did not sample: {}", error.message))),
    };
    let reply: Value = reply.read().map_err(|error| ErrorObject::internal(error.to_string()))?;
    // One block until 2025-06-18, one or more since.
    let block = reply["content"].as_array().and_then(|blocks| blocks.first()).unwrap_or(&reply["content"]);
    Ok(answer(&format!("LLM response: {}", block["text"].as_str().unwrap_or_default())))
}

async fn fill_in(call: Invocation, message: &'static str, fields: Value) -> Outcome {
    let reply = elicit(&call, message, &[], &fields).await;
    Ok(reply.map_or_else(|error| failure(&error), |reply| answer(&format!("Elicitation completed: {reply}"))))
}

async fn elicit(call: &Invocation, message: &str, required: &[&str], fields: &Value) -> Result<String, String> {
    let mut schema = json!({ "type": "object", "properties": fields });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    let params = Raw::from_value(&json!({ "message": message, "requestedSchema": schema }));
    let reply = call.request(Method::Elicit, Some(params)).await;
    let reply = reply.map_err(|error| format!("the client did not ask: {}", error.message))?;
    let content = reply.member("content").unwrap_or_else(Raw::empty_object);
    Ok(format!("action={}, content={content}", reply.text("action").unwrap_or_default()))
}

fn user_fields() -> Value {
    json!({
        "username": { "type": "string", "description": "User's response" },
        "email": { "type": "string", "description": "User's email address" },
    })
}

fn default_fields() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    })
}

fn choice_fields() -> Value {
    let titled = |names: [&str; 3]| -> Vec<Value> {
        (1..).zip(names).map(|(n, title)| json!({ "const": format!("value{n}"), "title": title })).collect()
    };
    json!({
        "untitledSingle": { "type": "string", "enum": ["option1", "option2", "option3"] },
        "titledSingle": { "type": "string", "oneOf": titled(["First Option", "Second Option", "Third Option"]) },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": ["option1", "option2", "option3"] } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled(["First Choice", "Second Choice", "Third Choice"]) } },
    })
}
