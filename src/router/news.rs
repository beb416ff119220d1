//! Messages that servers send outside of calls: which clients get them, and when clients are told that lists have
//! changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::background::Background;
use super::client::{Client, Subscription};
use super::clients::Clients;
use super::judge::may_watch;
use super::parked::Table;
use super::question::{self, log, refuse};
use super::subscribe::{Listens, changes};
use super::tasks::Tasks;
use super::{put, roots};
use crate::adapt;
use crate::manager::{Manager, News, Server, Told};
use crate::protocol::{Message, Method, Notification, Profile, ProtocolVersion};
use crate::registry::expose_target;
use crate::upstream::{Ask, Connection, Relayed, Upstream};

/// How long a question that belongs to no call waits for the client to open a stream.
const HOLD: Duration = Duration::from_secs(2);
/// How long changes of the catalog are gathered before clients are told of them.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// The least time from one notice of changes to the next (`docs/hazards.md` H50).
const APART: Duration = Duration::from_secs(2);

/// Tells clients what servers send unasked, and which lists have changed.
#[derive(Debug)]
pub(super) struct Herald {
    pub(super) manager: Manager,
    pub(super) clients: Arc<Clients>,
    pub(super) parked: Arc<Table>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) listens: Arc<Listens>,
    pub(super) background: Background,
}

impl Herald {
    /// Passes on the messages that servers send outside of calls, until the router stops.
    pub(super) async fn relay(self: Arc<Self>, mut news: News) {
        while let Some(Some((lease, connection, what))) = self.background.stop().run_until_cancelled(news.recv()).await
        {
            let Some(server) = self.manager.server_of(lease) else { continue };
            let Some(upstream) = server.upstreams().into_iter().find(|upstream| upstream.id == lease) else { continue };
            self.hear(&server, &upstream, &connection, what);
        }
    }

    /// Tells clients that lists have changed, until the router stops. Only clients that have listed are told.
    pub(super) async fn tell_changes(self: Arc<Self>) {
        let stop = self.background.stop();
        let mut generation = self.manager.generation();
        let mut told: Option<Instant> = None;
        while let Some(Ok(())) = stop.run_until_cancelled(generation.changed()).await {
            let now = Instant::now();
            let due = told.map_or(now + DEBOUNCE, |told| (told + APART).max(now + DEBOUNCE));
            if stop.run_until_cancelled(tokio::time::sleep_until(due)).await.is_none() {
                break;
            }
            generation.mark_unchanged();
            let clients = self.clients.all();
            let legacy = clients.iter().filter(|client| !client.revision().is_modern());
            legacy.clone().for_each(|client| self.end_hidden(client));
            // A change that no client was told of does not delay the notice of the next one.
            let any = legacy.fold(false, |any, client| self.tell_change(client) | any);
            if self.listens.tell_changes() | any {
                told = Some(Instant::now());
            }
        }
    }

    /// Ends those subscriptions of a client with a session that its view or the rules no longer allow.
    fn end_hidden(&self, client: &Client) {
        let watched: Vec<(Arc<str>, Subscription)> =
            client.watched(|all| all.iter().map(|(uri, one)| (uri.clone(), one.clone())).collect());
        for (uri, Subscription { server, raw, .. }) in watched {
            let server = self.manager.server(server);
            if server.is_some_and(|server| !may_watch(&self.manager, client, (&server, &raw, &uri))) {
                client.unwatch(&uri);
            }
        }
    }

    /// Tells a client with a session which of its lists have changed. Returns whether any have.
    fn tell_change(&self, client: &Arc<Client>) -> bool {
        let Some(told) = client.told() else { return false };
        let catalog = client.view(&self.manager).shown;
        client.catch_up(&catalog);
        let changes = changes(|kind| &told[kind as usize], &catalog);
        let any = changes.iter().any(Option::is_some);
        for method in changes.into_iter().flatten() {
            client.mailbox().put(Message::Notification(Notification { method, params: None }));
        }
        any
    }

