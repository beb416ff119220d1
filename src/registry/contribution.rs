//! What one server brings to the catalog.

use std::sync::Arc;

use super::filter::ServerNaming;
use super::offer::Offer;
use crate::name::ServerName;

/// What one server brings to the catalog.
#[derive(Clone, Debug)]
pub(crate) struct Contribution {
    /// The index by which the caller knows the server.
    pub(crate) server: usize,
    /// Its alias.
    pub(crate) alias: ServerName,
    /// How its names are made.
    pub(crate) settings: Arc<ServerNaming>,
    /// What it lists; nothing while it is not there.
    pub(crate) offer: Arc<Offer>,
}
