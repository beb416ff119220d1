//! What a client sees and may call, looked at anew when something has changed.

use std::sync::Arc;

use super::background::Background;
use super::client::{Client, LastView};
use crate::manager::{Manager, View};
use crate::registry::Kind;

impl Client {
    /// Returns what the client sees and may call now.
    pub(crate) fn view(&self, manager: &Manager) -> View {
        let generation = *manager.generation().borrow();
        match self.seen() {
            Some(seen) if seen.generation == generation => seen.view,
            seen => self.look(manager, seen.is_some_and(|seen| seen.settled)),
        }
    }

    /// Returns what the client sees and may call once every server has listed, failed, or had its time.
    pub(crate) async fn settled_view(self: &Arc<Self>, manager: &Manager, background: &Background) -> View {
        let generation = *manager.generation().borrow();
        if let Some(seen) = self.seen().filter(|seen| seen.settled && seen.generation == generation) {
            return seen.view;
        }
        manager.prepare(&self.who_now()).await;
        self.open_behind(manager, background);
        self.look(manager, true)
    }

    /// Takes a new look at what there is.
    pub(super) fn look(&self, manager: &Manager, settled: bool) -> View {
        // Read first: what changes while the view is made makes the next look.
        let generation = *manager.generation().borrow();
        let view = manager.view(&self.who_now());
        self.keep_seen(LastView { generation, view: view.clone(), settled });
        view
    }

    /// Notes that the client is to hear of changes of its lists from now on, as if it had listed.
    pub(crate) fn follow_lists(&self, manager: &Manager) {
        if self.told().is_none() {
            let catalog = self.view(manager).shown;
            for kind in Kind::ALL {
                self.tell(kind, &catalog);
            }
        }
    }

    /// Gives the client the leases that its list did not wait for, once that list is written.
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
                // The doors have their turn.
                tokio::task::yield_now().await;
            }
        });
    }
}
