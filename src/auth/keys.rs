//! The public keys of an issuer that the config of our own endpoint names: found by its metadata, fetched by the guarded
//! client. Not here: how long they are believed, and what a token has to say.

use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::Error;
use super::discovery::places;
use super::web::{Found, Web};
use crate::dial::Dialer;

/// Where the keys of one issuer are asked for.
#[derive(Clone, Debug)]
pub(crate) struct IssuerKeys {
    web: Web,
    issuer: String,
}

#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: Option<String>,
}

#[derive(Deserialize)]
struct Keys {
    keys: Vec<Value>,
}

/// Bytes of a document.
const DOCUMENT: usize = 256 * 1024;
/// How long one may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

impl IssuerKeys {
    /// The keys of the issuer of that name, which is a URL.
    ///
    /// # Errors
    /// When there can be no HTTP client, or the name is none.
    pub(crate) fn new(issuer: &str) -> Result<Self, String> {
        let url = Url::parse(issuer).map_err(|error| error.to_string())?;
        let foreign = Dialer::default().foreign(&url, PATIENCE)?;
        Ok(Self { web: Web::new(foreign, DOCUMENT, DOCUMENT), issuer: issuer.to_owned() })
    }

    /// Fetches them as they are now: three documents of metadata at most, and the keys.
    pub(crate) async fn fetch(&self) -> Result<Vec<Value>, Error> {
        let base = Url::parse(&self.issuer).map_err(|_| Error::Malformed("at no URL"))?;
        for url in places(&base) {
            let Found::This(metadata) = self.web.document::<Metadata>(&url).await? else { continue };
            if metadata.issuer != self.issuer {
                return Err(Error::metadata(&url, "says that it is another issuer than the one of host.auth.issuer"));
            }
            return self.named(metadata.jwks_uri.as_deref(), &url).await;
        }
        Err(Error::metadata(&base, "has no metadata of an authorization server"))
    }

    async fn named(&self, keys: Option<&str>, at: &Url) -> Result<Vec<Value>, Error> {
        let Some(Ok(url)) = keys.map(Url::parse) else {
            return Err(Error::metadata(at, "names no keys by which its tokens can be checked (`jwks_uri`)"));
        };
        match self.web.document::<Keys>(&url).await? {
            Found::This(keys) => Ok(keys.keys),
            Found::Nothing => Err(Error::metadata(&url, "has no set of keys")),
        }
    }
}
