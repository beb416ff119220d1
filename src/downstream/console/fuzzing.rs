//! The parsers of the page's API that the fuzzers use.

use std::collections::HashMap;

use super::{Begin, Route, call, deeds, feed_request, read};

/// Returns the index of the route of a path.
pub(crate) fn route(path: &str) -> Option<usize> {
    Route::of(path).map(|(route, _)| route as usize)
}

/// Returns the index of the route of a request at the socket.
pub(crate) fn at_socket(name: &str) -> Option<usize> {
    Route::at_socket(name).map(|route| route as usize)
}

/// Reads the query of a feed. Returns the answer that refuses it, or the request in words.
pub(crate) fn feed(query: &HashMap<String, String>) -> Result<String, Vec<u8>> {
    feed_request(query).map(|request| format!("{request:?}")).map_err(|refused| refused.json())
}

/// Reports whether any route accepts this body.
pub(crate) fn takes(body: &[u8]) -> bool {
    read::<Begin>(body).is_ok() || call::takes(body) || deeds::takes(body)
}

/// Returns the answer to a body that `POST session` does not accept.
pub(crate) fn refused(body: &[u8]) -> Option<Vec<u8>> {
    read::<Begin>(body).err().map(|refused| refused.json())
}
