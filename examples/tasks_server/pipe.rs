//! 2025-11-25 over standard input and output: core tasks, requested with `task`, and questions as requests.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use mcp_host::protocol::{
    ErrorObject, Message, Method, Outcome, ProtocolVersion, Raw, Request, RequestId, Response, meta,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use crate::task::{Store, Task};
use crate::tools::{self, Support};

/// Sends messages to the client.
struct Client {
    out: mpsc::Sender<Message>,
    asked: Mutex<HashMap<i64, oneshot::Sender<Outcome>>>,
    next: AtomicI64,
}

/// Serves the pipe until it ends. Tools that may run as tasks declare at least `least`.
pub(crate) async fn serve(tasks: Arc<Store>, least: Support) -> std::io::Result<()> {
    let (out, mut waiting) = mpsc::channel::<Message>(256);
    let client = Arc::new(Client { out, asked: Mutex::default(), next: AtomicI64::new(1) });
    let calls = TaskTracker::new();
    let write = async {
        let mut stdout = tokio::io::stdout();
        while let Some(message) = waiting.recv().await {
            stdout.write_all(&message.frame().on_one_line().into_bytes()).await?;
            stdout.write_all(b"\n").await?;
            stdout.flush().await?;
        }
        Ok::<(), std::io::Error>(())
    };
    let read = async {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Some(line) = lines.next_line().await? {
            match Message::parse(&line.into()) {
                Ok(Message::Request(request)) => {
                    let (client, tasks) = (client.clone(), tasks.clone());
                    calls.spawn(async move {
                        let id = Some(request.id.clone());
                        let outcome = answer(request, &client, &tasks, least).await;
                        // The pipe may be gone.
                        let _ = client.out.send(Message::Response(Response { id, outcome })).await;
                    });
                }
                Ok(Message::Response(response)) => client.answered(response),
                Ok(Message::Notification(_)) | Err(_) => {}
            }
        }
        Ok::<(), std::io::Error>(())
    };
    tokio::select! {
        ended = read => ended,
        ended = write => ended,
    }
}

impl Client {
    async fn ask(&self, method: Method, params: Raw) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(id, answer);
        let request = Request { id: RequestId::Number(id), method, params: Some(params) };
        let gone = || ErrorObject::internal("the client is gone");
        self.out.send(Message::Request(request)).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    fn answered(&self, response: Response) {
        let Some(RequestId::Number(id)) = response.id else { return };
        if let Some(waits) = self.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) {
            let _ = waits.send(response.outcome);
        }
    }
}

async fn answer(request: Request, client: &Client, tasks: &Store, least: Support) -> Outcome {
    let params: Value = match &request.params {
        Some(params) => params.read().map_err(|error| ErrorObject::invalid_params(error.to_string()))?,
        None => json!({}),
    };
    let task = || tasks.find(params["taskId"].as_str().unwrap_or_default());
    let result = match request.method {
        Method::Initialize => json!({
            "protocolVersion": ProtocolVersion::LATEST_HANDSHAKE.as_str(),
            "capabilities": {
                "tools": {}, "tasks": { "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } },
            },
            "serverInfo": { "name": "tasks", "version": env!("CARGO_PKG_VERSION") },
        }),
        Method::Ping => json!({}),
        Method::ToolsList => tools::list(Some(least)),
        Method::ToolsCall => call(&params, client, tasks).await?,
        Method::TasksGet => task()?.legacy(),
        Method::TasksList => json!({ "tasks": tasks.all().iter().map(|task| task.legacy()).collect::<Vec<_>>() }),
        Method::TasksCancel => cancel(&*task()?).await?,
        Method::TasksResult => result(client, &*task()?).await?,
        other => return Err(ErrorObject::method_not_found(other.as_str())),
    };
    Ok(Raw::from_value(&result))
}

async fn call(params: &Value, client: &Client, tasks: &Store) -> Result<Value, ErrorObject> {
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let arguments = params["arguments"].clone();
    match (tools::support(&name)?, params.get("task")) {
        (Support::Required, None) => return Err(ErrorObject::method_not_found("a call of this tool without `task`")),
        (Support::Never, Some(_)) => return Err(ErrorObject::method_not_found("a call of this tool with `task`")),
        (_, None) => return tools::run(name, arguments, None, None).await,
        (_, Some(_)) => {}
    }
    let mut told = None;
    if name == "test_tool_with_task" {
        let question = Raw::from_value(&tools::name_question()["params"]);
        let reply: Value = client.ask(Method::Elicit, question).await?.read().unwrap_or_default();
        told = reply["content"]["name"].as_str().map(str::to_owned);
    }
    let task = tasks.start(|task| tools::run(name, arguments, Some(task), told));
    Ok(json!({ "task": task.legacy() }))
}

async fn cancel(task: &Task) -> Result<Value, ErrorObject> {
    if task.ended().is_some() {
        return Err(ErrorObject::invalid_params("the task is over already"));
    }
    let mut changes = task.watch();
    task.cancel.cancel();
    while task.ended().is_none() && changes.changed().await.is_ok() {}
    Ok(task.legacy())
}

/// Waits until the task is over; its questions go to the client meanwhile, as requests that name it.
async fn result(client: &Client, task: &Task) -> Result<Value, ErrorObject> {
    let related = json!({ meta::RELATED_TASK: { "taskId": task.id } });
    let mut changes = task.watch();
    let mut sent = HashSet::new();
    let mut asked = FuturesUnordered::new();
    loop {
        for (key, question) in task.questions() {
            if sent.insert(key.clone()) {
                let mut params = question["params"].clone();
                params["_meta"] = related.clone();
                let reply = client.ask(Method::Elicit, Raw::from_value(&params));
                asked.push(async move { (key, reply.await) });
            }
        }
        match task.ended() {
            Some(Some(Ok(mut result))) => {
                result["_meta"] = related;
                return Ok(result);
            }
            Some(Some(Err(error))) => return Err(error),
            Some(None) => return Err(ErrorObject::internal("the task was cancelled")),
            None => {}
        }
        tokio::select! {
            Some((key, reply)) = asked.next(), if !asked.is_empty() => {
                let reply = reply.map_or_else(|_| json!({ "action": "cancel" }), |reply| reply.read().unwrap_or_default());
                task.answer(&key, reply);
            }
            changed = changes.changed() => if changed.is_err() {
                return Err(ErrorObject::internal("the task is gone"));
            },
        }
    }
}
