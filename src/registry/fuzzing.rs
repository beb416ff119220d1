//! The parts of the registry that the fuzzers use.

use super::listing::read_cursor;
use super::{Catalog, Kind, Owners};
use crate::exposed::Naming;
use crate::protocol::ProtocolVersion;

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
