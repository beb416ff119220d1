//! The connections there are, each with whose requests it carries.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::Extensions;
use tokio_util::sync::CancellationToken;

use super::outlet::Outlet;
use super::rules::Change;
use crate::queues::Account;
use crate::router::Principal;

/// A connection: cancelled, it ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    end: CancellationToken,
    carried: Mutex<Vec<Principal>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Wires(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Wire>,
}

/// A place among them, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    wires: Arc<Mutex<Table>>,
    number: u64,
}

/// Those of more clients on one connection are not told apart: all of them leave with the first.
const CARRIED: usize = 64;

impl Wire {
    /// That of the request with these extensions.
    pub(super) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Waits for its end.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn ended(&self) {
        self.0.end.cancelled().await;
    }

    /// Notes whose request it carries.
    pub(super) fn carries(&self, principal: &Principal) {
        let mut carried = locked(&self.0.carried);
        if !carried.contains(principal) && carried.len() < CARRIED {
            carried.push(principal.clone());
        }
    }

    /// The way to the client of that account. When it is cut off, the connection ends.
    pub(super) fn outlet(&self, account: &Account) -> Outlet {
        Outlet::new(account.way(&self.0.end))
    }

    fn stays(&self, change: &Change) -> bool {
        let carried = locked(&self.0.carried);
        !change.is_another_way() && carried.len() < CARRIED && carried.iter().all(|principal| change.keeps(principal))
    }
}

impl Wires {
    /// One more.
    pub(super) fn add(&self, wire: &Wire) -> Listed {
        let mut table = locked(&self.0);
        let number = table.next;
        table.next += 1;
        table.open.insert(number, wire.clone());
        Listed { wires: Arc::clone(&self.0), number }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        locked(&self.0).open.len()
    }

    /// Ends those that carry anybody whom the change does not keep. Who clients are may have been asked of the system, once
    /// for each connection: where they prove it in another way from now on, all of them end.
    pub(super) fn end_unless_kept(&self, change: &Change) {
        let open: Vec<Wire> = locked(&self.0).open.values().cloned().collect();
        for wire in open.iter().filter(|wire| !wire.stays(change)) {
            wire.0.end.cancel();
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        locked(&self.wires).open.remove(&self.number);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
