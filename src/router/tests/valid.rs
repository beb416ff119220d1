//! Calls checked against the schemas of their tools (`validate`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::support::*;
use crate::config::{ToolSettings, Validate};
use crate::in_process::InProcess;
use crate::protocol::{Method, Profile, ProtocolVersion, Raw};
use crate::router::Client;

/// A server whose tool answers with the `answer` among its arguments, and how often it was called.
fn server(input: &Value, output: Option<Value>) -> (InProcess, Arc<AtomicUsize>) {
    let mut definition = json!({ "name": "tool", "inputSchema": input });
    if let Some(output) = output {
        definition["outputSchema"] = output;
    }
    let calls = Arc::<AtomicUsize>::default();
    let counted = calls.clone();
    let server = InProcess::new("valid", "1").tool(Raw::from_value(&definition), move |invocation| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            let result = Raw::from_value(&json!({ "content": [] }));
            Ok(match invocation.arguments.member("answer") {
                Some(answer) => result.with_member("structuredContent", answer.as_bytes()),
                None => result,
            })
        }
        .boxed()
    });
    let prompt =
        json!({ "name": "review", "arguments": [{ "name": "branch", "required": true }, { "name": "depth" }] });
    let server =
        server.prompt(Raw::from_value(&prompt), |_| async { Ok(Raw::from_value(&json!({ "messages": [] }))) }.boxed());
    (server, calls)
}

async fn staged(server: InProcess, validate: Validate) -> (Stage, Arc<Client>) {
    let stage = stage_with_server(server, |config| config.host.validate = validate);
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
    request(&stage.router, &client, Method::ToolsList, &json!({})).answer().await;
    (stage, client)
}

