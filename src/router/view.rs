//! What a client sees and may call (its *view*), rebuilt when something has changed, and which lists it was told of so
//! far.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::background::Background;
use super::client::{Client, LastView, ToldCatalogs};
use crate::manager::{Manager, View};
use crate::registry::{Catalog, Kind};

/// How long a catalog is kept for a client that reads a list of it page by page.
const KEPT: Duration = Duration::from_secs(5 * 60);
/// How many such catalogs are kept for each client.
const BEGUN: usize = 4;

impl LastView {
    /// Reports whether it is what the client sees in this generation.
    fn is_of(&self, generation: u64) -> bool {
        self.generation == generation && self.until.is_none_or(|until| Instant::now() < until)
    }
}

impl Client {
    /// Returns what the client sees and may call now.
    pub(crate) fn view(&self, manager: &Manager) -> View {
        let generation = *manager.generation().borrow();
        match self.seen() {
            Some(seen) if seen.is_of(generation) => seen.view,
            seen => self.look(manager, seen.is_some_and(|seen| seen.settled)),
        }
    }

    /// Returns what the client sees and may call, once every server has listed, has failed, or has been waited for long
    /// enough.
    pub(crate) async fn settled_view(self: &Arc<Self>, manager: &Manager, background: &Background) -> View {
        let generation = *manager.generation().borrow();
        if let Some(seen) = self.seen().filter(|seen| seen.settled && seen.is_of(generation)) {
            return seen.view;
        }
        manager.prepare(&self.who_now()).await;
        self.open_behind(manager, background);
        self.look(manager, true)
    }

    /// Makes a new view. `settled` says whether servers have been waited for.
    pub(super) fn look(&self, manager: &Manager, settled: bool) -> View {
        // This is read first, so that a change while the view is made causes a new view next time.
        let generation = *manager.generation().borrow();
        let who = self.who_now();
        let view = manager.view(&who);
        self.keep_seen(LastView { generation, view: view.clone(), settled, until: manager.decided_until(&who) });
        view
    }

    /// Notifies the client of list changes from now on, as if it had requested its lists.
    pub(crate) fn follow_lists(&self, manager: &Manager) {
        if self.told().is_none() {
            let catalog = self.view(manager).shown;
            for kind in Kind::ALL {
                self.tell(kind, &catalog);
            }
        }
    }

    /// Opens the client's leases to the servers that its list did not wait for, once that list is written.
    fn open_behind(self: &Arc<Self>, manager: &Manager, background: &Background) {
        let servers = manager.admit(&self.who_now());
        if self.is_gone(manager) || servers.is_empty() {
            return;
        }
        let (manager, client) = (manager.clone(), self.clone());
        background.spawn(async move {
            manager.door().await;
            for server in servers {
                if client.is_closed() {
                    return;
                }
                manager.open(&server, &client.who_now());
                if client.is_gone(&manager) {
                    return;
                }
                // This lets the doors run.
                tokio::task::yield_now().await;
            }
        });
    }

    pub(super) fn seen(&self) -> Option<LastView> {
        self.state().seen.clone()
    }

    /// Reports whether its lists have waited for servers before, and no longer do.
    pub(super) fn is_settled(&self) -> bool {
        self.state().seen.as_ref().is_some_and(|seen| seen.settled)
    }

    pub(super) fn keep_seen(&self, seen: LastView) {
        let mut state = self.state();
        if !state.closed {
            state.seen = Some(seen);
        }
    }

    /// Records the catalog from which the client got its list of this kind. Its lists of other kinds may come from an
    /// earlier catalog.
    pub(super) fn tell(&self, kind: Kind, catalog: &Arc<Catalog>) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        let told = state.told.get_or_insert_with(|| std::array::from_fn(|_| catalog.clone()));
        told[kind as usize] = catalog.clone();
    }

    /// Returns, for each kind of list, the catalog that it was told of last; `None` if it never listed.
    pub(super) fn told(&self) -> Option<ToldCatalogs> {
        self.state().told.clone()
    }

    /// Records that it was told of all changes up to this catalog.
    pub(super) fn catch_up(&self, catalog: &Arc<Catalog>) {
        let mut state = self.state();
        if let Some(told) = &mut state.told {
            told.fill(catalog.clone());
        }
    }

    /// Records that it got the first page of a list with several pages.
    pub(super) fn begin_list(&self, catalog: &Arc<Catalog>) {
        let mut state = self.state();
        if state.closed || state.begun.last().is_some_and(|(_, last)| Arc::ptr_eq(last, catalog)) {
            return;
        }
        let old = state.begun.len().saturating_sub(BEGUN - 1);
        let kept = std::mem::take(&mut state.begun).into_iter().skip(old);
        state.begun = kept.chain([(Instant::now(), catalog.clone())]).collect();
    }

    /// Returns the catalogs that it may still be reading page by page, newest first.
    pub(super) fn begun_lists(&self) -> Vec<Arc<Catalog>> {
        let mut state = self.state();
        if state.begun.iter().any(|(at, _)| at.elapsed() >= KEPT) {
            let begun = std::mem::take(&mut state.begun).into_iter();
            state.begun = begun.filter(|(at, _)| at.elapsed() < KEPT).collect();
        }
        state.begun.iter().rev().map(|(_, catalog)| catalog.clone()).collect()
    }
}
