//! The options of `mcp-host tokens`.

use std::net::SocketAddr;

use clap::Args;

use super::Common;
use crate::listen;

#[derive(Args, Debug)]
pub(crate) struct Tokens {
    /// The view (host.views); by default that of clients that choose none
    #[arg(long, value_name = "VIEW")]
    pub(crate) view: Option<String>,
    /// Count by a tokenizer, o200k, in a build with the cargo feature exact-tokens
    #[arg(long)]
    pub(crate) exact: bool,
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}
