//! The change streams of a modern server (`subscriptions/listen`, 2026-07-28), kept open for the life of its
//! connection: one for its lists, one for all resources that any client watches.
//!
//! A stream is opened before the lists and resources that it covers are read. The filter of a stream never changes: a
//! new set of resources gets a new stream, and the old one closes only once the new one is acknowledged
//! (`docs/bridging.md` 6). After a gap between streams, everything that the stream covers counts as changed. The server
//! reports a change only once, so reading lists that failed is retried a few times with increasing pauses
//! (`backoff.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Upstream;
use super::connection::{Connection, kinds_of};
use super::exchange::Exchange;
use super::inbox::Item;
use super::terms::Terms;
use crate::protocol::{ErrorObject, Method, Outcome, Raw, code};
use crate::transport::Error;

/// How long to wait until the server acknowledges a new stream, before that stream counts as lost.
const ACKNOWLEDGED: Duration = Duration::from_secs(10);
/// How long a replaced stream stays open for messages that are still on their way.
const GRACE: Duration = Duration::from_millis(250);
/// The first pause between attempts to open a stream; it doubles with each failure.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// How long a stream must stay open to count as a success.
const HEALTHY: Duration = Duration::from_secs(30);

/// A modern server's answer to the set of wanted resources: those that it watches for us.
#[derive(Clone, Debug, Default)]
pub(super) struct Honored {
    /// The generation of the set of wanted resources that this answers.
    pub(super) generation: u64,
    pub(super) uris: Arc<BTreeSet<Arc<str>>>,
    /// Why the stream for that set was refused, if it was. Resources of an earlier stream may still be watched.
    pub(super) refused: Option<ErrorObject>,
}

/// One open stream; dropping this closes the stream.
struct Listen {
    end: oneshot::Receiver<Result<Outcome, Error>>,
    since: Instant,
    _close: DropGuard,
}

/// Why a stream did not open.
enum Refusal {
    /// The server refused, and would refuse again.
    Said(ErrorObject),
    /// The request or its connection failed; a retry may succeed.
    Lost,
}

