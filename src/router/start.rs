//! Makes the router from its parts, and starts its tasks.

use std::sync::{Arc, Weak};

use tokio_util::sync::CancellationToken;

use super::background::Background;
use super::call::Forwarder;
use super::clients::Clients;
use super::fallback::Fallbacks;
use super::find::Routes;
use super::finish::Finish;
use super::gauges::Meter;
#[cfg(feature = "server")]
use super::invite::Invitations;
use super::list::Listings;
use super::modern::{Pool, reap};
use super::news::Herald;
use super::oversized::Store;
use super::park::ParkedCalls;
use super::parked::Table;
use super::permission::Permissions;
use super::reach::Connector;
use super::route::OwnTool;
use super::state::Sealer;
use super::subscribe::Listens;
use super::tasks::{self, Tasks};
use super::{Inner, Router};
use crate::manager::{Manager, News};
use crate::observe::Observer;
use crate::protocol::Raw;
use crate::queues::Queues;

/// Returns the tool that runs scripts, in a build that runs some.
fn runner() -> Option<Arc<dyn OwnTool>> {
    #[cfg(all(unix, feature = "script"))]
    return Some(super::scripts::own());
    #[cfg(not(all(unix, feature = "script")))]
    None
}

impl Router {
    /// Makes the router, and starts its tasks.
    pub(crate) fn start(manager: Manager, news: News, server_info: Raw) -> Self {
        let (closing, ending, background) = (CancellationToken::new(), CancellationToken::new(), Background::default());
        let queues = Queues::new(manager.settings().limits.client_queues);
        let clients = Arc::new(Clients::new(manager.clone(), closing.clone()));
        let (sealer, finish) = (Arc::new(Sealer::of(&manager.settings())), Arc::new(Finish::new(server_info)));
        let table = Arc::<Table>::default();
        let weak: Weak<Table> = Arc::downgrade(&table);
        manager.park_at(weak);
        let connector =
            Arc::new(Connector { manager: manager.clone(), clients: clients.clone(), parked: table.clone() });
        let routes = Routes::new(manager.clone(), connector.clone(), background.clone(), runner());
        let routes = Arc::new(routes);
        let tasks = Arc::new(Tasks {
            registry: tasks::Registry::default(),
            manager: manager.clone(),
            connector: connector.clone(),
            sealer: sealer.clone(),
            finish: finish.clone(),
            queues: queues.clone(),
            background: background.clone(),
        });
        let parked = ParkedCalls {
            table: table.clone(),
            clients: clients.clone(),
            sealer: sealer.clone(),
            queues: queues.clone(),
            background: background.clone(),
        };
        let calls = Arc::new(Forwarder {
            manager: manager.clone(),
            clients: clients.clone(),
            connector: connector.clone(),
            tasks: tasks.clone(),
            parked,
            #[cfg(feature = "server")]
            invitations: Invitations { connector: connector.clone(), sealer: sealer.clone() },
            permissions: Permissions::new(manager.clone(), clients.clone(), sealer.clone()),
            sealer,
            finish: finish.clone(),
            joined: Arc::default(),
        });
        let observer = Arc::new(Observer::new(manager.record().counts().clone()));
        let listens = Arc::new(Listens {
            manager: manager.clone(),
            connector,
            routes: routes.clone(),
            tasks: tasks.clone(),
            finish: finish.clone(),
            observer: observer.clone(),
            background: background.clone(),
            open: Default::default(),
        });
        let pool = Arc::new(Pool::new(manager.clone(), clients.clone(), queues.clone()));
        let oversized = Arc::new(Store::of(tasks.sealer.home()));
        let meter = Meter {
            manager: manager.clone(),
            clients: clients.clone(),
            parked: table,
            tasks: tasks.clone(),
            queues: queues.clone(),
            oversized: oversized.clone(),
            doors: Default::default(),
        };
        let listings = Listings { manager: manager.clone(), finish: finish.clone(), background: background.clone() };
        let fallbacks = Fallbacks {
            manager: manager.clone(),
            routes: routes.clone(),
            tasks: tasks.clone(),
            calls: calls.clone(),
            observer: observer.clone(),
            told: Default::default(),
        };
        let router = Self(Arc::new(Inner {
            manager,
            clients,
            pool,
            routes,
            calls,
            fallbacks,
            tasks,
            listings,
            oversized,
            #[cfg(all(unix, feature = "script"))]
            scripts: Default::default(),
            listens,
            queues,
            finish,
            observer,
            meter,
            background,
            closing,
            ending,
        }));
        start_tasks(&router.0, news);
        router
    }
}

/// Starts the tasks that run as long as the router.
fn start_tasks(inner: &Inner, news: News) {
    let background = &inner.background;
    let herald = Arc::new(Herald {
        manager: inner.manager.clone(),
        clients: inner.clients.clone(),
        parked: inner.calls.parked.table.clone(),
        tasks: inner.tasks.clone(),
        listens: inner.listens.clone(),
        background: background.clone(),
    });
    background.spawn_whole(herald.clone().relay(news));
    background.spawn_whole(herald.tell_changes());
    background.spawn_whole(reap(inner.pool.clone(), background.clone()));
}
