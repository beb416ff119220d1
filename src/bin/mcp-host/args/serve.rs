//! The options of the commands that serve, and how they are parsed without building the parsers of all other commands.

use std::ffi::OsString;
use std::net::SocketAddr;

use clap::Args;
use mcp_host::admin::At;

use super::{Cli, Command, Common, View};
use crate::listen;

#[derive(Args, Debug)]
pub(crate) struct Daemon {
    /// The name of its socket
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Where to listen [default: 127.0.0.1:8808]
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Serve two bundled demo servers; needs no config
    #[arg(long)]
    pub(crate) demo: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Stdio {
    /// Start its own servers, even if a daemon of the same config runs
    #[arg(long, conflicts_with = "join")]
    pub(crate) own: bool,
    /// Use the daemon at this address, whatever its config
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::daemon)]
    pub(crate) join: Option<At>,
    #[command(flatten)]
    pub(crate) view: View,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Parses a command line that begins with `serve`, `stdio` or `__daemon`.
///
/// Returns `None` for any other command line, and for one that is wrong or asks for help: only these need the parsers
/// of all commands, which take a fortieth of a start to build.
pub(crate) fn parse(words: &[OsString]) -> Option<Cli> {
    let [_, command, rest @ ..] = words else { return None };
    let command = match command.to_str()? {
        "serve" => Command::Serve(given(rest)?),
        "stdio" => Command::Stdio(given(rest)?),
        "__daemon" => Command::Daemon(given(rest)?),
        _ => return None,
    };
    Some(Cli { common: Common::default(), command: Some(command) })
}

fn given<T: Args>(words: &[OsString]) -> Option<T> {
    let command = T::augment_args(clap::Command::new("mcp-host").no_binary_name(true));
    T::from_arg_matches(&command.try_get_matches_from(words).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_command_that_serves_is_parsed_alone_as_with_all_others() {
        for words in [
            "serve",
            "serve --listen 127.0.0.1:1 --demo -c a --config=b -vv --json -q --color never --project d",
            "stdio",
            "stdio --own --view v -c a",
            "stdio --join 127.0.0.1:1 -v",
            "__daemon name -c a",
        ] {
            let words: Vec<_> = ["mcp-host"].into_iter().chain(words.split(' ')).map(Into::into).collect();
            let alone = parse(&words).unwrap();
            assert_eq!(format!("{alone:?}"), format!("{:?}", Cli::try_parse_from(&words).unwrap()), "{words:?}");
        }
        for words in
            ["", "-c a serve", "check", "serve --help", "stdio --own --join 127.0.0.1:1", "serve x", "serve -V"]
        {
            let words: Vec<_> = ["mcp-host"].into_iter().chain(words.split(' ')).map(Into::into).collect();
            assert!(parse(&words).is_none(), "{words:?}");
        }
    }
}
