//! The command line: its commands and options.

mod clients;
mod edits;
mod feed;
mod metrics;
mod open;
mod registry;
#[cfg(target_os = "linux")]
mod sandbox;
mod serve;
mod setup;
mod token;
mod tokens;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use mcp_host::config;

pub(crate) use self::clients::{ClientCommand, Export, Link, Move};
pub(crate) use self::edits::{ADD_USAGE, Add, EditCommand, HERE, Transport, Undo};
#[cfg(feature = "top")]
pub(crate) use self::feed::Top;
pub(crate) use self::feed::{Calls, Level, Logs, Source};
pub(crate) use self::metrics::Metrics;
pub(crate) use self::open::Open;
pub(crate) use self::registry::{Install, Outdated, RegistryCommand, Search, Show, Update};
#[cfg(target_os = "linux")]
pub(crate) use self::sandbox::{Sandbox, SandboxCommand, SandboxExplain, SandboxLearn};
pub(crate) use self::serve::{Daemon, Serve, Stdio, parse as parse_serving};
#[cfg(feature = "package")]
pub(crate) use self::setup::Package;
pub(crate) use self::setup::{Completions, Doctor, Service, ServiceCommand, ServiceInstall, SetupCommand, Uninstall};
pub(crate) use self::token::Token;
pub(crate) use self::tokens::Tokens;
use crate::listen;
use crate::paint::When;
use crate::suggest;
use crate::text::quoted;

/// One endpoint for many MCP servers.
#[derive(Debug, Parser)]
#[command(name = "mcp-host", bin_name = "mcp-host", version, after_help = NEXT_STEPS)]
#[command(mut_args(told))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Shows the help of an option of every command in full.
fn told(arg: clap::Arg) -> clap::Arg {
    match arg.get_id().as_str() {
        "config" => {
            let help = "A config file, ours or any MCP client's. Repeatable: if two files have the same server, the later wins";
            arg.help(help)
        }
        "project" | "verbose" | "quiet" | "color" => arg.hide(false),
        _ => arg,
    }
}

// Options of every command, allowed before or after its name. The help of a command shows few of them, so that it fits
// on a screen; the help of the program shows them all.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Common {
    /// A config file (more options: mcp-host --help)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// Which project of Claude Code's ~/.claude.json to use [default: the current directory]
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) project: Option<PathBuf>,
    /// Print JSON for machines
    #[arg(long)]
    pub(crate) json: bool,
    /// Log more on stderr; twice for every message, three times for its contents
    #[arg(short, long, action = clap::ArgAction::Count, hide = true)]
    pub(crate) verbose: u8,
    /// Print only data and errors
    #[arg(short, long, hide = true)]
    pub(crate) quiet: bool,
    /// When to use colors: auto, always or never
    #[arg(long, value_name = "WHEN", value_enum, hide_possible_values = true, hide = true)]
    pub(crate) color: Option<When>,
    /// The view to use; only some commands take it.
    #[arg(skip)]
    pub(crate) view: Option<String>,
}

