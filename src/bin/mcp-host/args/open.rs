//! The options of `mcp-host open`.

use std::net::SocketAddr;

use clap::Args;

use super::Common;
use crate::listen;

#[derive(Args, Debug)]
pub(crate) struct Open {
    /// Print the link, for a browser of your own choice or on another machine; it is good for 10 minutes
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// The page may look, and change and call nothing
    #[arg(long)]
    pub(crate) read_only: bool,
    /// End all sessions of the page, and make links void that were not used yet
    #[arg(long, conflicts_with_all = ["no_browser", "read_only"])]
    pub(crate) revoke: bool,
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}
