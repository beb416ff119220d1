//! The options of `mcp-host token`.

use clap::Args;

use super::Common;

#[derive(Args, Debug)]
pub(crate) struct Token {
    /// The client's name in the config
    #[arg(value_name = "NAME", required_unless_present = "metrics")]
    pub(crate) name: Option<String>,
    /// Make a token that opens /metrics and nothing else
    #[arg(long, conflicts_with = "name")]
    pub(crate) metrics: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}
