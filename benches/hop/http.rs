//! A bare HTTP/1.1 client for Streamable HTTP: one persistent connection, one write per request, no needless copies, so
//! that the other side dominates the measurement.

use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf as _, BytesMut};
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::call::{self, excerpt};

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    received: BytesMut,
    sending: Vec<u8>,
    body: Vec<u8>,
}

/// One session in a revision with `initialize`: the common start of its requests.
#[derive(Debug)]
pub(crate) struct Session {
    head: String,
}

/// The relevant part of a response's head.
#[derive(Debug, Default)]
struct Head {
    status: u16,
    length: Option<usize>,
    chunked: bool,
    events: bool,
    session: Option<String>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: BytesMut::with_capacity(16 * 1024), sending: Vec::new(), body: Vec::new() })
    }

    /// Posts a message and returns the one JSON-RPC response, which is empty after HTTP 202.
    pub(crate) async fn post(&mut self, session: &Session, message: &[u8]) -> Result<&[u8]> {
        self.sending.clear();
        write!(self.sending, "POST {}Content-Length: {}\r\n\r\n", session.head, message.len())?;
        self.sending.extend_from_slice(message);
        let head = self.exchange().await?;
        ensure!(matches!(head.status, 200 | 202), "HTTP {}: {}", head.status, excerpt(&self.body));
        if head.events {
            let answer = last_event(&self.body)?;
            self.body = answer;
        }
        Ok(&self.body)
    }

    /// Ends the session, like a well-behaved client.
    pub(crate) async fn delete(&mut self, session: &Session) -> Result<()> {
        self.sending.clear();
        write!(self.sending, "DELETE {}\r\n", session.head)?;
        let head = self.exchange().await?;
        ensure!(matches!(head.status, 200 | 202 | 204 | 405), "HTTP {} to DELETE", head.status);
        Ok(())
    }

    /// Sends `sending`, then reads the head and body of the response.
    async fn exchange(&mut self) -> Result<Head> {
        self.stream.write_all(&self.sending).await.context("cannot send")?;
        let end = loop {
            if let Some(at) = memmem::find(&self.received, b"\r\n\r\n") {
                break at;
            }
            self.receive().await?;
        };
        let head = Head::parse(&self.received[..end])?;
        self.received.advance(end + 4);
        self.body.clear();
        match head {
            Head { chunked: true, .. } => self.read_chunks().await?,
            Head { length: Some(length), .. } => self.read_exactly(length).await?,
            Head { status: 202 | 204, .. } => {}
            Head { .. } => bail!("HTTP {} without a length", head.status),
        }
        Ok(head)
    }

    async fn receive(&mut self) -> Result<()> {
        self.received.reserve(16 * 1024);
        let count = self.stream.read_buf(&mut self.received).await.context("cannot receive")?;
        ensure!(count > 0, "the other side closed the connection");
        Ok(())
    }

    /// Moves `length` bytes into `body`. Bytes that are not buffered yet are read directly into it.
    async fn read_exactly(&mut self, length: usize) -> Result<()> {
        let there = self.received.len().min(length);
        self.body.extend_from_slice(&self.received[..there]);
        self.received.advance(there);
        self.body.reserve(length - there);
        let mut rest = (&mut self.stream).take((length - there) as u64);
        while rest.limit() > 0 {
            ensure!(rest.read_buf(&mut self.body).await? > 0, "the other side closed the connection within a body");
        }
        Ok(())
    }

    async fn read_chunks(&mut self) -> Result<()> {
        loop {
            let end = self.line().await?;
            let size = std::str::from_utf8(&self.received[..end])?.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).with_context(|| format!("chunk size {size:?}"))?;
            self.received.advance(end + 2);
            if size == 0 {
                // Trailers, then an empty line.
                loop {
                    let end = self.line().await?;
                    self.received.advance(end + 2);
                    if end == 0 {
                        return Ok(());
                    }
                }
            }
            while self.received.len() < size + 2 {
                self.receive().await?;
            }
            self.body.extend_from_slice(&self.received[..size]);
            self.received.advance(size + 2);
        }
    }

    async fn line(&mut self) -> Result<usize> {
        loop {
            if let Some(at) = memmem::find(&self.received, b"\r\n") {
                return Ok(at);
            }
            self.receive().await?;
        }
    }
}

impl Session {
    /// Performs the handshake over `connection`.
    pub(crate) async fn open(connection: &mut Connection) -> Result<Self> {
        let host = connection.stream.peer_addr()?;
        let start = format!(
            "/mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n"
        );
        let mut session = Self { head: start };
        connection.sending.clear();
        write!(
            connection.sending,
            "POST {}Content-Length: {}\r\n\r\n{}",
            session.head,
            call::INITIALIZE.len(),
            call::INITIALIZE
        )?;
        let head = connection.exchange().await.context("initialize")?;
        ensure!(head.status == 200, "HTTP {} to initialize: {}", head.status, excerpt(&connection.body));
        let answer = if head.events { last_event(&connection.body)? } else { std::mem::take(&mut connection.body) };
        call::answer_id(&answer).context("initialize")?;
        if let Some(id) = head.session {
            session.head.push_str(&format!("Mcp-Session-Id: {id}\r\n"));
        }
        session.head.push_str(&format!("MCP-Protocol-Version: {}\r\n", call::REVISION));
        connection.post(&session, call::INITIALIZED.as_bytes()).await.context("notifications/initialized")?;
        Ok(session)
    }
}

impl Head {
    fn parse(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).context("a head that is not text")?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let mut head = Self { status: status.with_context(|| format!("not HTTP: {text:?}"))?, ..Self::default() };
        for line in lines {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                head.length = Some(value.parse().with_context(|| format!("content-length {value:?}"))?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.chunked = value.eq_ignore_ascii_case("chunked");
            } else if name.eq_ignore_ascii_case("content-type") {
                head.events = value.starts_with("text/event-stream");
            } else if name.eq_ignore_ascii_case("mcp-session-id") {
                head.session = Some(value.to_owned());
            }
        }
        Ok(head)
    }
}

/// Returns the data of the last SSE event that has data: the event stream of a request ends with the response.
fn last_event(body: &[u8]) -> Result<Vec<u8>> {
    let mut last = Vec::new();
    let mut open = false;
    for line in body.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(data) = line.strip_prefix(b"data:") {
            let data = data.strip_prefix(b" ").unwrap_or(data);
            if data.is_empty() {
                continue;
            }
            if open {
                last.push(b'\n');
            } else {
                last.clear();
            }
            last.extend_from_slice(data);
            open = true;
        } else if line.is_empty() {
            open = false;
        }
    }
    ensure!(!last.is_empty(), "an event stream without a response: {}", excerpt(body));
    Ok(last)
}
