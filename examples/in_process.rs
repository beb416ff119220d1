//! A server made of closures, in a host with those of a config or alone: `cargo run --example in_process`.

use std::io::Write as _;

use mcp_host::protocol::{ErrorObject, Raw};
use mcp_host::{Host, InProcess};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Host::builder().in_process("sums", sums()).start().await?;
    let called = host.call_tool("sums__add", Raw::from_value(&json!({ "numbers": [1, 2, 39] }))).await;
    host.shutdown().await;
    writeln!(std::io::stdout(), "{}", called?)?;
    Ok(())
}

fn sums() -> InProcess {
    let add = json!({
        "name": "add",
        "description": "Adds numbers.",
        "inputSchema": {
            "type": "object",
            "properties": { "numbers": { "type": "array", "items": { "type": "number" } } },
            "required": ["numbers"],
        },
    });
    InProcess::new("sums", "1.0.0").tool(Raw::from_value(&add), |call| {
        Box::pin(async move {
            let numbers: Option<Vec<f64>> = call.arguments.member("numbers").and_then(|numbers| numbers.read().ok());
            let numbers =
                numbers.ok_or_else(|| ErrorObject::invalid_params("`numbers` must be an array of numbers"))?;
            let sum: f64 = numbers.iter().sum();
            Ok(Raw::from_value(&json!({ "content": [{ "type": "text", "text": sum.to_string() }] })))
        })
    })
}
