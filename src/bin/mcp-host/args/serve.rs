//! The options of the commands that serve.

use std::net::SocketAddr;

use clap::Args;
use mcp_host::admin::At;

use super::{Common, View};
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
