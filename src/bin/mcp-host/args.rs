//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};

use crate::servers::quoted;

/// One endpoint for many MCP servers.
#[derive(Debug, Parser)]
#[command(name = "mcp-host", bin_name = "mcp-host", version, disable_help_subcommand = true, after_help = NEXT_STEPS)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What every command takes, before or after its name.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Common {
    /// A config file; any MCP client's will do. Given more than once, a later file wins by server name
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// Print data for machines
    #[arg(long)]
    pub(crate) json: bool,
    /// Log more on stderr; twice for every message, three times for its contents
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing but data and errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve all servers at one HTTP endpoint
    Serve(Serve),
    /// Serve all servers over stdin and stdout, for clients that start their servers
    Stdio(Stdio),
    /// Check the config; nothing is started without --connect
    Check(Check),
    /// List the tools
    Tools(List),
    /// List the resources and resource templates
    Resources(List),
    /// List the prompts
    Prompts(List),
    /// Call a tool
    Call(Call),
    /// Read a resource
    Read(Read),
    /// Get a prompt
    Prompt(Prompt),
    /// Show what a project's config would start, and approve it
    Approve(Approve),
    /// Ask a running `serve` how its servers are
    Status(Status),
    /// Sign in to a server of a running `serve`
    Login(Login),
    /// Forget the login of a server of a running `serve`, and tell whoever gave it
    Logout(Logout),
    /// What logins a running `serve` holds; what is secret is not shown
    Auth(Status),
    /// Make a token for a client of the endpoint
    Token(Token),
    /// The child process of `serve --demo`.
    #[command(name = "__demo-server", hide = true)]
    DemoServer(Stdio),
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Where to listen [default: 127.0.0.1:8808]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Serve two bundled demo servers; needs no config
    #[arg(long)]
    pub(crate) demo: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Stdio {
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Start each server once and report what it offers
    #[arg(long)]
    pub(crate) connect: bool,
    /// Only this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) demo: Demo,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only this server: its name in the config, or its alias
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) demo: Demo,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Call {
    /// The tool, as `mcp-host tools` shows it
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
    /// Its arguments: one JSON object, or key=value by the types of the tool's schema
    #[arg(value_name = "JSON | KEY=VALUE")]
    pub(crate) arguments: Vec<String>,
    #[command(flatten)]
    pub(crate) demo: Demo,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Read {
    /// The resource, as `mcp-host resources` shows it
    #[arg(value_name = "URI")]
    pub(crate) uri: String,
    #[command(flatten)]
    pub(crate) demo: Demo,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Prompt {
    /// The prompt, as `mcp-host prompts` shows it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Its arguments
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) arguments: Vec<String>,
    #[command(flatten)]
    pub(crate) demo: Demo,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Approve {
    /// Only this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,
    /// Approve what is shown without being asked
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Token {
    /// What the client is called in the config
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Login {
    /// The server: its name in the config, or its alias
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    /// Only show the page, open no browser
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// Sign in by a code that is entered at a page, with a browser on any machine
    #[arg(long)]
    pub(crate) device: bool,
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Logout {
    /// The server: its name in the config, or its alias
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Use the bundled demo servers instead of a config.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Demo {
    /// Use the bundled demo servers; needs no config
    #[arg(long)]
    pub(crate) demo: bool,
}

impl Common {
    /// The options that a command in a hint needs to mean the same servers.
    pub(crate) fn again(&self, demo: bool) -> String {
        let files = self.config.iter().map(|file| format!(" --config {}", quoted(&file.to_string_lossy())));
        demo.then(|| " --demo".to_owned()).into_iter().chain(files).collect()
    }
}

impl Cli {
    /// The options from before and after the command together.
    pub(crate) fn common(&self) -> Common {
        let before = self.common.clone();
        let Some(after) = self.command.as_ref().map(Command::common) else { return before };
        Common {
            config: before.config.into_iter().chain(after.config.iter().cloned()).collect(),
            json: before.json || after.json,
            verbose: before.verbose.saturating_add(after.verbose),
            quiet: before.quiet || after.quiet,
        }
    }
}

impl Command {
    fn common(&self) -> &Common {
        match self {
            Self::Serve(args) => &args.common,
            Self::Stdio(args) | Self::DemoServer(args) => &args.common,
            Self::Check(args) => &args.common,
            Self::Tools(args) | Self::Resources(args) | Self::Prompts(args) => &args.common,
            Self::Call(args) => &args.common,
            Self::Read(args) => &args.common,
            Self::Prompt(args) => &args.common,
            Self::Approve(args) => &args.common,
            Self::Status(args) | Self::Auth(args) => &args.common,
            Self::Login(args) => &args.common,
            Self::Logout(args) => &args.common,
            Self::Token(args) => &args.common,
        }
    }
}

/// A usage error as two lines: what is wrong, what to do.
pub(crate) fn explain(error: &clap::Error) -> (String, String) {
    let text = error.render().to_string();
    let mut parts = text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let wrong = parts.next().unwrap_or_default();
    let wrong = wrong.strip_prefix("error: ").unwrap_or(&wrong).to_owned();
    let mut help = suggestion(error);
    for part in parts {
        if let Some(tip) = part.strip_prefix("tip: ") {
            help.get_or_insert(tip.to_owned());
        } else if let Some(usage) =
            part.strip_prefix("Usage: ").filter(|_| error.kind() != ErrorKind::InvalidSubcommand)
        {
            let usage = usage.split(" For more information").next().unwrap_or(usage);
            help.get_or_insert(usage.to_owned());
        }
    }
    (wrong, help.unwrap_or_else(|| "mcp-host --help".to_owned()))
}

/// The command that was meant, by its name.
fn suggestion(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::SuggestedSubcommand)? {
        ContextValue::Strings(names) => names.first().map(|name| format!("mcp-host {name}")),
        ContextValue::String(name) => Some(format!("mcp-host {name}")),
        _ => None,
    }
}

const NEXT_STEPS: &str = "\
Start here:
  mcp-host serve --demo             two bundled servers at one endpoint, nothing to install
  mcp-host check --config FILE      what the config of your MCP client says, nothing started
  mcp-host serve --config FILE      its servers at one endpoint";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_count_on_both_sides_of_the_command() {
        let cli = Cli::try_parse_from(["mcp-host", "-c", "a", "-v", "check", "--json", "-vc", "b"]).unwrap();
        let common = cli.common();
        assert_eq!(common.config, [PathBuf::from("a"), PathBuf::from("b")]);
        assert_eq!((common.json, common.verbose, common.quiet), (true, 2, false));
    }

    #[test]
    fn usage_errors_are_two_lines() {
        let explained = |args: &[&str]| explain(&Cli::try_parse_from(args).unwrap_err());
        let pair = |wrong: &str, help: &str| (wrong.to_owned(), help.to_owned());
        assert_eq!(explained(&["mcp-host", "tolls"]), pair("unrecognized subcommand 'tolls'", "mcp-host tools"));
        assert_eq!(
            explained(&["mcp-host", "call"]),
            pair(
                "the following required arguments were not provided: <TOOL>",
                "mcp-host call <TOOL> [JSON | KEY=VALUE]..."
            )
        );
    }
}
