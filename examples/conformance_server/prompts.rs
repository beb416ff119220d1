//! Prompts, and completion of their arguments.

use mcp_host::InProcess;
use mcp_host::in_process::Invocation;
use mcp_host::protocol::{Method, Outcome, Raw};
use serde_json::json;

use crate::words::{argument, image, messages, prompt, text};

pub(crate) fn add(server: InProcess) -> InProcess {
    server
        .method(Method::Complete, |call| Box::pin(async move { complete(&call) }))
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
