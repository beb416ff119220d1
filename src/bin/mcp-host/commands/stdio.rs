//! `mcp-host stdio`: the host as one MCP server over stdin and stdout, for clients that start their servers.

use std::io::IsTerminal as _;

use super::serving;
use crate::args::Common;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Plan;
use crate::signals::Signals;

pub(crate) async fn run(common: &Common, signals: &mut Signals, output: &Output) -> Result<Exit, Failure> {
    let plan = Plan::load(common, false, None)?;
    plan.tell_notes(output);
    if std::io::stdin().is_terminal() {
        output.remark("note: this speaks MCP over stdin and stdout; a client is to start it");
        output.remark("help: claude mcp add mcp-host -- mcp-host stdio");
    }
    let follow = plan.again();
    let host = plan.builder().start().await?;
    host.follow_config(follow);
    serving::until_told(&host, serving::Kind::Child, host.serve_stdio(), signals, output).await
}
