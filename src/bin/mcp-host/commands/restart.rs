//! `mcp-host restart SERVER`: makes the running daemon restart a server.

use mcp_host::admin;

use super::asked::{DaemonQuery, failed, unknown_at};
use crate::args::{Common, Restart};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text;

pub(crate) async fn run(args: &Restart, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let again = common.again(false);
    let command = format!("mcp-host restart {}", text::quoted(&args.server));
    let query = DaemonQuery { command: &command, listen: args.listen, again: &again };
    // The name is one line of a request.
    let name = text::line(&args.server).into_owned();
    match admin::restart(args.listen.map(|listen| listen.port()), &name).await {
        Ok(Ok(done)) if output.json => output.value(&done)?,
        Ok(Ok(done)) => {
            output.line(&format!("restarted {}", text::line(&done.restarted)))?;
            output.remark("mcp-host status shows how it is");
        }
        Ok(Err(refused)) if refused.usage => return Err(unknown_at(&query, &args.server).await),
        Ok(Err(refused)) => {
            let failure = Failure::new(Exit::Failed, refused.to_string());
            return Err(failure.help("the daemon may be an older one: stop it, and start this one"));
        }
        Err(error) => return Err(failed(&query, &error)),
    }
    Ok(Exit::Ok)
}
