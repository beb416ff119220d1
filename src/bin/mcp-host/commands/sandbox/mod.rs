//! `mcp-host sandbox`: what the sandbox of a server refuses to it.

mod explain;
mod trace;

use crate::args::{Common, Sandbox, SandboxCommand};
use crate::output::Output;
use crate::report::{Exit, Failure};

pub(crate) async fn run(args: &Sandbox, common: &Common, output: &Output) -> Result<Exit, Failure> {
    match &args.what {
        SandboxCommand::Explain(args) => Box::pin(explain::run(args, common, output)).await,
    }
}
