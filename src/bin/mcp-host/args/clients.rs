//! The commands that connect other MCP clients with this host, and take over their servers.

use clap::{Args, Subcommand};

use super::Common;
use super::edits::User;
use crate::suggest;

#[derive(Debug, Subcommand)]
// The parser of a command is only built when the command is run.
#[command(defer = true)]
pub(crate) enum ClientCommand {
    /// List the MCP clients on this machine: which are linked with this host, and which start a server twice
    Clients(Clients),
    /// Take over the servers of clients into the config; their files stay as they are
    Import(Move),
    /// Print what `link` would write into a client's file
    Export(Export),
    /// Write this host into clients' files as one more server
    Link(Link),
    /// Take this host out of clients' files
    Unlink(Move),
    /// Take over the servers of clients, link the clients, and take out of their files what works here
    Migrate(Link),
}

impl ClientCommand {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Clients(args) => &args.common,
            Self::Import(args) | Self::Unlink(args) => &args.common,
            Self::Export(args) => &args.common,
            Self::Link(args) | Self::Migrate(args) => &args.of.common,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Clients {
    #[command(flatten)]
    pub(crate) user: User,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[command(after_help = ASKED)]
pub(crate) struct Move {
    /// The clients, as `mcp-host clients` lists them
    #[arg(value_name = "CLIENT", add = suggest::known_clients(), conflicts_with = "all", required_unless_present = "all")]
    pub(crate) clients: Vec<String>,
    /// All clients on this machine
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Only show what would be written
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Write without asking
    #[arg(short, long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) user: User,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[command(after_help = ASKED)]
pub(crate) struct Link {
    /// Give clients that take one this URL of a running `serve` [default: that of the config]; without it, that of the
    /// installed service, or each client starts the host
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) of: Move,
}

#[derive(Args, Debug)]
pub(crate) struct Export {
    /// The client, as `mcp-host clients` lists it
    #[arg(value_name = "CLIENT", add = suggest::known_clients())]
    pub(crate) client: String,
    /// With this URL of a running `serve` [default: that of the config]
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) user: User,
    #[command(flatten)]
    pub(crate) common: Common,
}

const ASKED: &str = "\
What would be written is shown first. Without a terminal to ask on, nothing is written unless --yes is given.
mcp-host undo takes all of it back.";
