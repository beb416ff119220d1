//! What all leases share: the HTTP client, the channels for messages that servers send on their own, and the clock.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::gate::Gate;
use super::nature::{Nature, Vigil};
use super::{Change, Relayed};
use crate::dial::Dialer;

/// The parts that all leases share.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) relay: mpsc::Sender<(u64, Arc<Connection>, Relayed)>,
    pub(crate) changes: mpsc::Sender<Change>,
    /// Cancelled when the host no longer waits for server processes to end: those that still run are killed.
    pub(crate) kill: CancellationToken,
    /// A counter that increases whenever the state or a list of any lease changes.
    pub(crate) generation: watch::Sender<u64>,
    pub(crate) nature: Nature,
    pub(crate) vigil: Arc<Vigil>,
    /// The host's state directory, if it has one.
    pub(crate) state: Option<Arc<Path>>,
    pub(super) gate: Arc<Gate>,
    /// Whether any server of the host has been modern.
    modern: Arc<AtomicBool>,
    /// The runtime that the tasks of leases run on, whichever thread creates them: a connection never changes threads.
    pub(super) home: Handle,
}

impl World {
    /// Creates the shared parts of leases that live on the current runtime. Messages that belong to no request go into
    /// `relay`, state changes of leases into `changes`.
    pub(crate) fn new(
        dialer: Arc<Dialer>,
        relay: mpsc::Sender<(u64, Arc<Connection>, Relayed)>,
        changes: mpsc::Sender<Change>,
        nature: Nature,
    ) -> Self {
        let vigil = Vigil::new(nature.clone());
        let (kill, gate) = (CancellationToken::new(), Gate::new());
        Self {
            dialer,
            relay,
            changes,
            kill,
            generation: watch::Sender::new(0),
            nature,
            vigil,
            state: None,
            gate,
            modern: Arc::default(),
            home: Handle::current(),
        }
    }

    /// Notes that a server is modern.
    pub(super) fn note_modern(&self) {
        self.modern.store(true, Ordering::Relaxed);
    }

    /// Reports whether any server of the host has been modern. If none has, callers need not check the servers' lists.
    pub(crate) fn had_modern(&self) -> bool {
        self.modern.load(Ordering::Relaxed)
    }
}
