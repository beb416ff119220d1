//! The parts of the registry that the fuzzers use.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::change::changes;
use super::finding::{Neighbours, findings};
use super::listing::read_cursor;
use super::pin::Pin;
use super::search::{Detail, described};
use super::{Caps, Catalog, Contribution, Kind, OfferBuilder, Owners, ParamHeaders, Part, ServerNaming};
use crate::exposed::Naming;
use crate::name::ServerName;
use crate::protocol::Pointer;
use crate::protocol::{ProtocolVersion, Raw};

/// Checks that a catalog that has issued no cursor refuses every text as one.
pub(crate) fn cursor(text: &str) {
    let catalog = Catalog::merge(&[], &Naming::default().into(), &mut Owners::default());
    for kind in Kind::ALL {
        let page = catalog.page(kind, Some(text), ProtocolVersion::LATEST_HANDSHAKE);
        // The cursor contains the hash of the list; a client that knows it has the list.
        if page.is_ok() {
            assert!(read_cursor(kind, text).is_some(), "a page without a cursor");
        }
    }
}

/// Checks that two definitions have changes if and only if their pins differ, and that findings can be printed.
pub(crate) fn definitions(before: &Raw, after: &Raw) {
    let ignore: Vec<_> = Pointer::parse("/_meta/updatedAt").into_iter().collect();
    for ignore in [&[][..], &ignore] {
        let found = changes(Some(before), Some(after), ignore);
        assert_eq!(found.is_empty(), Pin::of(before, ignore) == Pin::of(after, ignore), "{found:?}");
    }
    let mut neighbours = Neighbours::default();
    neighbours.add("other", before);
    for found in findings(Some(Kind::Tools), "own", after, &neighbours) {
        assert!(found.shown.chars().count() <= 80 && !found.shown.contains(char::is_control), "{found:?}");
    }
}

/// Checks that a search finds each tool at most once, and that what it shows of a tool is one line.
pub(crate) fn searched(query: &str, tool: &Raw) {
    let other =
        Raw::trusted(r#"{"name":"read_file","description":"Reads a file.","inputSchema":{"type":"object"}}"#.into());
    let page = Raw::trusted(format!(r#"{{"tools":[{},{}]}}"#, tool.as_str(), other.as_str()).into());
    let mut offer = OfferBuilder::new(Caps::default(), ParamHeaders::Ignore);
    if offer.page(Kind::Tools, &page).is_err() {
        return;
    }
    let (naming, settings) = (Arc::new(Naming::default()), Arc::new(ServerNaming::default()));
    let Ok(alias) = ServerName::from_config("own") else { return };
    let contribution = Contribution { server: 0, alias, settings, offer: Arc::new(offer.finish()) };
    let parts = [Arc::new(Part::new(contribution, &naming))];
    let catalog = Catalog::merge(&parts, &naming, &mut Owners::default());
    let index = catalog.index();
    let ranks = index.rank(query, None);
    let found: BTreeSet<usize> = ranks.iter().copied().collect();
    assert!(found.len() == ranks.len() && found.iter().all(|at| *at < index.entries().len()), "{ranks:?}");
    assert!(index.nearest(query).len() <= index.entries().len());
    for entry in index.entries() {
        for detail in [Detail::Brief, Detail::Signature, Detail::Schema] {
            let line = described(entry, detail);
            assert!(line.starts_with(entry.name()), "{line:?}");
        }
    }
}
