//! Protocol extensions (`docs/bridging.md` 12): which ones clients and servers are told of, and requests of methods
//! that only an extension defines.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::client::Client;
use super::forward::Forward;
use super::route::{Listed, One, Wanted};
use crate::adapt::{CARRIED, task};
use crate::config::Limits;
use crate::manager::{Manager, Server, Who};
use crate::protocol::{ErrorObject, Method, ProtocolVersion, Raw, object};

/// Returns those `extensions` in a client's capabilities that servers may be told of; `None` if there are none.
pub(super) fn carried(manager: &Manager, capabilities: &Raw, revision: ProtocolVersion) -> Option<Raw> {
    let extensions = capabilities.member("extensions")?;
    let members = object(extensions.as_value())?;
    let kept: Vec<String> = members
        .iter()
        .filter(|(id, settings)| settings.get().starts_with('{') && carries(manager, id, revision))
        .map(|(id, settings)| format!("{}:{}", Raw::from_value(&**id), settings.get()))
        .collect();
    (!kept.is_empty()).then(|| Raw::trusted(format!("{{{}}}", kept.join(",")).into()))
}

/// Reports whether mcp-host passes that extension on for clients of that revision.
fn carries(manager: &Manager, id: &str, revision: ProtocolVersion) -> bool {
    CARRIED.contains(&id) && (id != task::EXTENSION || (revision.is_modern() && manager.settings().tasks))
}

/// Returns the `extensions` for mcp-host's own capabilities: those of all servers that the client sees. Unless tasks
/// are switched off, a modern client is always offered tasks, since servers of 2025-11-25 have tasks too, and clients
/// may ask before the first server is connected.
pub(super) fn offered(manager: &Manager, revision: ProtocolVersion, who: &Who) -> Raw {
    let mut offered = BTreeMap::new();
    if carries(manager, task::EXTENSION, revision) {
        offered.insert(task::EXTENSION.to_owned(), Map::new());
    }
    for server in manager.shown_to(who).iter() {
        let Some(extensions) = declared_by(server) else { continue };
        for (id, settings) in extensions.read::<Map<String, Value>>().unwrap_or_default() {
            if let (Value::Object(settings), true) = (settings, carries(manager, &id, revision)) {
                offered.entry(id).and_modify(|known| meet(known, &settings)).or_insert(settings);
            }
        }
    }
    Raw::from_value(&offered)
}

/// Routes a request whose method the core protocol does not define, to the one server that declares the method's
/// extension.
///
/// # Errors
/// `-32601` when the client does not declare the extension, or when no server or several servers declare it.
pub(super) fn route(
    manager: &Manager,
    client: &Client,
    method: &Method,
    params: Option<Raw>,
    limits: &Arc<Limits>,
) -> Result<Forward, ErrorObject> {
    let unknown = || ErrorObject::method_not_found(method.as_str());
    let extension = owner_of(method.as_str()).filter(|id| client.declares(id)).ok_or_else(unknown)?;
    let servers = manager.callable_by(&client.who);
    let declares = |server: &&Arc<Server>| declared_by(server).is_some_and(|all| all.member(extension).is_some());
    let mut owners = servers.iter().filter(declares);
    let (Some(server), None) = (owners.next(), owners.next()) else { return Err(unknown()) };
    // The params name no target that mcp-host would have to rename.
    let one = One { server: server.clone(), target: "".into(), listed: Listed::Not };
    Ok(Forward::new(one, Wanted::unnamed(method.clone(), params), limits.clone()))
}

/// Returns the extensions that a server declares on one of its connections; `None` if it has none or is not connected.
fn declared_by(server: &Server) -> Option<Raw> {
    let peers = server.upstreams().into_iter().filter_map(|upstream| upstream.connection()?.peer().cloned());
    peers.filter_map(|peer| peer.extensions).last()
}

/// Returns the extension that a method belongs to: the last part of the extension's id is the first part of the
/// method's name.
fn owner_of(method: &str) -> Option<&'static str> {
    let (head, _) = method.split_once('/')?;
    CARRIED.into_iter().find(|id| id.rsplit_once('/').is_some_and(|(_, own)| own == head))
}

/// Reduces an extension's settings to what several servers share: an array keeps only the entries that `other` has,
/// too.
fn meet(known: &mut Map<String, Value>, other: &Map<String, Value>) {
    for (name, value) in known.iter_mut() {
        if let (Value::Array(known), Some(Value::Array(other))) = (value, other.get(name)) {
            known.retain(|item| other.contains(item));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        if let Value::Object(map) = value { map } else { Map::new() }
    }

    #[test]
    fn settings_of_several_servers_meet() {
        let mut known = map(json!({ "mimeTypes": ["a", "b"], "only": true }));
        meet(&mut known, &map(json!({ "mimeTypes": ["b", "c"], "other": 1 })));
        assert_eq!(known, map(json!({ "mimeTypes": ["b"], "only": true })));
        meet(&mut known, &map(json!({})));
        assert_eq!(known, map(json!({ "mimeTypes": ["b"], "only": true })));
    }

    #[test]
    fn a_method_belongs_to_the_extension_that_it_begins_with() {
        assert_eq!(owner_of("ui/thing"), Some("io.modelcontextprotocol/ui"));
        for none in ["ui", "uix/thing", "foo/bar", "", "/ui"] {
            assert_eq!(owner_of(none), None, "{none}");
        }
    }
}
