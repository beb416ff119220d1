//! Merges the parts of all servers into one catalog.
//!
//! A server's part is made once for each of its offers, which are its lists at one time (`part.rs`). A merge takes the
//! part unchanged, unless one of its names collides with another server's; then the names of that server alone are
//! decided again (`settle.rs`). So the cost of a merge grows with the servers and with the names that could collide,
//! not with the definitions.

use std::sync::Arc;

use super::catalog::Catalog;
use super::listing::Listing;
use super::part::Part;
use super::piece::Piece;
use super::servers::Servers;
use super::settle::{Around, is_as_alone, settle};
use super::{Kind, Owners};
use crate::exposed::Naming;
use crate::lock::lock;

/// How many bytes of definitions one page holds. Many clients never ask for a second page, so nearly every list should
/// have only one.
const PAGE: usize = 4 << 20;

impl Catalog {
    /// Merges the servers' lists. `parts` are in config order and contain **every** server of the config, with an empty
    /// offer if need be: that way, no server can take a name that starts with another's alias.
    #[must_use]
    pub(crate) fn merge(parts: &[Arc<Part>], naming: &Arc<Naming>, owners: &mut Owners) -> Self {
        Self::merge_paged(parts, naming, owners, PAGE)
    }

    pub(super) fn merge_paged(parts: &[Arc<Part>], naming: &Arc<Naming>, owners: &mut Owners, page: usize) -> Self {
        let servers = Servers::new(parts, naming);
        let lists = Kind::ALL.map(|kind| join(kind, &servers, owners, page));
        Self::of(servers, lists, owners.clone())
    }
}

fn join(kind: Kind, servers: &Servers, owners: &mut Owners, page: usize) -> Listing {
    let mut list = Listing::new(kind, page);
    for part in servers.all() {
        let piece = piece(part, kind, Around { servers, owners, list: &list });
        if !part.is_apart(kind) {
            let bare = piece.entries.iter().filter(|entry| entry.is_bare());
            bare.for_each(|entry| owners.claim(kind, entry.exposed(), &part.from.alias));
        }
        list.push(part, piece);
    }
    list.finish()
}

/// Returns the piece of a server: what it shows in this list beside the other servers.
fn piece(part: &Arc<Part>, kind: Kind, around: Around<'_>) -> Arc<Piece> {
    let sheet = part.sheet(kind);
    let make = |settled, before| Arc::new(Piece::new(&part.origin, part.list(kind), settled, before));
    let alone = sheet.alone.get_or_init(|| make(settle(part, kind, None), None));
    if is_as_alone(part, kind, alone, around) {
        return Arc::clone(alone);
    }
    let settled = settle(part, kind, Some(around));
    if alone.is(&settled) {
        return Arc::clone(alone);
    }
    let mut crowded = lock(&sheet.crowded);
    if let Some(piece) = crowded.as_ref().filter(|piece| piece.is(&settled)) {
        return Arc::clone(piece);
    }
    let before = crowded.take();
    let piece = make(settled, Some(before.as_deref().unwrap_or(alone)));
    *crowded = Some(Arc::clone(&piece));
    piece
}
