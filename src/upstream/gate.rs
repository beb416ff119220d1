//! Spreads the reconnection attempts of all leases (`docs/hazards.md` H58): at most [`AT_A_TIME`] at a time, and as
//! many per second. The first start of a server does not pass this gate, so it is never delayed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::backoff::{AT_A_TIME, Rate};
use crate::lock::lock;

/// After this time an attempt no longer counts toward the limit: hanging servers must not keep others from coming back.
const SLOW: Duration = Duration::from_secs(5);

/// Admits retries of all leases, first come, first served.
#[derive(Debug)]
pub(crate) struct Gate {
    places: Arc<Semaphore>,
    begun: Mutex<Rate>,
}

/// An attempt in flight. It counts toward the limit until this is dropped.
#[derive(Debug)]
pub(super) struct Pass {
    _place: OwnedSemaphorePermit,
    until: Instant,
}

impl Gate {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { places: Arc::new(Semaphore::new(AT_A_TIME)), begun: Mutex::default() })
    }

    /// Waits for this attempt's turn.
    ///
    /// # Cancel safety
    /// Dropping the future returns its permit; at most its time slot is lost.
    pub(super) async fn admit(self: Arc<Self>) -> Option<Pass> {
        // The semaphore is never closed. If it were, `None` would let the retry begin without a pass, not block it
        // forever.
        let _place = self.places.clone().acquire_owned().await.ok()?;
        let at = {
            let mut begun = lock(&self.begun);
            begun.next(Instant::now().into_std())
        };
        tokio::time::sleep_until(Instant::from_std(at)).await;
        Some(Pass { _place, until: Instant::now() + SLOW })
    }
}

impl Pass {
    /// Waits until the attempt has taken too long to count.
    pub(super) async fn slow(&self) {
        tokio::time::sleep_until(self.until).await;
    }
}
