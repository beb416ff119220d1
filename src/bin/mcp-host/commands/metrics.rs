//! `mcp-host metrics`: prints what a running daemon serves at `/metrics`.

use mcp_host::admin;

use super::asked::{DaemonQuery, failed};
use crate::args::{Common, Metrics};
use crate::output::Output;
use crate::report::{Exit, Failure};

pub(super) async fn run(args: &Metrics, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let again = common.again(false);
    let asked = DaemonQuery { command: "mcp-host metrics", listen: args.listen, again: &again };
    let said = admin::metrics(args.listen.map(|listen| listen.port())).await;
    let text = said.map_err(|error| failed(&asked, &error))?;
    let text = text.map_err(|refused| {
        let help = "set \"enabled\" in host.metrics to true, or remove it";
        Failure::new(Exit::Failed, refused.error).help(help)
    })?;
    if output.json {
        output.value(&serde_json::json!({ "metrics": text }))?;
    } else {
        output.lines(text.lines())?;
    }
    Ok(Exit::Ok)
}
