//! The public keys of the issuer whose tokens our own endpoint accepts. They are found through the issuer's metadata,
//! and fetched by the guarded HTTP client. Not here: how long keys are cached, and what a token must contain.

use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::Error;
use super::discovery::places;
use super::web::{Found, Web};
use crate::config::Limits;
use crate::dial::Dialer;

/// Fetches the public keys of one issuer.
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

impl IssuerKeys {
    /// Returns a source of the public keys of this issuer, whose name is a URL.
    ///
    /// # Errors
    /// Fails if no HTTP client can be built, or the name is not a URL.
    pub(crate) fn new(issuer: &str, limits: &Limits) -> Result<Self, String> {
        let url = Url::parse(issuer).map_err(|error| error.to_string())?;
        let foreign = Dialer::default().foreign(&url, limits.oauth_request)?;
        let web = Web::new(foreign, limits.oauth_document, limits.oauth_token);
        Ok(Self { web, issuer: issuer.to_owned() })
    }

    /// Fetches the current public keys. Requests at most three metadata documents, and then the keys.
    pub(crate) async fn fetch(&self) -> Result<Vec<Value>, Error> {
        let base = Url::parse(&self.issuer).map_err(|_| Error::Malformed("with an invalid URL"))?;
        for url in places(&base) {
            let Found::This(metadata) = self.web.document::<Metadata>(&url).await? else { continue };
            if metadata.issuer != self.issuer {
                return Err(Error::metadata(&url, "says that it is another issuer than host.auth.issuer"));
            }
            return self.named(metadata.jwks_uri.as_deref(), &url).await;
        }
        Err(Error::metadata(&base, "has no metadata of an authorization server"))
    }

    async fn named(&self, keys: Option<&str>, at: &Url) -> Result<Vec<Value>, Error> {
        let Some(Ok(url)) = keys.map(Url::parse) else {
            return Err(Error::metadata(at, "names no keys to verify its tokens with (`jwks_uri`)"));
        };
        match self.web.document::<Keys>(&url).await? {
            Found::This(keys) => Ok(keys.keys),
            Found::Nothing => Err(Error::metadata(&url, "has no key set")),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Fetches the keys of an issuer that answers everything with this body, in which `URL` becomes its own URL.
    async fn fetched(body: &str) -> Result<Vec<Value>, Error> {
        fetched_as(|url| body.replace("URL", url), &Limits::default()).await
    }

    async fn fetched_as(body: impl Fn(&str) -> String, limits: &Limits) -> Result<Vec<Value>, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let body = body(&url);
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        let keys = IssuerKeys::new(&url, limits).unwrap().fetch().await;
        serving.abort();
        keys
    }

    #[tokio::test]
    async fn h68_keys_come_from_where_the_issuer_may_send_us() {
        let keys = fetched(r#"{"issuer": "URL", "jwks_uri": "URL/keys", "keys": [{"kid": "one"}]}"#).await;
        assert_eq!(keys.unwrap(), [serde_json::json!({"kid": "one"})]);
        for (metadata, why) in [
            (r#"{"issuer": "URL", "jwks_uri": "https://169.254.169.254/keys"}"#, "is not asked"),
            (r#"{"issuer": "URL", "jwks_uri": "https://10.0.0.1/keys"}"#, "is not asked"),
            (r#"{"issuer": "URL", "jwks_uri": "http://issuer.example/keys"}"#, "is not asked"),
            (r#"{"issuer": "URL", "jwks_uri": "file:///etc/passwd"}"#, "is not asked"),
            (r#"{"issuer": "URL/", "jwks_uri": "URL/keys", "keys": []}"#, "another issuer"),
            (r#"{"issuer": "https://issuer.example", "jwks_uri": "URL/keys", "keys": []}"#, "another issuer"),
            (r#"{"issuer": "URL", "keys": []}"#, "names no keys"),
            (r#"{"issuer": "URL", "jwks_uri": "keys", "keys": []}"#, "names no keys"),
            (r#"{"issuer": "URL", "jwks_uri": "URL/keys"}"#, "has no key set"),
            ("<html>", "has no metadata"),
        ] {
            let error = fetched(metadata).await.unwrap_err().to_string();
            assert!(error.contains(why), "{metadata}: {error}");
        }
    }

    #[tokio::test]
    async fn h68_no_more_is_read_of_an_issuer_than_the_limits_say() {
        let body = r#"{"issuer": "URL", "jwks_uri": "URL/keys", "keys": []}"#;
        let exact = Limits { oauth_document: 8192, ..Limits::default() };
        for (length, fits) in [(8192, true), (8193, false)] {
            let body = move |url: &str| {
                let body = body.replace("URL", url);
                format!("{body}{}", " ".repeat(length - body.len()))
            };
            assert_eq!(fetched_as(body, &exact).await.is_ok(), fits, "{length}");
        }
    }
}
