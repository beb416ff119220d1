//! Locks (`mcp-host.lock`): what a team has approved, as the pins of the servers' definitions (`docs/approval.md`).
//!
//! In: what servers list. Out: the text of a lock, and how a lock differs from what is listed. For a server with a lock,
//! only what the lock names is approved: no record of the user adds to it. `config/locked.rs` reads the file.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{DefinitionChange, What, differing, pointers};
use crate::config::{Locked, Server};
use crate::registry::Pin;

/// A definition as its server lists it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Stated {
    /// The server's name in the config.
    pub server: String,
    /// What it is.
    pub what: What,
    /// The server's own name for it; empty for instructions.
    pub name: String,
    /// The pin of the definition.
    pub pin: Pin,
    /// The definition as the server sent it.
    pub text: String,
}

/// How a definition differs from what is locked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Unlocked {
    /// The server's name in the config.
    pub server: String,
    /// What it is.
    pub what: What,
    /// The server's own name for it; empty for instructions.
    pub name: String,
    /// The pin in the lock, if the lock has the name.
    pub locked: Option<Pin>,
    /// The pin of what the server lists now; `None` if it does not list the name.
    pub pin: Option<Pin>,
    /// What differs. Empty if the locked text is not known here.
    pub changes: Vec<DefinitionChange>,
}

/// What a lock approves of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed(HashMap<What, HashMap<String, Pin>>);

impl Allowed {
    /// Reads the pins. They were checked when the lock was read.
    pub(crate) fn of(locked: &Locked) -> Self {
        let mut all = Self::default();
        let own = locked.instructions.iter().map(|pin| (What::Instructions, "", pin));
        let lists =
            [(What::Tool, &locked.tools), (What::Prompt, &locked.prompts), (What::ResourceTemplate, &locked.templates)];
        let named =
            lists.into_iter().flat_map(|(what, list)| list.iter().map(move |(name, pin)| (what, name.as_str(), pin)));
        for (what, name, pin) in own.chain(named) {
            if let Ok(pin) = pin.parse() {
                all.0.entry(what).or_default().insert(name.to_owned(), pin);
            }
        }
        all
    }

    /// Reports whether exactly this form is approved.
    pub(crate) fn has(&self, what: What, name: &str, pin: Pin) -> bool {
        self.get(what, name) == Some(pin)
    }

    pub(super) fn get(&self, what: What, name: &str) -> Option<Pin> {
        self.0.get(&what)?.get(name).copied()
    }

    /// Returns everything that is approved.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (What, &str, Pin)> {
        self.0.iter().flat_map(|(what, names)| names.iter().map(|(name, pin)| (*what, name.as_str(), *pin)))
    }
}

/// Compares what is locked of a server with what the server lists. `former` finds the text to which a pin belongs.
///
/// ```
/// # use mcp_host::pins::{self, Stated};
/// # fn is_equal(server: &mcp_host::config::Server, stated: &[Stated]) -> Option<bool> {
/// let locked = server.locked.as_ref()?;
/// Some(pins::compare(server, locked, stated, |_, _, _| None).is_empty())
/// # }
/// ```
pub fn compare(
    server: &Server,
    locked: &Locked,
    stated: &[Stated],
    former: impl Fn(What, &str, Pin) -> Option<String>,
) -> Vec<Unlocked> {
    let (allowed, ignore) = (Allowed::of(locked), pointers(server));
    let named = |what, name: &str| Unlocked {
        server: server.name.clone(),
        what,
        name: name.to_owned(),
        locked: None,
        pin: None,
        changes: Vec::new(),
    };
    let mut all: BTreeMap<(What, &str), Unlocked> = BTreeMap::new();
    for one in stated.iter().filter(|one| one.server == server.name && !allowed.has(one.what, &one.name, one.pin)) {
        let locked = allowed.get(one.what, &one.name);
        let before = locked.and_then(|pin| former(one.what, &one.name, pin));
        let changes = match (locked, &before) {
            (Some(_), None) => Vec::new(),
            _ => differing(one.what, before.as_deref(), Some(&one.text), &ignore),
        };
        all.insert(
            (one.what, &one.name),
            Unlocked { locked, pin: Some(one.pin), changes, ..named(one.what, &one.name) },
        );
    }
    let is_listed = |what: What, name: &str| {
        stated.iter().any(|one| one.server == server.name && one.what == what && one.name == name)
    };
    for (what, name, pin) in allowed.iter().filter(|(what, name, _)| !is_listed(*what, name)) {
        let before = former(what, name, pin);
        let changes = before.map(|text| differing(what, Some(&text), None, &ignore)).unwrap_or_default();
        all.insert((what, name), Unlocked { locked: Some(pin), changes, ..named(what, name) });
    }
    all.into_values().collect()
}

#[derive(Serialize)]
struct File<'a> {
    version: u32,
    servers: BTreeMap<&'a str, Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    entry: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<Pin>,
    tools: BTreeMap<&'a str, Pin>,
    prompts: BTreeMap<&'a str, Pin>,
    templates: BTreeMap<&'a str, Pin>,
}

