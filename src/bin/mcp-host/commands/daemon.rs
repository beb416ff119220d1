//! The hidden mode of a daemon started by its first client (`join: "start"`): a socket named after its config, no port.

use mcp_host::admin::At;

use super::serving;
use crate::args::{Common, Daemon};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Plan;
use crate::signals::Signals;

pub(crate) async fn run(
    args: &Daemon,
    common: &Common,
    signals: &mut Signals,
    output: &Output,
) -> Result<Exit, Failure> {
    // Detaches this process from the terminal and the session of the process that started it.
    #[cfg(unix)]
    let _ = rustix::process::setsid();
    let at = At::config(&args.name).ok_or_else(|| Failure::new(Exit::Usage, "that is not the name of a daemon"))?;
    let plan = Plan::load(common, false, None)?;
    plan.tell_notes(output);
    let follow = plan.again();
    let host = plan.builder()?.start().await?;
    let endpoint = host.open_socket(&at)?;
    host.follow_config(follow);
    let door = async {
        endpoint.serve().await;
        Ok(())
    };
    serving::until_told(&host, serving::Kind::Daemon, door, signals, output).await
}
