//! The registry, by table and by property.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::*;
use crate::config::Prefix;
use crate::exposed::Naming;
use crate::name::ServerName;
use crate::protocol::{ProtocolVersion, Raw};

mod catalog;
mod change;
mod circles;
mod cost;
mod finding;
mod model;
mod offer;
mod pieces;
mod pin;
mod resources;
mod retrieval;
mod rewrite;

fn raw(text: &str) -> Raw {
    Raw::parse(&Bytes::copy_from_slice(text.as_bytes())).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn value(raw: &Raw) -> Value {
    serde_json::from_slice(raw.as_bytes()).unwrap_or_else(|error| panic!("{error}: {raw}"))
}

/// Returns the offer of a server with these definitions, one page per list.
fn offer(lists: &[(Kind, &str)]) -> Arc<Offer> {
    let mut builder = OfferBuilder::new(Caps::default(), ParamHeaders::Ignore);
    for (kind, items) in lists {
        assert_eq!(builder.page(*kind, &page(*kind, items, None)), Ok(None));
    }
    Arc::new(builder.finish())
}

fn page(kind: Kind, items: &str, next: Option<&str>) -> Raw {
    let next = next.map(|cursor| format!(r#","nextCursor":"{cursor}""#)).unwrap_or_default();
    raw(&format!(r#"{{"{kind}":[{items}]{next}}}"#))
}

/// Returns valid tools with these names.
fn tools(names: &[&str]) -> Arc<Offer> {
    let items: Vec<String> = names.iter().map(|name| tool(name)).collect();
    offer(&[(Kind::Tools, &items.join(","))])
}

fn tool(name: &str) -> String {
    format!(r#"{{"name":{},"inputSchema":{{"type":"object"}}}}"#, Raw::from_value(name))
}

fn server(index: usize, alias: &str, prefix: Prefix, offer: &Arc<Offer>) -> Contribution {
    let settings = Arc::new(ServerNaming { prefix, ..ServerNaming::default() });
    Contribution { server: index, alias: ServerName::from_config(alias).unwrap(), settings, offer: Arc::clone(offer) }
}

fn build(contributions: &[Contribution]) -> Catalog {
    merged(contributions, &Naming::default(), &mut Owners::default(), 4 << 20)
}

/// Merges parts that were made for this catalog alone.
fn merged(contributions: &[Contribution], naming: &Naming, owners: &mut Owners, page: usize) -> Catalog {
    let naming = Arc::new(naming.clone());
    let parts: Vec<_> = contributions.iter().map(|from| Arc::new(Part::new(from.clone(), &naming))).collect();
    Catalog::merge_paged(&parts, &naming, owners, page)
}

/// Returns the problems of the server with this index.
fn problems(catalog: &Catalog, server: usize) -> Vec<String> {
    let alias = catalog.alias(server);
    alias.map(|alias| catalog.problems(&alias)).unwrap_or_default()
}

fn names(catalog: &Catalog, kind: Kind) -> Vec<&str> {
    catalog.entries(kind).iter().map(Entry::name).collect()
}

/// Returns the server and the raw name.
fn leads(resolution: Resolution) -> Option<(usize, String)> {
    resolution.found().map(|target| (target.server, target.name.to_string()))
}

fn to(server: usize, name: &str) -> Option<(usize, String)> {
    Some((server, name.to_owned()))
}
