//! Calls: what they carry, what they return, and how they fail.

use std::time::Duration;

use mcp_host::{Completion, ErrorKind, ErrorObject, Host, InProcess, Method, Raw, Session, demo};
use serde_json::{Value, json};

use super::{config, said, tool};

/// Tools that answer in each way, a prompt with an argument, and a template.
fn server() -> InProcess {
    let prompt: Value = json!({ "name": "review", "arguments": [{ "name": "branch" }] });
    let template: Value = json!({ "name": "file", "uriTemplate": "repo:{path}" });
    InProcess::new("it", "1")
        .tool(tool("structured"), |call| {
            let sum = call.arguments.member("numbers").and_then(|numbers| numbers.read::<Vec<i64>>().ok());
            let sum: i64 = sum.unwrap_or_default().iter().sum();
            let result =
                said(&sum.to_string()).with_member("structuredContent", json!({ "sum": sum }).to_string().as_bytes());
            Box::pin(async move { Ok(result) })
        })
        .tool(tool("fails"), |_| Box::pin(async { Ok(said("no such file").with_member("isError", b"true")) }))
        .tool(tool("refuses"), |_| Box::pin(async { Err(ErrorObject::new(-32000, "not today")) }))
        .tool(tool("tells_meta"), |call| {
            let meta = call.params.member("_meta").unwrap_or_else(Raw::empty_object);
            Box::pin(async move { Ok(said(meta.as_str())) })
        })
        .tool(tool("hangs"), |_| Box::pin(std::future::pending()))
        .prompt(prompt.into(), |_| {
            let message = json!({ "role": "user", "content": { "type": "text", "text": "Review it." } });
            Box::pin(async move { Ok(json!({ "messages": [message] }).into()) })
        })
        .resource_template(template.into(), |_| {
            Box::pin(async { Ok(json!({ "contents": [{ "uri": "repo:a", "text": "contents of a" }] }).into()) })
        })
        .method(Method::Complete, |call| {
            // The values are the parts of the request.
            let [asked, argument, context] = call.params.members(["ref", "argument", "context"]);
            let parts = [asked, argument, context].map(|part| part.map_or_else(String::new, |part| part.to_string()));
            Box::pin(async move { Ok(json!({ "completion": { "values": parts, "hasMore": false } }).into()) })
        })
}

async fn host() -> Host {
    Host::builder().in_process("it", server()).start().await.unwrap()
}

#[tokio::test]
async fn results_are_read_by_their_parts() {
    let host = host().await;
    let sum = host.call_tool("it__structured", json!({ "numbers": [1, 2, 39] })).await.unwrap();
    assert_eq!((sum.is_error(), sum.text().as_str()), (false, "42"));
    assert_eq!(sum.structured().unwrap().to_string(), r#"{"sum":42}"#);
    assert_eq!(sum.member("structuredContent"), sum.structured(), "it reads as the JSON that it is");
    let failed = host.call_tool("it__fails", json!({})).await.unwrap();
    assert_eq!((failed.is_error(), failed.text().as_str(), failed.structured()), (true, "no such file", None));
    assert_eq!(host.get_prompt("it__review", json!({})).await.unwrap().text(), "Review it.");
    assert_eq!(host.read_resource("it+repo:a").await.unwrap().text(), "contents of a");
    host.shutdown().await;
}

#[tokio::test]
async fn errors_tell_what_can_be_done() {
    let host = host().await;
    host.catalog_ready().await;
    let refused = host.call_tool("it__refuses", json!({})).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.answer().unwrap().code, refused.is_retryable()),
        (ErrorKind::Answer, -32000, false)
    );
    let late = host.call_tool("it__hangs", json!({})).timeout(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!((late.kind(), late.is_retryable()), (ErrorKind::Timeout, false), "it may have been done");
    host.shutdown().await;
    let entry = json!({ "command": "mcp-host-test-no-such-program", "restart": { "maxRetries": 0 } });
    let host = Host::builder().config(config(&json!({ "gone": entry }))).start().await.unwrap();
    let gone = host.call_tool("gone__t", json!({})).await.unwrap_err();
    assert_eq!(
        (gone.kind(), gone.server(), gone.is_retryable()),
        (ErrorKind::Unreachable, Some("gone"), true),
        "{gone}"
    );
    host.shutdown().await;
}

