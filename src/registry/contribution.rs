//! What one server brings to the catalog.

use std::sync::Arc;

use super::filter::ServerNaming;
use super::offer::Offer;
use crate::name::ServerName;

/// What one server brings to the catalog.
#[derive(Clone, Debug)]
pub struct Contribution {
    /// The index by which the caller knows the server.
    pub server: usize,
    /// Its alias.
    pub alias: ServerName,
    /// How its names are made.
    pub settings: Arc<ServerNaming>,
    /// What it lists; nothing while it is not there.
    pub offer: Arc<Offer>,
}
