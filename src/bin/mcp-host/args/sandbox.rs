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
    /// Start a server without a sandbox once, under strace and a proxy, and show what its entry has to list
    Learn(SandboxLearn),
}

#[derive(Args, Debug)]
pub(crate) struct SandboxExplain {
    /// The server, as the config calls it
    #[arg(value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[command(after_help = LEARNS)]
pub(crate) struct SandboxLearn {
    /// The server, as the config calls it
    #[arg(value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: String,
    /// Start it without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// A call of one of its tools, as `mcp-host call` takes it: call TOOL KEY=VALUE
    #[arg(last = true, value_name = "CALL")]
    pub(crate) call: Vec<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

const LEARNS: &str = "\
The server runs as you, without a sandbox, and does whatever its program does. Nothing is written into the config.

  mcp-host sandbox learn files -- call files__read_text_file path=/srv/notes/a";

impl Sandbox {
    pub(crate) fn common(&self) -> &Common {
        match &self.what {
            SandboxCommand::Learn(args) => &args.common,
            SandboxCommand::Explain(args) => &args.common,
        }
    }
}
