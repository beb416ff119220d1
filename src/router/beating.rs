//! Waits that send heartbeats (`heart.rs`): for a connection, for a slot or a rate, and for a person.
//!
//! **Invariant:** the work is polled before the timer, so no heartbeat follows an answer. A wait that is over at once
//! registers no timer.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::forward::Forward;
use super::heart::Wait;
use super::toward::Toward;
use crate::counts::Awaited;

/// Waits for `work`, and sends heartbeats meanwhile.
///
/// # Cancel safety
/// Dropping the future drops `work` with what it waits for.
pub(super) async fn beating<T>(
    toward: &mut Toward<'_>,
    forward: &Forward,
    wait: Wait,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> T {
    // Most waits are over at once. These register no timer.
    if let Poll::Ready(done) = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        if wait == Wait::Turn {
            forward.server.counts().queued(Duration::ZERO);
        }
        return done;
    }
    let leg = toward.mailbox().cloned();
    // A parked call has no mailbox, so its waits are not counted.
    let awaited = match wait {
        Wait::Server => Awaited::Server,
        Wait::Person | Wait::Permission => Awaited::Person,
        Wait::Turn => Awaited::Turn,
    };
    let away = leg.as_ref().map(|leg| leg.tally().away(awaited));
    let done = beat_until(toward, forward, wait, work).await;
    if let (Wait::Turn, Some(away)) = (wait, &away) {
        let waited = away.so_far();
        forward.server.counts().queued(waited);
        #[cfg(feature = "otel")]
        if let Some(traced) = toward.traced() {
            traced.queued(waited);
        }
    }
    done
}

/// Sends heartbeats until `work` is done.
async fn beat_until<T>(
    toward: &mut Toward<'_>,
    forward: &Forward,
    wait: Wait,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> T {
    toward.set_token(forward.token());
    while let Some(due) = toward.start_heart(Instant::now()) {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep_until(due) => toward.beat(&forward.server, wait),
        }
    }
    work.await
}
