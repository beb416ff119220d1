//! `mcp-host call TOOL [JSON | KEY=VALUE...]`: one call of one tool.

use mcp_host::protocol::Raw;
use serde_json::Value;

use crate::args::{Call, Common};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Wanted;
use crate::session::{Asked, Session};
use crate::{parameters, payload};

pub(crate) async fn run(args: &Call, common: &Common, output: &Output) -> Result<Exit, Failure> {
    // What is wrong without knowing the tool is told before anything is started.
    parameters::for_tool(&args.arguments, None)?;
    let session = Session::open(common, args.demo.demo, Wanted::Named(&args.tool), output).await?;
    let outcome = call(args, &session).await;
    session.close().await;
    let result = outcome?;
    output.answer(&result, payload::tool_result)?;
    let is_error = result.member("isError").is_some_and(|flag| flag.as_str() == "true");
    Ok(if is_error { Exit::ToolError } else { Exit::Ok })
}

async fn call(args: &Call, session: &Session<'_>) -> Result<Raw, Failure> {
    let catalog = session.host.catalog();
    let known = catalog.tools().iter().map(|tool| tool.name()).collect();
    let tool = catalog.tools().iter().find(|tool| tool.name() == args.tool);
    let schema: Option<Value> = tool.and_then(|tool| tool.definition().member("inputSchema")?.read().ok());
    let arguments = parameters::for_tool(&args.arguments, schema.as_ref())?;
    let call = session.host.call_tool(&args.tool, arguments);
    session.answer(call, &Asked { what: "tool", name: &args.tool, known }).await
}
