//! Handles what servers send about tasks unasked: questions that name a task, status, and progress.

use std::sync::{Arc, PoisonError};

use super::At;
use super::registry::{Registry, TaskPlace};
use crate::adapt::task;
use crate::manager::Server;
use crate::protocol::{Message, Method, Notification, ProtocolVersion, Raw};
use crate::router::clients::Clients;
use crate::router::question;
use crate::upstream::{Ask, Connection, Upstream};

impl Registry {
    /// Takes a question that belongs to no call. If it belongs to a task that a client without a session began, it is
    /// kept for that client, and `None` is returned. Other questions are returned; one that names a task then names it
    /// by the id that the client knows.
    pub(in crate::router) fn ask(
        &self,
        clients: &Clients,
        server: &Arc<Server>,
        upstream: &Arc<Upstream>,
        connection: &Arc<Connection>,
        ask: Ask,
    ) -> Option<Ask> {
        let Some(id) = ask.params.as_ref().and_then(task::related_to) else { return Some(ask) };
        // Never guess: several people may know a task with this id, and the question is for one of them.
        let tasks = self.on(connection, &id);
        let [task] = &*tasks else { return Some(ask) };
        let Some(client) = clients.get(task.owner) else { return Some(ask) };
        match &task.place {
            TaskPlace::Session { hold, .. } if client.revision().is_modern() => {
                let version = connection.peer().map_or(ProtocolVersion::LATEST_HANDSHAKE, |peer| peer.version);
                let (server, upstream, connection) = (server.clone(), upstream.clone(), connection.clone());
                hold.ask(&At { server, upstream, connection, version }, &client, ask);
                None
            }
            _ => Some(question::of_task(ask, &task.handle)),
        }
    }

    /// Tells the client that began a task the task's status, if the client speaks 2025-11-25.
    pub(in crate::router) fn tell(&self, clients: &Clients, connection: &Arc<Connection>, told: &Raw) {
        let Some(id) = told.text("taskId") else { return };
        for task in self.on(connection, &id) {
            let client = clients.get(task.owner);
            // Clients without a session poll the status, or listen (`watch.rs`).
            let Some(client) = client.filter(|client| client.revision() == ProtocolVersion::V2025_11_25) else {
                continue;
            };
            let params = Some(task::renamed(told, &task.handle));
            client.mailbox().put(Message::Notification(Notification { method: Method::TaskStatus, params }));
        }
    }

    /// Tells the client that began a task the task's progress, under the progress token of the request that began it.
    pub(in crate::router) fn tell_progress(
        &self,
        clients: &Clients,
        connection: &Arc<Connection>,
        id: &str,
        params: &Raw,
    ) {
        let tasks = self.on(connection, id);
        // Never guess here either: a server may use the same id twice.
        let [task] = &*tasks else { return };
        let TaskPlace::Session { progress, .. } = &task.place else { return };
        let message = progress.lock().unwrap_or_else(PoisonError::into_inner).step(params);
        if let (Some(message), Some(client)) = (message, clients.get(task.owner)) {
            client.mailbox().put(message);
        }
    }
}
