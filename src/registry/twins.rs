//! Merges tools that several servers of a group define alike into one listed tool, a *twin* (`host.merge`).
//!
//! In: a catalog, and the groups of the config. Out: one twin for each definition that at least two servers of a group
//! share, with an argument that names the server; and where a call of it goes. Tools with different definitions stay
//! apart. Pure. **Invariant:** a twin represents tools that the client is shown, and no others; each of them keeps its
//! own name, too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::edit::COMPOSED;
use super::offer::OfferBuilder;
use super::part::Part;
use super::piece::Piece;
use super::pin::Pin;
use super::settle::settle;
use super::{Caps, Catalog, Contribution, Entry, Kind, ParamHeaders, Problems, ServerNaming, quoted};
use crate::config::{Merge, Prefix};
use crate::exposed::Naming;
use crate::name::ServerName;
use crate::protocol::Raw;

/// The twins of a catalog.
#[derive(Debug, Default)]
pub(crate) struct Twins {
    pieces: Vec<Arc<Piece>>,
    tools: HashMap<Arc<str>, Twin>,
    /// The names of the tools that they replace in lists.
    hidden: HashSet<Arc<str>>,
}

/// A tool that represents the same tool of several servers.
#[derive(Debug)]
pub(crate) struct Twin {
    /// The argument that names the server.
    pub(crate) argument: String,
    /// The aliases of the servers, each with the name of its tool.
    pub(crate) members: Vec<(String, Arc<str>)>,
}

impl Twins {
    /// Finds the tools of a catalog that are alike.
    pub(crate) fn of(catalog: &Catalog, groups: &BTreeMap<String, Merge>, naming: &Arc<Naming>) -> Self {
        let mut twins = Self::default();
        for (group, merge) in groups {
            twins.add(catalog, (group, merge), naming);
        }
        twins
    }

    /// Returns where calls of the tool with this name go; `None` if it is no twin.
    pub(crate) fn get(&self, name: &str) -> Option<&Twin> {
        self.tools.get(name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Reports whether a twin replaces this tool in lists.
    fn hides(&self, entry: &Entry) -> bool {
        self.hidden.contains(entry.name())
    }

    fn add(&mut self, catalog: &Catalog, (group, merge): (&str, &Merge), naming: &Arc<Naming>) {
        let Ok(alias) = ServerName::from_config(group) else { return };
        let mut alike: HashMap<(&str, Pin), Vec<&Entry>> = HashMap::new();
        let mut order = Vec::new();
        for entry in catalog.each(Kind::Tools).filter(|entry| merge.has(entry.server().as_str())) {
            let known = alike.entry((entry.raw_name(), pin(entry))).or_default();
            if known.is_empty() {
                order.push((entry.raw_name(), pin(entry)));
            }
            known.push(entry);
        }
        // Of several definitions under one name, the group's tool is the one that most servers have.
        let mut most: HashMap<&str, &(&str, Pin)> = HashMap::new();
        for key in &order {
            let best = most.entry(key.0).or_insert(key);
            if alike[key].len() > alike[*best].len() {
                *best = key;
            }
        }
        let mut texts = Problems::default();
        let (mut definitions, mut all) = (Vec::new(), HashMap::new());
        for key in &order {
            let members = &alike[key];
            if members.len() < 2 {
                continue;
            }
            let made = match most.get(key.0) {
                Some(best) if *best == key => definition(members, &merge.argument),
                _ => Err("more servers define it differently".to_owned()),
            };
            match made {
                Ok(definition) => {
                    definitions.push(definition);
                    all.insert(key.0, members);
                }
                Err(why) => texts.add(|| format!("tool {} of the group {group} stays apart: {why}", quoted(key.0))),
            }
        }
        let mut builder = OfferBuilder::new(Caps::default(), ParamHeaders::Ignore);
        let page = Raw::from_value(&json!({ "tools": definitions }));
        if builder.page(Kind::Tools, &page).is_err() {
            return;
        }
        let settings = Arc::new(ServerNaming { prefix: Prefix::Always, ..ServerNaming::default() });
        // No server has this index, and no request is routed by it.
        let from = Contribution { server: usize::MAX, alias, settings, offer: Arc::new(builder.finish()) };
        let part = Part::new(from, naming);
        let piece = Piece::new(&part.origin, part.list(Kind::Tools), settle(&part, Kind::Tools, None), None);
        let mut kept = Vec::new();
        for entry in &piece.entries {
            // Another tool has the name already: that of a server with the alias of the group.
            let Some(members) =
                all.get(entry.raw_name()).filter(|_| catalog.entry(Kind::Tools, entry.name()).is_none())
            else {
                texts.add(|| {
                    format!("tool {} of the group {group} stays apart: its name is taken", quoted(entry.raw_name()))
                });
                continue;
            };
            let named = |member: &&Entry| (member.server().as_str().to_owned(), Arc::from(member.name()));
            self.hidden.extend(members.iter().map(|member| Arc::from(member.name())));
            let twin = Twin { argument: merge.argument.clone(), members: members.iter().map(named).collect() };
            self.tools.insert(entry.name().into(), twin);
            kept.push(entry.clone());
        }
        self.pieces.push(Arc::new(Piece::of(kept, piece.heads.clone(), texts)));
    }
}

impl Catalog {
    /// Returns the same catalog, with twins in place of the tools that they represent.
    pub(crate) fn with_twins(&self, twins: &Twins) -> Self {
        let others = |piece: &Arc<Piece>| {
            let kept: Vec<Entry> = piece.entries.iter().filter(|entry| !twins.hides(entry)).cloned().collect();
            match kept.len() == piece.entries.len() {
                true => Arc::clone(piece),
                false => Arc::new(Piece::of(kept, piece.heads.clone(), piece.problems.clone())),
            }
        };
        self.with_tools(twins.pieces.iter().cloned(), others)
    }
}

/// Hashes a tool as clients see it, without its name.
fn pin(entry: &Entry) -> Pin {
    Pin::of(&entry.definition().with_member("name", b"\"\""), &[])
}

/// Returns the definition of a twin for these tools.
///
/// # Errors
/// With the reason why these tools can have no twin.
fn definition(members: &[&Entry], argument: &str) -> Result<Value, String> {
    let unreadable = || "its definition cannot be read".to_owned();
    let first = members.first().ok_or_else(unreadable)?;
    let mut definition: Map<String, Value> = first.definition().read().map_err(|_| unreadable())?;
    definition.insert("name".to_owned(), first.raw_name().into());
    let schema = definition.get_mut("inputSchema").and_then(Value::as_object_mut).ok_or_else(unreadable)?;
    if let Some(composed) = COMPOSED.iter().find(|name| schema.contains_key(**name)) {
        return Err(format!("its `inputSchema` has `{composed}`"));
    }
    let properties = schema.entry("properties").or_insert_with(|| json!({})).as_object_mut().ok_or_else(unreadable)?;
    if properties.contains_key(argument) {
        return Err(format!("it has an argument {}", quoted(argument)));
    }
    let aliases: Vec<&str> = members.iter().map(|member| member.server().as_str()).collect();
    let about = json!({ "type": "string", "enum": aliases, "description": "Which server is meant" });
    properties.insert(argument.to_owned(), about);
    let required = schema.entry("required").or_insert_with(|| json!([])).as_array_mut().ok_or_else(unreadable)?;
    required.insert(0, argument.into());
    Ok(Value::Object(definition))
}
