//! What the fuzzers see of this floor.

use super::listing::read_cursor;
use super::{Catalog, Kind};
use crate::exposed::Naming;
use crate::protocol::ProtocolVersion;

/// No text leads to a page of a catalog that has given no cursor.
pub(crate) fn cursor(text: &str) {
    let catalog = Catalog::empty(Vec::new(), Naming::default());
    for kind in Kind::ALL {
        let page = catalog.page(kind, Some(text), ProtocolVersion::LATEST_HANDSHAKE);
        // A list has a hash, and whoever has it has the list.
        if page.is_ok() {
            assert!(read_cursor(kind, text).is_some(), "a page without a cursor");
        }
    }
}
