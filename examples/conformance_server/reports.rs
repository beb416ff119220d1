//! Tools that report something before they answer.

use std::time::Duration;

use mcp_host::InProcess;
use mcp_host::in_process::Invocation;
use mcp_host::protocol::{Outcome, Raw};
use tokio::time::sleep;

use crate::words::{answer, tool};

/// Adds the tools.
pub(crate) fn add(server: InProcess) -> InProcess {
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

/// Time between two reports, so that each arrives on its own.
const STEP: Duration = Duration::from_millis(50);
/// When the client should reconnect; later than the call ends, so that what it missed is stored for it.
const RETRY: Duration = Duration::from_millis(500);
