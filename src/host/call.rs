//! One call that the embedding program makes.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::json;

use super::conversation::{Conversation, Questions};
use super::handler::Asker;
use super::{CallResult, Host};
use crate::answered::NoResult;
use crate::error::{Error, ErrorKind};
use crate::nearest::nearest;
use crate::protocol::{ErrorObject, Message, Method, Notification, Raw, Request, RequestId, code, meta};
use crate::registry::{Kind, Resolution};

/// The progress of a call, as its server reports it.
///
/// ```no_run
/// # async fn example(host: &mcp_host::Host) -> Result<(), mcp_host::Error> {
/// let call = host.call_tool("build__run", serde_json::json!({}));
/// call.on_progress(|step| println!("{} of {:?}: {:?}", step.progress, step.total, step.message)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// A number that grows with each report.
    pub progress: f64,
    /// The value that `progress` grows to, if known.
    pub total: Option<f64>,
    /// A description of the current step.
    pub message: Option<String>,
}

/// A call to a server. It starts when awaited; dropping it cancels the request at the server.
///
/// ```no_run
/// # async fn example(host: &mcp_host::Host) -> Result<(), mcp_host::Error> {
/// use std::time::Duration;
///
/// let arguments = serde_json::json!({ "path": "notes.txt" });
/// let result = host.call_tool("files__read_file", arguments).timeout(Duration::from_secs(30)).await?;
/// println!("{}", result.text());
/// # Ok(()) }
/// ```
#[must_use = "a call does nothing until it is awaited"]
pub struct Call {
    host: Host,
    conversation: Arc<Conversation>,
    method: Method,
    /// The kind of list in which the name occurs.
    kind: Kind,
    name: String,
    params: Raw,
    meta: Option<Raw>,
    timeout: Option<Duration>,
    progress: Option<Box<dyn FnMut(Progress) + Send>>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Call({} {})", self.method, self.name)
    }
}

/// Returns the params of a request that names a tool or prompt.
pub(super) fn named(name: &str, arguments: &Raw) -> Raw {
    let params = Raw::empty_object().with_member("name", Raw::from_value(name).as_bytes());
    params.with_member("arguments", arguments.as_bytes())
}

/// Returns the params of a request that names a resource.
pub(super) fn located(uri: &str) -> Raw {
    Raw::empty_object().with_member("uri", Raw::from_value(uri).as_bytes())
}

impl Call {
    pub(super) fn new(
        host: Host,
        conversation: Arc<Conversation>,
        (method, kind): (Method, Kind),
        name: &str,
        params: Raw,
    ) -> Self {
        Self {
            host,
            conversation,
            method,
            kind,
            name: name.to_owned(),
            params,
            meta: None,
            timeout: None,
            progress: None,
        }
    }

    /// Fails after this long, even if the config allows the server more time.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Calls `hear` with each progress report.
    pub fn on_progress(mut self, hear: impl FnMut(Progress) + Send + 'static) -> Self {
        self.progress = Some(Box::new(hear));
        self
    }

    /// Sends this object as the `_meta` of the request. The host sets or removes the progress token in it.
    pub fn meta(mut self, meta: impl Into<Raw>) -> Self {
        self.meta = Some(meta.into());
        self
    }

    /// Returns the params with their `_meta`.
    fn params(&self) -> Result<Raw, Error> {
        let meta = match (&self.meta, &self.progress) {
            (None, None) => return Ok(self.params.clone()),
            (Some(meta), _) if !meta.is_object() => {
                let wrong = format!("{}: `_meta` is not an object", self.method);
                return Err(Error::from_answer(ErrorObject::invalid_params(wrong)));
            }
            (meta, None) => meta.clone().unwrap_or_else(Raw::empty_object).without_member("progressToken"),
            (meta, Some(_)) => meta.clone().unwrap_or_else(Raw::empty_object).with_member("progressToken", b"1"),
        };
        Ok(self.params.with_member("_meta", meta.as_bytes()))
    }

    async fn run(mut self) -> Result<CallResult, Error> {
        static IDS: AtomicI64 = AtomicI64::new(1);
        let params = self.params()?;
        let (router, client) = (self.conversation.router.clone(), self.conversation.client.clone());
        let leg = client.leg(router.limits());
        let id = RequestId::Number(IDS.fetch_add(1, Ordering::Relaxed));
        let request = Request { id, method: self.method.clone(), params: Some(params) };
        let serve = router.answered(&client, request, &leg);
        let mut questions = Questions::new(self.conversation.handler.clone());
        tokio::pin!(serve);
        let answered = loop {
            tokio::select! {
                biased;
                Some(message) = leg.next() => self.hear(message, &mut questions),
                Some(response) = questions.next() => client.answer(response),
                answered = &mut serve => break answered,
            }
        };
        match answered {
            Some(Ok(result)) => Ok(CallResult::new(result)),
            Some(Err(none)) => Err(self.error(none)),
            None => Err(Error::new(ErrorKind::Cancelled, format!("{} was cancelled: the host shuts down", self.name))),
        }
    }

