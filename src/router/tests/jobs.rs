//! Scripted servers whose tools run as tasks: one with a session, over an in-memory wire, and one without, over HTTP.
//! The test decides how far each task is.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::post;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::support::Running;
use crate::config::{self, Config, Prefix, Remote, Stdio, Transport};
use crate::manager::{Manager, Principal};
use crate::protocol::{
    ErrorObject, Message, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId, Response,
};
use crate::router::{Client, Router};
use crate::transport::Wire;
use crate::upstream::Starter;

pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";
pub(super) const UI: &str = "io.modelcontextprotocol/ui";
pub(super) const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A server, and what it has seen.
#[derive(Default)]
pub(super) struct Jobs {
    jobs: Mutex<BTreeMap<String, Job>>,
    pub(super) seen: Mutex<Vec<(String, Value)>>,
    /// Each session, with the token that ends it.
    sessions: Mutex<Vec<(CancellationToken, Weak<Session>)>>,
    changed: watch::Sender<u64>,
    said: Notify,
}

#[derive(Clone, Default)]
struct Job {
    status: &'static str,
    ended: Option<Result<Value, Value>>,
    questions: BTreeMap<String, Value>,
    answers: BTreeMap<String, Value>,
}

impl Jobs {
    /// Completes the task with a result, which may be a tool failure.
    pub(super) fn finish(&self, id: &str, result: Value) {
        self.change(id, |job| (job.status, job.ended) = ("completed", Some(Ok(result))));
    }

    /// Ends the task with a protocol error.
    pub(super) fn fail(&self, id: &str, code: i64) {
        let error = json!({ "code": code, "message": "broken" });
        self.change(id, |job| (job.status, job.ended) = ("failed", Some(Err(error))));
    }

    /// Makes the task ask something.
    pub(super) fn ask(&self, id: &str, key: &str) {
        let params = json!({ "message": key, "requestedSchema": { "type": "object", "properties": {} } });
        let question = json!({ "method": "elicitation/create", "params": params });
        self.change(id, |job| {
            job.status = "input_required";
            job.questions.insert(key.to_owned(), question);
        });
    }

    /// Returns the answers that the task got.
    pub(super) fn answers(&self, id: &str) -> Value {
        json!(self.jobs.lock().unwrap()[id].answers)
    }

    /// Returns the calls of this method, by what is recorded of their params.
    pub(super) fn calls(&self, method: &str) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|(name, _)| name == method).map(|(_, params)| params.clone()).collect()
    }

    /// Waits until it got such a request.
    pub(super) async fn until(&self, method: &str) {
        self.until_times(method, 1).await;
    }

    /// Waits until it got such a request `times` times.
    pub(super) async fn until_times(&self, method: &str, times: usize) {
        while self.calls(method).len() < times {
            self.said.notified().await;
        }
    }

    /// Ends its sessions; new ones may begin.
    pub(super) fn crash(&self) {
        self.sessions.lock().unwrap().iter().for_each(|(end, _)| end.cancel());
    }

    /// Makes the task ask something at once, over the current sessions.
    pub(super) async fn ask_early(&self, id: &str, key: &str) {
        let params = json!({ "message": key, "requestedSchema": {} });
        self.change(id, |job| drop(job.questions.insert(key.to_owned(), json!({ "params": params }))));
        let sessions: Vec<_> =
            self.sessions.lock().unwrap().iter().filter_map(|(_, session)| session.upgrade()).collect();
        for session in sessions {
            session.put(id, key, &json!({ "params": params })).await;
        }
    }

    /// Makes the task withdraw a question.
    pub(super) async fn withdraw(&self, id: &str, key: &str) {
        self.change(id, |job| drop(job.questions.remove(key)));
        let sessions: Vec<_> =
            self.sessions.lock().unwrap().iter().filter_map(|(_, session)| session.upgrade()).collect();
        for session in sessions {
            session.withdraw(id, key).await;
        }
    }

    /// Reports progress of the call with this number, from 0, even if it was answered with a task.
    pub(super) async fn progress(&self, call: usize, progress: f64) {
        let token = &self.calls("tools/call")[call]["_meta"]["progressToken"];
        let params = Some(Raw::from_value(&json!({ "progressToken": token, "progress": progress })));
        let sessions: Vec<_> =
            self.sessions.lock().unwrap().iter().filter_map(|(_, session)| session.upgrade()).collect();
        for session in sessions {
            let notice = Notification { method: Method::Progress, params: params.clone() };
            session.say(Message::Notification(notice)).await;
        }
    }

    fn answer(&self, id: &str, key: &str, answer: Value) {
        self.change(id, |job| {
            if job.questions.remove(key).is_some() {
                job.answers.insert(key.to_owned(), answer);
            }
            if job.questions.is_empty() && job.status == "input_required" {
                job.status = "working";
            }
        });
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Job)) {
        change(self.jobs.lock().unwrap().entry(id.to_owned()).or_default());
        self.changed.send_modify(|count| *count += 1);
    }

    fn begin(&self) -> String {
        let id = format!("up-{}", self.jobs.lock().unwrap().len() + 1);
        self.change(&id, |job| job.status = "working");
        id
    }

    fn find(&self, params: &Value) -> Result<(String, Job), ErrorObject> {
        let id = params["taskId"].as_str().unwrap_or_default().to_owned();
        let job = self.jobs.lock().unwrap().get(&id).cloned();
        job.map(|job| (id, job)).ok_or_else(|| ErrorObject::invalid_params("no such task"))
    }

    fn note(&self, request: &Request) -> Value {
        let params = request.params.as_ref().map_or(Value::Null, |params| params.read().unwrap());
        self.seen.lock().unwrap().push((request.method.to_string(), params.clone()));
        self.said.notify_one();
        params
    }
}

