//! The command line of `stdio`, parsed before clap is needed. Whatever is not understood here is left to `args`,
//! which knows every option.

use std::ffi::OsString;
use std::path::PathBuf;

use mcp_host::admin::At;

use crate::args::{Cli, Command};
use crate::listen;

/// The parsed command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    pub(super) config: Vec<PathBuf>,
    pub(super) project: Option<PathBuf>,
    pub(super) quiet: bool,
    /// Whether to use no daemon (`--own`).
    pub(super) own: bool,
    /// The daemon to use (`--join`).
    pub(super) join: Option<At>,
    /// The view to use (`--view`).
    pub(super) view: Option<String>,
}

impl Words {
    /// Parses a command line of `mcp-host stdio`. Returns `None` for any other, and for words that need `args`.
    pub(crate) fn read(words: &[OsString]) -> Option<Self> {
        let mut read = Self::default();
        let mut is_stdio = false;
        let mut words = words.iter().skip(1);
        while let Some(word) = words.next() {
            let (name, value) = match word.to_str()?.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(OsString::from(value))),
                _ => (word.to_str()?, None),
            };
            let mut value = || value.clone().or_else(|| words.next().cloned());
            match name {
                "stdio" if !is_stdio => is_stdio = true,
                "--config" | "-c" => read.config.push(value()?.into()),
                "--project" => read.project = Some(value()?.into()),
                "--join" => read.join = Some(listen::daemon(value()?.to_str()?).ok()?),
                "--view" => read.view = Some(value()?.into_string().ok()?),
                "--own" => read.own = true,
                "--quiet" | "-q" => read.quiet = true,
                _ => return None,
            }
        }
        (is_stdio && !(read.own && read.join.is_some())).then_some(read)
    }

    /// Converts a command line that clap has parsed.
    pub(crate) fn of(cli: &Cli) -> Option<Self> {
        let Some(Command::Stdio(args)) = &cli.command else { return None };
        let common = cli.common();
        Some(Self {
            config: common.config,
            project: common.project,
            quiet: common.quiet,
            own: args.own,
            join: args.join.clone(),
            view: common.view,
        })
    }
}
