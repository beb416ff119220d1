//! `tasks/list` (2025-11-25): one principal's tasks at the servers that list tasks, and those that were over at once,
//! which mcp-host itself keeps.

use std::sync::Arc;

use super::registry::{Task, TaskPlace};
use super::{At, Tasks};
use crate::adapt::task;
use crate::protocol::value::array;
use crate::protocol::{ErrorObject, Method, Outcome, ProtocolVersion, Raw};
use crate::router::Mailbox;
use crate::router::client::Client;

impl Tasks {
    pub(super) async fn list(&self, client: &Arc<Client>, params: &Raw, leg: &Arc<Mailbox>) -> Outcome {
        if params.member("cursor").is_some() {
            return Err(ErrorObject::invalid_params("this list has one page, and no cursor of it was given"));
        }
        let mine = self.registry.of(client.bound());
        let mut listed: Vec<Raw> = Vec::new();
        for task in &mine {
            if let TaskPlace::Here { outcome, at } = &task.place {
                listed.push(task::done(&task.handle, outcome, *at));
            }
        }
        for (server, upstream) in client.leases() {
            let Some((server, connection)) = self.manager.server(server).zip(upstream.connection()) else { continue };
            let version = connection.peer().filter(|peer| peer.offers.tasks_list).map(|peer| peer.version);
            let Some(version @ ProtocolVersion::V2025_11_25) = version else { continue };
            let at = At { server, upstream, connection, version };
            listed.extend(list_at(client, &at, &mine, leg).await);
        }
        let listed: Vec<&str> = listed.iter().map(Raw::as_str).collect();
        Ok(Raw::trusted(format!(r#"{{"tasks":[{}]}}"#, listed.join(",")).into()))
    }
}

/// Returns the client's tasks that one server lists. If the server fails, returns what it listed before, so that one
/// server never fails the whole list.
async fn list_at(client: &Client, at: &At, mine: &[Arc<Task>], leg: &Mailbox) -> Vec<Raw> {
    let mine: Vec<&Arc<Task>> = mine.iter().filter(|task| task.is_on(&at.connection)).collect();
    let mut found = Vec::new();
    let mut sent = Raw::empty_object();
    for _ in 0..leg.limits().list_pages {
        let Ok(page) = at.ask(client, &Method::TasksList, &sent, leg).await else { break };
        for told in page.value_of("tasks").and_then(array).unwrap_or_default() {
            let told = Raw::part(page.bytes(), told);
            let id = told.text("taskId").unwrap_or_default();
            if let Some(task) = mine.iter().find(|task| *task.id == *id) {
                found.push(task::renamed(&told, &task.handle));
            }
        }
        match page.member("nextCursor").filter(|cursor| cursor.as_bytes() != b"null") {
            Some(cursor) if found.len() < mine.len() => {
                sent = Raw::empty_object().with_member("cursor", cursor.as_bytes());
            }
            _ => break,
        }
    }
    found
}
