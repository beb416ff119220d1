//! A connection of a bad client, and its requests, byte by byte.

use std::io;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::Target;

/// A connection.
#[derive(Debug)]
pub(super) struct Wire(pub(super) TcpStream);

/// The response to a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) text: String,
}

impl Wire {
    pub(super) async fn open(target: &Target) -> io::Result<Self> {
        Ok(Self(TcpStream::connect(target.place.address).await?))
    }

    /// Opens a connection with a small receive buffer.
    pub(super) async fn narrow(target: &Target) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4096)?;
        Ok(Self(socket.connect(target.place.address).await?))
    }

    pub(super) async fn send(&mut self, text: &str) -> io::Result<()> {
        self.0.write_all(text.as_bytes()).await
    }

    /// Waits until the host closes, and discards what it sends.
    pub(super) async fn closed(&mut self) {
        let mut bytes = [0; 4096];
        while self.0.read(&mut bytes).await.is_ok_and(|length| length > 0) {}
    }

    /// Reads the whole response: only its head if it is a stream that goes on.
    pub(super) async fn answer(&mut self, goes_on: bool) -> io::Result<Answer> {
        let mut bytes = Vec::new();
        loop {
            if self.0.read_buf(&mut bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let text = String::from_utf8_lossy(&bytes);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let is_whole = match length {
                Some(length) => body.len() >= length,
                None => goes_on || matches!(status, 202 | 204) || body.ends_with("0\r\n\r\n"),
            };
            if is_whole {
                return Ok(Answer { status, text: text.into_owned() });
            }
        }
    }

    pub(super) async fn ask(&mut self, text: &str) -> io::Result<Answer> {
        self.send(text).await?;
        self.answer(false).await
    }

    /// Opens a session.
    pub(super) async fn session(&mut self, target: &Target, capabilities: &Value) -> io::Result<String> {
        let answer = self.ask(&post(target, "", &hello(capabilities))).await?;
        let id = answer.text.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        let id = id.ok_or_else(|| io::Error::other(format!("no session: {}", answer.status)))?.to_owned();
        let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.ask(&post(target, &within(&id), &begun)).await?;
        Ok(id)
    }

    /// Ends a session, so that the next one finds room.
    pub(super) async fn end(&mut self, target: &Target, session: &str) -> io::Result<()> {
        let head = head(target, "DELETE /mcp", &within(session));
        self.ask(&format!("{head}Content-Length: 0\r\n\r\n")).await?;
        Ok(())
    }
}

/// Returns the headers of a request in a session.
pub(super) fn within(session: &str) -> String {
    format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n")
}

/// Returns an unfinished head.
pub(super) fn head(target: &Target, line: &str, headers: &str) -> String {
    let place = &target.place;
    format!(
        "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{headers}",
        place.address, place.other
    )
}

pub(super) fn post_text(target: &Target, headers: &str, body: &str) -> String {
    format!("{}Content-Length: {}\r\n\r\n{body}", head(target, "POST /mcp", headers), body.len())
}

pub(super) fn post(target: &Target, headers: &str, message: &Value) -> String {
    post_text(target, headers, &message.to_string())
}

pub(super) fn get(target: &Target, headers: &str) -> String {
    // It accepts only this type.
    format!("{}\r\n", head(target, "GET /mcp", headers))
}

pub(super) fn hello(capabilities: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": "2025-11-25",
        "capabilities": capabilities, "clientInfo": { "name": "bad", "version": "1" } } })
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(super) fn call(id: u64, tool: &str) -> Value {
    request(id, "tools/call", &json!({ "name": tool, "arguments": { "text": "bad" } }))
}

/// Returns a request of 2026-07-28 and its headers; different words stand for different clients.
pub(super) fn modern(method: &str, mut params: Value, word: &str) -> (String, Value) {
    let name = params["name"].as_str().map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
    let headers = format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}");
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        "io.modelcontextprotocol/clientInfo": { "name": "bad", "version": "1" },
        "mcp-host/affinity": word,
    });
    (headers, request(1, method, &params))
}

pub(super) fn modern_post(target: &Target, method: &str, params: Value, word: &str) -> String {
    let (headers, message) = modern(method, params, word);
    post(target, &headers, &message)
}
