//! The keys with which an issuer signs tokens, as last fetched, and when to fetch them again (`docs/hazards.md` H80).
//!
//! One task fetches them: at the start, when a token names an unknown key, and when a token arrives while the keys are
//! old. Concurrent requests share one fetch, and a pause follows each fetch, so that forged tokens cannot make us flood
//! the issuer. If the issuer is unreachable, the last keys stay in use until they are an hour old; after that there are
//! none.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::jwt::KeySet;

/// Fetches the keys from the issuer.
pub(super) type Fetch = Box<dyn Fn() -> BoxFuture<'static, Result<Vec<Value>, String>> + Send + Sync>;

/// The keys of one issuer. Dropping this ends the task that fetches them.
#[derive(Debug)]
pub(super) struct Keys {
    seen: watch::Receiver<FetchedKeys>,
    wanted: watch::Sender<u64>,
    /// The timeout for one fetch, with all documents that it needs.
    patience: Duration,
    _task: JoinSet<()>,
}

/// No keys are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unavailable;

#[derive(Debug)]
struct FetchedKeys {
    /// How many fetches have ended.
    turn: u64,
    keys: Option<(Arc<KeySet>, Instant)>,
    /// Whether the last fetch succeeded.
    answered: bool,
    /// The earliest time for the next fetch.
    next: Instant,
}

/// The age at which keys are fetched again, and the age at which they expire if all fetches fail.
const FRESH: Duration = Duration::from_secs(10 * 60);
const LASTING: Duration = Duration::from_secs(60 * 60);
/// The pause after a successful fetch, and after a failed one.
const PAUSE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);

impl Keys {
    /// Starts to fetch the keys of an issuer.
    pub(super) fn new(issuer: String, fetch: Fetch, patience: Duration) -> Self {
        let start = FetchedKeys { turn: 0, keys: None, answered: false, next: Instant::now() };
        let (known, seen) = watch::channel(start);
        let (wanted, wants) = watch::channel(1);
        let mut task = JoinSet::new();
        task.spawn(follow(issuer, fetch, patience, wants, known));
        Self { seen, wanted, patience, _task: task }
    }

    /// Returns the last fetched keys, unless they expired. Old keys trigger a fetch in the background.
    pub(super) fn known(&self) -> Option<Arc<KeySet>> {
        let seen = self.seen.borrow();
        let (keys, at) = seen.keys.as_ref()?;
        let age = at.elapsed();
        if age > FRESH && Instant::now() >= seen.next {
            self.want(seen.turn + 1);
        }
        (age <= LASTING).then(|| keys.clone())
    }

    /// Returns the keys after one more fetch; during the pause after a fetch, returns its result.
    pub(super) async fn anew(&self) -> Result<Arc<KeySet>, Unavailable> {
        let mut seen = self.seen.clone();
        let (turn, next) = {
            let seen = seen.borrow();
            (seen.turn, seen.next)
        };
        if Instant::now() >= next {
            self.want(turn + 1);
            // After a timeout, the result of the last complete fetch counts.
            let _ = timeout(self.patience, seen.wait_for(|seen| seen.turn > turn)).await.map_err(drop);
        }
        let seen = seen.borrow();
        match &seen.keys {
            Some((keys, _)) if seen.answered => Ok(keys.clone()),
            _ => Err(Unavailable),
        }
    }

    fn want(&self, turn: u64) {
        self.wanted.send_if_modified(|wanted| {
            let more = turn > *wanted;
            *wanted = turn.max(*wanted);
            more
        });
    }
}

async fn follow(
    issuer: String,
    fetch: Fetch,
    patience: Duration,
    mut wanted: watch::Receiver<u64>,
    known: watch::Sender<FetchedKeys>,
) {
    let mut turn = 0;
    while wanted.wait_for(|wanted| *wanted > turn).await.is_ok() {
        let late = |_| Err(format!("no answer within {patience:?} (host.limits.oauthRequest)"));
        let answer = timeout(patience, fetch()).await.unwrap_or_else(late);
        turn += 1;
        let now = Instant::now();
        let next = now + if answer.is_ok() { PAUSE } else { RETRY };
        match answer {
            Ok(keys) => {
                let keys = KeySet::read(&keys);
                tracing::debug!(issuer, keys = keys.len(), "fetched the keys of the issuer");
                if keys.len() == 0 {
                    tracing::error!(issuer, "the issuer has no signing key: all tokens are refused");
                }
                let keys = Some((Arc::new(keys), now));
                known.send_replace(FetchedKeys { turn, keys, answered: true, next });
            }
            Err(error) => known.send_modify(|seen| {
                let left = seen.keys.as_ref().map(|(_, at)| LASTING.saturating_sub(at.elapsed()));
                match left.filter(|left| !left.is_zero()) {
                    Some(left) => tracing::warn!(
                        issuer,
                        error,
                        ?left,
                        "cannot fetch the keys of the issuer: older ones stay in use"
                    ),
                    None => tracing::error!(
                        issuer,
                        error,
                        "cannot fetch the keys of the issuer: no token can be checked, clients get 503"
                    ),
                }
                (seen.turn, seen.answered, seen.next) = (turn, false, next);
            }),
        }
        sleep_until(next).await;
    }
}
