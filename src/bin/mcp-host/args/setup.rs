//! The commands about this program on its machine: completions, the service, the doctor.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Common;
use crate::suggest;

#[derive(Debug, Subcommand)]
// The parser of a command is only built when the command is run.
#[command(defer = true)]
pub(crate) enum SetupCommand {
    /// Look for what is wrong with the config, the servers, the logins and this machine, and say what to do
    Doctor(Doctor),
    /// Run `serve` as a service of your account, which starts with it and after a crash
    Service(Service),
    /// Print the script that completes commands, servers and tools in a shell
    Completions(Completions),
    /// Write the man pages and the completions of a package.
    #[cfg(feature = "package")]
    #[command(name = "__package", hide = true)]
    Package(Package),
}

impl SetupCommand {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Doctor(args) => &args.common,
            Self::Service(Service { what: ServiceCommand::Install(args) }) => &args.common,
            Self::Service(Service { what: ServiceCommand::Uninstall(args) }) => &args.common,
            Self::Service(Service { what: ServiceCommand::Status(args) }) => &args.common,
            Self::Completions(args) => &args.common,
            #[cfg(feature = "package")]
            Self::Package(args) => &args.common,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Only this server, and what all servers need
    #[arg(value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Service {
    #[command(subcommand)]
    pub(crate) what: ServiceCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Write the files of the service, and start it: systemd's of your account, or a launchd agent
    Install(ServiceInstall),
    /// Stop the service, and remove its files
    Uninstall(Uninstall),
    /// Show whether the service is installed and runs
    Status(ServiceStatus),
}

#[derive(Args, Debug)]
pub(crate) struct ServiceInstall {
    /// Let systemd hold the port, and start the service at the first connection
    #[arg(long)]
    pub(crate) socket: bool,
    /// A file with variables that the config reads, one NAME=VALUE a line, which only you may read
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,
    /// Only show the files that would be written and the commands that would be run
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Uninstall {
    /// Only show what would be removed and run
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct ServiceStatus {
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[command(after_help = SCRIPTS)]
pub(crate) struct Completions {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL", value_parser = ["bash", "zsh", "fish", "elvish", "powershell"], hide_possible_values = true)]
    pub(crate) shell: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[cfg(feature = "package")]
#[derive(Args, Debug)]
pub(crate) struct Package {
    /// Where to write them
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) common: Common,
}

const SCRIPTS: &str = "\
Examples:
  source <(mcp-host completions bash)                                    in ~/.bashrc
  source <(mcp-host completions zsh)                                     in ~/.zshrc, behind compinit
  mcp-host completions fish > ~/.config/fish/completions/mcp-host.fish";