    fn hear(&self, server: &Arc<Server>, upstream: &Arc<Upstream>, connection: &Arc<Connection>, what: Relayed) {
        let clients = self.clients.on(server, upstream);
        let what = match what {
            Relayed::Ask { ask, unclear, of } => {
                match self.tasks.registry.ask(&self.clients, server, upstream, connection, ask) {
                    Some(ask) => Relayed::Ask { ask, unclear, of },
                    None => return,
                }
            }
            other => other,
        };
        match what {
            Relayed::Updated(params) => {
                let params = adapt::notice(params);
                let Some(raw) = params.text("uri") else { return };
                self.manager.answers().updated(server.id, &raw);
                let params = expose_target(&params, &server.config.alias, server.uris);
                self.listens.tell(upstream, &raw, &params);
                let notice = Notification { method: Method::ResourceUpdated, params: Some(params) };
                // This includes clients that subscribed over this lease and have moved to another one since.
                let users: BTreeSet<_> = clients.iter().map(|client| client.owner()).collect();
                let all = self.clients.all();
                let watch = |client: &&Arc<Client>| {
                    let server = users.contains(&client.owner()).then_some(server.id);
                    client.watches(server, upstream, &raw)
                };
                for client in all.iter().filter(watch) {
                    client.mailbox().put(Message::Notification(notice.clone()));
                }
            }
            Relayed::Log(params) => {
                if clients.iter().all(|client| client.revision().is_modern()) {
                    // The message belongs to no request, and modern clients get log messages only for their requests.
                    tracing::debug!(server = %server.config.alias, "a log line for nobody: {params}");
                }
                if clients.len() > 1 {
                    // Any one of the clients that share the lease may be meant.
                    return tracing::debug!(server = %server.config.alias, "a log line outside of calls: {params}");
                }
                for client in &clients {
                    log(client, client.mailbox(), server, &params);
                }
            }
            Relayed::ElicitationComplete(params) => {
                // The `elicitationId` is unique only per server. A server that demands a page visit by the error
                // `-32042` has sent no question, so several clients may share its lease. Clients that do not know the
                // id ignore it, but clients of several people are never told.
                let one_person = clients.windows(2).all(|pair| pair[0].principal() == pair[1].principal());
                let params = Some(adapt::url::scoped(&params, server.config.alias.as_str()));
                let notice = Notification { method: Method::ElicitationComplete, params };
                // Only 2025-11-25 has this notification.
                let knows = |client: &&Arc<Client>| one_person && client.revision() == ProtocolVersion::V2025_11_25;
                for client in clients.iter().filter(knows) {
                    client.mailbox().put(Message::Notification(notice.clone()));
                }
            }
            Relayed::Task(params) => self.tasks.registry.tell(&self.clients, connection, &params),
            Relayed::Progress { task, params } => {
                self.tasks.registry.tell_progress(&self.clients, connection, &task, &params)
            }
            Relayed::Withdrawn(id) => {
                for client in &clients {
                    client.withdraw(connection, &id);
                }
                self.parked.withdraw(connection, &id);
                self.tasks.registry.withdraw(connection, &id);
            }
            Relayed::Ask { ask, unclear, of } => {
                let of = of.filter(|_| !unclear);
                match of.and_then(|owner| self.clients.get(owner)) {
                    Some(client) => self.hold(client, server.clone(), upstream.clone(), ask),
                    None => roots::for_nobody(server, upstream, ask, !unclear && of.is_none()),
                }
            }
        }
    }

    /// Puts a question that belongs to no call to `client`, the only client of its lease, once there is a stream to it.
    fn hold(&self, client: Arc<Client>, server: Arc<Server>, upstream: Arc<Upstream>, ask: Ask) {
        if client.revision().is_modern() {
            return self.hold_modern(&client, &server, upstream, ask);
        }
        if client.mailbox().has_reader() {
            return put::put(&client, &server, &upstream, ask, None, None);
        }
        let stop = self.background.stop().clone();
        self.background.spawn_whole(async move {
            let came = stop.run_until_cancelled(tokio::time::timeout(HOLD, client.mailbox().reader())).await;
            if !ask.is_open() {
                // The server withdrew the question meanwhile.
                return ask.forget();
            }
            if matches!(came, Some(Ok(()))) {
                return put::put(&client, &server, &upstream, ask, None, None);
            }
            match client.any_leg() {
                Some(leg) => put::put(&client, &server, &upstream, ask, Some((0, &leg)), None),
                None => refuse(ask),
            }
        });
    }

    /// Handles a question that belongs to no call, for a client without a session. Only roots can be asked for: their
    /// answer alone does not depend on whom the server works for at the moment (`docs/bridging.md` 5.5, 5.6).
    /// Everything else is refused.
    fn hold_modern(&self, client: &Client, server: &Arc<Server>, upstream: Arc<Upstream>, ask: Ask) {
        server.note_ask(&ask);
        let declared = server.declared(&client.who);
        if ask.method != Method::RootsList || !declared.has(Profile::ROOTS) {
            return refuse(ask);
        }
        let Some(ask) = question::judge(server, declared, ask) else { return };
        let Some(ask) = roots::known(client, server, &upstream, ask) else { return };
        if !client.is_one_conversation() {
            // Even the only call in flight may belong to another conversation than the one that the server asks about.
            return ask.answer(Ok(Told::nothing().result().clone()));
        }
        let calls = self.parked.clone();
        self.background.spawn(async move {
            let until = Instant::now() + HOLD;
            let mut begun = calls.watch_begun();
            loop {
                if let Some(parked) = calls.only_on(&upstream) {
                    return parked.ask(&upstream, ask);
                }
                if !matches!(tokio::time::timeout_at(until, begun.changed()).await, Ok(Ok(()))) {
                    return refuse(ask);
                }
            }
        });
    }
}
