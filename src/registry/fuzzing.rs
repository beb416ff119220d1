//! The parts of the registry that the fuzzers use.

use super::change::changes;
use super::finding::{Neighbours, findings};
use super::listing::read_cursor;
use super::pin::Pin;
use super::{Catalog, Kind, Owners};
use crate::exposed::Naming;
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
