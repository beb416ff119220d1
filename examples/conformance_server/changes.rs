//! Tools that change the lists without being listed themselves, and one whose argument is mirrored in a header.

use mcp_host::InProcess;
use mcp_host::in_process::Invocation;
use mcp_host::protocol::{Outcome, Raw};
use mcp_host::registry::Kind;
use serde_json::json;

use crate::words::{answer, argument, messages, prompt, text, tool};

pub(crate) fn add(server: InProcess) -> InProcess {
    server
        .unlisted_tool("test_trigger_tool_change", |call| Box::pin(change_tools(call)))
        .unlisted_tool("test_trigger_prompt_change", |call| Box::pin(change_prompts(call)))
        .tool(region_tool(), |call| {
            Box::pin(async move { Ok(answer(&format!("Region: {}", argument(&call, "region")?))) })
        })
}

/// Adds a tool to the list, or removes it.
async fn change_tools(call: Invocation) -> Outcome {
    if call.withdraw(Kind::Tools, "test_dynamic_tool").await {
        return Ok(answer("One tool less."));
    }
    let definition = tool("test_dynamic_tool", "Comes and goes.", &[]);
    call.offer(Kind::Tools, definition, |_| Box::pin(async { Ok(answer("Still here.")) })).await;
    Ok(answer("One tool more."))
}

/// Adds a prompt to the list, or removes it.
async fn change_prompts(call: Invocation) -> Outcome {
    if call.withdraw(Kind::Prompts, "test_dynamic_prompt").await {
        return Ok(answer("One prompt less."));
    }
    let definition = prompt("test_dynamic_prompt", "Comes and goes.", &[]);
    call.offer(Kind::Prompts, definition, |_| Box::pin(async { Ok(messages(&[text("Still here.")])) })).await;
    Ok(answer("One prompt more."))
}

/// A tool whose argument HTTP clients mirror in a header (2026-07-28).
fn region_tool() -> Raw {
    let region = json!({ "type": "string", "description": "Where it runs", "x-mcp-header": "Region" });
    Raw::from_value(&json!({
        "name": "test_custom_header",
        "description": "Returns its argument, which is mirrored in a header.",
        "inputSchema": { "type": "object", "properties": { "region": region }, "required": ["region"] },
    }))
}