#[derive(Debug, Subcommand)]
// clap builds a command's parser when it runs. A doc comment on flattened options would replace the command's own.
#[command(defer = true)]
pub(crate) enum Command {
    /// Serve all servers at one HTTP endpoint
    Serve(Serve),
    /// Serve all servers over stdin and stdout, for clients that start their servers
    Stdio(Stdio),
    /// Check the config; nothing is started without --connect
    Check(Check),
    /// List the tools, or show one with its arguments
    Tools(Tools),
    /// List the resources and resource templates
    Resources(List),
    /// List the prompts
    Prompts(List),
    /// Call a tool
    Call(CallArgs),
    /// Read a resource
    Read(Read),
    /// Get a prompt
    Prompt(Prompt),
    #[command(flatten)]
    Edit(EditCommand),
    #[command(flatten)]
    Client(ClientCommand),
    #[command(flatten)]
    Registry(RegistryCommand),
    /// Show what is new or has changed at servers and in a project's config, and approve it
    Approve(Approve),
    /// Start the servers, and lock what they list in mcp-host.lock, beside the config
    Lock(Lock),
    /// Test the rules of the config (host.policy), or say why they allow, ask about, or deny a call
    Policy(Policy),
    /// Show what the sandbox of a server refuses to it
    #[cfg(target_os = "linux")]
    Sandbox(Sandbox),
    /// Show the servers and clients of a running `serve`
    Status(Status),
    /// Open the page of a running `serve`, which shows what goes on and calls tools, in your browser
    Open(Open),
    /// Show the last lines of the servers of a running `serve`: standard error, log messages, changes of state
    Logs(Logs),
    /// Show the last calls of a running `serve`: who called what, how it ended, and how long it took
    Calls(Calls),
    /// Show what the servers of a running `serve` do, on the whole terminal
    #[cfg(feature = "top")]
    Top(Top),
    /// Print the metrics of a running `serve`, as Prometheus reads them at /metrics
    Metrics(Metrics),
    /// Show what the tools of a running `serve` cost, in tokens
    Tokens(Tokens),
    /// Show the calls that wait for your permission, and decide on them
    Asks(Asks),
    /// Sign in to a server, for a running `serve` and all that start later
    Login(Login),
    /// Forget the login of a server and revoke it
    Logout(Logout),
    /// List the logins; no token is shown
    Auth(Auth),
    /// Make a token for a client of the endpoint, or for /metrics
    Token(Token),
    /// Start a server of a running `serve` anew; calls in flight may end first
    Restart(Restart),
    #[command(flatten)]
    Setup(SetupCommand),
    /// The child process of `serve --demo`.
    #[command(name = "__demo-server", hide = true)]
    DemoServer(Stdio),
    /// The daemon that `host.join = "start"` starts.
    #[command(name = "__daemon", hide = true)]
    Daemon(Daemon),
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Start each server once and report what it offers
    #[arg(long)]
    pub(crate) connect: bool,
    /// Start each server once and compare what it lists with mcp-host.lock
    #[arg(long, conflicts_with_all = ["connect", "demo"])]
    pub(crate) locked: bool,
    /// Where `lock --definitions` wrote the texts, to show how they differ
    #[arg(long, value_name = "DIR", requires = "locked")]
    pub(crate) definitions: Option<PathBuf>,
    /// Ask the running mcp-host whether these tools can be called; nothing is called or started
    #[arg(long, value_name = "TOOL", value_delimiter = ',', add = suggest::tools(), conflicts_with_all = ["connect", "locked", "demo", "server"])]
    pub(crate) needs: Vec<String>,
    /// With --needs: in this view of the config (host.views) [default: host.view]
    #[arg(long, value_name = "VIEW", requires = "needs")]
    pub(crate) view: Option<String>,
    /// With --needs: which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address, requires = "needs")]
    pub(crate) listen: Option<SocketAddr>,
    /// Only this server
    #[arg(value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) demo: Demo,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only this server: its name in the config, or its alias
    #[arg(value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) demo: Demo,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Tools {
    /// Only this server, or one tool shown whole: description, arguments, an example call
    #[arg(value_name = "SERVER | TOOL", num_args = 0..=2, add = suggest::servers_and_tools())]
    pub(crate) of: Vec<String>,
    #[command(flatten)]
    pub(crate) view: View,
    #[command(flatten)]
    pub(crate) demo: Demo,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[command(after_help = GIVEN)]
pub(crate) struct CallArgs {
    /// The tool, as `mcp-host tools` shows it
    #[arg(value_name = "TOOL", add = suggest::tools())]
    pub(crate) tool: String,
    /// One JSON object, or key=value as the tool's schema says
    #[arg(value_name = "JSON | KEY=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// How long the call may take: 500ms, 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
    /// Save images, audio and the like; overwrites nothing
    #[arg(long, value_name = "FILE | FOLDER")]
    pub(crate) out: Option<PathBuf>,
    /// Send the arguments without checking them first
    #[arg(long)]
    pub(crate) no_check: bool,
    #[command(flatten)]
    pub(crate) view: View,
    #[command(flatten)]
    pub(crate) demo: Demo,
    #[command(flatten)]
    pub(crate) common: Common,
}

impl CallArgs {
    /// Parses the words after `call`.
    #[cfg(target_os = "linux")]
    pub(crate) fn read(words: &[String]) -> Result<Self, clap::Error> {
        use clap::FromArgMatches as _;
        let command = Self::augment_args(clap::Command::new("call").no_binary_name(true).disable_help_flag(true));
        Self::from_arg_matches(&command.try_get_matches_from(words)?)
    }
}

#[derive(Args, Debug)]
pub(crate) struct Read {
    /// The resource, as `mcp-host resources` shows it
    #[arg(value_name = "URI", add = suggest::resources())]
    pub(crate) uri: String,
    /// Save images, audio and other binary content; never overwrites a file
    #[arg(long, value_name = "FILE | FOLDER")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) demo: Demo,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Prompt {
    /// The prompt, as `mcp-host prompts` shows it
    #[arg(value_name = "NAME", add = suggest::prompts())]
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
pub(crate) struct Lock {
    /// Also write the texts of the definitions, a file for each server, for reviews
    #[arg(long, value_name = "DIR")]
    pub(crate) definitions: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Approve {
    /// Only this server
    #[arg(value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: Option<String>,
    /// Only definitions with such a name, with * and ? for the rest
    #[arg(long, value_name = "GLOB")]
    pub(crate) tool: Option<String>,
    /// Take back what was approved of definitions: they wait for approval again
    #[arg(long, conflicts_with = "yes")]
    pub(crate) revoke: bool,
    /// Approve without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Policy {
    #[command(subcommand)]
    pub(crate) what: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check that the rules say what the cases of a file expect; nothing is started
    Test(PolicyTest),
    /// Say what the rules make of one call, and of each rule why it matches or not; nothing is called
    Explain(PolicyExplain),
}

#[derive(Args, Debug)]
pub(crate) struct PolicyTest {
    /// The cases: a list in JSON, YAML, or TOML (docs/policy.md)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[command(after_help = GIVEN)]
pub(crate) struct PolicyExplain {
    /// The tool, as `mcp-host tools` shows it
    #[arg(value_name = "TOOL", add = suggest::tools())]
    pub(crate) tool: String,
    /// Its arguments: one JSON object, or key=value, typed by the tool's schema
    #[arg(value_name = "JSON | KEY=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// Who calls: local, a client of host.auth.clients, or ISSUER#SUBJECT [default: local]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) principal: Option<String>,
    #[command(flatten)]
    pub(crate) view: View,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// All about this server: its name in the config, or its alias
    #[arg(value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: Option<String>,
    /// Forget what SERVER asks its clients, which decides who shares a process; learned again from its next question
    #[arg(long, requires = "server")]
    pub(crate) forget: bool,
    /// Stay, and show what changes
    #[arg(short, long, conflicts_with_all = ["server", "forget"])]
    pub(crate) watch: bool,
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Restart {
    /// The server: its name in the config, or its alias
    #[arg(value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: String,
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Asks {
    /// The number of the call to decide on
    #[arg(value_name = "NUMBER")]
    pub(crate) number: Option<u64>,
    /// Let this call be made
    #[arg(short, long, requires = "number")]
    pub(crate) yes: bool,
    /// Let this call be made, and equal ones as long as its rule says
    #[arg(long, requires = "number", conflicts_with_all = ["yes", "no"])]
    pub(crate) remember: bool,
    /// Refuse this call
    #[arg(short, long, requires = "number", conflicts_with = "yes")]
    pub(crate) no: bool,
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Auth {
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Login {
    /// The server: its name in the config, or its alias
    #[arg(value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: String,
    /// Show the page, do not open a browser
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// Sign in with a code, entered in a browser on any machine
    #[arg(long)]
    pub(crate) device: bool,
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Logout {
    /// The server: its name in the config, or its alias
    #[arg(value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: String,
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}

// Which view to use.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct View {
    /// Use this view (host.views) [default: host.view]
    #[arg(long = "view", value_name = "VIEW")]
    pub(crate) name: Option<String>,
}

// Use the bundled demo servers instead of a config.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Demo {
    /// Use the bundled demo servers; needs no config
    #[arg(long)]
    pub(crate) demo: bool,
}

impl Common {
    /// Returns the options that make a suggested command use the same servers.
    pub(crate) fn again(&self, demo: bool) -> String {
        let files = self.config.iter().map(|file| format!(" --config {}", quoted(&file.to_string_lossy())));
        let project = self.project.iter().map(|folder| format!(" --project {}", quoted(&folder.to_string_lossy())));
        demo.then(|| " --demo".to_owned()).into_iter().chain(files).chain(project).collect()
    }
}

impl Cli {
    /// Merges the options from before and after the command.
    pub(crate) fn common(&self) -> Common {
        let before = self.common.clone();
        let Some(after) = self.command.as_ref().map(Command::common) else { return before };
        Common {
            config: before.config.into_iter().chain(after.config.iter().cloned()).collect(),
            project: after.project.clone().or(before.project),
            json: before.json || after.json,
            verbose: before.verbose.saturating_add(after.verbose),
            quiet: before.quiet || after.quiet,
            color: after.color.or(before.color),
            view: self.command.as_ref().and_then(Command::view).cloned(),
        }
    }
}

impl Command {
    fn view(&self) -> Option<&String> {
        match self {
            Self::Stdio(args) => args.view.name.as_ref(),
            Self::Tools(args) => args.view.name.as_ref(),
            Self::Call(args) => args.view.name.as_ref(),
            Self::Policy(Policy { what: PolicyCommand::Explain(args) }) => args.view.name.as_ref(),
            _ => None,
        }
    }

    fn common(&self) -> &Common {
        match self {
            Self::Serve(args) => &args.common,
            Self::Stdio(args) | Self::DemoServer(args) => &args.common,
            Self::Daemon(args) => &args.common,
            Self::Check(args) => &args.common,
            Self::Tools(args) => &args.common,
            Self::Resources(args) | Self::Prompts(args) => &args.common,
            Self::Call(args) => &args.common,
            Self::Read(args) => &args.common,
            Self::Prompt(args) => &args.common,
            Self::Edit(command) => command.common(),
            Self::Client(command) => command.common(),
            Self::Registry(command) => command.common(),
            Self::Approve(args) => &args.common,
            Self::Lock(args) => &args.common,
            Self::Policy(Policy { what: PolicyCommand::Test(args) }) => &args.common,
            Self::Policy(Policy { what: PolicyCommand::Explain(args) }) => &args.common,
            #[cfg(target_os = "linux")]
            Self::Sandbox(args) => args.common(),
            Self::Status(args) => &args.common,
            Self::Logs(args) => &args.common,
            Self::Calls(args) => &args.common,
            #[cfg(feature = "top")]
            Self::Top(args) => &args.common,
            Self::Metrics(args) => &args.common,
            Self::Tokens(args) => &args.common,
            Self::Open(args) => &args.common,
            Self::Asks(args) => &args.common,
            Self::Auth(args) => &args.common,
            Self::Login(args) => &args.common,
            Self::Logout(args) => &args.common,
            Self::Token(args) => &args.common,
            Self::Restart(args) => &args.common,
            Self::Setup(command) => command.common(),
        }
    }
}

/// Parses a time with its unit.
fn time(text: &str) -> Result<Duration, String> {
    let time = config::time(text).ok_or("write it with a unit: 500ms, 30s, 5m, 1h")?;
    if time.is_zero() { Err("no call can finish in no time".to_owned()) } else { Ok(time) }
}

const GIVEN: &str = "\
Arguments from elsewhere:
  -           one JSON object from stdin
  @FILE       one JSON object from a file
  key=@FILE   the text of a file as one value; key=@- takes stdin
  key=@@TEXT  the text @TEXT itself";

const NEXT_STEPS: &str = "\
Start here:
  mcp-host serve --demo             two bundled servers at one endpoint, nothing to install
  mcp-host check --config FILE      what the config of your MCP client says, nothing started
  mcp-host serve --config FILE      its servers at one endpoint

The guide is in docs/ of the repository; docs/troubleshooting.md explains error messages.";

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
    fn a_hint_keeps_what_tells_the_servers() {
        let cli = Cli::try_parse_from(["mcp-host", "--project", "/src/my shop", "check", "-c", "a.json"]).unwrap();
        assert_eq!(cli.common().again(false), " --config a.json --project '/src/my shop'");
        let cli = Cli::try_parse_from(["mcp-host", "--project", "/a", "check", "--project", "/b"]).unwrap();
        assert_eq!(cli.common().again(true), " --demo --project /b");
    }

    #[test]
    fn every_address_is_read_as_people_write_it() {
        let mut all = Cli::command();
        all.build();
        let listening =
            all.get_subcommands().filter(|command| command.get_arguments().any(|arg| arg.get_id() == "listen"));
        let mut seen = 0;
        for command in listening {
            let name = command.get_name();
            let read = Cli::try_parse_from(["mcp-host", name, "--listen", ":8809", "x"])
                .or_else(|_| Cli::try_parse_from(["mcp-host", name, "--listen", ":8809"]))
                .or_else(|_| Cli::try_parse_from(["mcp-host", name, "--listen", ":8809", "--needs", "x"]));
            assert!(read.is_ok(), "{name}: {read:?}");
            seen += 1;
        }
        assert!(seen >= 4);
    }
}
