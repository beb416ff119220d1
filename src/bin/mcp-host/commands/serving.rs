//! The life of a host that serves: until its door closes or a signal comes, then the drain.

use std::pin::pin;

use mcp_host::config::Config;
use mcp_host::{Error, Host};

use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::signals::{Signals, Wish};
use crate::text;

/// Serves. The first signal drains, a second one cuts that short; a hangup reads the config again.
pub(crate) async fn until_told(
    host: &Host,
    door: impl Future<Output = Result<(), Error>>,
    signals: &mut Signals,
    load: impl Fn() -> Result<Config, Failure>,
    output: &Output,
) -> Result<Exit, Failure> {
    let mut door = pin!(door);
    loop {
        tokio::select! {
            // The client is gone: nobody waits for an answer any more, but the servers are stopped in good order.
            closed = &mut door => {
                return drained(async { host.shutdown().await; closed }, signals).await;
            }
            wish = signals.next() => match wish {
                Wish::Reload => reload(host, load(), output).await,
                Wish::End => break,
            },
        }
    }
    let running: usize = host.status().iter().map(|server| server.calls_running).sum();
    if running > 0 {
        let calls = text::count(running, "call");
        output.remark(&format!("stopping: waiting for {calls}; Ctrl-C again to stop at once"));
    }
    // The door has answers to deliver until the drain is over.
    let drain = async {
        let ((), closed) = tokio::join!(host.shutdown(), door);
        closed
    };
    drained(drain, signals).await
}

async fn drained(drain: impl Future<Output = Result<(), Error>>, signals: &mut Signals) -> Result<Exit, Failure> {
    tokio::select! {
        closed = drain => Ok(closed.map(|()| Exit::Ok)?),
        () = signals.end() => Err(Failure::silent(Exit::Interrupted)),
    }
}

/// A config that cannot be used changes nothing.
async fn reload(host: &Host, config: Result<Config, Failure>, output: &Output) {
    let outcome = match config {
        Ok(config) => Ok(host.reload(config)),
        Err(failure) => Err(failure),
    };
    match outcome {
        Ok(()) => output.remark("config read again"),
        Err(failure) => {
            failure.warn(output);
            output.talk("help: nothing changed; mend the config and send SIGHUP again");
        }
    }
}
