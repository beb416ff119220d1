//! A router with a script behind a door, and a client that speaks bytes.

#![cfg_attr(not(feature = "server"), allow(dead_code, reason = "half of it is for the HTTP door"))]

use std::collections::HashMap;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::config::Limits;
use crate::router::Router;

/// The router of the tests. Its tools: `echo` answers its arguments; `slow` answers when released; `progress` reports
/// once, waits to be released, reports again and answers; `quick` reports and answers at once; `hang_up` is `progress`
/// that asks for the stream to be closed in between; `flood` asks more than a client's queue takes and never answers;
/// `big` answers a mebibyte.
pub(super) fn router() -> Router {
    router_with(|_| {})
}

pub(super) fn router_with(change: impl FnOnce(&mut Limits)) -> Router {
    let mut limits = Limits::default();
    change(&mut limits);
    Router::stub(limits)
}

/// Waits, without time, until something is so.
pub(super) async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

pub(super) fn call(id: u64, tool: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {"id": id}}})
        .to_string()
}

pub(super) fn initialize(revision: &str) -> String {
    let client = json!({"name": "test", "version": "0"});
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string()
}

#[cfg(feature = "server")]
pub(super) use self::http::*;
#[cfg(feature = "server")]
mod http {
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::downstream::http::{Settings, serve};

    /// A door on a port of its own.
    pub(crate) struct House {
        pub(crate) router: Router,
        pub(crate) port: u16,
        pub(crate) stop: CancellationToken,
        pub(crate) served: JoinHandle<std::io::Result<()>>,
    }

    pub(crate) async fn house() -> House {
        house_of(router()).await
    }

    pub(crate) async fn house_of(router: Router) -> House {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let served = tokio::spawn(serve(router.clone(), listener, Settings::default(), stop.clone()));
        House { router, port, stop, served }
    }

    impl House {
        pub(crate) async fn connect(&self) -> Peer {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
            Peer { stream: BufReader::new(stream), port: self.port, session: None }
        }

        /// A client with a session of that revision.
        pub(crate) async fn client(&self, revision: &str) -> Peer {
            let mut peer = self.connect().await;
            let head = peer.post(&initialize(revision)).await;
            assert_eq!(head.status, 200);
            peer.body(&head).await;
            peer.session = head.headers.get("mcp-session-id").cloned();
            assert!(peer.session.is_some());
            peer
        }

        /// Another connection of the same client.
        pub(crate) async fn again(&self, peer: &Peer) -> Peer {
            let mut again = self.connect().await;
            again.session.clone_from(&peer.session);
            again
        }
    }

    /// One connection of a client.
    pub(crate) struct Peer {
        pub(crate) stream: BufReader<TcpStream>,
        port: u16,
        pub(crate) session: Option<String>,
    }

    #[derive(Debug)]
    pub(crate) struct Head {
        pub(crate) status: u16,
        pub(crate) headers: HashMap<String, String>,
    }

    impl Head {
        pub(crate) fn kind(&self) -> &str {
            self.headers.get("content-type").map_or("", String::as_str)
        }
    }

    impl Peer {
        /// Sends a request as it stands; `HOST` becomes our own.
        pub(crate) async fn send(&mut self, request: &str) -> Head {
            let request = request.replace("HOST", &format!("127.0.0.1:{}", self.port));
            self.stream.write_all(request.as_bytes()).await.unwrap();
            self.head().await
        }

        pub(crate) fn request(&self, method: &str, more: &str, body: &str) -> String {
            let session = self.session.as_ref().map_or_else(String::new, |id| format!("Mcp-Session-Id: {id}\r\n"));
            let length = body.len();
            format!(
                "{method} /mcp HTTP/1.1\r\nHost: HOST\r\nAccept: application/json, text/event-stream\r\n\
                 Content-Type: application/json\r\n{session}{more}Content-Length: {length}\r\n\r\n{body}"
            )
        }

        pub(crate) async fn post(&mut self, body: &str) -> Head {
            let request = self.request("POST", "", body);
            self.send(&request).await
        }

        pub(crate) async fn get(&mut self, more: &str) -> Head {
            let request = self.request("GET", more, "");
            self.send(&request).await
        }

        /// Sends a request whose answer is not waited for.
        pub(crate) async fn tell(&mut self, body: &str) {
            let request = self.request("POST", "", body).replace("HOST", &format!("127.0.0.1:{}", self.port));
            self.stream.write_all(request.as_bytes()).await.unwrap();
        }

        /// Posts a request that is answered as JSON.
        pub(crate) async fn ask(&mut self, body: &str) -> Value {
            let head = self.post(body).await;
            assert_eq!((head.status, head.kind()), (200, "application/json"));
            serde_json::from_str(&self.body(&head).await).unwrap()
        }

        pub(crate) async fn head(&mut self) -> Head {
            let mut lines = Vec::new();
            loop {
                let line = self.line().await;
                if line.is_empty() {
                    break;
                }
                lines.push(line);
            }
            let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
            let pairs = lines[1..].iter().map(|line| line.split_once(": ").unwrap());
            Head { status, headers: pairs.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect() }
        }

        /// The whole body.
        pub(crate) async fn body(&mut self, head: &Head) -> String {
            if head.headers.contains_key("transfer-encoding") {
                let mut all = String::new();
                while let Some(chunk) = self.chunk().await {
                    all.push_str(&chunk);
                }
                return all;
            }
            let length = head.headers.get("content-length").map_or(0, |length| length.parse().unwrap());
            let mut body = vec![0; length];
            self.stream.read_exact(&mut body).await.unwrap();
            String::from_utf8(body).unwrap()
        }

        /// The next piece of a stream; `None` at its end.
        pub(crate) async fn chunk(&mut self) -> Option<String> {
            let size = usize::from_str_radix(&self.line().await, 16).unwrap();
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk).await.unwrap();
            chunk.truncate(size);
            (size > 0).then(|| String::from_utf8(chunk).unwrap())
        }

        async fn line(&mut self) -> String {
            let mut line = String::new();
            self.stream.read_line(&mut line).await.unwrap();
            line.trim_end().to_owned()
        }
    }
}
