//! Seeded randomness: the same numbers in the same order, separately for each part of a world.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// SplitMix64.
#[derive(Debug)]
pub(super) struct Chance(AtomicU64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Returns a separate sequence for this word.
    pub(super) fn of(seed: u64, word: u64) -> Self {
        Self::new(mix(seed.wrapping_add(mix(word.wrapping_add(1)))))
    }

    fn next(&self) -> u64 {
        mix(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    pub(super) fn below(&self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn one_in(&self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Returns a number from 0 to 1.
    pub(super) fn unit(&self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    /// Returns a pause: mostly none or short, sometimes long.
    fn pause(&self) -> Duration {
        Duration::from_millis(match self.below(10) {
            0..=4 => 0,
            5..=7 => self.below(20),
            8 => self.below(500),
            _ => self.below(4000),
        })
    }

    /// Lets others go first, for some turns or some time.
    pub(super) async fn wait(&self) {
        for _ in 0..self.below(4) {
            tokio::task::yield_now().await;
        }
        let pause = self.pause();
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
