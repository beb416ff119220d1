//! A host whose server requires a new login, clients that talk to it, and a browser.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcp_host::Host;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::super::site::Site;
use super::super::world::{Issuing, PATIENCE, agreed, call, config, protected, sign_in};

/// A host whose server `a` has forgotten its login, and the host's endpoint.
pub(super) struct World {
    pub(super) issuing: Arc<Issuing>,
    pub(super) issuer: Site,
    pub(super) site: Site,
    pub(super) host: Host,
    pub(super) address: String,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(|_| {}, "127.0.0.1:0").await
    }

    pub(super) async fn with(change: impl FnOnce(&mut mcp_host::Config), listen: &str) -> Self {
        let (issuing, issuer, site) = protected().await;
        Self::of(issuing, issuer, site, change, listen).await
    }

    pub(super) async fn of(
        issuing: Arc<Issuing>,
        issuer: Site,
        site: Site,
        change: impl FnOnce(&mut mcp_host::Config),
        listen: &str,
    ) -> Self {
        let mut config = config(&[&site]);
        change(&mut config);
        let host = Host::builder().config(config).start().await.unwrap();
        signed_in(&host).await;
        Self::open(issuing, issuer, site, host, listen).await
    }

    /// Opens the endpoint of this host.
    pub(super) async fn open(issuing: Arc<Issuing>, issuer: Site, site: Site, host: Host, listen: &str) -> Self {
        let listener = TcpListener::bind(listen).await.unwrap();
        let address = format!("127.0.0.1:{}", listener.local_addr().unwrap().port());
        let endpoint = host.open_http(listener).unwrap();
        tokio::spawn(endpoint.serve());
        issuing.forget();
        Self { issuing, issuer, site, host, address }
    }

    /// Sends a request without a session.
    pub(super) async fn modern(&self, capabilities: &Value, more: &Value) -> Post {
        let params = merged(json!({ "name": "a__t", "arguments": {}, "_meta": meta(capabilities) }), more);
        self.request("tools/call", "a__t", params).await
    }

    pub(super) async fn request(&self, method: &str, name: &str, params: Value) -> Post {
        let headers = format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n");
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        Post::send(&self.address, &headers, &body).await
    }

    /// Returns the response to a request without a session, of a client that can be asked to open a page.
    pub(super) async fn ask(&self, more: &Value) -> Value {
        self.modern(&url(), more).await.next().await["result"].clone()
    }

    /// Opens a session.
    pub(super) async fn session(&self, revision: &str, capabilities: &Value) -> Session<'_> {
        let params = json!({ "protocolVersion": revision, "capabilities": capabilities, "clientInfo": { "name": "c", "version": "1" } });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let mut post = Post::send(&self.address, "", &body).await;
        post.next().await;
        let id = post.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
        Session { world: self, headers: format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {revision}\r\n") }
    }
}

/// Returns the `_meta` of a request without a session.
pub(super) fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

pub(super) fn merged(mut params: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().into_iter().flatten() {
        params[name] = value.clone();
    }
    params
}

/// Signs in at server `a`, and checks that it works.
pub(super) async fn signed_in(host: &Host) {
    sign_in(host).await;
    call(host).await.unwrap();
}

pub(super) struct Session<'a> {
    world: &'a World,
    headers: String,
}

impl Session<'_> {
    pub(super) async fn call(&self, id: u64) -> Post {
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "a__t", "arguments": {} } });
        Post::send(&self.world.address, &self.headers, &body).await
    }

    pub(super) async fn cancel(&self, id: u64) {
        let params = json!({ "requestId": id });
        let body = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        Post::send(&self.world.address, &self.headers, &body).await;
    }

    pub(super) async fn answer(&self, question: &Value, action: &str) {
        let body = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": action } });
        Post::send(&self.world.address, &self.headers, &body).await;
    }
}

/// A request over HTTP, and its response.
pub(super) struct Post {
    pub(super) head: String,
    lines: BufReader<TcpStream>,
}

impl Post {
    pub(super) async fn send(address: &str, headers: &str, body: &Value) -> Self {
        let body = body.to_string();
        let text = format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).await.unwrap() > 0, "{head}");
        }
        Self { head, lines }
    }

    /// Waits until nothing more comes.
    pub(super) async fn end(mut self) {
        let mut rest = String::new();
        tokio::time::timeout(PATIENCE, self.lines.read_to_string(&mut rest)).await.unwrap().unwrap();
        assert!(!rest.contains("jsonrpc"), "{rest}");
    }

    /// Returns the next message: the body, or an event of a stream in pieces.
    pub(super) async fn next(&mut self) -> Value {
        next(&mut self.lines).await
    }
}

pub(super) async fn next(lines: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Value {
    let found = async {
        loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).await.unwrap() > 0, "no more comes");
            let text = line.strip_prefix("data: ").unwrap_or(&line);
            if text.starts_with('{') {
                return serde_json::from_str(text).unwrap();
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap()
}

/// Returns what a browser gets at an address: status and headers.
pub(super) async fn opened(address: &str, cookie: Option<&str>) -> (u16, BTreeMap<String, String>) {
    let url: url::Url = address.parse().unwrap();
    let at = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let cookie = cookie.map(|cookie| format!("cookie: {cookie}\r\n")).unwrap_or_default();
    let mut stream = TcpStream::connect(&at).await.unwrap();
    let path = &url[url::Position::BeforePath..];
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {at}\r\n{cookie}\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let headers = answer.lines().skip(1).map_while(|line| line.split_once(": "));
    (status, headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// A browser whose user agrees to everything.
pub(super) async fn browse(address: &str, issuer: &Site) {
    let (status, headers) = opened(address, None).await;
    let page = &headers["location"];
    assert!(status == 303 && page.starts_with(&format!("{}/authorize?", issuer.url)), "{status} {page}");
    let back = agreed(&page.parse().unwrap());
    // A user who was merely sent the page is not believed.
    assert_eq!(opened(&back, None).await.0, 403);
    assert_eq!(opened(&back, headers["set-cookie"].split(';').next()).await.0, 200);
}

pub(super) fn url() -> Value {
    json!({ "elicitation": { "url": {} } })
}

pub(super) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

/// Returns the page that a client is asked to open.
pub(super) fn page<'a>(params: &'a Value, issuer: &Site) -> &'a str {
    let host = issuer.url.strip_prefix("http://").unwrap();
    let message = params["message"].as_str().unwrap();
    assert!(params["mode"] == "url" && message.contains("\"a\"") && message.contains(host), "{params}");
    let page = params["url"].as_str().unwrap();
    assert!(page.starts_with("http://127.0.0.1:") && page.contains("/login/"), "{page}");
    page
}

/// Returns the page of a result that asks, and how to retry.
pub(super) fn asked<'a>(result: &'a Value, issuer: &Site) -> (&'a str, impl Fn(&str) -> Value + use<'a>) {
    assert_eq!(result["resultType"], "input_required", "{result}");
    let question = &result["inputRequests"]["signIn"];
    assert_eq!(question["method"], "elicitation/create");
    let state = &result["requestState"];
    let back =
        move |action: &str| json!({ "requestState": state, "inputResponses": { "signIn": { "action": action } } });
    (page(&question["params"], issuer), back)
}

pub(super) fn is_refusal(result: &Value) {
    let error = &result["_meta"]["mcp-host/error"];
    assert_eq!(
        (&result["isError"], &error["kind"], &error["sent"]),
        (&json!(true), &json!("auth_required"), &json!(false))
    );
    assert!(text(result).contains("mcp-host login a"), "{result}");
}
