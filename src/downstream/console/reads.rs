//! The page's requests that only read: the tools that its session may see, and one server.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::access::Session;
use super::{Answer, Asked, Console, No};
use crate::keep;
use crate::manager::{Server, ServerStatus};
use crate::registry::tokens::estimate;
use crate::registry::{Catalog, Entry};

/// How many of a server's last lines are shown with it.
const LINES: usize = 200;

/// A tool, as clients of this view see it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tool<'a> {
    name: &'a str,
    server: &'a str,
    tool: &'a str,
    read_only: bool,
    destructive: bool,
    bytes: usize,
    tokens: usize,
    definition: &'a RawValue,
}

#[derive(Serialize)]
struct Tools<'a> {
    tools: Vec<Tool<'a>>,
}

#[derive(Serialize)]
struct One {
    server: ServerStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    target: String,
    editable: bool,
    lines: Vec<Box<RawValue>>,
}

impl<'a> Tool<'a> {
    fn of(entry: &'a Entry, names: &HashMap<&'a str, &'a str>) -> Self {
        let (hints, definition) = (entry.hints(), entry.definition());
        let (alias, bytes) = (entry.server().as_str(), definition.as_bytes().len());
        let read_only = hints.read_only_hint == Some(true);
        Self {
            name: entry.name(),
            server: names.get(alias).copied().unwrap_or(alias),
            tool: entry.raw_name(),
            read_only,
            destructive: !read_only && hints.destructive_hint == Some(true),
            bytes,
            tokens: estimate(definition.as_str()),
            definition: definition.as_value(),
        }
    }
}

impl Console {
    /// Returns the tools that the session sees, of one server or of all.
    pub(super) async fn tools(&self, session: &Arc<Session>, asked: &Asked) -> Result<Answer, No> {
        if asked.query.keys().any(|name| name != "server") {
            return Err(No::malformed("tools takes server"));
        }
        let wanted = asked.query.get("server").map(|name| self.named(name)).transpose()?;
        let client = self.client(session, &asked.identity);
        let shown = client.settled_view(self.router.manager(), self.router.background()).await.shown;
        let servers = self.router.manager().servers();
        // Definitions are read, counted and copied, and there may be thousands.
        Ok(keep::done(move || listed(&shown, &servers, wanted.as_deref())).await)
    }

    /// Returns everything about one server.
    pub(super) fn server(&self, asked: &Asked) -> Result<Answer, No> {
        let Some(name) = asked.query.get("name").filter(|_| asked.query.len() == 1) else {
            return Err(No::malformed("server takes name, and nothing else"));
        };
        let server = self.named(name)?;
        let config = &server.config;
        let status = self.router.manager().status_by_name(&config.name).ok_or_else(|| gone(&config.name))?;
        let source = config.source.shown();
        let lines = self.router.manager().record().lines_of(&config.name, LINES).into_iter();
        let lines = lines.filter_map(|line| RawValue::from_string(String::from_utf8(line).ok()?).ok()).collect();
        let editable = self.can_edit(&server);
        let target = server.scrubber.scrub(&config.transport.shown()).into_owned();
        Ok(Answer::of(&One { server: status, source, target, editable, lines }))
    }

    /// Finds a server by its name in the config or its alias.
    pub(super) fn named(&self, name: &str) -> Result<Arc<Server>, No> {
        let servers = self.router.manager().servers();
        let is_it = |server: &&Arc<Server>| server.config.name == name || server.config.alias.as_str() == name;
        servers.iter().find(is_it).cloned().ok_or_else(|| gone(name))
    }
}

/// Returns the tools of a catalog, of one server or of all.
fn listed(shown: &Catalog, servers: &[Arc<Server>], wanted: Option<&Server>) -> Answer {
    let names: HashMap<&str, &str> =
        servers.iter().map(|server| (server.config.alias.as_str(), server.config.name.as_str())).collect();
    let is_wanted = |entry: &&Entry| wanted.is_none_or(|server| *entry.server() == server.config.alias);
    let tools = shown.tools().iter().filter(is_wanted).map(|entry| Tool::of(entry, &names)).collect();
    Answer::of(&Tools { tools })
}

fn gone(name: &str) -> No {
    No::unknown(format!("no server is called {name:?}"))
}
