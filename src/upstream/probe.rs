//! Handshakes: sends what `era.rs` says comes first, and continues according to the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use super::connection::{Connection, Link};
use super::era::{self, First, Verdict};
use super::exchange::Exchange;
use super::handshake::Peer;
use super::inbox::Item;
use super::terms::Terms;
use super::{Target, Upstream, infer};
use crate::config;
use crate::dial::Dialer;
use crate::protocol::{Era, Method, Outcome};
use crate::transport::Error;

/// The maximum time for a probe over a pipe, which also gets at most half of `startTimeout`.
const PROBE: Duration = Duration::from_secs(60);
/// The maximum time for a probe over HTTP, which also gets at most a third of `startTimeout`.
const PROBE_HTTP: Duration = Duration::from_secs(10);
/// How long a late answer to the probe is awaited after the server has refused `initialize`.
const LATE: Duration = Duration::from_secs(2);

/// Shakes hands in the era that the server speaks. Afterwards the connection knows its peer, that is, the server's
/// description of itself.
pub(super) async fn shake(connection: &Arc<Connection>, upstream: &Upstream, dialer: &Dialer) -> Result<(), Error> {
    let settings = &upstream.settings;
    let attempts = &upstream.attempts;
    match connection.link() {
        Link::Http(http) => http.prepare().await?,
        Link::Sse(sse) => sse.prepare().await?,
        Link::Pipe(_) | Link::Memory(_) => {}
    }
    let ended = attempts.ended.load(Ordering::Relaxed);
    let skip = ended || attempts.unclear.swap(false, Ordering::Relaxed) || matches!(connection.link(), Link::Sse(_));
    let over_http = matches!(connection.link(), Link::Http(_));
    match era::first(settings.era, over_http, (settings.memory.recall)(), skip) {
        First::Initialize => {
            let refused = match infer::shake(connection, upstream, dialer).await {
                Ok(()) => {
                    // Without a session id, requests are not tied to `initialize`, so the server can ask no client
                    // anything: it has no features that need sessions.
                    let has_session = !matches!(connection.link(), Link::Http(http) if !http.has_session());
                    (settings.memory.took)(has_session);
                    if ended {
                        (settings.memory.note)(Era::Legacy);
                        attempts.ended.store(false, Ordering::Relaxed);
                    }
                    return Ok(());
                }
                Err(error) => error,
            };
            if era::refuses_sessions(&refused) {
                (settings.memory.took)(false);
            }
            // A modern server answers `initialize`, but not with an InitializeResult.
            let said_no = matches!(refused, Error::Malformed(_) | Error::Status { status: 400..=499, .. });
            if !said_no || settings.era == config::Era::Legacy || matches!(connection.link(), Link::Sse(_)) {
                return Err(refused);
            }
            match ask(connection).outcome().await.map(|outcome| era::verdict(Ok(outcome))) {
                Ok(Verdict::Modern(peer)) => modern(connection, upstream, *peer),
                _ => Err(refused),
            }
        }
        First::Discover if over_http => discover_over_http(connection, upstream, dialer).await,
        First::Discover => {
            let is_process = matches!(settings.target, Target::Stdio(_));
            attempts.probing.store(is_process, Ordering::Relaxed);
            let shaken = discover_over_a_pipe(connection, upstream, dialer).await;
            if !matches!(shaken, Err(Error::Exited { .. } | Error::Closed | Error::Broken)) {
                attempts.probing.store(false, Ordering::Relaxed);
            }
            shaken
        }
    }
}