    fn hear(&mut self, message: Message, questions: &mut Questions) {
        match message {
            Message::Notification(notice) if notice.method == Method::Progress => self.step(&notice),
            Message::Notification(notice) if notice.method == Method::Cancelled => questions.withdraw(&notice),
            Message::Request(request) => {
                let asker = self.asker(&request);
                questions.ask(request.id, asker, request.method, request.params);
            }
            _ => {}
        }
    }

    fn step(&mut self, notice: &Notification) {
        if let (Some(hear), Some(params)) = (&mut self.progress, &notice.params) {
            let number = |name: &str| params.member(name)?.read::<f64>().ok();
            if let Some(progress) = number("progress") {
                hear(Progress { progress, total: number("total"), message: params.text("message") });
            }
        }
    }

    fn error(&self, none: NoResult) -> Error {
        match none {
            NoResult::Failed(failed) => failed.into(),
            NoResult::Error(error) if error.code == code::INVALID_PARAMS && self.target().found().is_none() => {
                Error::new(ErrorKind::Unknown, error.message).with_nearest(self.nearest())
            }
            NoResult::Error(error) => Error::from_answer(error),
        }
    }

    /// Returns the catalog names nearest to the given one.
    fn nearest(&self) -> Vec<String> {
        /// The longest name to compare, in bytes. Longer names are not typing errors, and comparing them is expensive.
        const LONGEST: usize = 256;
        if self.name.len() > LONGEST {
            return Vec::new();
        }
        let catalog = self.conversation.client.view(self.conversation.router.manager()).shown;
        let names = catalog.each(self.kind).map(|entry| entry.name()).filter(|name| name.len() <= LONGEST);
        nearest(&self.name, names).into_iter().map(str::to_owned).collect()
    }

    fn target(&self) -> Resolution {
        let catalog = self.conversation.client.view(self.conversation.router.manager()).callable;
        match self.kind {
            Kind::Tools => catalog.tool(&self.name),
            Kind::Prompts => catalog.prompt(&self.name),
            Kind::Resources => catalog.resource(&self.name),
            Kind::ResourceTemplates => catalog.template(&self.name),
        }
    }

    /// Returns who asks a question of the call: the host itself, the user's own daemon in its own words, or the server that
    /// the call goes to.
    fn asker(&self, question: &Request) -> Asker {
        let is_own = self.conversation.client.is_asked_by_host(&question.id) == Some(true);
        let server = self.target().found().and_then(|found| self.host.0.manager.server(found.server));
        let marked = || {
            let own = question.params.as_ref().and_then(|params| params.member("_meta"));
            own.is_some_and(|own| own.member(meta::HOST_ASKS).is_some())
        };
        if is_own || (server.as_ref().is_some_and(|server| server.config.daemon) && marked()) {
            return Asker::Host;
        }
        Asker::Server(server.map(|server| server.config.name.clone()))
    }
}

impl IntoFuture for Call {
    type Output = Result<CallResult, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Some(limit) = self.timeout else { return self.run().await };
            let text = format!("{} gave no answer within {limit:?}", self.name);
            tokio::time::timeout(limit, self.run()).await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Timeout, text)))
        })
    }
}

/// A request for suggested values while a user types an argument of a prompt or resource template.
///
/// ```no_run
/// # async fn example(host: &mcp_host::Host) -> Result<(), mcp_host::Error> {
/// use mcp_host::Completion;
///
/// let typed = Completion::prompt("git__review", "branch", "feat").given("repository", "mcp-host");
/// println!("{:?}", host.complete(typed).await?.completions());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "pass it to `Host::complete`"]
pub struct Completion {
    of: Kind,
    name: String,
    argument: String,
    value: String,
    given: BTreeMap<String, String>,
}

impl Completion {
    /// Completes an argument of the prompt with this exposed name; `value` is the text typed so far.
    pub fn prompt(prompt: &str, argument: &str, value: &str) -> Self {
        Self::of(Kind::Prompts, prompt, argument, value)
    }

    /// Completes a variable of the resource template with this exposed URI template; `value` is the text typed so far.
    pub fn resource(template: &str, argument: &str, value: &str) -> Self {
        Self::of(Kind::ResourceTemplates, template, argument, value)
    }

    /// Adds the value of another argument, which the user has already chosen.
    pub fn given(mut self, argument: &str, value: &str) -> Self {
        self.given.insert(argument.to_owned(), value.to_owned());
        self
    }

    fn of(of: Kind, name: &str, argument: &str, value: &str) -> Self {
        let (name, argument, value) = (name.to_owned(), argument.to_owned(), value.to_owned());
        Self { of, name, argument, value, given: BTreeMap::new() }
    }

    /// Returns the kind of list in which the name occurs, the name, and the params of the request.
    pub(super) fn into_parts(self) -> (Kind, String, Raw) {
        let reference = if self.of == Kind::Prompts {
            json!({ "type": "ref/prompt", "name": self.name })
        } else {
            json!({ "type": "ref/resource", "uri": self.name })
        };
        let mut params = json!({ "ref": reference, "argument": { "name": self.argument, "value": self.value } });
        if !self.given.is_empty() {
            params["context"] = json!({ "arguments": self.given });
        }
        (self.of, self.name, params.into())
    }
}
