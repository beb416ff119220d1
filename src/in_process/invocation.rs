//! One request to an in-process server, as its closure sees it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::talk::Talk;
use crate::protocol::{Message, Method, Notification, Outcome, Profile, Raw, meta};
use crate::registry::Kind;
use crate::transport::HANG_UP;

/// The `_meta` member of a question that names the key under which a client that speaks 2026-07-28 finds it in
/// `inputRequests`.
pub const INPUT_KEY: &str = meta::INPUT_KEY;

/// One request to an in-process server, with methods to reach its client while it runs.
///
/// ```
/// use mcp_host::Outcome;
/// use mcp_host::in_process::Invocation;
///
/// async fn count(call: Invocation) -> Outcome {
///     for step in 0..3 {
///         call.progress(f64::from(step), Some(3.0), "counting").await;
///     }
///     Ok(serde_json::json!({ "content": [] }).into())
/// }
/// ```
pub struct Invocation {
    /// The `arguments` for a tool or prompt; `{}` if there are none.
    pub arguments: Raw,
    /// All params of the request.
    pub params: Raw,
    token: Option<Raw>,
    /// The id of the request. It tells the host to which call the messages sent meanwhile belong.
    during: Option<u64>,
    talk: Arc<Talk>,
    cancel: CancellationToken,
}

impl fmt::Debug for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation").field("params", &self.params).finish_non_exhaustive()
    }
}

impl Invocation {
    pub(super) fn new(talk: Arc<Talk>, params: Raw, during: Option<u64>, cancel: CancellationToken) -> Self {
        let arguments = params.member("arguments").unwrap_or_else(Raw::empty_object);
        let token = params.member("_meta").and_then(|meta| meta.member("progressToken"));
        Self { arguments, params, token, during, talk, cancel }
    }

    /// Reports progress, if the caller asked for it.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: &str) {
        let Some(token) = &self.token else { return };
        let mut params =
            serde_json::json!({ "progressToken": token, "progress": number(progress), "message": message });
        if let Some(total) = total {
            params["total"] = number(total);
        }
        self.notify(Method::Progress, Raw::from_value(&params)).await;
    }

    /// Sends the client a log message.
    pub async fn log(&self, level: &str, data: Raw) {
        let params = Raw::from_value(&serde_json::json!({ "level": level, "data": data }));
        self.notify(Method::LogMessage, params).await;
    }

    /// Sends the client any notification, in order with all other messages.
    pub async fn notify(&self, method: Method, params: Raw) {
        let notification = Notification { method, params: Some(params) };
        self.talk.say(self.during, Message::Notification(notification)).await;
    }

    /// Sends a request to the client: `sampling/createMessage`, `elicitation/create`, `roots/list`.
    ///
    /// # Errors
    /// The client's JSON-RPC error; `-32601` if it cannot answer such requests.
    pub async fn request(&self, method: Method, params: Option<Raw>) -> Outcome {
        self.talk.ask(self.during, method, params).await
    }

    /// As [`Invocation::request`], and sets the key under which a client that speaks 2026-07-28 finds the question.
    /// Other clients ignore the key.
    ///
    /// # Errors
    /// As [`Invocation::request`].
    pub async fn request_as(&self, key: &str, method: Method, params: Option<Raw>) -> Outcome {
        let params = params.unwrap_or_else(Raw::empty_object);
        let meta = params.member("_meta").unwrap_or_else(Raw::empty_object);
        let meta = meta.with_member(INPUT_KEY, Raw::from_value(key).as_bytes());
        self.request(method, Some(params.with_member("_meta", meta.as_bytes()))).await
    }

    /// Returns the capabilities of the client.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.talk.profile()
    }

    /// Adds a definition, or replaces the one with the same name, and tells every client that the list has changed.
    pub async fn offer(
        &self,
        kind: Kind,
        definition: Raw,
        handler: impl Fn(Self) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) {
        let add = |offers: &mut super::Offers| {
            offers.add(kind, definition, Arc::new(handler));
            true
        };
        self.talk.shelf.change(kind, add).await;
    }

    /// Removes a definition, and tells every client that the list has changed; returns false if there was none. `name`
    /// is the URI for a resource, or the URI template for a resource template.
    pub async fn withdraw(&self, kind: Kind, name: &str) -> bool {
        self.talk.shelf.change(kind, |offers| offers.remove(kind, name)).await
    }

    /// Waits until the caller cancels the request.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Reports whether the client watches the resource.
    #[must_use]
    pub fn is_watched(&self, uri: &str) -> bool {
        self.talk.is_watched(uri)
    }

    /// Asks the door to close the response stream of this call; the client reconnects for the rest after `retry`
    /// (2025-11-25, transports). Doors without such streams ignore it.
    pub async fn hang_up(&self, retry: Duration) {
        if let Some(token) = &self.token {
            let params = serde_json::json!({ "progressToken": token, "retry": u64::try_from(retry.as_millis()).unwrap_or(u64::MAX) });
            self.notify(Method::Other(HANG_UP.into()), Raw::from_value(&params)).await;
        }
    }
}

/// Returns the JSON number: an integer if the value is whole.
fn number(value: f64) -> serde_json::Value {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "only whole numbers within the exact range of a double get here"
    )]
    if value.fract() == 0.0 && value.abs() < 9e15 {
        serde_json::Value::from(value as i64)
    } else {
        serde_json::Value::from(value)
    }
}
