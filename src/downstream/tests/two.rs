//! An HTTP/2 client, and one that breaks the protocol.

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Method, Request, Version};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::support::*;

/// One HTTP/2 connection.
pub(super) struct Two {
    pub(super) send: SendRequest<Bytes>,
    /// Ends with the connection.
    pub(super) connection: JoinHandle<Result<(), h2::Error>>,
    pub(super) port: u16,
    pub(super) session: Option<String>,
}

impl Two {
    pub(super) async fn connect(house: &House) -> Self {
        Self::over(TcpStream::connect(("127.0.0.1", house.port)).await.unwrap(), house.port).await
    }

    pub(super) async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, port: u16) -> Self {
        let (send, connection) = h2::client::handshake(io).await.unwrap();
        Self { send, connection: tokio::spawn(connection), port, session: None }
    }

    /// Connects a client with a session of 2025-11-25.
    pub(super) async fn client(house: &House) -> Self {
        let mut two = Self::connect(house).await;
        let answer = two.post(&initialize("2025-11-25"), &[]).await;
        assert_eq!(answer.status, 200);
        two.session = answer.headers.get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        assert!(two.session.is_some());
        two
    }

    /// Builds a request to our own host name.
    pub(super) fn request(&self, method: &str, path: &str) -> Request<()> {
        let uri = format!("http://127.0.0.1:{}{path}", self.port);
        let method: Method = method.parse().unwrap();
        Request::builder().version(Version::HTTP_2).method(method).uri(uri).body(()).unwrap()
    }

    /// Sends a request and returns the future answer.
    pub(super) async fn tell(&self, request: Request<()>, body: &str) -> ResponseFuture {
        let mut send = self.send.clone().ready().await.unwrap();
        let (answer, mut stream) = send.send_request(request, body.is_empty()).unwrap();
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body.as_bytes()), true).unwrap();
        }
        answer
    }

    pub(super) async fn ask(&self, request: Request<()>, body: &str) -> Answer {
        Answer::of(self.tell(request, body).await).await
    }

    /// Builds a POST of JSON to `/mcp`.
    pub(super) fn posting(&self, more: &[(&'static str, &str)]) -> Request<()> {
        let mut request = self.request("POST", "/mcp");
        let headers = request.headers_mut();
        headers.insert("content-type", "application/json".parse().unwrap());
        headers.insert("accept", "application/json, text/event-stream".parse().unwrap());
        if let Some(session) = &self.session {
            headers.insert("mcp-session-id", session.parse().unwrap());
        }
        for (name, value) in more {
            headers.append(*name, value.parse().unwrap());
        }
        request
    }

    pub(super) async fn post(&self, body: &str, more: &[(&'static str, &str)]) -> Answer {
        let request = self.posting(more);
        self.ask(request, body).await
    }

    /// Sends a modern message.
    pub(super) async fn tell_modern(&self, message: &str) -> ResponseFuture {
        let body: Value = serde_json::from_str(message).unwrap();
        let name = body["params"]["name"].as_str().unwrap();
        let method = body["method"].as_str().unwrap();
        let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", name)];
        let request = self.posting(&headers);
        self.tell(request, message).await
    }
}

/// A whole response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Answer {
    pub(super) async fn of(answer: ResponseFuture) -> Self {
        let (head, mut stream) = answer.await.unwrap().into_parts();
        let mut body = Vec::new();
        while let Some(part) = stream.data().await {
            let part = part.unwrap();
            let _ = stream.flow_control().release_capacity(part.len());
            body.extend_from_slice(&part);
        }
        Self { status: head.status.as_u16(), headers: head.headers, body: String::from_utf8(body).unwrap() }
    }
}

/// A connection of raw frames.
pub(super) struct Frames(pub(super) TcpStream);

pub(super) const HEADERS: u8 = 1;
pub(super) const RESET: u8 = 3;
pub(super) const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

impl Frames {
    /// Sends the preface and the settings.
    pub(super) async fn connect(house: &House) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", house.port)).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut frames = Self(stream);
        frames.put(4, 0, 0, &[]).await.unwrap();
        frames
    }

    pub(super) async fn put(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await
    }

    /// Returns the next frame: kind, stream, and payload; `None` at the end.
    pub(super) async fn take(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }

    /// Returns an uncompressed header block for GET `/healthz`.
    pub(super) fn block(house: &House) -> Vec<u8> {
        let authority = format!("127.0.0.1:{}", house.port);
        let mut block = Vec::new();
        for (name, value) in
            [(":method", "GET"), (":scheme", "http"), (":path", "/healthz"), (":authority", &*authority)]
        {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend(text.as_bytes());
            }
        }
        block
    }
}
