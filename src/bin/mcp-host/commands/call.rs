//! `mcp-host call TOOL [JSON | KEY=VALUE...]`: one call of one tool.

use mcp_host::Host;
use serde_json::Value;

use super::{answer, call_failed, only_server_failed};
use crate::args::{Call, Common};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{self, Wanted};
use crate::{parameters, payload, text};

pub(crate) async fn run(args: &Call, common: &Common, output: &Output) -> Result<Exit, Failure> {
    // What is wrong without knowing the tool is told before anything is started.
    parameters::for_tool(&args.arguments, None)?;
    let host = servers::start(common, args.demo.demo, Wanted::Named(&args.tool), output).await?;
    let outcome = call(args, &host, output).await;
    host.shutdown().await;
    outcome
}

async fn call(args: &Call, host: &Host, output: &Output) -> Result<Exit, Failure> {
    if let Some(failure) = only_server_failed(host) {
        return Err(failure);
    }
    let catalog = host.catalog();
    let names: Vec<&str> = catalog.tools().iter().map(|tool| tool.name()).collect();
    let tool = catalog.tools().iter().find(|tool| tool.name() == args.tool);
    let schema: Option<Value> = tool.and_then(|tool| tool.definition().member("inputSchema")?.read().ok());
    let arguments = parameters::for_tool(&args.arguments, schema.as_ref())?;
    let result = answer(host.call_tool(&args.tool, arguments), output).await;
    let result = result.map_err(|error| call_failed(error, "tool", &args.tool, &names, host, output))?;
    if output.json {
        output.line(&text::json(result.as_str()))?;
    } else {
        output.lines(payload::tool_result(&result))?;
    }
    let is_error = result.member("isError").is_some_and(|flag| flag.as_str() == "true");
    Ok(if is_error { Exit::ToolError } else { Exit::Ok })
}