/// Renders a task in the form of 2025-11-25.
fn legacy(id: &str, job: &Job) -> Value {
    let failed = matches!(&job.ended, Some(Ok(result)) if result["isError"] == true);
    let status = if failed { "failed" } else { job.status };
    json!({ "taskId": id, "status": status, "createdAt": "c", "lastUpdatedAt": "u", "ttl": 9000, "pollInterval": 20 })
}

/// Renders a task in the form of 2026-07-28.
fn modern(id: &str, job: &Job) -> Value {
    let mut told = json!({
        "taskId": id, "status": job.status, "createdAt": "c", "lastUpdatedAt": "u", "ttlMs": 9000, "pollIntervalMs": 20,
    });
    match &job.ended {
        Some(Ok(result)) => told["result"] = result.clone(),
        Some(Err(error)) => told["error"] = error.clone(),
        None if job.questions.is_empty() => {}
        None => told["inputRequests"] = json!(job.questions),
    }
    told
}

fn tools(with_support: bool) -> Value {
    let tool = |name: &str, support: Option<&str>| {
        let mut tool = json!({ "name": name, "inputSchema": { "type": "object" } });
        if let (Some(support), true) = (support, with_support) {
            tool["execution"] = json!({ "taskSupport": support });
        }
        tool
    };
    json!({ "tools": [tool("job", Some("required")), tool("maybe", Some("optional")), tool("plain", None)] })
}