#[tokio::test]
async fn an_unknown_name_is_told_with_those_that_are_near() {
    let host = host().await;
    let cases: [(&str, &[&str]); 3] =
        [("it__structred", &["it__structured"]), ("fail", &["it__fails"]), ("something_else_entirely", &[])];
    for (name, near) in cases {
        let error = host.call_tool(name, json!({})).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.nearest()),
            (ErrorKind::Unknown, &*near.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()),
            "{error}"
        );
        assert_eq!(error.help().is_some(), !near.is_empty());
    }
    let help = host.call_tool("it__fals", json!({})).await.unwrap_err();
    assert_eq!(help.help(), Some("did you mean `it__fails`?"));
    let prompt = host.get_prompt("it__reviev", json!({})).await.unwrap_err();
    assert_eq!((prompt.kind(), prompt.nearest()), (ErrorKind::Unknown, &["it__review".to_owned()][..]));
    // A name of megabytes is not compared.
    let long = host.call_tool(&"x".repeat(1 << 20), json!({})).await.unwrap_err();
    assert!(long.nearest().is_empty());
    host.shutdown().await;
}

#[tokio::test]
async fn what_a_caller_says_beside_the_arguments_goes_along() {
    let host = host().await;
    let meta = |value: Value| host.call_tool("it__tells_meta", json!({})).meta(value);
    let told = meta(json!({ "com.example/trace": "t-1", "progressToken": "mine" })).await.unwrap();
    let told: Value = serde_json::from_str(&told.text()).unwrap();
    assert_eq!(told["com.example/trace"], "t-1", "{told}");
    assert_ne!(told["progressToken"], "mine", "{told}");
    let both = meta(json!({ "com.example/trace": "t-2" })).on_progress(|_| {}).await.unwrap();
    assert!(both.text().contains("t-2") && both.text().contains("progressToken"), "{both}");
    let wrong = meta(json!([1])).await.unwrap_err();
    assert_eq!((wrong.kind(), wrong.answer().unwrap().code), (ErrorKind::Answer, -32602));
    host.shutdown().await;
}

#[tokio::test]
async fn arguments_are_completed() {
    let host = host().await;
    let typed = Completion::prompt("it__review", "branch", "fea").given("repository", "r");
    let values = host.complete(typed).await.unwrap().completions();
    let parts: Vec<Value> = values.iter().map(|value| serde_json::from_str(value).unwrap()).collect();
    assert_eq!(parts[0], json!({ "type": "ref/prompt", "name": "review" }), "by the server's own name");
    assert_eq!(parts[1], json!({ "name": "branch", "value": "fea" }));
    assert_eq!(parts[2], json!({ "arguments": { "repository": "r" } }));
    let template = host.catalog().resource_templates()[0].name().to_owned();
    let values = host.complete(Completion::resource(&template, "path", "a")).await.unwrap().completions();
    let asked: Value = serde_json::from_str(&values[0]).unwrap();
    assert_eq!(asked, json!({ "type": "ref/resource", "uri": "repo:{path}" }));
    assert_eq!(values[2], "", "nothing else was given");
    let unknown = host.complete(Completion::prompt("it__revew", "branch", "")).await.unwrap_err();
    assert_eq!((unknown.kind(), unknown.nearest()), (ErrorKind::Unknown, &["it__review".to_owned()][..]));
    host.shutdown().await;
}

#[tokio::test]
async fn a_server_without_completions_gives_none() {
    let host = Host::builder().in_process("clock", demo::clock()).start().await.unwrap();
    let session: Session = host.session();
    let prompt = session.catalog_ready().await.prompts()[0].name().to_owned();
    let none = session.complete(Completion::prompt(&prompt, "topic", "")).await.unwrap();
    assert_eq!(none.completions(), Vec::<String>::new());
    host.shutdown().await;
}
