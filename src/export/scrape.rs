//! The numbers of one scrape, gathered on the runtime, in pieces that each take less than a millisecond.

use std::time::SystemTime;

use crate::counts::Counts;
use crate::manager::{ConfigStatus, Ledger, ServerGauges};
use crate::pieces::in_pieces;
use crate::router::{Gauges, Router};

/// How many servers are measured before other tasks get a turn.
const PIECE: usize = 64;

/// Everything that a scrape reads.
#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) counts: Counts,
    pub(super) servers: Vec<ServerGauges>,
    /// What lists cost in tokens, counted when the text is written, on a thread that may block.
    pub(super) ledgers: Vec<Ledger>,
    pub(super) config: ConfigStatus,
    pub(super) gauges: Gauges,
    /// Whether an audit is configured.
    pub(super) has_audit: bool,
    /// The rules that the config has, by name.
    pub(super) rules: Vec<String>,
    /// How many calls wait for a person's permission.
    pub(super) asks: usize,
    /// The bytes queued for clients, and how many clients were cut off because of them.
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
        let servers = in_pieces(&manager.servers(), PIECE, |server| manager.gauges_of(server)).await;
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