/// Returns the text of a lock that approves what these servers list: sorted JSON, a line for each definition. Servers
/// that come from no file are left out.
///
/// ```
/// # async fn lock(config: &mcp_host::Config, host: &mcp_host::Host) -> String {
/// mcp_host::pins::lock(&config.servers, &host.definitions().await)
/// # }
/// ```
#[must_use]
pub fn lock(servers: &[Server], stated: &[Stated]) -> String {
    let from_files = servers.iter().filter(|server| server.entry.is_some());
    let servers = from_files.map(|server| (server.alias.as_str(), entry(server, stated))).collect();
    written(&File { version: 1, servers })
}

fn entry<'a>(server: &'a Server, stated: &'a [Stated]) -> Entry<'a> {
    let of = |what| {
        let own = stated.iter().filter(move |one| one.server == server.name && one.what == what);
        own.map(|one| (one.name.as_str(), one.pin)).collect::<BTreeMap<_, _>>()
    };
    let instructions = of(What::Instructions).into_values().next();
    let (tools, prompts, templates) = (of(What::Tool), of(What::Prompt), of(What::ResourceTemplate));
    Entry { entry: server.entry.as_deref().unwrap_or_default(), instructions, tools, prompts, templates }
}

/// Returns the texts behind the pins of one server, as JSON for people who review a change.
#[must_use]
pub fn texts(server: &Server, stated: &[Stated]) -> String {
    let mut all: BTreeMap<&str, BTreeMap<&str, serde_json::Value>> = BTreeMap::new();
    for one in stated.iter().filter(|one| one.server == server.name) {
        let value = match one.what {
            What::Instructions => one.text.as_str().into(),
            // A text that is not JSON stays a string.
            _ => serde_json::from_str(&one.text).unwrap_or_else(|_| one.text.as_str().into()),
        };
        all.entry(list(one.what)).or_default().insert(&one.name, value);
    }
    written(&all)
}

/// Finds a text among those that [`texts`] has written.
#[must_use]
pub fn text_in(texts: &str, what: What, name: &str) -> Option<String> {
    let all: BTreeMap<String, BTreeMap<String, serde_json::Value>> = serde_json::from_str(texts).ok()?;
    match all.get(list(what))?.get(name)? {
        serde_json::Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    }
}

fn list(what: What) -> &'static str {
    match what {
        What::Instructions => "instructions",
        What::Tool => "tools",
        What::Prompt => "prompts",
        What::ResourceTemplate => "templates",
    }
}

fn written(value: &impl Serialize) -> String {
    // Maps with texts as keys can always be written.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Stdio, Syntax, Transport, Vars, parse_str};

    fn stated(what: What, name: &str, text: &str) -> Stated {
        let raw = crate::protocol::Raw::parse(&text.to_owned().into()).unwrap();
        Stated { server: "it".into(), what, name: name.into(), pin: Pin::of(&raw, &[]), text: text.into() }
    }

    fn locked() -> (Server, Vec<Stated>) {
        let mut server = Server::new("it", Transport::Stdio(Stdio::default())).unwrap();
        server.entry = Some(format!("sha256:{}", "0".repeat(64)));
        (server, vec![stated(What::Tool, "add", r#"{"name":"add"}"#), stated(What::Prompt, "ask", r#"{"name":"ask"}"#)])
    }

    fn read(server: &Server, text: &str) -> Locked {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mcp-host.lock");
        std::fs::write(&file, text).unwrap();
        let config = serde_json::json!({ "host": { "lock": file }, "mcpServers": {} }).to_string();
        let config = parse_str(&config, Syntax::Json, "mcp.json", &Vars::default()).unwrap();
        config.lock.unwrap().servers[server.alias.as_str()].clone()
    }

    #[test]
    fn a_lock_that_is_read_again_equals_what_was_locked() {
        let (server, all) = locked();
        let text = lock(std::slice::from_ref(&server), &all);
        let locked = read(&server, &text);
        assert_eq!(compare(&server, &locked, &all, |_, _, _| None), []);
        assert_eq!(Some(locked.entry), server.entry);
        assert!(text.lines().any(|line| line.trim_start().starts_with(r#""add": "sha256:"#)), "{text}");
    }

    #[test]
    fn what_was_changed_added_or_taken_away_is_told() {
        let (server, all) = locked();
        let locked = read(&server, &lock(std::slice::from_ref(&server), &all));
        let now = [
            stated(What::Tool, "add", r#"{"name":"add","title":"x"}"#),
            stated(What::Tool, "new", r#"{"name":"new"}"#),
        ];
        let texts = texts(&server, &all);
        let told = compare(&server, &locked, &now, |what, name, _| text_in(&texts, what, name));
        let names: Vec<_> = told.iter().map(|one| (&*one.name, one.locked.is_some(), one.pin.is_some())).collect();
        assert_eq!(names, [("add", true, true), ("new", false, true), ("ask", true, false)]);
        assert_eq!(told[0].changes[0].path, "/title");
        let blind = compare(&server, &locked, &now, |_, _, _| None);
        assert!(blind[0].changes.is_empty(), "the text that was locked is not known");
    }
}