async fn discover_over_http(connection: &Arc<Connection>, upstream: &Upstream, dialer: &Dialer) -> Result<(), Error> {
    let mut again = true;
    // Some servers keep a request without a session waiting. The sooner this gives up, the sooner the next attempt
    // begins, with `initialize`.
    let patience = (upstream.settings.start_timeout / 3).min(PROBE_HTTP);
    // Until there is an answer, the probe is inconclusive, whether it times out or fails.
    upstream.attempts.unclear.store(true, Ordering::Relaxed);
    loop {
        let Ok(answer) = timeout(patience, ask(connection).outcome()).await else {
            return Err(Error::Malformed(format!("no answer to `server/discover` within {patience:?}")));
        };
        let unclear = matches!(answer, Err(Error::Status { status: 500.., .. } | Error::Broken));
        upstream.attempts.unclear.store(unclear, Ordering::Relaxed);
        match era::verdict(answer) {
            Verdict::Modern(peer) => return modern(connection, upstream, *peer),
            Verdict::Again if again => again = false,
            Verdict::Again => return Err(contradicts_itself()),
            Verdict::Legacy => {
                infer::shake(connection, upstream, dialer).await?;
                (upstream.settings.memory.note)(Era::Legacy);
                return Ok(());
            }
            Verdict::Refused(error) | Verdict::Unclear(error) | Verdict::Ended(error) => return Err(error),
        }
    }
}

async fn discover_over_a_pipe(connection: &Arc<Connection>, upstream: &Upstream, dialer: &Dialer) -> Result<(), Error> {
    let settings = &upstream.settings;
    let patience = (settings.start_timeout / 2).min(PROBE);
    let mut again = true;
    loop {
        let mut asked = ask(connection);
        let verdict = timeout(patience, answer(&mut asked)).await.map(era::verdict);
        match verdict {
            Ok(Verdict::Modern(peer)) => return modern(connection, upstream, *peer),
            Ok(Verdict::Again) if again => again = false,
            Ok(Verdict::Again) => return Err(contradicts_itself()),
            Ok(Verdict::Refused(error) | Verdict::Unclear(error) | Verdict::Ended(error)) => return Err(error),
            Ok(Verdict::Legacy) => {
                infer::shake(connection, upstream, dialer).await?;
                (settings.memory.note)(Era::Legacy);
                return Ok(());
            }
            Err(_) => return initialize_meanwhile(connection, upstream, dialer, asked).await,
        }
    }
}

/// Sends `initialize` while the probe has no answer. A late answer to the probe counts if `initialize` fails. If
/// `initialize` succeeds, this connection stays legacy, because the server may have fixed its era; after a late modern
/// answer, the next connection begins with the probe.
async fn initialize_meanwhile(
    connection: &Arc<Connection>,
    upstream: &Upstream,
    dialer: &Dialer,
    mut asked: Exchange,
) -> Result<(), Error> {
    let note = upstream.settings.memory.note.clone();
    let refused = match infer::shake(connection, upstream, dialer).await {
        Ok(()) => {
            let stop = connection.stop_token().clone();
            connection.tasks().spawn(async move {
                let late = stop.run_until_cancelled(answer(&mut asked)).await;
                let modern = matches!(late.map(era::verdict), Some(Verdict::Modern(_)));
                note(if modern { Era::Modern } else { Era::Legacy });
            });
            return Ok(());
        }
        Err(error) => error,
    };
    match timeout(LATE, answer(&mut asked)).await.map(era::verdict) {
        Ok(Verdict::Modern(peer)) => modern(connection, upstream, *peer),
        _ => Err(refused),
    }
}

fn modern(connection: &Connection, upstream: &Upstream, peer: Peer) -> Result<(), Error> {
    connection.shake_done(peer)?;
    (upstream.settings.memory.note)(Era::Modern);
    Ok(())
}

fn contradicts_itself() -> Error {
    Error::Malformed("it lists a revision that this build speaks, and refuses it".to_owned())
}

fn ask(connection: &Arc<Connection>) -> Exchange {
    connection.open(connection.next_id(), &Method::Discover, None, &Terms::host())
}

/// Waits for the outcome of an exchange without consuming it.
async fn answer(exchange: &mut Exchange) -> Result<Outcome, Error> {
    loop {
        match exchange.next().await {
            Item::Done(outcome) => return Ok(outcome),
            Item::Lost(error) => return Err(error),
            _ => {}
        }
    }
}
