//! How long to wait before the next connection attempt (full jitter below an exponential cap), before lists are read
//! again, and to spread the attempts to many servers; pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::Restart;

/// The maximum number of reconnection attempts in flight at a time, and begun per second.
pub(super) const AT_A_TIME: usize = 8;

/// Returns the pause before the next attempt after `losses` losses in a row (at least one). `chance` (0 to 1) is the
/// jitter.
pub(super) fn delay(restart: &Restart, losses: u32, chance: f64) -> Duration {
    let doubled = restart.min_delay.saturating_mul(1 << losses.saturating_sub(1).min(30));
    doubled.min(restart.max_delay).mul_f64(chance.clamp(0.0, 1.0))
}

/// Returns a random number between 0 and 1.
pub(super) fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}

/// Schedules the reconnection attempts to many servers: at most [`AT_A_TIME`] begin in any second.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// When the most recent attempts began, oldest first.
    begun: VecDeque<Instant>,
}

impl Rate {
    /// Returns when an attempt that is ready now may begin, and counts that attempt.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        let full = self.begun.len() >= AT_A_TIME;
        let oldest = if full { self.begun.pop_front() } else { None };
        let at = oldest.map_or(now, |oldest| now.max(oldest + Duration::from_secs(1)));
        self.begun.push_back(at);
        at
    }
}

/// Schedules the rereading of a server's lists: a few readings in a burst, then a steady pace, so that a server that
/// changes its lists constantly costs little.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// When the readings so far no longer count: each counts for [`Pace::BETWEEN`].
    paid: Option<Instant>,
    /// The number of failures in a row.
    vain: u32,
    /// The earliest start of the next reading after a failure.
    later: Option<Instant>,
}

impl Pace {
    /// The number of readings in a burst.
    const AT_ONCE: u32 = 4;
    /// The interval between readings after a burst, so that no minute has more than 30 readings (H50).
    const BETWEEN: Duration = Duration::from_millis(2400);
    /// How often a failed reading is retried in a row.
    const AGAIN: u32 = 6;
    /// The pause before the first retry; it doubles with each further one.
    const LATER: Duration = Duration::from_secs(2);

    /// Returns when a reading that is wanted now may begin, and counts that reading.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        let paid = self.paid.map_or(now, |paid| paid.max(now));
        self.paid = Some(paid + Self::BETWEEN);
        let early = paid.checked_sub(Self::BETWEEN * (Self::AT_ONCE - 1));
        let begin = early.map_or(now, |early| early.max(now));
        self.later.take().map_or(begin, |later| later.max(begin))
    }

    /// Records a reading that returned all lists.
    pub(super) fn done(&mut self) {
        (self.vain, self.later) = (0, None);
    }

    /// Records a failed reading. Returns true if it should be retried. `alone` is how long the server asked us to send
    /// no requests. After the last retry the count starts over with the next change that the server reports.
    pub(super) fn failed(&mut self, now: Instant, alone: Duration, chance: f64) -> bool {
        if self.vain >= Self::AGAIN {
            self.done();
            return false;
        }
        let longest = Self::LATER * 2u32.saturating_pow(self.vain);
        self.vain += 1;
        self.later = Some(now + longest.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0).max(alone));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h58_no_more_than_eight_attempts_begin_in_a_second() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        let mut begun: Vec<Instant> = (0..100).map(|_| rate.next(start)).collect();
        assert_eq!(begun.iter().filter(|at| **at == start).count(), 8, "the first ones at once");
        // Further attempts, after a quiet period.
        begun.extend((0..20).map(|index| rate.next(start + Duration::from_millis(20_000 + index * 10))));
        assert!(begun.windows(9).all(|nine| nine[8] - nine[0] >= Duration::from_secs(1)), "{begun:?}");
        assert!(begun.is_sorted());
    }

    #[test]
    fn h8_delays_double_up_to_a_cap_and_chance_takes_all_of_them() {
        let restart =
            Restart { max_retries: 10, min_delay: Duration::from_millis(500), max_delay: Duration::from_secs(30) };
        let most = (1..=9).map(|losses| delay(&restart, losses, 1.0).as_secs_f64()).collect::<Vec<_>>();
        assert_eq!(most, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]);
        assert_eq!(delay(&restart, 4, 0.0), Duration::ZERO);
        assert_eq!(delay(&restart, 4, 0.25), Duration::from_secs(1));
        assert_eq!(delay(&restart, u32::MAX, 1.0), Duration::from_secs(30));
    }

    #[test]
    fn h50_a_few_changes_are_read_at_once_and_a_storm_at_a_pace() {
        let (mut pace, start) = (Pace::default(), Instant::now() + Duration::from_secs(3600));
        let (mut now, mut begun) = (start, Vec::new());
        // The next reading is wanted as soon as one is over.
        while now < start + Duration::from_secs(60) {
            now = pace.next(now);
            begun.push(now);
            now += Duration::from_millis(1);
        }
        assert!(begun.len() <= 31, "{}", begun.len());
        let at = |second: f64| start + Duration::from_secs_f64(second);
        assert_eq!(begun.iter().filter(|begin| **begin < at(1.0)).count(), 4);
        assert!(begun.windows(2).skip(3).all(|pair| pair[1] - pair[0] > Duration::from_secs(2)));
        // After a rest it starts over.
        let later = at(600.0);
        assert_eq!([later; 4], std::array::from_fn(|_| pace.next(later)));
    }

    #[test]
    fn h50_what_came_to_nothing_is_read_again_later_and_later_and_not_for_ever() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let mut pauses = |alone: u64| {
            let mut pauses = Vec::new();
            while pace.failed(now, Duration::from_secs(alone), 1.0) {
                let at = pace.next(now);
                pauses.push((at - now).as_secs());
                now = at;
            }
            // After a quiet period, the next change is read at once.
            now += Duration::from_secs(600);
            assert_eq!(pace.next(now), now);
            pauses
        };
        assert_eq!(pauses(0), [2, 4, 8, 16, 32, 64]);
        assert_eq!(pauses(20), [20, 20, 20, 20, 32, 64], "as long as the server says");
        assert!(pace.failed(now, Duration::ZERO, 0.0));
        assert_eq!(pace.next(now), now + Duration::from_secs(1), "half of it is chance");
        pace.done();
        assert!(pace.failed(now, Duration::ZERO, 1.0));
        assert_eq!(pace.next(now), now + Duration::from_secs(2), "the first again");
    }
}
