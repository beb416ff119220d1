//! Runs a serving host until its door, the endpoint or stream for its clients, closes or a signal comes. Then drains
//! the host: calls in flight still get their answers.

use std::pin::{Pin, pin};
use std::time::Duration;

use mcp_host::{ConfigStatus, Error, Host};

use crate::heap;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::signals::{Signals, Wish};
use crate::text;

/// Serves until told to end. The first signal begins the drain, and a second one cuts it short. A hangup may reload the
/// config instead (`signals.rs`).
pub(crate) async fn until_told(
    host: &Host,
    kind: Kind,
    door: impl Future<Output = Result<(), Error>>,
    signals: &mut Signals,
    output: &Output,
) -> Result<Exit, Failure> {
    let mut door = pin!(door);
    let mut config = host.config_status();
    let mut asked = pin!(None);
    let mut heap = pin!(heap::give_back());
    loop {
        tokio::select! {
            // The door is polled first, so that an early signal finds it open, and its closing is noticed.
            biased;
            // The client has closed its side and has its last answers; now the servers are stopped.
            closed = &mut door => {
                return drained(host, async { host.shutdown_within(PATIENCE).await; closed }, signals, Exit::Ok).await;
            }
            wish = signals.next() => match wish {
                Wish::Reload => asked.set(Some(host.reload_files())),
                Wish::End => break,
                Wish::HangUp => {
                    output.remark(HUNG_UP);
                    break;
                }
            },
            Some(done) = some(asked.as_mut()) => {
                asked.set(None);
                // Problems with the files are reported below.
                if let Err(error) = done
                    && config.borrow().problems.is_empty()
                {
                    output.talk(&format!("warning: config not reloaded: {error}"));
                }
            }
            Ok(()) = config.changed() => tell(&config.borrow_and_update(), output),
            never = &mut heap => match never {},
        }
    }
    let running: usize = host.status().iter().map(|server| server.calls_running).sum();
    if running > 0 {
        let calls = text::count(running, "call");
        output.remark(&format!("stopping: waiting for {calls}; Ctrl-C again to stop at once"));
    }
    let drain = async {
        // The door delivers answers until the drain is over.
        let shutdown = host.shutdown_within(if kind == Kind::Child { HURRY } else { Duration::MAX });
        let mut both = pin!(futures_util::future::join(shutdown, door));
        if let Ok(((), closed)) = tokio::time::timeout(LONG, &mut both).await {
            return closed;
        }
        if running == 0 {
            output.remark("stopping: waiting for servers to end; Ctrl-C again to stop at once");
        }
        both.await.1
    };
    drained(host, drain, signals, Exit::Interrupted).await
}

async fn drained(
    host: &Host,
    drain: impl Future<Output = Result<(), Error>>,
    signals: &mut Signals,
    cut_short: Exit,
) -> Result<Exit, Failure> {
    let mut drain = pin!(drain);
    tokio::select! {
        closed = &mut drain => return Ok(closed.map(|()| Exit::Ok)?),
        () = signals.end() => {}
    }
    host.kill();
    // The servers will be gone in a moment, but their process groups must be checked.
    let _ = tokio::time::timeout(KILLED, drain).await;
    if cut_short == Exit::Ok { Ok(cut_short) } else { Err(Failure::silent(cut_short)) }
}

/// This message is visible only if the terminal still exists and the signal came from elsewhere.
const HUNG_UP: &str =
    "stopping: SIGHUP ends what was started from a terminal; changes of config files are followed without a signal";

/// Who waits until this process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A person or a service manager, with time to wait.
    Daemon,
    /// The client that started this process.
    Child,
}

/// Clients kill a server one second after they told it to end; our servers must be gone by then.
const HURRY: Duration = Duration::from_millis(700);
/// Clients signal a server two seconds after they closed its input, and kill it after two more. Calls may have used up
/// the time before their signal, which cuts this wait short.
const PATIENCE: Duration = Duration::from_millis(2500);
/// A drain that takes longer than this is explained to the user.
const LONG: Duration = Duration::from_secs(1);
/// How long killed processes may take to exit.
const KILLED: Duration = Duration::from_secs(1);

/// Waits for the future, or forever if there is none. Never returns `None`.
async fn some<T>(mut future: Pin<&mut Option<impl Future<Output = T>>>) -> Option<T> {
    match future.as_mut().as_pin_mut() {
        Some(future) => Some(future.await),
        None => std::future::pending().await,
    }
}

/// Reports the last reload of the config. An unusable config changes nothing.
fn tell(config: &ConfigStatus, output: &Output) {
    if config.problems.is_empty() {
        return output.remark(&format!("config reloaded: {}", changes(config)));
    }
    for problem in &config.problems {
        output.talk(&format!("warning: config not reloaded: {problem}"));
    }
    output.talk("help: the previous config stays in use; the next save is read automatically");
}

fn changes(config: &ConfigStatus) -> String {
    let last = &config.last;
    let named = |word: &str, names: &[String]| (!names.is_empty()).then(|| format!("{word} {}", names.join(", ")));
    let pending = (!last.pending.is_empty()).then(|| format!("{} applies after a restart", last.pending.join(", ")));
    let parts =
        [named("added", &last.added), named("changed", &last.changed), named("removed", &last.removed), pending];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "no changes".to_owned() } else { parts.join("; ") }
}