impl Listen {
    /// Opens a stream and waits until the server acknowledges it. Returns it with the part of the filter that the
    /// server grants.
    async fn open(connection: &Arc<Connection>, filter: &str) -> Result<(Self, Raw), Refusal> {
        let id = connection.next_id();
        let mut acknowledged = connection.expect_acknowledgement(id);
        let params = Raw::trusted(format!(r#"{{"notifications":{{{filter}}}}}"#).into());
        let exchange = connection.open(id, &Method::Listen, Some(&params), &Terms::host());
        let (tell, end) = oneshot::channel();
        let close = CancellationToken::new();
        connection.tasks().spawn(follow(exchange, close.clone(), tell));
        let mut listen = Self { end, since: Instant::now(), _close: close.drop_guard() };
        tokio::select! {
            biased;
            Ok(granted) = &mut acknowledged => Ok((listen, granted)),
            end = &mut listen.end => Err(match end {
                Ok(Ok(Err(error))) if is_final(&error) => Refusal::Said(error),
                _ => Refusal::Lost,
            }),
            () = sleep(ACKNOWLEDGED) => Err(Refusal::Lost),
        }
    }

    /// Waits until the stream ends.
    async fn ended(&mut self) {
        let _ = (&mut self.end).await;
    }

    /// Closes the stream after another has replaced it; messages that are on their way still arrive.
    fn retire(self, connection: &Connection) {
        let stop = connection.stop_token().clone();
        connection.tasks().spawn(async move {
            stop.run_until_cancelled(sleep(GRACE)).await;
            drop(self);
        });
    }
}

/// Whether a retry would get the same answer.
fn is_final(error: &ErrorObject) -> bool {
    matches!(error.code, code::METHOD_NOT_FOUND | code::INVALID_PARAMS | code::MISSING_CAPABILITY)
}

/// Reads a stream to its end and passes its outcome to `tell`; the connection routes its notifications.
async fn follow(mut exchange: Exchange, close: CancellationToken, tell: oneshot::Sender<Result<Outcome, Error>>) {
    let end = async {
        loop {
            match exchange.next().await {
                Item::Done(outcome) => break Ok(outcome),
                Item::Lost(error) => break Err(error),
                _ => {}
            }
        }
    };
    let end = close.run_until_cancelled(end).await;
    if let Some(end) = end {
        // The receiver is gone if the stream was to be closed anyway.
        let _ = tell.send(end);
    }
}

/// Returns the pause after `fruitless` failures in a row.
fn pause(connection: &Connection, fruitless: u32) -> Duration {
    let longest = (RETRY * 2u32.saturating_pow(fruitless.min(16))).min(RETRY_MAX);
    // Spread out, so that many hosts that lost one server do not return at once.
    longest.mul_f64(0.5 + connection.chance() / 2.0)
}

/// Keeps the stream of list changes open. `ready` fires once the stream is open, and is dropped if it does not open.
pub(super) async fn lists(connection: Arc<Connection>, ready: oneshot::Sender<()>) {
    let told = connection.told_lists();
    if told.is_empty() {
        return;
    }
    let filter: Vec<String> = told.iter().map(|(name, _)| format!(r#""{name}":true"#)).collect();
    let (filter, kinds) = (filter.join(","), kinds_of(&told));
    let mut ready = Some(ready);
    let mut fruitless = 0;
    loop {
        match Listen::open(&connection, &filter).await {
            Ok((mut listen, _)) => {
                // The lists must be read after this point, or changes in between would be lost.
                if ready.take().is_none_or(|ready| ready.send(()).is_err()) {
                    connection.mark(kinds);
                }
                listen.ended().await;
                fruitless = if listen.since.elapsed() > HEALTHY { 0 } else { fruitless + 1 };
            }
            Err(Refusal::Said(error)) => {
                tracing::info!(
                    server = connection.label(),
                    "it reports no list changes: {} ({})",
                    error.message,
                    error.code
                );
                return;
            }
            Err(Refusal::Lost) => fruitless += 1,
        }
        ready = None;
        sleep(pause(&connection, fruitless)).await;
    }
}

/// Keeps the stream of resource changes open while any client watches a resource.
pub(super) async fn resources(connection: Arc<Connection>, upstream: Arc<Upstream>) {
    let mut changes = upstream.watching.subscribe();
    let granted = upstream.watched().1;
    // Resources watched over an earlier connection may have changed since.
    let mut watch =
        Watch { connection, upstream, live: None, covered: BTreeSet::new(), granted, gap: true, fruitless: 0 };
    let mut rest = None;
    loop {
        let again = match rest.take() {
            None => {
                changes.borrow_and_update();
                watch.adjust().await
            }
            rest => rest,
        };
        let again = async {
            match again {
                Some(pause) => sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        let ended = async {
            match &mut watch.live {
                Some(listen) => listen.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = changes.changed() => {}
            () = again => {}
            () = ended => {
                let healthy = watch.live.take().is_some_and(|listen| listen.since.elapsed() > HEALTHY);
                (watch.gap, watch.fruitless) = (true, if healthy { 0 } else { watch.fruitless + 1 });
                // A subscriber that arrives meanwhile does not wait for this pause.
                rest = Some(pause(&watch.connection, watch.fruitless));
            }
        }
    }
}

/// The stream of resource changes.
struct Watch {
    connection: Arc<Connection>,
    upstream: Arc<Upstream>,
    live: Option<Listen>,
    /// The resources that the stream was opened with.
    covered: BTreeSet<Arc<str>>,
    /// The subset of them that the server watches.
    granted: BTreeSet<Arc<str>>,
    /// Whether changes may have been missed since the last stream.
    gap: bool,
    fruitless: u32,
}

impl Watch {
    /// Opens, replaces, or closes the stream so that it covers the wanted resources. Returns the pause before a retry;
    /// `None` if no retry is needed or would help.
    async fn adjust(&mut self) -> Option<Duration> {
        let (generation, wanted) = self.upstream.watched();
        if wanted.is_empty() {
            (self.live, self.covered, self.granted, self.gap) = (None, BTreeSet::new(), BTreeSet::new(), false);
        } else if self.live.is_none() || wanted != self.covered {
            match Listen::open(&self.connection, &filter_of(&wanted)).await {
                Ok((listen, granted)) => {
                    let granted = granted_of(&granted, &wanted);
                    self.take(listen, wanted, granted);
                }
                Err(refusal) => return self.refused(generation, refusal),
            }
        }
        self.upstream.honor(generation, self.granted.clone(), None);
        None
    }

    fn take(&mut self, listen: Listen, wanted: BTreeSet<Arc<str>>, granted: BTreeSet<Arc<str>>) {
        if let Some(before) = self.live.replace(listen) {
            before.retire(&self.connection);
        }
        if std::mem::take(&mut self.gap) {
            granted.intersection(&self.granted).for_each(|uri| self.connection.mark_updated(uri));
        }
        (self.covered, self.granted) = (wanted, granted);
    }

    fn refused(&mut self, generation: u64, refusal: Refusal) -> Option<Duration> {
        self.fruitless += 1;
        let (error, again) = match refusal {
            Refusal::Said(error) => (error, None),
            Refusal::Lost => {
                let text = "its change stream is not available at the moment";
                (ErrorObject::internal(text), Some(pause(&self.connection, self.fruitless)))
            }
        };
        // The previous stream, if any, stays open.
        let still = if self.live.is_some() { self.granted.clone() } else { BTreeSet::new() };
        self.upstream.honor(generation, still, Some(error));
        again
    }
}

fn filter_of(uris: &BTreeSet<Arc<str>>) -> String {
    let uris: Vec<&str> = uris.iter().map(|uri| &**uri).collect();
    format!(r#""resourceSubscriptions":{}"#, Raw::from_value(&uris))
}

/// Returns those wanted resources that an acknowledgement grants.
fn granted_of(granted: &Raw, wanted: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
    let granted = granted.member("resourceSubscriptions").and_then(|uris| uris.read::<BTreeSet<String>>().ok());
    let granted = granted.unwrap_or_default();
    wanted.iter().filter(|uri| granted.contains(&***uri)).cloned().collect()
}
