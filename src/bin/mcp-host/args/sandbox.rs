//! `mcp-host sandbox`: its commands and options.

use clap::{Args, Subcommand};

use super::Common;
use crate::suggest;

#[derive(Args, Debug)]
pub(crate) struct Sandbox {
    #[command(subcommand)]
    pub(crate) what: SandboxCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Start a server in its sandbox once, under strace, and show what was refused to it
    Explain(SandboxExplain),
}

#[derive(Args, Debug)]
pub(crate) struct SandboxExplain {
    /// The server, as the config calls it
    #[arg(value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

impl Sandbox {
    pub(crate) fn common(&self) -> &Common {
        match &self.what {
            SandboxCommand::Explain(args) => &args.common,
        }
    }
}
