//! The life of a host that serves: until its door closes or a signal comes, then the drain.

use std::pin::{Pin, pin};
use std::time::Duration;

use mcp_host::{ConfigStatus, Error, Host};

use crate::heap;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::signals::{Signals, Wish};
use crate::text;

/// Serves. The first signal drains, a second one cuts that short; a hangup reads the config again.
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
            // A signal that came early finds the door open, so that closing it is noticed.
            biased;
            // The client has closed its side and has its last answers; the servers are stopped in good order.
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
                // What is wrong with the files is told below.
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
        // The door has answers to deliver until the drain is over.
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
    // The servers are gone in a moment; their groups must be seen to be.
    let _ = tokio::time::timeout(KILLED, drain).await;
    if cut_short == Exit::Ok { Ok(cut_short) } else { Err(Failure::silent(cut_short)) }
}

/// Seen where the terminal is still there, and somebody else has sent the signal.
const HUNG_UP: &str =
    "stopping: SIGHUP ends what was started from a terminal; changes of config files are followed without a signal";

/// Who waits for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A person or a service manager, who has time.
    Daemon,
    /// The client that started this process.
    Child,
}

/// Clients that told a server of theirs to end kill it a second later; ours must be gone by then.
const HURRY: Duration = Duration::from_millis(700);
/// Clients that have closed the input of a server of theirs ask it to end two seconds later, and kill it after two more. Calls
/// may have taken the time up to that signal, which cuts this short.
const PATIENCE: Duration = Duration::from_millis(2500);
/// A drain that takes longer is explained.
const LONG: Duration = Duration::from_secs(1);
/// How long the end of killed processes may take.
const KILLED: Duration = Duration::from_secs(1);

/// The result of what is under way; never, while nothing is.
async fn some<T>(mut future: Pin<&mut Option<impl Future<Output = T>>>) -> Option<T> {
    match future.as_mut().as_pin_mut() {
        Some(future) => Some(future.await),
        None => std::future::pending().await,
    }
}

/// Says what came of the last look at the config. One that cannot be used changes nothing.
fn tell(config: &ConfigStatus, output: &Output) {
    if config.problems.is_empty() {
        return output.remark(&format!("config reloaded: {}", changes(config)));
    }
    for problem in &config.problems {
        output.talk(&format!("warning: config not reloaded: {problem}"));
    }
    output.talk("help: the config from before goes on; what is saved next is read by itself");
}

fn changes(config: &ConfigStatus) -> String {
    let last = &config.last;
    let named = |word: &str, names: &[String]| (!names.is_empty()).then(|| format!("{word} {}", names.join(", ")));
    let pending =
        (!last.pending.is_empty()).then(|| format!("{} counts from the next start on", last.pending.join(", ")));
    let parts =
        [named("added", &last.added), named("changed", &last.changed), named("removed", &last.removed), pending];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "no server is another".to_owned() } else { parts.join("; ") }
}
