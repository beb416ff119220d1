//! Two servers at one URL, one for each era: each request goes to the server of its era.
//!
//! The one with sessions asks by requests, and announces changed resources. The one without asks by results, and offers
//! no subscriptions to resources. They share nothing, like servers whose handlers for both eras were written
//! separately.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, ORIGIN, TRANSFER_ENCODING};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mcp_host::Eras;
use mcp_host::protocol::{ProtocolVersion, meta};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::server;
use crate::ways::Ways;

type Body = BoxBody<Bytes, hyper::Error>;

/// Where the two servers listen, and their public address.
#[derive(Clone)]
struct Doors {
    outside: SocketAddr,
    with_sessions: SocketAddr,
    stateless: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// Serves both until the listener fails.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    let with_sessions = open(Ways::Requests, Eras::Legacy).await?;
    let stateless = open(Ways::Results, Eras::Modern).await?;
    // One connection per request, so that a request the client gives up also ends upstream.
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
    let doors = Doors { outside: listener.local_addr()?, with_sessions, stateless, client };
    let connections = TaskTracker::new();
    loop {
        let (stream, _) = listener.accept().await?;
        let doors = doors.clone();
        connections.spawn(async move {
            let pass = service_fn(|request| {
                let doors = doors.clone();
                async move { Ok::<_, Infallible>(doors.pass(request).await.unwrap_or_else(|why| unreachable(&why))) }
            });
            // Clients may disconnect midway.
            let _ = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(stream), pass).await;
        });
    }
}

/// Starts one of the two on a port of its own.
async fn open(ways: Ways, eras: Eras) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(server(ways).eras(eras).serve_http(listener));
    Ok(address)
}

impl Doors {
    async fn pass(&self, request: Request<Incoming>) -> Result<Response<Body>, String> {
        let (mut head, body) = request.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let version = head.headers.get("mcp-protocol-version").and_then(|value| value.to_str().ok());
        let is_stateless = is_stateless(&message, version);
        let to = if is_stateless { self.stateless } else { self.with_sessions };
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        head.uri = format!("http://{to}{path}").parse::<Uri>().map_err(|error| error.to_string())?;
        head.headers.remove(CONTENT_LENGTH);
        head.headers.remove(TRANSFER_ENCODING);
        self.rename(&mut head.headers, to);
        let request = Request::from_parts(head, Full::new(body));
        let answer = self.client.request(request).await.map_err(|error| error.to_string())?;
        if is_stateless && message["method"] == "server/discover" {
            return without_subscriptions(answer).await;
        }
        Ok(answer.map(|body| body.boxed()))
    }

    /// Replaces the public host name by the one that the inner server knows; other names stay, for it to reject.
    fn rename(&self, headers: &mut HeaderMap, to: SocketAddr) {
        let (outside, inside) = (format!(":{}", self.outside.port()), format!(":{}", to.port()));
        for name in [HOST, ORIGIN] {
            let place = headers.get(&name).and_then(|value| value.to_str().ok()?.strip_suffix(&outside));
            if let Some(Ok(value)) = place.map(|place| HeaderValue::from_str(&format!("{place}{inside}"))) {
                headers.insert(name, value);
            }
        }
    }
}

/// Reports whether a message belongs to the era without sessions, by its body or its header.
fn is_stateless(message: &Value, version: Option<&str>) -> bool {
    let claims = message["params"]["_meta"][meta::PROTOCOL_VERSION].is_string();
    claims || version.is_some_and(|version| ProtocolVersion::parse_handshake(version).is_none())
}

async fn without_subscriptions(answer: Response<Incoming>) -> Result<Response<Body>, String> {
    let (mut head, body) = answer.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    let text = String::from_utf8_lossy(&body).replace("\"subscribe\":true", "\"subscribe\":false");
    head.headers.remove(CONTENT_LENGTH);
    Ok(Response::from_parts(head, full(text)))
}

fn unreachable(why: &str) -> Response<Body> {
    let mut answer = Response::new(full(why.to_owned()));
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}

fn full(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {}).boxed()
}
