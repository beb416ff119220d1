//! 2026-07-28 over HTTP: each request stands alone, and says whether its client supports tasks.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use mcp_host::protocol::{
    ErrorObject, Message, Method, Outcome, ProtocolVersion, Raw, Request, RequestId, Response, code, meta,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::task::{Store, Task};
use crate::tools::{self, Support};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
const LARGEST: usize = 1 << 20;

type Headers = HashMap<String, String>;

/// Serves connections until the listener fails.
pub(crate) async fn serve(listener: &TcpListener, tasks: Arc<Store>) -> std::io::Result<()> {
    let connections = TaskTracker::new();
    loop {
        let (stream, _) = listener.accept().await?;
        let tasks = tasks.clone();
        connections.spawn(async move {
            // Clients may disconnect midway.
            let _ = connection(stream, &tasks).await;
        });
    }
}

async fn connection(stream: TcpStream, tasks: &Store) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some((verb, headers, body)) = request(&mut stream).await? {
        if verb != "POST" {
            reply(&mut stream, 405, "").await?;
            continue;
        }
        match Message::parse(&body) {
            Ok(Message::Request(request)) if request.method == Method::Listen => {
                return match check(&request, &headers) {
                    Ok(()) => listen(&mut stream, &request, tasks).await,
                    Err(error) => respond(&mut stream, request.id, Err(error)).await,
                };
            }
            Ok(Message::Request(request)) => {
                let id = request.id.clone();
                let outcome = match check(&request, &headers) {
                    Ok(()) => answer(request, tasks).await,
                    Err(error) => Err(error),
                };
                respond(&mut stream, id, outcome).await?;
            }
            Ok(_) => reply(&mut stream, 202, "").await?,
            Err(wrong) => {
                let error = json!({ "jsonrpc": "2.0", "error": { "code": wrong.code, "message": wrong.reason } });
                reply(&mut stream, 400, &error.to_string()).await?;
            }
        }
    }
    Ok(())
}

/// Reads one request: its verb, its headers by lower-case name, its body.
async fn request(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<(String, Headers, Bytes)>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let verb = line.split(' ').next().unwrap_or_default().to_owned();
    let mut headers = Headers::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; LARGEST.min(length)];
    stream.read_exact(&mut body).await?;
    Ok(Some((verb, headers, body.into())))
}

/// Checks what a request must state in both its headers and its body.
fn check(request: &Request, headers: &Headers) -> Result<(), ErrorObject> {
    let own = own(request);
    let version = own[meta::PROTOCOL_VERSION].as_str();
    if version.is_none() || !own[meta::CLIENT_CAPABILITIES].is_object() {
        let text = format!("`_meta` must have {} and {}", meta::PROTOCOL_VERSION, meta::CLIENT_CAPABILITIES);
        return Err(ErrorObject::invalid_params(text));
    }
    let params = request.params.clone().unwrap_or_else(Raw::empty_object);
    let named = match request.method {
        Method::ToolsCall => params.text("name"),
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => params.text("taskId"),
        _ => None,
    };
    let method = Some(request.method.as_str());
    let pairs = [("mcp-protocol-version", version), ("mcp-method", method), ("mcp-name", named.as_deref())];
    for (header, wanted) in pairs {
        if wanted.is_some() && headers.get(header).map(String::as_str) != wanted {
            return Err(ErrorObject::new(code::HEADER_MISMATCH, format!("`{header}` does not match the body")));
        }
    }
    let spoken = ProtocolVersion::LATEST_MODERN.as_str();
    if version != Some(spoken) {
        let data = Raw::from_value(&json!({ "supported": [spoken], "requested": version }));
        return Err(ErrorObject::new(code::UNSUPPORTED_VERSION, "this server speaks 2026-07-28").with_data(data));
    }
    Ok(())
}

/// Returns the `_meta` of a request.
fn own(request: &Request) -> Value {
    let own = request.params.as_ref().and_then(|params| params.member("_meta"));
    own.and_then(|own| own.read().ok()).unwrap_or_default()
}

fn knows_tasks(request: &Request) -> bool {
    own(request)[meta::CLIENT_CAPABILITIES]["extensions"][EXTENSION].is_object()
}

fn lacks_tasks() -> ErrorObject {
    let wanted = json!({ "requiredCapabilities": { "extensions": { EXTENSION: {} } } });
    ErrorObject::new(code::MISSING_CAPABILITY, format!("{EXTENSION} is not declared"))
        .with_data(Raw::from_value(&wanted))
}

