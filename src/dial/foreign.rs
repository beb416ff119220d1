//! The only way to request a foreign URL, which a server and not the config named: authorization metadata, token
//! endpoints, signing keys (`docs/hazards.md` H68).
//!
//! No redirects, no proxy, a timeout, a cap on bytes, and public addresses only. The address is checked where the name
//! is resolved, so the checked address is the one that is connected to. Not here: what is sent, and when.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderMap;
use url::Url;

use super::address::{Home, Refused, is_public};
use crate::protocol::Theirs;

/// Why a request returned no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The URL is refused before any request.
    #[error("{} is not asked: {reason}", Theirs(url))]
    Refused {
        /// The URL without its query.
        url: String,
        /// What is wrong with the URL.
        reason: Refused,
    },
    /// No answer came.
    #[error("{} gave no answer: {reason}", Theirs(origin))]
    Unreachable {
        /// Scheme, host and port.
        origin: String,
        /// What went wrong.
        reason: String,
        /// Whether the request failed before any byte of it was sent.
        unsent: bool,
    },
    /// The answer is larger than its cap.
    #[error("{} answered with more than {cap} bytes", Theirs(origin))]
    TooLarge {
        /// Scheme, host and port.
        origin: String,
        /// The cap in bytes.
        cap: usize,
    },
}

/// A response of any status.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Resolves a host name to addresses. Tests bring their own function.
pub(crate) type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// A client for URLs that one configured server named, or that the documents at such URLs named in turn.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    client: reqwest::Client,
    home: Home,
    patience: Duration,
}

impl Foreign {
    pub(super) fn new(configured: &Url, patience: Duration, lookup: Lookup) -> Result<Self, String> {
        let home = Home::of(configured);
        let resolver = Guarded { home: home.clone(), lookup };
        let builder = super::builder().no_proxy().timeout(patience).dns_resolver(Arc::new(resolver));
        let client = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { client, home, patience })
    }

    /// Fetches a document of at most `cap` bytes.
    pub(crate) async fn get(&self, url: &Url, headers: HeaderMap, cap: usize) -> Result<Document, Error> {
        self.send(self.client.get(url.clone()).headers(headers), url, cap).await
    }

    /// Posts a body and reads an answer of at most `cap` bytes.
    pub(crate) async fn post(&self, url: &Url, headers: HeaderMap, body: Bytes, cap: usize) -> Result<Document, Error> {
        self.send(self.client.post(url.clone()).headers(headers).body(body), url, cap).await
    }

    async fn send(&self, request: reqwest::RequestBuilder, url: &Url, cap: usize) -> Result<Document, Error> {
        self.home.judge(url).map_err(|reason| Error::Refused { url: without_query(url), reason })?;
        let origin = url.origin().ascii_serialization();
        match tokio::time::timeout(self.patience, read(request, cap)).await {
            Ok(Ok(document)) => Ok(document),
            Ok(Err(Failed::TooLarge)) => Err(Error::TooLarge { origin, cap }),
            Ok(Err(Failed::Http(error))) => match internal(&error) {
                Some(reason) => Err(Error::Refused { url: without_query(url), reason }),
                None => Err(Error::Unreachable { origin, reason: super::explain(&error), unsent: error.is_connect() }),
            },
            Err(_) => {
                Err(Error::Unreachable { origin, reason: format!("none within {:?}", self.patience), unsent: false })
            }
        }
    }
}

enum Failed {
    TooLarge,
    Http(reqwest::Error),
}

impl From<reqwest::Error> for Failed {
    fn from(error: reqwest::Error) -> Self {
        Self::Http(error)
    }
}

async fn read(request: reqwest::RequestBuilder, cap: usize) -> Result<Document, Failed> {
    let mut response = request.send().await?;
    if response.content_length().is_some_and(|length| length > cap as u64) {
        return Err(Failed::TooLarge);
    }
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > cap {
            return Err(Failed::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Document { status, headers, body: body.freeze() })
}

/// Formats a URL for a message, without the query, where the URL's author may have put anything.
fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Both fail only for a URL without a host, which has no credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// Returns the resolver's refusal if it caused the error.
fn internal(error: &reqwest::Error) -> Option<Refused> {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<Refused>() {
            return Some(refused.clone());
        }
        cause = error.source();
    }
    None
}

