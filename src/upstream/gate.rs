//! Reconnection attempts of all leases, kept from coming all at once (`docs/hazards.md` H58): a few at a time, and no
//! more than that in a second. The first start of a server does not pass here, so that it is as fast as it can be.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::backoff::{AT_A_TIME, Rate};
use crate::lock::lock;

/// One that takes longer no longer counts: servers that hang must not keep the others from coming back.
const SLOW: Duration = Duration::from_secs(5);

/// What all leases pass before they try again; first come, first served.
#[derive(Debug)]
pub(crate) struct Gate {
    places: Arc<Semaphore>,
    begun: Mutex<Rate>,
}

/// An attempt is under way while this lives.
#[derive(Debug)]
pub(super) struct Pass {
    _place: OwnedSemaphorePermit,
    until: Instant,
}

impl Gate {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { places: Arc::new(Semaphore::new(AT_A_TIME)), begun: Mutex::default() })
    }

    /// Waits until it is this one's turn.
    ///
    /// # Cancel safety
    /// A dropped wait gives its place back; at most its moment is lost.
    pub(super) async fn admit(self: Arc<Self>) -> Option<Pass> {
        // It is never closed; without a place nobody would be kept from coming back.
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
    /// Waits until the attempt is one of those that take too long to be counted.
    pub(super) async fn slow(&self) {
        tokio::time::sleep_until(self.until).await;
    }
}
