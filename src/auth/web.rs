//! Documents and forms of OAuth, over the guarded client: who is asked, how much is read, and what counts as an answer.

use bytes::Bytes;
use oauth2::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::de::DeserializeOwned;
use url::Url;

use super::Error;
use crate::dial::{self, Document, Foreign};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What one server's OAuth is talked over.
#[derive(Clone, Debug)]
pub(super) struct Web {
    foreign: Foreign,
    /// Bytes of a document of metadata, and of an answer with a token.
    document: usize,
    token: usize,
}

/// What a URL for a document had.
#[derive(Debug)]
pub(super) enum Found<T> {
    /// The document.
    This(T),
    /// Another answer, after which the next place is tried.
    Nothing,
}

impl Web {
    pub(super) fn new(foreign: Foreign, document: usize, token: usize) -> Self {
        Self { foreign, document, token }
    }

    /// Fetches a document of JSON.
    ///
    /// # Errors
    /// When no answer comes, or one that tells of a server out of order.
    pub(super) async fn document<T: DeserializeOwned>(&self, url: &Url) -> Result<Found<T>, Error> {
        let headers = HeaderMap::from_iter([(ACCEPT, JSON)]);
        let document = self.foreign.get(url, headers, self.document).await.map_err(asked)?;
        match document.status {
            200 => Ok(serde_json::from_slice(&document.body).map_or(Found::Nothing, Found::This)),
            500.. => Err(Error::metadata(url, format!("answered {}", document.status))),
            _ => Ok(Found::Nothing),
        }
    }

    /// Posts JSON; whatever comes is the answer.
    pub(super) async fn post_json(&self, url: &Url, body: Vec<u8>) -> Result<Document, Error> {
        let headers = HeaderMap::from_iter([(ACCEPT, JSON), (CONTENT_TYPE, JSON)]);
        self.foreign.post(url, headers, Bytes::from(body), self.document).await.map_err(asked)
    }

    /// Posts a form for a token.
    pub(super) async fn post_form(&self, url: &Url, headers: HeaderMap, body: Bytes) -> Result<Document, Error> {
        self.foreign.post(url, headers, body, self.token).await.map_err(asked)
    }
}

fn asked(error: dial::Error) -> Error {
    match error {
        dial::Error::Refused { url, reason } => Error::Metadata { at: url, what: format!("is not asked: {reason}") },
        dial::Error::TooLarge { .. } => Error::Malformed("with more than is read of it"),
        dial::Error::Unreachable { unsent, .. } => Error::Unreachable { reason: error.to_string(), unsent },
    }
}
