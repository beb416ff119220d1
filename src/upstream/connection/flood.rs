//! Limits excess messages from a server: notifications over the rate limit are dropped, and so are responses that no
//! request waits for. Dropped messages are counted and logged now and then.

use std::time::Duration;

use tokio::time::Instant;

/// The maximum number of notifications per server and second; the rest is dropped (`docs/hazards.md` H50).
const NOTICES_PER_SECOND: u32 = 1000;
/// The minimum interval between log lines about drops.
const TOLD: Duration = Duration::from_secs(60);

/// Counts one server's notifications and dropped messages.
#[derive(Debug, Default)]
pub(super) struct Flood {
    /// The start of the current one-second window, and the notifications counted in it.
    window: Option<(Instant, u32)>,
    told: Option<Instant>,
    dropped: u64,
}

impl Flood {
    /// Counts a notification. Returns true if it exceeds the rate limit.
    pub(super) fn is_too_much(&mut self, now: Instant) -> bool {
        let (since, count) = self.window.get_or_insert((now, 0));
        if now - *since >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count > NOTICES_PER_SECOND
    }

    /// Counts a dropped message; returns the total if it is time to log it.
    pub(super) fn drop_one(&mut self, now: Instant) -> Option<u64> {
        self.dropped += 1;
        if self.told.is_some_and(|told| now - told < TOLD) {
            return None;
        }
        self.told = Some(now);
        Some(self.dropped)
    }

    /// The number of dropped messages.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn h50_a_thousand_notifications_a_second_and_no_more() {
        let (mut flood, begin) = (Flood::default(), Instant::now());
        let mut passed = [0; 60];
        for second in &mut passed {
            for _ in 0..2500 {
                *second += u32::from(!flood.is_too_much(Instant::now()));
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(passed, [1000; 60]);
        let told: Vec<u64> = (0..100).filter_map(|_| flood.drop_one(begin)).collect();
        assert_eq!((told, flood.dropped()), (vec![1], 100));
        assert_eq!(flood.drop_one(begin + TOLD), Some(101));
    }
}