/// Resolves names; refuses a name if any of its addresses is internal.
struct Guarded {
    home: Home,
    lookup: Lookup,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (name, lookup) = (name.as_str().to_owned(), self.lookup.clone());
        let home = self.home.is(&name);
        Box::pin(async move {
            let addresses = lookup(name.clone()).await?;
            if !home && !addresses.iter().all(|address| is_public(address.ip())) {
                return Err(Refused::Internal(name).into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Resolves names with the system's resolver.
pub(crate) fn system() -> Lookup {
    Arc::new(|name| Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    fn foreign(configured: &str, lookup: Lookup) -> Foreign {
        Foreign::new(&url(configured), Duration::from_secs(5), lookup).expect("a client")
    }

    /// Gives every connection the same answer and counts connections.
    async fn server(answer: &'static str) -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let count = Arc::new(AtomicUsize::new(0));
        let seen = count.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                seen.fetch_add(1, Ordering::SeqCst);
                let mut head = [0; 1024];
                let _ = stream.read(&mut head).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (port, count)
    }

    #[tokio::test]
    async fn h68_a_name_that_leads_inside_is_not_connected_to() {
        let (port, count) = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
        let inside: Lookup = Arc::new(|_| Box::pin(async { Ok(vec![([127, 0, 0, 1], 0).into()]) }));
        let foreign = foreign("https://mcp.example.com/mcp", inside);
        let error =
            foreign.get(&url(&format!("https://auth.example.com:{port}/x?secret")), HeaderMap::new(), 1024).await;
        let error = error.expect_err("refused");
        assert!(matches!(&error, Error::Refused { reason: Refused::Internal(name), .. } if name == "auth.example.com"));
        assert!(!error.to_string().contains("secret"), "{error}");
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn h68_one_internal_address_among_public_ones_is_enough() {
        let mixed: Lookup =
            Arc::new(|_| Box::pin(async { Ok(vec![([1, 1, 1, 1], 0).into(), ([10, 0, 0, 1], 0).into()]) }));
        let foreign = foreign("https://mcp.example.com/mcp", mixed);
        let error = foreign.get(&url("https://auth.example.com/"), HeaderMap::new(), 1024).await.expect_err("refused");
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }

    #[tokio::test]
    async fn h68_a_redirect_is_an_answer_and_not_followed() {
        let (target, reached) = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let answer = format!("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{target}/\r\ncontent-length: 0\r\n\r\n");
        let (port, _) = server(Box::leak(answer.into_boxed_str())).await;
        let foreign = foreign("http://127.0.0.1:1/mcp", system());
        let document = foreign.get(&url(&format!("http://127.0.0.1:{port}/")), HeaderMap::new(), 1024).await;
        assert_eq!(document.expect("a document").status, 302);
        assert_eq!(reached.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn documents_have_a_cap_with_and_without_a_length() {
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n12345",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n",
        ] {
            let (port, _) = server(answer).await;
            let (foreign, url) =
                (foreign("http://localhost:1/mcp", system()), url(&format!("http://127.0.0.1:{port}/")));
            let whole = foreign.get(&url, HeaderMap::new(), 5).await.expect("a document");
            assert_eq!(&*whole.body, b"12345");
            let error = foreign.get(&url, HeaderMap::new(), 4).await.expect_err("too large");
            assert!(matches!(error, Error::TooLarge { cap: 4, .. }), "{error}");
        }
    }

    #[test]
    fn h105_a_url_is_told_in_few_characters() {
        let host = "x".repeat(1 << 20);
        let (plain, own) = (url(&format!("ftp://{host}/")), Home::of(&url("https://a.example/")));
        let errors = [
            Error::Refused { url: plain.to_string(), reason: own.judge(&plain).unwrap_err() },
            Error::Refused { url: host.clone(), reason: Refused::Internal(host.clone()) },
            Error::Unreachable { origin: host.clone(), reason: "away".to_owned(), unsent: true },
            Error::TooLarge { origin: host, cap: 1 },
        ];
        for error in errors {
            let why = error.to_string();
            assert!(why.len() < 1024, "{} bytes: {why:.300}", why.len());
        }
    }
}
