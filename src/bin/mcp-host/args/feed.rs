//! The options of the commands that read the feed: `logs`, `calls`, `top`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use mcp_host::{admin, config};

use super::Common;
use crate::{listen, suggest};

#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// Only this server: its name in the config, or its alias
    #[arg(value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: Option<String>,
    /// Stay, and show lines as they come
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// How many of the last lines
    #[arg(short = 'n', long = "lines", value_name = "NUMBER", default_value_t = 200)]
    pub(crate) lines: usize,
    /// Only lines of the last minutes or hours: 30s, 10m, 1h
    #[arg(long, value_name = "TIME", value_parser = age)]
    pub(crate) since: Option<Duration>,
    /// Only lines from there
    #[arg(long, value_name = "SOURCE", value_enum)]
    pub(crate) source: Option<Source>,
    /// Only lines that are at least that severe
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) level: Option<Level>,
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Calls {
    /// Stay, and show calls as they end
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// How many of the last calls
    #[arg(short = 'n', long = "number", value_name = "NUMBER", default_value_t = 50)]
    pub(crate) number: usize,
    /// Only calls of this server: its name in the config, or its alias
    #[arg(long, value_name = "SERVER", add = suggest::servers())]
    pub(crate) server: Option<String>,
    /// Only calls that failed
    #[arg(long)]
    pub(crate) failed: bool,
    /// Show arguments, too, of calls from now on: names, types and lengths, or the values without what is secret
    #[arg(long, value_name = "HOW", value_enum)]
    pub(crate) args: Option<Told>,
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[cfg(feature = "top")]
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// How much to show of the arguments and results of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Told {
    Shape,
    Masked,
}

impl From<Told> for admin::Arguments {
    fn from(told: Told) -> Self {
        match told {
            Told::Shape => Self::Shape,
            Told::Masked => Self::Masked,
        }
    }
}

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Source {
    Stderr,
    Log,
    State,
    Host,
}

/// How severe a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// Parses a time span before now, such as `10m`.
fn age(text: &str) -> Result<Duration, String> {
    config::time(text).ok_or_else(|| "write it with a unit: 30s, 10m, 1h".to_owned())
}
