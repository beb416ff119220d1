//! Drives one script: reads the messages of its process, makes its calls, and ends it by the limits that are enforced
//! outside the process.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};

use super::inner::{Inner, call};
use super::outcome::{End, Ending, Log};
use crate::config::Code;
use crate::hex;
use crate::protocol::Raw;
use crate::router::client::Client;
use crate::router::{Mailbox, Router};
use crate::script::{Said, Start, framed};
use crate::transport::{Ended, ScriptProcess};

/// How many bytes a message of a script may have beyond its arguments, its value, or a line of its log.
const AROUND: usize = 64 * 1024;
/// How many bytes a character may have.
const WIDE: usize = 3;

/// Who runs a script, and what it may do.
pub(super) struct Caller<'a> {
    pub(super) inner: Inner<'a>,
    pub(super) code: Code,
}

impl<'a> Caller<'a> {
    pub(super) fn new(
        router: &'a Router,
        client: &'a Arc<Client>,
        leg: &'a Arc<Mailbox>,
        params: &Raw,
        code: Code,
    ) -> Self {
        let mut id = [0; 8];
        // It need not be secret, only different from those of other scripts.
        let _ = getrandom::fill(&mut id);
        let id: Arc<str> = format!("script-{}", hex::encode(&id)).into();
        if let Some(subject) = leg.subject() {
            subject.is_called(&id);
        }
        Self { inner: Inner::new(router, client, leg, params, (id, code.tools)), code }
    }
}

/// Runs a script to its end.
///
/// # Cancel safety
/// Dropping the future ends the process, and cancels its calls at their servers.
pub(super) async fn run(caller: &Caller<'_>, start: &Start) -> Ending {
    let mut log = Log::new(caller.code.output);
    let program = caller.inner.router.0.manager.scripts();
    let most = WIDE * start.arguments.max(start.output) + AROUND;
    let mut process = match (program.start(most), framed(start)) {
        (Ok(mut process), Ok(frame)) => {
            process.send(frame);
            process
        }
        (Err(error), _) => return Ending { log, end: End::NotStarted(error.to_string()) },
        (_, Err(error)) => return Ending { log, end: End::NotStarted(error.to_string()) },
    };
    let until = Instant::now() + caller.code.time;
    let end = {
        let living = pin!(live(caller, &mut process, &mut log));
        tokio::select! {
            biased;
            end = living => end,
            () = sleep_until(until) => End::Time,
        }
    };
    let how = process.end().await;
    let end = match end {
        // The process was ended by the system, or by a fault of the engine.
        End::Gone(_) => End::Gone(how),
        end => end,
    };
    caller.inner.over();
    Ending { log, end }
}

/// Goes on until the script ends, or reaches a limit.
async fn live(caller: &Caller<'_>, process: &mut ScriptProcess, log: &mut Log) -> End {
    let Caller { inner, code } = caller;
    let (mut wanted, mut running) = (VecDeque::<(u32, String, Box<RawValue>)>::new(), FuturesUnordered::new());
    let mut replies = VecDeque::<Vec<u8>>::new();
    let (mut made, mut waiting) = (0, 0);
    loop {
        // An answer that the script has not read yet counts as a running call, so that few are in memory at once.
        while running.len() + replies.len() < code.parallel
            && let Some((id, name, arguments)) = wanted.pop_front()
        {
            waiting -= name.len() + arguments.get().len();
            running.push(call(inner, (id, name, arguments), code.memory / 2));
        }
        if process.has_written()
            && let Some(reply) = replies.pop_front()
        {
            process.send(reply);
        }
        let said = tokio::select! {
            biased;
            said = process.next() => said,
            Some(reply) = running.next(), if !running.is_empty() => {
                replies.push_back(reply);
                continue;
            }
        };
        let text = match said {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(Ended::Silent) => return End::Gone(String::new()),
            Err(Ended::TooLong) => return End::Said,
        };
        match serde_json::from_slice(&text) {
            Ok(Said::Call { id, name, arguments }) => {
                made += 1;
                if made > code.calls {
                    return End::Calls;
                }
                // Calls that wait here count toward the memory of the script.
                waiting += name.len() + arguments.get().len();
                if waiting > code.memory {
                    return End::Said;
                }
                wanted.push_back((id, name, arguments));
            }
            Ok(Said::Log(line)) => log.add(&line),
            Ok(Said::Returned(value)) => return End::Returned(value),
            Ok(Said::Long(bytes)) => return End::Long(bytes),
            Ok(Said::Failed(fault)) => return End::Failed(fault),
            Err(_) => return End::Said,
        }
    }
}
