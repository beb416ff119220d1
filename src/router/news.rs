//! What servers say on their own: to whom it goes, and when clients hear that lists have changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Router;
use super::client::Client;
use super::question::{self, log, refuse};
use super::subscribe::changes;
use super::{put, roots};
use crate::adapt;
use crate::manager::{News, Server, Told};
use crate::protocol::{Message, Method, Notification, Profile, ProtocolVersion};
use crate::registry::expose_target;
use crate::upstream::{Ask, Connection, Relayed, Upstream};

/// A question that belongs to no call waits that long for a stream to the client.
const HOLD: Duration = Duration::from_secs(2);
/// Changes of the catalog are told together.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// No client is told of changes more often (`docs/hazards.md` H50).
const APART: Duration = Duration::from_secs(2);

/// Hands on what servers say outside of calls, until the router stops.
pub(super) async fn relay(router: Router, mut news: News) {
    let stop = router.0.stop.clone();
    while let Some(Some((lease, connection, what))) = stop.run_until_cancelled(news.recv()).await {
        let Some(server) = router.manager().server_of(lease) else { continue };
        let Some(upstream) = server.upstreams().into_iter().find(|upstream| upstream.id == lease) else { continue };
        router.hear(&server, &upstream, &connection, what);
    }
}

/// Tells clients that lists have changed, after they have, and only those that listed before.
pub(super) async fn tell_changes(router: Router) {
    let stop = router.0.stop.clone();
    let mut generation = router.manager().generation();
    let mut told: Option<Instant> = None;
    while let Some(Ok(())) = stop.run_until_cancelled(generation.changed()).await {
        let now = Instant::now();
        let due = told.map_or(now + DEBOUNCE, |told| (told + APART).max(now + DEBOUNCE));
        if stop.run_until_cancelled(tokio::time::sleep_until(due)).await.is_none() {
            break;
        }
        generation.mark_unchanged();
        let clients = router.0.clients.all();
        let legacy = clients.iter().filter(|client| !client.revision().is_modern());
        // What nobody was told of is no reason to wait with the next.
        let any = legacy.fold(false, |any, client| router.tell_change(client) | any);
        if router.tell_listens() | any {
            told = Some(Instant::now());
        }
    }
}

impl Router {
    /// Tells a client what has changed; whether anything has.
    fn tell_change(&self, client: &Arc<Client>) -> bool {
        let Some(told) = client.told() else { return false };
        let catalog = self.view(client).shown;
        client.catch_up(&catalog);
        let changes = changes(|kind| &told[kind as usize], &catalog);
        let any = changes.iter().any(Option::is_some);
        for method in changes.into_iter().flatten() {
            client.mailbox().put(Message::Notification(Notification { method, params: None }));
        }
        any
    }

    fn hear(&self, server: &Arc<Server>, upstream: &Arc<Upstream>, connection: &Arc<Connection>, what: Relayed) {
        let clients = self.0.clients.on(server, upstream);
        let what = match what {
            Relayed::Ask { ask, unclear, of } => {
                match self.0.known_tasks.ask(&self.0.clients, server, upstream, connection, ask) {
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
                let params = expose_target(&params, &server.config.alias, server.uris);
                self.0.listens.tell(upstream, &raw, &params);
                let notice = Notification { method: Method::ResourceUpdated, params: Some(params) };
                // Those too whose lease has become another client's since they subscribed over it.
                let users: BTreeSet<_> = clients.iter().map(|client| client.owner()).collect();
                let all = self.0.clients.all();
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
                    // It belongs to no request, and only requests want log lines there.
                    tracing::debug!(server = %server.config.alias, "a log line for nobody: {params}");
                }
                if clients.len() > 1 {
                    // Of several that share, it may be any one's.
                    return tracing::debug!(server = %server.config.alias, "a log line outside of calls: {params}");
                }
                for client in &clients {
                    log(client, client.mailbox(), server, &params);
                }
            }
            Relayed::ElicitationComplete(params) => {
                // Ids are unique per server only. A server that wants a page visited (`-32042`) has asked nobody, so its lease
                // may be that of several clients; whoever does not know the id ignores it. Never those of several people.
                let one_person = clients.windows(2).all(|pair| pair[0].principal() == pair[1].principal());
                let params = Some(adapt::url::scoped(&params, server.config.alias.as_str()));
                let notice = Notification { method: Method::ElicitationComplete, params };
                // The one revision that has it.
                let knows = |client: &&Arc<Client>| one_person && client.revision() == ProtocolVersion::V2025_11_25;
                for client in clients.iter().filter(knows) {
                    client.mailbox().put(Message::Notification(notice.clone()));
                }
            }
            Relayed::Task(params) => self.0.known_tasks.tell(&self.0.clients, connection, &params),
            Relayed::Progress { task, params } => {
                self.0.known_tasks.tell_progress(&self.0.clients, connection, &task, &params)
            }
            Relayed::Withdrawn(id) => {
                for client in &clients {
                    client.withdraw(connection, &id);
                }
                self.0.parked.withdraw(connection, &id);
                self.0.known_tasks.withdraw(connection, &id);
            }
            Relayed::Ask { ask, unclear, of } => {
                let of = of.filter(|_| !unclear);
                match of.and_then(|owner| self.0.clients.get(owner)) {
                    Some(client) => self.hold(client, server.clone(), upstream.clone(), ask),
                    None => roots::for_nobody(server, upstream, ask, !unclear && of.is_none()),
                }
            }
        }
    }

    /// Puts a question that belongs to no call to the only client of its lease, once there is a stream to it.
    fn hold(&self, client: Arc<Client>, server: Arc<Server>, upstream: Arc<Upstream>, ask: Ask) {
        if client.revision().is_modern() {
            return self.hold_modern(&client, &server, upstream, ask);
        }
        if client.mailbox().has_reader() {
            return put::put(&client, &server, &upstream, ask, None, None);
        }
        let stop = self.0.stop.clone();
        self.0.tasks.spawn(async move {
            let came = stop.run_until_cancelled(tokio::time::timeout(HOLD, client.mailbox().reader())).await;
            if !ask.is_open() {
                // It was withdrawn meanwhile.
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

    /// A question outside of any call to a client without a session: only roots have an answer that does not depend on whom
    /// the server works for at the moment (`docs/bridging.md` 5.5, 5.6).
    fn hold_modern(&self, client: &Client, server: &Arc<Server>, upstream: Arc<Upstream>, ask: Ask) {
        server.note_ask(&ask);
        let declared = server.declared(client.profile());
        if ask.method != Method::RootsList || !declared.has(Profile::ROOTS) {
            return refuse(ask);
        }
        let Some(ask) = question::judge(server, declared, ask) else { return };
        let Some(ask) = roots::known(client, server, &upstream, ask) else { return };
        if !client.is_one_conversation() {
            // The only call under way may be of another conversation than the one that the server works for.
            return ask.answer(Ok(Told::nothing().result().clone()));
        }
        let router = self.clone();
        self.spawn(async move {
            let until = Instant::now() + HOLD;
            let mut begun = router.0.parked.watch_begun();
            loop {
                if let Some(parked) = router.0.parked.only_on(&upstream) {
                    return parked.ask(&upstream, ask);
                }
                if !matches!(tokio::time::timeout_at(until, begun.changed()).await, Ok(Ok(()))) {
                    return refuse(ask);
                }
            }
        });
    }
}
