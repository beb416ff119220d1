//! One server's contribution to the catalog.

use std::sync::Arc;

use super::filter::ServerNaming;
use super::offer::Offer;
use crate::name::ServerName;

/// One server's contribution to the catalog.
#[derive(Clone, Debug)]
pub(crate) struct Contribution {
    /// The index that the caller uses for the server.
    pub(crate) server: usize,
    /// Its alias.
    pub(crate) alias: ServerName,
    /// How its names are formed.
    pub(crate) settings: Arc<ServerNaming>,
    /// Its lists; empty while none are known.
    pub(crate) offer: Arc<Offer>,
}
