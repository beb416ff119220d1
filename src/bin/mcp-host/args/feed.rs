//! Where a line of the feed comes from, how severe it is, and how much is told of arguments, as options name it.

use mcp_host::admin;

/// How much is told of the arguments and results of calls.
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