async fn answer(request: Request, tasks: &Store) -> Outcome {
    let params: Value = match &request.params {
        Some(params) => params.read().map_err(|error| ErrorObject::invalid_params(error.to_string()))?,
        None => json!({}),
    };
    let id = params["taskId"].as_str().unwrap_or_default();
    let task = || if knows_tasks(&request) { tasks.find(id) } else { Err(lacks_tasks()) };
    let result = match request.method {
        Method::Discover => json!({
            "supportedVersions": [ProtocolVersion::LATEST_MODERN.as_str()],
            "capabilities": { "tools": {}, "extensions": { EXTENSION: {} } },
            "ttlMs": 60_000, "cacheScope": "public",
        }),
        Method::ToolsList => {
            let mut list = tools::list(None);
            list["ttlMs"] = 60_000.into();
            list["cacheScope"] = "public".into();
            list
        }
        Method::ToolsCall => call(&request, &params, tasks).await?,
        Method::TasksGet => task()?.detailed(),
        Method::TasksCancel => {
            let task = task()?;
            task.cancel.cancel();
            json!({})
        }
        Method::TasksUpdate => {
            let task = task()?;
            for (key, answer) in params["inputResponses"].as_object().into_iter().flatten() {
                task.answer(key, answer.clone());
            }
            json!({})
        }
        other => return Err(ErrorObject::method_not_found(other.as_str())),
    };
    Ok(finished(result))
}

async fn call(request: &Request, params: &Value, tasks: &Store) -> Result<Value, ErrorObject> {
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let arguments = params["arguments"].clone();
    let support = tools::support(&name)?;
    if support == Support::Never || !knows_tasks(request) {
        return match support {
            Support::Required => Err(lacks_tasks()),
            _ => tools::run(name, arguments, None, None).await,
        };
    }
    let mut told = None;
    if name == "test_tool_with_task" {
        let Some(name) = params["inputResponses"]["user_name"]["content"]["name"].as_str() else {
            let asked = json!({ "user_name": tools::name_question() });
            return Ok(json!({ "resultType": "input_required", "inputRequests": asked }));
        };
        told = Some(name.to_owned());
    }
    let task = tasks.start(|task| tools::run(name, arguments, Some(task), told));
    let mut created = task.modern();
    created["resultType"] = "task".into();
    Ok(created)
}

/// Completes a result with the members that every result has.
fn finished(mut result: Value) -> Raw {
    if result["resultType"].is_null() {
        result["resultType"] = "complete".into();
    }
    result["_meta"][meta::SERVER_INFO] = json!({ "name": "tasks", "version": env!("CARGO_PKG_VERSION") });
    Raw::from_value(&result)
}

/// Streams task notifications until the client leaves.
async fn listen(stream: &mut BufReader<TcpStream>, request: &Request, tasks: &Store) -> std::io::Result<()> {
    let filter = request.params.as_ref().and_then(|params| params.member("notifications"));
    let ids = filter.and_then(|filter| filter.member("taskIds")?.read::<Vec<String>>().ok());
    if ids.is_some() && !knows_tasks(request) {
        return respond(stream, request.id.clone(), Err(lacks_tasks())).await;
    }
    let known: Vec<_> = ids.unwrap_or_default().iter().filter_map(|id| tasks.find(id).ok()).collect();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mark = json!({ meta::SUBSCRIPTION_ID: request.id });
    let honored = if known.is_empty() {
        json!({})
    } else {
        json!({ "taskIds": known.iter().map(|task| &task.id).collect::<Vec<_>>() })
    };
    event(stream, "notifications/subscriptions/acknowledged", &json!({ "_meta": mark, "notifications": honored }))
        .await?;
    let mut watched: FuturesUnordered<_> = known.into_iter().map(|task| next(task.watch(), task)).collect();
    let mut hung_up = [0; 1];
    loop {
        tokio::select! {
            Some((changes, task)) = watched.next() => {
                let mut told = task.detailed();
                told["_meta"] = mark.clone();
                event(stream, "notifications/tasks", &told).await?;
                watched.push(next(changes, task));
            }
            _ = stream.read(&mut hung_up) => return Ok(()),
        }
    }
}

/// Waits for the next change of a task.
async fn next(mut changes: watch::Receiver<u64>, task: Arc<Task>) -> (watch::Receiver<u64>, Arc<Task>) {
    // The sender lives as long as the task, which is held here.
    let _ = changes.changed().await;
    (changes, task)
}

async fn event(stream: &mut BufReader<TcpStream>, method: &str, params: &Value) -> std::io::Result<()> {
    let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    stream.write_all(format!("data: {message}\n\n").as_bytes()).await
}

async fn respond(stream: &mut BufReader<TcpStream>, id: RequestId, outcome: Outcome) -> std::io::Result<()> {
    let status = match &outcome {
        Err(error) if error.code == code::METHOD_NOT_FOUND => 404,
        Err(error)
            if matches!(
                error.code,
                code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION | code::INVALID_PARAMS
            ) =>
        {
            400
        }
        _ => 200,
    };
    let body = Message::Response(Response { id: Some(id), outcome }).frame().into_bytes();
    reply(stream, status, std::str::from_utf8(&body).unwrap_or_default()).await
}

async fn reply(stream: &mut BufReader<TcpStream>, status: u16, body: &str) -> std::io::Result<()> {
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let head = format!("HTTP/1.1 {status} \r\n{kind}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).await
}
