//! The options of `mcp-host metrics`.

use std::net::SocketAddr;

use clap::Args;

use super::Common;
use crate::listen;

#[derive(Args, Debug)]
pub(crate) struct Metrics {
    /// Which daemon to ask, if several run
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::address)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) common: Common,
}
