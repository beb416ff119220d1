//! What the official conformance suite expects of a server, on the crate's own in-process servers: its tools, resources
//! and prompts have the names and contents that the suite's scenarios ask for. `tests/conformance/run` starts it.
//!
//! `conformance_server --listen 127.0.0.1:8900` serves Streamable HTTP at `/mcp` and says so on standard output;
//! without an argument it speaks over standard input and output.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use mcp_host::InProcess;
use mcp_host::in_process::Invocation;
use mcp_host::protocol::{ErrorObject, Method, Outcome, Raw};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(address) = listen_address(std::env::args().skip(1))? else {
        return Ok(server().serve_stdio().await?);
    };
    let listener = TcpListener::bind(address).await?;
    writeln!(std::io::stdout(), "listening on http://{}/mcp", listener.local_addr()?)?;
    Ok(server().serve_http(listener).await?)
}

fn listen_address(mut args: impl Iterator<Item = String>) -> Result<Option<SocketAddr>, String> {
    let Some(flag) = args.next() else { return Ok(None) };
    let address = match flag.split_once('=') {
        Some(("--listen", address)) => address.to_owned(),
        None if flag == "--listen" => args.next().ok_or("--listen wants ADDR:PORT")?,
        _ => return Err(format!("unknown argument {flag}; usage: conformance_server [--listen ADDR:PORT]")),
    };
    if let Some(more) = args.next() {
        return Err(format!("unknown argument {more}; usage: conformance_server [--listen ADDR:PORT]"));
    }
    address.parse().map(Some).map_err(|error| format!("--listen {address}: {error}"))
}

fn server() -> InProcess {
    let server = InProcess::new("conformance", env!("CARGO_PKG_VERSION"))
        .method(Method::Complete, |call| Box::pin(async move { complete(&call) }));
    prompts(resources(questions(reports(contents(server)))))
}

/// Tools that answer at once, with each type of content.
fn contents(server: InProcess) -> InProcess {
    let embedded = json!({
        "type": "resource",
        "resource": {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        },
    });
    let mixed = json!({
        "type": "resource",
        "resource": {
            "uri": "test://mixed-content-resource",
            "mimeType": "application/json",
            "text": r#"{"test":"data","value":123}"#,
        },
    });
    let audio = json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" });
    let fixed = [
        ("test_simple_text", "Answers with text.", vec![text("This is a simple text response for testing.")]),
        ("test_image_content", "Answers with an image.", vec![image()]),
        ("test_audio_content", "Answers with audio.", vec![audio]),
        ("test_embedded_resource", "Answers with a resource.", vec![embedded]),
        (
            "test_multiple_content_types",
            "Answers with text, an image and a resource.",
            vec![text("Multiple content types test:"), image(), mixed],
        ),
    ];
    let server = fixed.into_iter().fold(server, |server, (name, description, content)| {
        let result = Raw::from_value(&json!({ "content": content }));
        server.tool(tool(name, description, &[]), move |_| {
            let result = result.clone();
            Box::pin(async { Ok(result) })
        })
    });
    let about = "Has an input schema with what JSON Schema 2020-12 brought; answers with its arguments.";
    let schema = tool("json_schema_2020_12_tool", about, &[]).with_member("inputSchema", SCHEMA_2020_12.as_bytes());
    server
        .tool(schema, |call| Box::pin(async move { Ok(answer(call.arguments.as_str())) }))
        .tool(tool("test_error_handling", "Fails.", &[]), |_| {
            Box::pin(async { Ok(failure("This tool intentionally returns an error for testing")) })
        })
}

/// Tools that tell something before they answer.
fn reports(server: InProcess) -> InProcess {
    server
        .tool(tool("test_tool_with_logging", "Writes three log lines.", &[]), |call| Box::pin(write_log(call)))
        .tool(tool("test_tool_with_progress", "Reports its progress three times.", &[]), |call| {
            Box::pin(report_progress(call))
        })
        .tool(tool("test_reconnection", "Closes its stream, and answers on the next one.", &[]), |call| {
            Box::pin(reconnect(call))
        })
}

async fn write_log(call: Invocation) -> Outcome {
    call.log("info", Raw::from_value("Tool execution started")).await;
    sleep(STEP).await;
    call.log("info", Raw::from_value("Tool processing data")).await;
    sleep(STEP).await;
    call.log("info", Raw::from_value("Tool execution completed")).await;
    Ok(answer("Three log lines were written."))
}

async fn report_progress(call: Invocation) -> Outcome {
    call.progress(0.0, Some(100.0), "begun").await;
    sleep(STEP).await;
    call.progress(50.0, Some(100.0), "half").await;
    sleep(STEP).await;
    call.progress(100.0, Some(100.0), "done").await;
    Ok(answer("Progress was reported three times."))
}

async fn reconnect(call: Invocation) -> Outcome {
    call.hang_up(RETRY).await;
    sleep(2 * STEP).await;
    Ok(answer("The stream was closed before this was said."))
}

