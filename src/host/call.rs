//! One call of the embedding program.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::{Host, ask};
use crate::answered::NoResult;
use crate::error::{Error, ErrorKind};
use crate::protocol::{Message, Method, Raw, Request, RequestId, Response, code};
use crate::registry::Resolution;

/// How far a call is, as the server says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Grows with each one.
    pub progress: f64,
    /// What it grows to, if known.
    pub total: Option<f64>,
    /// What is being done.
    pub message: Option<String>,
}

/// A call that begins when it is awaited; dropping it cancels it at the server.
#[must_use = "a call does nothing before it is awaited"]
pub struct Call {
    host: Host,
    method: Method,
    name: String,
    params: Raw,
    timeout: Option<Duration>,
    progress: Option<Box<dyn FnMut(Progress) + Send>>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Call({} {})", self.method, self.name)
    }
}

impl Call {
    pub(super) fn new(host: Host, method: Method, key: &'static str, name: &str, arguments: Option<Raw>) -> Self {
        let mut params = Raw::empty_object().with_member(key, Raw::from_value(name).as_bytes());
        if let Some(arguments) = arguments {
            params = params.with_member("arguments", arguments.as_bytes());
        }
        Self { host, method, name: name.to_owned(), params, timeout: None, progress: None }
    }

    /// Gives up after that long, whatever the server's own limits are.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Hears how far the call is.
    pub fn on_progress(mut self, hear: impl FnMut(Progress) + Send + 'static) -> Self {
        self.progress = Some(Box::new(hear));
        self.params = self.params.with_member("_meta", br#"{"progressToken":1}"#);
        self
    }

    async fn run(mut self) -> Result<Raw, Error> {
        static IDS: AtomicI64 = AtomicI64::new(1);
        let (router, client) = (self.host.0.router.clone(), self.host.0.client.clone());
        let leg = router.leg(&client);
        let id = RequestId::Number(IDS.fetch_add(1, Ordering::Relaxed));
        let request = Request { id, method: self.method.clone(), params: Some(self.params.clone()) };
        let serve = router.answered(&client, request, &leg);
        tokio::pin!(serve);
        let answered = loop {
            tokio::select! {
                biased;
                Some(message) = leg.next() => self.hear(message),
                answered = &mut serve => break answered,
            }
        };
        match answered {
            Some(answered) => answered.map_err(|none| self.error(none)),
            None => Err(Error::new(ErrorKind::Cancelled, format!("{} was cancelled: the host shuts down", self.name))),
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Notification(notice) if notice.method == Method::Progress => {
                if let (Some(hear), Some(params)) = (&mut self.progress, notice.params) {
                    let number = |name: &str| params.member(name)?.read::<f64>().ok();
                    if let Some(progress) = number("progress") {
                        hear(Progress { progress, total: number("total"), message: params.text("message") });
                    }
                }
            }
            Message::Request(request) => {
                let (router, client) = (self.host.0.router.clone(), self.host.0.client.clone());
                let (handler, server) = (self.host.0.handler.clone(), self.server());
                self.host.0.router.spawn(async move {
                    let outcome = ask(handler.as_deref(), &server, &request.method, request.params).await;
                    router.answer(&client, Response { id: Some(request.id), outcome });
                });
            }
            _ => {}
        }
    }

    fn error(&self, none: NoResult) -> Error {
        match none {
            NoResult::Failed(failed) => failed.into(),
            NoResult::Error(error) if error.code == code::INVALID_PARAMS && self.target().found().is_none() => {
                Error::new(ErrorKind::Unknown, error.message)
            }
            NoResult::Error(error) => Error::from_answer(error),
        }
    }

    fn target(&self) -> Resolution {
        let catalog = self.host.0.router.view(&self.host.0.client).callable;
        match self.method {
            Method::ToolsCall => catalog.tool(&self.name),
            Method::PromptsGet => catalog.prompt(&self.name),
            _ => catalog.resource(&self.name),
        }
    }

    /// The server that the call goes to, by its name in the config.
    fn server(&self) -> String {
        let target = self.target().found();
        let server = target.and_then(|target| self.host.0.manager.server(target.server));
        server.map(|server| server.config.name.clone()).unwrap_or_default()
    }
}

impl IntoFuture for Call {
    type Output = Result<Raw, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Some(limit) = self.timeout else { return self.run().await };
            let text = format!("{} gave no answer within {limit:?}", self.name);
            tokio::time::timeout(limit, self.run()).await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Timeout, text)))
        })
    }
}
