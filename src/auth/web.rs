//! Fetches OAuth documents and posts forms with the guarded HTTP client: how much of a response is read, and which
//! response counts.

use bytes::Bytes;
use oauth2::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::de::DeserializeOwned;
use url::Url;

use super::Error;
use crate::dial::{self, Document, Foreign};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The HTTP access to authorization servers and metadata, for one MCP server.
#[derive(Clone, Debug)]
pub(super) struct Web {
    foreign: Foreign,
    /// The largest metadata document, in bytes.
    document: usize,
    /// The largest token response, in bytes.
    token: usize,
}

/// The result of fetching a document.
#[derive(Debug)]
pub(super) enum Found<T> {
    /// The document.
    This(T),
    /// A response that is not this document; the caller may try the next URL.
    Nothing,
}

impl Web {
    pub(super) fn new(foreign: Foreign, document: usize, token: usize) -> Self {
        Self { foreign, document, token }
    }

    /// Fetches a JSON document.
    ///
    /// # Errors
    /// Fails if no response comes, or one with a status of 500 or more.
    pub(super) async fn document<T: DeserializeOwned>(&self, url: &Url) -> Result<Found<T>, Error> {
        let headers = HeaderMap::from_iter([(ACCEPT, JSON)]);
        let document = self.foreign.get(url, headers, self.document).await.map_err(asked)?;
        match document.status {
            200 => Ok(serde_json::from_slice(&document.body).map_or(Found::Nothing, Found::This)),
            500.. => Err(Error::metadata(url, format!("answered {}", document.status))),
            _ => Ok(Found::Nothing),
        }
    }

    /// Posts JSON, and returns the response whatever its status is.
    pub(super) async fn post_json(&self, url: &Url, body: Vec<u8>) -> Result<Document, Error> {
        let headers = HeaderMap::from_iter([(ACCEPT, JSON), (CONTENT_TYPE, JSON)]);
        self.foreign.post(url, headers, Bytes::from(body), self.document).await.map_err(asked)
    }

    /// Posts a form to a token endpoint, and returns the response whatever its status is.
    pub(super) async fn post_form(&self, url: &Url, headers: HeaderMap, body: Bytes) -> Result<Document, Error> {
        self.foreign.post(url, headers, body, self.token).await.map_err(asked)
    }
}

fn asked(error: dial::Error) -> Error {
    match error {
        dial::Error::Refused { url, reason } => Error::Metadata { at: url, what: format!("is not asked: {reason}") },
        dial::Error::TooLarge { .. } => Error::Malformed("with too much data"),
        dial::Error::Unreachable { unsent, .. } => Error::Unreachable { reason: error.to_string(), unsent },
    }
}
