//! The commands about servers of a registry.

use clap::{Args, Subcommand, ValueEnum};

use super::Common;
use super::edits::User;

#[derive(Debug, Subcommand)]
// The parser of a command is only built when the command is run.
#[command(defer = true)]
pub(crate) enum RegistryCommand {
    /// Find servers in the registry
    Search(Search),
    /// Show what the registry has about a server: how it is started, and what it wants to know
    Show(Show),
    /// Add a server of the registry to the config; it is shown and asked for first
    Install(Install),
    /// Show which servers of the config have newer versions in the registry
    Outdated(Outdated),
    /// Take a newer version of a server; what changes is shown and asked for first
    Update(Update),
}

impl RegistryCommand {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Search(args) => &args.common,
            Self::Show(args) => &args.common,
            Self::Install(args) => &args.common,
            Self::Outdated(args) => &args.common,
            Self::Update(args) => &args.common,
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = WHERE)]
pub(crate) struct Search {
    /// Words of its name or its description
    #[arg(value_name = "WORDS", required = true)]
    pub(crate) words: Vec<String>,
    /// How many servers to show
    #[arg(short = 'n', long = "number", value_name = "NUMBER", default_value_t = 30)]
    pub(crate) number: u16,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[command(after_help = WHERE)]
pub(crate) struct Show {
    /// The server, as `mcp-host search` shows it; @VERSION for another than the latest
    #[arg(value_name = "NAME[@VERSION]")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[command(mut_arg("project", super::edits::project), after_help = INSTALLED)]
pub(crate) struct Install {
    /// The server, as `mcp-host search` shows it, @VERSION for another than the latest; a bundle; a server.json at a URL; an
    /// install link
    #[arg(value_name = "NAME", required_unless_present = "locked", add = crate::suggest::servers())]
    pub(crate) name: Option<String>,
    /// Its name in the config [default: NAME after the slash]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) alias: Option<String>,
    /// npm, pypi, oci, nuget, mcpb or remote [default: npm, pypi]
    #[arg(long, value_name = "FORM", value_enum, hide_possible_values = true)]
    pub(crate) package: Option<Form>,
    /// A value that it wants; ${env:NAME} stays a reference
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Install without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Do not start it, only write it
    #[arg(long)]
    pub(crate) no_check: bool,
    /// Install the trees that the config has locked
    #[arg(long, conflicts_with_all = ["alias", "package", "set", "no_check"])]
    pub(crate) locked: bool,
    /// Let packages run install scripts, and build from source
    #[arg(long)]
    pub(crate) scripts: bool,
    #[command(flatten)]
    pub(crate) user: User,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[command(mut_arg("project", super::edits::project), after_help = WHERE)]
pub(crate) struct Outdated {
    #[command(flatten)]
    pub(crate) user: User,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[command(mut_arg("project", super::edits::project), after_help = UPDATED)]
pub(crate) struct Update {
    /// The server, by its name in the config [default: all that are outdated]
    #[arg(value_name = "NAME", add = crate::suggest::servers())]
    pub(crate) name: Option<String>,
    /// A value that only the newer version wants
    #[arg(long, value_name = "KEY=VALUE", requires = "name")]
    pub(crate) set: Vec<String>,
    /// Update without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Let packages run install scripts, and build from source
    #[arg(long)]
    pub(crate) scripts: bool,
    #[command(flatten)]
    pub(crate) user: User,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// A form of a server: a kind of package, or an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    Npm,
    Pypi,
    Oci,
    Nuget,
    Mcpb,
    Remote,
}

impl Form {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pypi => "pypi",
            Self::Oci => "oci",
            Self::Nuget => "nuget",
            Self::Mcpb => "mcpb",
            Self::Remote => "remote",
        }
    }
}

const WHERE: &str = "The registry is the official one, or that of host.registry in the config (docs/registry.md).";

const UPDATED: &str = "\
The new version is started once, with an empty home directory, and the definitions of its tools are compared with those of
the old one. mcp-host undo brings the old version back.";

const INSTALLED: &str = "\
Secrets go to the keyring. mcp-host undo takes it out again (docs/registry.md).";
