//! The numbers of one scrape, gathered on the runtime, in pieces that each take less than a millisecond.

use std::time::SystemTime;

use tokio::task::yield_now;

use crate::counts::Counts;
use crate::manager::{ConfigStatus, Ledger, ServerGauges};
use crate::router::{Gauges, Router};

/// How many servers are measured before calls have their turn.
const PIECE: usize = 64;

/// Everything that a scrape reads.
#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) counts: Counts,
    pub(super) servers: Vec<ServerGauges>,
    /// What lists cost. It is counted where the text is written, on a thread that may block.
    pub(super) ledgers: Vec<Ledger>,
    pub(super) config: ConfigStatus,
    pub(super) gauges: Gauges,
    /// Whether there is an audit.
    pub(super) has_audit: bool,
    /// The rules that the config has, by name.
    pub(super) rules: Vec<String>,
    /// How many calls wait for a person's permission.
    pub(super) asks: usize,
    /// The bytes that wait for clients, and how many clients were cut off because of them.
    pub(super) queued: usize,
    pub(super) cuts: u64,
    /// When the host started, in seconds since 1970.
    pub(super) started: f64,
}

impl Scrape {
    /// Gathers the numbers of a host.
    pub(super) async fn of(router: &Router) -> Self {
        let (manager, counts) = (router.manager(), router.observer().counted());
        let settings = manager.settings();
        let up = counts.started().elapsed();
        let started = SystemTime::now().checked_sub(up).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        let servers = in_pieces(&manager.servers(), |server| manager.gauges_of(server)).await;
        Self {
            counts: counts.clone(),
            servers,
            ledgers: Vec::new(),
            config: manager.config_status().borrow().clone(),
            gauges: router.meter().gauges(),
            has_audit: settings.audit.is_some(),
            rules: settings.policy.rules.iter().map(|rule| rule.name.clone()).collect(),
            asks: router.clients().asks().list().len(),
            queued: router.queues().used(),
            cuts: router.queues().cut_so_far(),
            started: started.unwrap_or_default().as_secs_f64(),
        }
    }
}

/// Measures each of them. The runtime gets its turn after each [`PIECE`] of them.
async fn in_pieces<T, U>(all: &[T], measure: impl Fn(&T) -> U) -> Vec<U> {
    let mut measured = Vec::with_capacity(all.len());
    for piece in all.chunks(PIECE) {
        measured.extend(piece.iter().map(&measure));
        yield_now().await;
    }
    measured
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn others_have_their_turn_between_two_pieces() {
        let measured = Cell::new(0);
        let all: Vec<usize> = (0..2 * PIECE + 1).collect();
        let measure = |number: &usize| {
            measured.set(measured.get() + 1);
            *number
        };
        let other = async {
            let mut seen = Vec::new();
            while measured.get() < all.len() {
                seen.push(measured.get());
                yield_now().await;
            }
            seen
        };
        let (result, seen) = futures_util::future::join(in_pieces(&all, measure), other).await;
        assert_eq!((result, seen), (all.clone(), vec![PIECE, 2 * PIECE]));
    }
}
