//! `mcp-host stdio`: the host as one MCP server over stdin and stdout, for clients that start their servers.

use std::io::IsTerminal as _;

use super::serving;
use crate::args::Common;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Plan;
use crate::signals::Signals;

pub(crate) async fn run(common: &Common, signals: &mut Signals, output: &Output) -> Result<Exit, Failure> {
    let plan = Plan::load(common, false, None)?;
    plan.tell_notes(output);
    if std::io::stdin().is_terminal() {
        output.remark("note: this speaks MCP over stdin and stdout; clients start it themselves");
        output.remark(&format!("help: claude mcp add mcp-host -- mcp-host stdio{}", from_anywhere(common)));
    }
    let follow = plan.again();
    let host = plan.builder()?.unattended().start().await?;
    host.follow_config(follow);
    serving::until_told(&host, serving::Kind::Child, host.serve_stdio(), signals, output).await
}

/// Returns the given config options with absolute paths, for a client that starts us in any directory.
fn from_anywhere(common: &Common) -> String {
    let config = common.config.iter().map(|file| file.canonicalize().unwrap_or_else(|_| file.clone())).collect();
    Common { config, ..common.clone() }.again(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_given_the_config_that_was_given() {
        assert_eq!(from_anywhere(&Common::default()), "");
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml").canonicalize().unwrap();
        let common = Common { config: vec!["Cargo.toml".into()], ..Common::default() };
        assert_eq!(from_anywhere(&common), format!(" --config {}", crate::text::quoted(&file.to_string_lossy())));
    }
}