/// Tools that ask the client something.
fn questions(server: InProcess) -> InProcess {
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

async fn sample(call: Invocation) -> Outcome {
    let message = json!({ "role": "user", "content": text(&argument(&call, "prompt")?) });
    let params = Raw::from_value(&json!({ "messages": [message], "maxTokens": 100 }));
    let reply = match call.request(Method::CreateMessage, Some(params)).await {
        Ok(reply) => reply,
        Err(error) => return Ok(failure(&format!("the client did not sample: {}", error.message))),
    };
    let reply: Value = reply.read().map_err(|error| ErrorObject::internal(error.to_string()))?;
    // One block until 2025-06-18, one or several since.
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

fn resources(server: InProcess) -> InProcess {
    let fixed = [
        ("static-text", "text/plain", "text", "This is the content of the static text resource."),
        ("static-binary", "image/png", "blob", PNG),
        ("watched-resource", "text/plain", "text", "This is the content of the watched resource."),
    ];
    let server = fixed.into_iter().fold(server, |server, (name, mime, key, content)| {
        let uri = format!("test://{name}");
        let about = format!("The {} for tests.", name.replace('-', " "));
        let definition = json!({ "uri": uri, "name": name, "description": about, "mimeType": mime });
        let result = Raw::from_value(&json!({ "contents": [{ "uri": uri, "mimeType": mime, key: content }] }));
        server.resource(Raw::from_value(&definition), move |_| {
            let result = result.clone();
            Box::pin(async { Ok(result) })
        })
    });
    let template = json!({
        "uriTemplate": "test://template/{id}/data",
        "name": "template-data",
        "description": "Data with the id that stands in its URI.",
        "mimeType": "application/json",
    });
    server.resource_template(Raw::from_value(&template), |call| Box::pin(async move { Ok(read_template(&call)) }))
}

fn read_template(call: &Invocation) -> Raw {
    let uri = call.params.text("uri").unwrap_or_default();
    let id = uri.trim_start_matches("test://template/").trim_end_matches("/data");
    let text = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") }).to_string();
    Raw::from_value(&json!({ "contents": [{ "uri": uri, "mimeType": "application/json", "text": text }] }))
}

fn prompts(server: InProcess) -> InProcess {
    server
        .prompt(prompt("test_simple_prompt", "Has no arguments.", &[]), |_| {
            Box::pin(async { Ok(messages(&[text("This is a simple prompt for testing.")])) })
        })
        .prompt(prompt("test_prompt_with_arguments", "Repeats its arguments.", &["arg1", "arg2"]), |call| {
            Box::pin(async move {
                let (first, second) = (argument(&call, "arg1")?, argument(&call, "arg2")?);
                Ok(messages(&[text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]))
            })
        })
        .prompt(prompt("test_prompt_with_embedded_resource", "Embeds a resource.", &["resourceUri"]), |call| {
            Box::pin(async move {
                let content = "Embedded resource content for testing.";
                let resource =
                    json!({ "uri": argument(&call, "resourceUri")?, "mimeType": "text/plain", "text": content });
                let embedded = json!({ "type": "resource", "resource": resource });
                Ok(messages(&[embedded, text("Please process the embedded resource above.")]))
            })
        })
        .prompt(prompt("test_prompt_with_image", "Has an image.", &[]), |_| {
            Box::pin(async { Ok(messages(&[image(), text("Please analyze the image above.")])) })
        })
}

fn complete(call: &Invocation) -> Outcome {
    let text = |outer: &str, inner: &str| call.params.member(outer).and_then(|outer| outer.text(inner));
    let known: &[&str] = match (text("ref", "name").as_deref(), text("argument", "name").as_deref()) {
        (Some("test_prompt_with_arguments"), Some("arg1")) => &["paris", "park", "party", "test"],
        _ => &[],
    };
    let begun = text("argument", "value").unwrap_or_default();
    let values: Vec<_> = known.iter().filter(|value| value.starts_with(&begun)).collect();
    Ok(Raw::from_value(&json!({ "completion": { "values": values, "total": values.len(), "hasMore": false } })))
}

fn tool(name: &str, description: &str, arguments: &[&str]) -> Raw {
    let mut schema = json!({ "type": "object", "properties": {} });
    for argument in arguments {
        schema["properties"][argument] = json!({ "type": "string" });
        schema["required"] = json!(arguments);
    }
    Raw::from_value(&json!({ "name": name, "description": description, "inputSchema": schema }))
}

fn prompt(name: &str, description: &str, arguments: &[&str]) -> Raw {
    let arguments: Vec<_> = arguments.iter().map(|name| json!({ "name": name, "required": true })).collect();
    Raw::from_value(&json!({ "name": name, "description": description, "arguments": arguments }))
}

fn argument(call: &Invocation, name: &str) -> Result<String, ErrorObject> {
    call.arguments.text(name).ok_or_else(|| ErrorObject::invalid_params(format!("`{name}` must be a string")))
}

fn messages(contents: &[Value]) -> Raw {
    let messages: Vec<_> = contents.iter().map(|content| json!({ "role": "user", "content": content })).collect();
    Raw::from_value(&json!({ "messages": messages }))
}

fn answer(content: &str) -> Raw {
    Raw::from_value(&json!({ "content": [text(content)] }))
}

fn failure(content: &str) -> Raw {
    Raw::from_value(&json!({ "content": [text(content)], "isError": true }))
}

fn text(content: &str) -> Value {
    json!({ "type": "text", "text": content })
}

fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

/// Between two reports, so that each arrives on its own.
const STEP: Duration = Duration::from_millis(50);
/// After this long the client is to come back; longer than the call takes, so that what it missed is kept for it.
const RETRY: Duration = Duration::from_millis(500);

/// One red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";
/// Half a millisecond of silence.
const WAV: &str = "UklGRigAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQQAAACAgICA";

/// Each keyword that a gateway may lose on the way (SEP-1613, SEP-2106).
const SCHEMA_2020_12: &str = r##"{
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } }
        }
    },
    "properties": {
        "name": { "type": "string" },
        "address": { "$ref": "#/$defs/address" },
        "contactMethod": { "type": "string", "enum": ["phone", "email"] },
        "phone": { "type": "string" },
        "email": { "type": "string" }
    },
    "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
    "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
    "then": { "required": ["phone"] },
    "else": { "required": ["email"] },
    "additionalProperties": false
}"##;
