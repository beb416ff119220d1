//! A client over HTTP, and the responses it may get.

use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

/// Where a client sends, and its session.
#[derive(Debug)]
pub(crate) struct Peer {
    client: Client<HttpConnector, Full<bytes::Bytes>>,
    url: String,
    session: Option<String>,
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    One(Value),
    /// The connection broke.
    Closed,
    /// The status says that nothing was done.
    Refused(u16),
    Wrong(String),
}

impl Peer {
    /// Opens a session.
    pub(crate) async fn open(url: String) -> Result<Self, Answer> {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut peer = Self { client, url, session: None };
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "soak", "version": "1" } } });
        match peer.post(&hello).await {
            Answer::One(_) => {}
            other => return Err(other),
        }
        peer.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        Ok(peer)
    }

    /// Calls a tool.
    pub(crate) async fn call(&mut self, id: u64, name: &str, arguments: &Value) -> Answer {
        let params = json!({ "name": name, "arguments": arguments });
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await
    }

    /// Lists the tools.
    pub(crate) async fn list(&mut self) -> Result<(), String> {
        match self.post(&json!({ "jsonrpc": "2.0", "id": 0, "method": "tools/list" })).await {
            Answer::One(answer) if answer["result"]["tools"].is_array() => Ok(()),
            other => Err(format!("no list: {other:?}")),
        }
    }

    /// Ends its session.
    pub(crate) async fn leave(self) -> Result<(), String> {
        let session = self.session.unwrap_or_default();
        let request = hyper::Request::delete(&self.url).header("mcp-session-id", session);
        let request = request.body(Full::default()).map_err(|error| error.to_string())?;
        let response = self.client.request(request).await.map_err(|error| error.to_string())?;
        if response.status().is_success() { Ok(()) } else { Err(format!("DELETE: {}", response.status())) }
    }

    async fn post(&mut self, message: &Value) -> Answer {
        let mut request = hyper::Request::post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session.as_str()).header("mcp-protocol-version", "2025-11-25");
        }
        let Ok(request) = request.body(Full::new(message.to_string().into())) else {
            return Answer::Wrong("no request".to_owned());
        };
        let Ok(response) = self.client.request(request).await else { return Answer::Closed };
        let status = response.status();
        if let Some(id) = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()) {
            self.session = Some(id.to_owned());
        }
        let kind = response.headers().get("content-type");
        let stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event"));
        let Ok(body) = response.into_body().collect().await else { return Answer::Closed };
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        if !status.is_success() {
            return Answer::Refused(status.as_u16());
        }
        let Some(id) = message.get("id") else { return Answer::One(Value::Null) };
        let data: Vec<&str> =
            if stream { body.lines().filter_map(|line| line.strip_prefix("data:")).collect() } else { vec![&body] };
        let messages = data.iter().filter_map(|data| serde_json::from_str::<Value>(data).ok());
        let mut answers: Vec<Value> =
            messages.filter(|message| message.get("id") == Some(id) && message.get("method").is_none()).collect();
        match (answers.len(), answers.pop()) {
            (1, Some(answer)) => Answer::One(answer),
            // A stream that ends before its response, but with an event id to resume from, counts as a closed
            // connection.
            (0, _) if stream && body.lines().any(|line| line.starts_with("id:")) => Answer::Closed,
            (count, _) => Answer::Wrong(format!("{count} answers in: {}", body.chars().take(300).collect::<String>())),
        }
    }
}