fn done(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// One session of 2025-11-25.
struct Session {
    jobs: Arc<Jobs>,
    out: tokio::sync::mpsc::Sender<(Option<u64>, Message)>,
    asked: Mutex<HashMap<i64, (String, String)>>,
    next: AtomicUsize,
}

/// Starts sessions of 2025-11-25.
pub(super) fn starter(jobs: Arc<Jobs>) -> Starter {
    Arc::new(move |Wire { out, mut input, .. }, tasks| {
        let end = CancellationToken::new();
        let (asked, next) = (Mutex::default(), AtomicUsize::new(1));
        let session = Arc::new(Session { jobs: jobs.clone(), out, asked, next });
        jobs.sessions.lock().unwrap().push((end.clone(), Arc::downgrade(&session)));
        let calls = tasks.clone();
        tasks.spawn(end.run_until_cancelled_owned(async move {
            while let Some(message) = input.recv().await {
                match message {
                    Message::Request(request) => {
                        let session = session.clone();
                        calls.spawn(async move {
                            let id = request.id.clone();
                            let outcome = session.answer(request).await;
                            session.say(Message::Response(Response { id: Some(id), outcome })).await;
                        });
                    }
                    Message::Response(response) => session.answered(response),
                    Message::Notification(_) => {}
                }
            }
        }));
    })
}

impl Session {
    async fn say(&self, message: Message) {
        let _ = self.out.send((None, message)).await;
    }

    async fn answer(&self, request: Request) -> Outcome {
        let params = self.jobs.note(&request);
        let result = match request.method {
            Method::Initialize => json!({
                "protocolVersion": "2025-11-25", "serverInfo": { "name": "jobs", "version": "1" },
                "capabilities": {
                    "tools": {}, "tasks": { "list": {}, "requests": { "tools": { "call": {} } } },
                    "extensions": { UI: { "mimeTypes": ["text/html;profile=mcp-app"] }, "x/unknown": {} },
                },
            }),
            Method::ToolsList => tools(true),
            Method::ToolsCall if params.get("task").is_some() && params["name"] != "plain" => {
                let (id, job) = self.jobs.find(&json!({ "taskId": self.jobs.begin() }))?;
                // Or under an id that the test wants.
                let id = params["arguments"]["id"].as_str().unwrap_or(&id);
                json!({ "task": legacy(id, &job) })
            }
            Method::ToolsCall if params["name"] == "job" => return Err(ErrorObject::method_not_found("not as a task")),
            Method::ToolsCall => done("at once"),
            Method::TasksGet => {
                let (id, job) = self.jobs.find(&params)?;
                legacy(&id, &job)
            }
            Method::TasksList => {
                let jobs = self.jobs.jobs.lock().unwrap();
                json!({ "tasks": jobs.iter().map(|(id, job)| legacy(id, job)).collect::<Vec<_>>() })
            }
            Method::TasksCancel => {
                let (id, job) = self.jobs.find(&params)?;
                if job.status != "working" {
                    return Err(ErrorObject::invalid_params("over"));
                }
                self.jobs.change(&id, |job| job.status = "cancelled");
                self.say(Message::Notification(Notification {
                    method: Method::TaskStatus,
                    params: Some(Raw::from_value(&legacy(&id, &self.jobs.find(&params)?.1))),
                }))
                .await;
                legacy(&id, &self.jobs.find(&params)?.1)
            }
            Method::TasksResult => self.result(&params).await?,
            _ => json!({}),
        };
        Ok(Raw::from_value(&result))
    }

    async fn result(&self, params: &Value) -> Result<Value, ErrorObject> {
        let mut changed = self.jobs.changed.subscribe();
        let mut sent = Vec::new();
        loop {
            let (id, job) = self.jobs.find(params)?;
            let related = json!({ RELATED: { "taskId": id } });
            match job.ended {
                Some(Ok(mut result)) => {
                    result["_meta"] = related;
                    return Ok(result);
                }
                Some(Err(error)) => return Err(serde_json::from_value(error).unwrap()),
                None => {}
            }
            for (key, question) in &job.questions {
                if !sent.contains(key) {
                    sent.push(key.clone());
                    self.put(&id, key, question).await;
                }
            }
            changed.changed().await.unwrap();
        }
    }

    /// Asks the client, naming the task.
    async fn put(&self, id: &str, key: &str, question: &Value) {
        let number = i64::try_from(self.next.fetch_add(1, Ordering::SeqCst)).unwrap();
        self.asked.lock().unwrap().insert(number, (id.to_owned(), key.to_owned()));
        let mut params = question["params"].clone();
        params["_meta"] = json!({ RELATED: { "taskId": id } });
        let (id, params) = (RequestId::Number(number), Some(Raw::from_value(&params)));
        self.say(Message::Request(Request { id, method: Method::Elicit, params })).await;
    }

    /// Withdraws a question.
    async fn withdraw(&self, id: &str, key: &str) {
        let found = self.asked.lock().unwrap().extract_if(|_, asked| *asked == (id.to_owned(), key.to_owned())).next();
        if let Some((number, _)) = found {
            let params = Some(Raw::from_value(&json!({ "requestId": number })));
            self.say(Message::Notification(Notification { method: Method::Cancelled, params })).await;
        }
    }

    fn answered(&self, response: Response) {
        let Some(RequestId::Number(number)) = response.id else { return };
        if let Some((id, key)) = self.asked.lock().unwrap().remove(&number) {
            let answer =
                response.outcome.map_or_else(|error| json!({ "error": error.code }), |raw| raw.read().unwrap());
            self.jobs.answer(&id, &key, answer);
        }
    }
}

/// A server of 2026-07-28.
async fn serve(State(jobs): State<Arc<Jobs>>, body: Bytes) -> HttpResponse {
    let Ok(Message::Request(request)) = Message::parse(&body) else { panic!("{body:?}") };
    let outcome = stateless(&jobs, &request);
    let outcome = outcome.map(|mut result| {
        if result.get("resultType").is_none() {
            result["resultType"] = json!("complete");
        }
        Raw::from_value(&result)
    });
    let answer = Message::Response(Response { id: Some(request.id), outcome }).frame().into_bytes();
    ([(CONTENT_TYPE, "application/json")], answer).into_response()
}

fn stateless(jobs: &Jobs, request: &Request) -> Result<Value, ErrorObject> {
    let params = jobs.note(request);
    let own = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    let knows = own["extensions"][TASKS].is_object();
    Ok(match request.method {
        Method::Discover => json!({
            "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {}, "extensions": { TASKS: {}, UI: { "mimeTypes": ["text/html;profile=mcp-app"] } } },
            "ttlMs": 0, "cacheScope": "private",
        }),
        Method::ToolsList => {
            let mut list = tools(false);
            list["ttlMs"] = json!(0);
            list["cacheScope"] = json!("private");
            list
        }
        Method::ToolsCall if knows && params["name"] != "plain" => {
            let (id, job) = jobs.find(&json!({ "taskId": jobs.begin() }))?;
            let mut created = modern(&id, &job);
            created["resultType"] = json!("task");
            created
        }
        Method::ToolsCall if params["name"] == "job" => {
            let data = Raw::from_value(&json!({ "requiredCapabilities": { "extensions": { TASKS: {} } } }));
            return Err(ErrorObject::new(-32021, "no tasks").with_data(data));
        }
        Method::ToolsCall => done("at once"),
        _ if !knows => return Err(ErrorObject::new(-32021, "no tasks")),
        Method::TasksGet => {
            let (id, job) = jobs.find(&params)?;
            modern(&id, &job)
        }
        Method::TasksUpdate => {
            let (id, _) = jobs.find(&params)?;
            for (key, answer) in params["inputResponses"].as_object().unwrap() {
                jobs.answer(&id, key, answer.clone());
            }
            json!({})
        }
        Method::TasksCancel => {
            let (id, _) = jobs.find(&params)?;
            jobs.change(&id, |job| job.status = "cancelled");
            json!({})
        }
        ref other => return Err(ErrorObject::method_not_found(other.as_str())),
    })
}

/// A router in front of such a server.
pub(super) struct Shop {
    pub(super) router: Router,
    pub(super) jobs: Arc<Jobs>,
}

impl Shop {
    /// With a server of 2025-11-25.
    pub(super) fn legacy() -> Self {
        Self::of_session(|_| {})
    }

    pub(super) fn of_session(change: impl FnOnce(&mut Config)) -> Self {
        let jobs = Arc::<Jobs>::default();
        let entry = config::Server::new("jobs", Transport::Stdio(Stdio::default())).unwrap();
        let memory = HashMap::from([("jobs".to_owned(), starter(jobs.clone()))]);
        Self::open(jobs, entry, &memory, change)
    }

    /// With a server of 2026-07-28.
    pub(super) async fn modern() -> Self {
        let jobs = Arc::<Jobs>::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/mcp", post(serve)).with_state(jobs.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let remote = Remote::new(url.parse().unwrap());
        let mut entry = config::Server::new("jobs", Transport::Http(remote)).unwrap();
        entry.era = config::Era::Modern;
        Self::open(jobs, entry, &HashMap::new(), |_| {})
    }

    fn open(
        jobs: Arc<Jobs>,
        mut entry: config::Server,
        memory: &HashMap<String, Starter>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        entry.prefix = Prefix::Never;
        let mut config = Config::default();
        config.servers.push(entry);
        change(&mut config);
        let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
        let (manager, news) = Manager::start(config, memory, info.clone(), None, Default::default());
        Self { router: Router::start(manager, news, info), jobs }
    }

    /// A client of 2025-11-25 that can be asked for a form.
    pub(super) fn core(&self) -> Arc<Client> {
        self.core_of(Principal::local())
    }

    pub(super) fn core_of(&self, principal: Principal) -> Arc<Client> {
        self.router.admit(principal, ProtocolVersion::V2025_11_25, Profile::ELICITATION_FORM, None)
    }

    /// A client of 2026-07-28 that supports tasks and can be asked for a form.
    pub(super) fn extended(&self) -> Arc<Client> {
        self.extended_of(Principal::local())
    }

    pub(super) fn extended_of(&self, principal: Principal) -> Arc<Client> {
        let capabilities = json!({ "elicitation": {}, "extensions": { TASKS: {} } });
        self.router.modern(principal, &Raw::from_value(&capabilities)).unwrap()
    }

    /// Begins a request.
    pub(super) fn begin(&self, client: &Arc<Client>, method: Method, params: &Value) -> Running {
        super::support::request(&self.router, client, method, params)
    }

    /// Makes a request and returns its response.
    pub(super) async fn answer(&self, client: &Arc<Client>, method: Method, params: &Value) -> Value {
        self.begin(client, method, params).answer().await
    }

    /// The client answers a question of the server.
    pub(super) fn reply(&self, client: &Arc<Client>, id: RequestId, answer: &Value) {
        client.answer(Response { id: Some(id), outcome: Ok(Raw::from_value(answer)) });
    }
}
