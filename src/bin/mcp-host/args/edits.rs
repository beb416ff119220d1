//! The commands that edit the config, and those that show its content.

use clap::{Args, Subcommand};

use super::Common;
use crate::suggest;

/// What `--project` stands for without a directory.
pub(crate) const HERE: &str = ".";

#[derive(Debug, Subcommand)]
// The parser of a command is only built when the command is run.
#[command(defer = true)]
pub(crate) enum EditCommand {
    /// Add a server to the config: a URL, or a command after `--`; it is tried once
    Add(Add),
    /// Take a server out of the config
    Remove(Named),
    /// Turn a server of the config on
    Enable(Named),
    /// Turn a server of the config off, and keep its entry
    Disable(Named),
    /// Give a server of the config another name
    Rename(Rename),
    /// List the servers of the config, and how they are if a daemon runs; nothing is started
    #[command(name = "list")]
    Servers(Servers),
    /// Show the entry of a server in the config
    Get(Named),
    /// Take back the last edit of a config, or the one with this number
    Undo(Undo),
}

impl EditCommand {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Add(args) => &args.common,
            Self::Remove(args) | Self::Enable(args) | Self::Disable(args) | Self::Get(args) => &args.common,
            Self::Rename(args) => &args.common,
            Self::Servers(args) => &args.common,
            Self::Undo(args) => &args.common,
        }
    }

    /// Reports whether `--user` was given.
    pub(crate) fn is_of_user(&self) -> bool {
        match self {
            Self::Add(args) => args.user.user,
            Self::Remove(args) | Self::Enable(args) | Self::Disable(args) | Self::Get(args) => args.user.user,
            Self::Rename(args) => args.user.user,
            Self::Servers(args) => args.user.user,
            Self::Undo(_) => false,
        }
    }
}

// Which config to use: `--project` is an option of `Common`, which here needs no value.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct User {
    /// Use your own config, not that of this folder
    #[arg(long, conflicts_with = "project")]
    pub(crate) user: bool,
}

pub(super) fn project(arg: clap::Arg) -> clap::Arg {
    let help = "Use the config of a project: here, or in DIR";
    arg.num_args(0..=1).require_equals(true).default_missing_value(HERE).help(help).hide(false)
}

#[derive(Args, Debug)]
#[command(mut_arg("project", project), override_usage = ADD_USAGE, after_help = ADDED)]
pub(crate) struct Add {
    /// The name of the server; - reads JSON or an install link from stdin
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The URL of the server
    #[arg(value_name = "URL", conflicts_with = "command", hide = true)]
    pub(crate) url: Option<String>,
    /// A variable of its environment
    #[arg(short, long, value_name = "KEY=VALUE", conflicts_with = "url")]
    pub(crate) env: Vec<String>,
    /// A header of its requests
    #[arg(short = 'H', long, value_name = "'KEY: VALUE'", conflicts_with = "command")]
    pub(crate) header: Vec<String>,
    /// Ask for this value, and keep it in the keyring
    #[arg(long, value_name = "KEY")]
    pub(crate) secret: Vec<String>,
    /// stdio, http or sse [default: found out]
    #[arg(short, long, value_name = "TRANSPORT", value_enum, hide_possible_values = true)]
    pub(crate) transport: Option<Transport>,
    /// Its working directory
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(crate) cwd: Option<String>,
    /// Start it when a request needs it
    #[arg(long)]
    pub(crate) lazy: bool,
    /// Write secrets into the file as they are given
    #[arg(long)]
    pub(crate) plain: bool,
    /// With -: write it without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Do not start it, only write it
    #[arg(long)]
    pub(crate) no_check: bool,
    /// The command that starts the server, and its arguments
    #[arg(value_name = "COMMAND", last = true, num_args = 1.., hide = true)]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) user: User,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// A transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Transport {
    Stdio,
    Http,
    Sse,
}

#[derive(Args, Debug)]
#[command(mut_arg("project", project))]
pub(crate) struct Named {
    /// The server: its name in the config, or its alias
    #[arg(value_name = "NAME", add = suggest::servers())]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) user: User,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[command(mut_arg("project", project))]
pub(crate) struct Rename {
    /// The server: its name in the config, or its alias
    #[arg(value_name = "NAME", add = suggest::servers())]
    pub(crate) name: String,
    /// Its new name
    #[arg(value_name = "NEW")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) user: User,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[command(mut_arg("project", project))]
pub(crate) struct Servers {
    #[command(flatten)]
    pub(crate) user: User,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Undo {
    /// The number of the edit [default: the last one that was not taken back]
    #[arg(value_name = "ID", conflicts_with = "list")]
    pub(crate) id: Option<u64>,
    /// List the edits, and take back none
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The usage of `add`.
pub(crate) const ADD_USAGE: &str = "mcp-host add [OPTIONS] <NAME> (<URL> | -- <COMMAND>...)";

const ADDED: &str = "\
Example: mcp-host add files -- npx -y @ada/files ~/src   (more: docs/edit.md)";
