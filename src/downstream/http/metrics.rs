//! `/metrics`: what other programs scrape (`export`).
//!
//! **Invariant:** it only reads, and a token for it (`host.metrics.token`) opens no other path.

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};

use super::answer::{self, Response};
use super::rules::Now;
use crate::downstream::authentication::shows;
use crate::export;
use crate::router::Router;

const HEAD: [(HeaderName, &str); 2] = [(CONTENT_TYPE, export::MEDIA_TYPE), (CACHE_CONTROL, "no-store")];

/// Reports whether there are metrics. If not, the path is unknown.
pub(super) fn are_served(rules: &Now) -> bool {
    rules.settings().metrics.enabled
}

/// Reports whether a request carries the token for metrics, so that it needs no other proof, whoever sends it.
pub(super) fn are_open(rules: &Now, headers: &HeaderMap) -> bool {
    are_served(rules) && rules.settings().metrics.hash.is_some_and(|hash| shows(headers, &hash))
}

/// Returns the metrics.
///
/// # Cancel safety
/// Dropping the future loses nothing.
pub(super) async fn metrics(router: &Router) -> Response {
    answer::text(HEAD, export::text(router).await)
}
