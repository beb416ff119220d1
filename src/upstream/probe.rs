//! Gets to know a server: asks what `era.rs` says is to be asked first, and goes on by the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use super::connection::{Connection, Wire};
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

/// The probe over a pipe may take half of `startTimeout`, and no more than this.
const PROBE: Duration = Duration::from_secs(60);
/// The probe over HTTP may take a third of `startTimeout`, and no more than this.
const PROBE_HTTP: Duration = Duration::from_secs(10);
/// After a server has refused `initialize`, an answer to the probe before it is waited for that long.
const LATE: Duration = Duration::from_secs(2);

/// Shakes hands in the era that the server speaks. The connection knows its peer afterwards.
pub(super) async fn shake(connection: &Arc<Connection>, upstream: &Upstream, dialer: &Dialer) -> Result<(), Error> {
    let settings = &upstream.settings;
    let attempts = &upstream.attempts;
    match connection.wire() {
        Wire::Http(http) => http.prepare().await?,
        Wire::Sse(sse) => sse.prepare().await?,
        Wire::Pipe(_) | Wire::Memory(_) => {}
    }
    let ended = attempts.ended.load(Ordering::Relaxed);
    let skip = ended || attempts.unclear.swap(false, Ordering::Relaxed) || matches!(connection.wire(), Wire::Sse(_));
    let over_http = matches!(connection.wire(), Wire::Http(_));
    match era::first(settings.era, over_http, (settings.memory.recall)(), skip) {
        First::Initialize => {
            let refused = match infer::shake(connection, upstream, dialer).await {
                Ok(()) => {
                    // Without an id no request knows of `initialize`, so the server can ask nobody: it has nothing for
                    // sessions alone.
                    let has_session = !matches!(connection.wire(), Wire::Http(http) if !http.has_session());
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
            // A modern server says so, in one way or another: it answers, and not with the result of `initialize`.
            let said_no = matches!(refused, Error::Malformed(_) | Error::Status { status: 400..=499, .. });
            if !said_no || settings.era == config::Era::Legacy || matches!(connection.wire(), Wire::Sse(_)) {
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
    // Some servers let wait whoever has no session: the next attempt must not have to wait for that as long.
    let patience = (upstream.settings.start_timeout / 3).min(PROBE_HTTP);
    // Until it has an answer, whether by time or by fault, the probe has told nothing.
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

/// The probe has no answer in time. If one comes all the same, it counts where `initialize` fails; where that succeeds the
/// pipe stays as it is (the server may have pinned itself), and the next one begins with the probe.
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
    Error::Malformed("it names a revision of ours as its own and refuses it".to_owned())
}

fn ask(connection: &Arc<Connection>) -> Exchange {
    connection.open(connection.next_id(), &Method::Discover, None, &Terms::host())
}

/// The end of an exchange that stays one's own meanwhile.
async fn answer(exchange: &mut Exchange) -> Result<Outcome, Error> {
    loop {
        match exchange.next().await {
            Item::Done(outcome) => return Ok(outcome),
            Item::Lost(error) => return Err(error),
            _ => {}
        }
    }
}
