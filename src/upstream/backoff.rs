//! How long to wait before the next attempt: full jitter over an exponential cap; pure.

use std::time::Duration;

use crate::config::Restart;

/// The wait after `losses` losses in a row (at least one). `chance` is from 0 to 1.
pub(super) fn delay(restart: &Restart, losses: u32, chance: f64) -> Duration {
    let doubled = 2f64.powi(i32::try_from(losses.saturating_sub(1).min(30)).unwrap_or(30));
    let cap = (restart.min_delay.as_secs_f64() * doubled).min(restart.max_delay.as_secs_f64());
    Duration::try_from_secs_f64(cap * chance.clamp(0.0, 1.0)).unwrap_or(restart.max_delay)
}

/// A random number from 0 to 1.
pub(super) fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}