async fn called(stage: &Stage, client: &Arc<Client>, arguments: &str) -> Value {
    let params = format!(r#"{{"name":"tool","arguments":{arguments}}}"#);
    request_raw(&stage.router, client, Raw::trusted(params.into())).answer().await
}

fn details(answer: &Value) -> &Value {
    &answer["_meta"]["mcp-host/error"]
}

fn schema() -> Value {
    json!({
        "type": "object", "required": ["path"], "additionalProperties": false,
        "properties": { "path": { "type": "string", "pattern": "^/" }, "lines": { "type": "array", "items": { "type": "integer" } }, "answer": {} },
    })
}

#[tokio::test(start_paused = true)]
async fn arguments_that_do_not_fit_are_refused_with_their_places_and_without_their_values() {
    let (server, calls) = server(&schema(), None);
    let (stage, client) = staged(server, Validate::Arguments).await;
    assert_eq!(called(&stage, &client, r#"{"path":"/a","lines":[1]}"#).await["isError"], Value::Null);
    let refused = called(&stage, &client, r#"{"path":"secret-canary","lines":[1,"canary"]}"#).await;
    assert_eq!(refused["isError"], true);
    let told = details(&refused);
    assert_eq!(
        (&told["kind"], &told["sent"], &told["retryable"]),
        (&json!("invalid_arguments"), &json!(false), &json!(false))
    );
    let mut fields: Vec<&str> =
        told["errors"].as_array().unwrap().iter().filter_map(|error| error["field"].as_str()).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["/lines/1", "/path"]);
    assert!(!refused.to_string().contains("canary"), "{refused}");
    let many = format!(r#"{{"path":"/a","lines":[{}]}}"#, vec!["\"x\""; 50].join(","));
    let refused = called(&stage, &client, &many).await;
    assert_eq!(details(&refused)["errors"].as_array().unwrap().len(), 20);
    assert_eq!(called(&stage, &client, r#"{"path":"/a","lines":["1"]}"#).await["isError"], true, "nothing is coerced");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn h37_keys_that_the_server_may_take_differently_are_refused() {
    let (server, calls) = server(&json!({ "type": "object", "properties": { "path": {} } }), None);
    let (stage, client) = staged(server, Validate::Arguments).await;
    for (arguments, field) in
        [(r#"{"path":1,"path":2}"#, "/path"), (r#"{"Path":1}"#, "/Path"), (r#"{"x":{"a":1,"\u0061":2}}"#, "/x/a")]
    {
        let refused = called(&stage, &client, arguments).await;
        assert_eq!(details(&refused)["errors"][0]["field"], field, "{refused}");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_schema_that_cannot_be_compiled_lets_calls_pass_and_is_in_the_status() {
    for (schema, why) in [
        (
            json!({ "type": "object", "$ref": "https://example.com/schema" }),
            "has a `$ref` to something that is not in it",
        ),
        (
            json!({ "type": "object", "properties": { "a": { "pattern": "(?=x)" } } }),
            "has a `pattern` that is not a plain regular expression",
        ),
    ] {
        let (server, calls) = server(&schema, None);
        let (stage, client) = staged(server, Validate::Arguments).await;
        assert_eq!(called(&stage, &client, r#"{"a":1}"#).await["isError"], Value::Null);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(stage.router.manager().status()[0].unchecked, [format!("tool: its `inputSchema` {why}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_does_not_fit_is_malformed_where_results_are_checked() {
    let output = || Some(json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } }));
    for (validate, is_refused) in [(Validate::Full, true), (Validate::Arguments, false), (Validate::Definitions, false)]
    {
        let (server, _) = server(&json!({ "type": "object" }), output());
        let (stage, client) = staged(server, validate).await;
        assert_eq!(called(&stage, &client, r#"{"answer":{"n":1}}"#).await["isError"], Value::Null);
        for arguments in [r#"{"answer":{"n":"x"}}"#, "{}"] {
            let answer = called(&stage, &client, arguments).await;
            assert_eq!(answer["isError"] == true, is_refused, "{validate:?} {answer}");
            if is_refused {
                assert_eq!((&details(&answer)["kind"], &details(&answer)["sent"]), (&json!("malformed"), &json!(true)));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_arguments_of_a_prompt_are_those_of_its_list() {
    let (server, _) = server(&json!({ "type": "object" }), None);
    let (stage, client) = staged(server, Validate::Arguments).await;
    let get = async |arguments: Value| {
        let params = json!({ "name": "review", "arguments": arguments });
        request(&stage.router, &client, Method::PromptsGet, &params).whole_answer().await
    };
    assert!(get(json!({ "branch": "a" })).await["messages"].is_array());
    let refused = get(json!({ "deep": "1", "Depth": "1" })).await;
    assert_eq!(refused["error"], -32602);
    let errors = json!([
        { "field": "/Depth", "error": "the argument is called \"depth\"" },
        { "field": "", "error": "\"branch\" is missing" },
        { "field": "/deep", "error": "the prompt has no such argument" },
    ]);
    assert_eq!(refused["data"]["errors"], errors, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_has_its_own_word_before_its_server_and_its_host() {
    for (host, of_server, of_tool, is_checked) in [
        (Validate::Definitions, None, None, false),
        (Validate::Definitions, Some(Validate::Arguments), None, true),
        (Validate::Definitions, None, Some(Validate::Arguments), true),
        (Validate::Full, Some(Validate::Definitions), None, false),
        (Validate::Full, Some(Validate::Full), Some(Validate::Definitions), false),
    ] {
        let (server, _) = server(&schema(), None);
        let stage = stage_with_server(server, |config| {
            config.host.validate = host;
            config.servers[0].validate = of_server;
            let settings = ToolSettings { validate: of_tool, ..ToolSettings::default() };
            config.servers[0].tools = std::mem::take(&mut config.servers[0].tools).with("to*", settings);
        });
        let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
        request(&stage.router, &client, Method::ToolsList, &json!({})).answer().await;
        let answer = called(&stage, &client, "{}").await;
        assert_eq!(answer["isError"] == true, is_checked, "{host:?} {of_server:?} {of_tool:?}");
    }
}
