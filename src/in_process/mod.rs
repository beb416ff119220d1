//! An in-process server made of closures: for embedders, the demo, and tests.
//!
//! It speaks MCP like any other server, over a connection in memory; [`InProcess::serve_stdio`] and
//! [`InProcess::serve_http`] serve it alone, through the doors of the host. Each closure gets the [`Invocation`] that
//! it answers. **Invariant:** the server itself speaks a revision with a handshake; the host translates for clients of
//! other revisions.

mod instance;
mod invocation;
mod offers;
mod talk;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use self::offers::Offers;
use crate::downstream::Eras;
use crate::lock::lock;
use crate::protocol::{Method, Outcome, Raw};
use crate::registry::Kind;

pub(crate) use self::instance::Running;
pub use self::invocation::{INPUT_KEY, Invocation};

/// Answers one request.
type Handler = Arc<dyn Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// A server made of closures. All of the host's connections to it (leases) share its tool, prompt and resource lists;
/// each has its own client capabilities, subscriptions, and running requests.
///
/// ```
/// use mcp_host::InProcess;
/// use serde_json::json;
///
/// let definition = json!({ "name": "greet", "inputSchema": { "type": "object" } });
/// let server = InProcess::new("mine", "1.0.0").tool(definition.into(), |call| {
///     let name = call.arguments.text("name").unwrap_or_default();
///     Box::pin(async move { Ok(json!({ "content": [{ "type": "text", "text": format!("Hello {name}.") }] }).into()) })
/// });
/// ```
#[derive(Clone)]
pub struct InProcess {
    info: Raw,
    instructions: Option<String>,
    offers: Offers,
    others: HashMap<Method, Handler>,
    eras: Eras,
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InProcess({})", self.info)
    }
}

impl InProcess {
    /// Creates a server that offers nothing yet.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            info: Raw::from_value(&serde_json::json!({ "name": name, "version": version })),
            instructions: None,
            offers: Offers::default(),
            others: HashMap::new(),
            eras: Eras::default(),
        }
    }

    /// Sets the `instructions` that a client may give to its model.
    #[must_use]
    pub fn instructions(mut self, text: &str) -> Self {
        self.instructions = Some(text.to_owned());
        self
    }

    /// Adds a tool: its definition as in `tools/list`, and the closure that runs for each call.
    #[must_use]
    pub fn tool(
        self,
        definition: Raw,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.offer(Kind::Tools, definition, handler)
    }

    /// Adds a tool that can be called but is not listed.
    #[must_use]
    pub fn unlisted_tool(
        mut self,
        name: &str,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.offers.handle(Kind::Tools, name, Arc::new(handler));
        self
    }

    /// Adds a prompt: its definition as in `prompts/list`, and the closure that makes its messages.
    #[must_use]
    pub fn prompt(
        self,
        definition: Raw,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.offer(Kind::Prompts, definition, handler)
    }

    /// Adds a resource: its definition as in `resources/list`, and the closure that reads it.
    #[must_use]
    pub fn resource(
        self,
        definition: Raw,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.offer(Kind::Resources, definition, handler)
    }

    /// Adds a resource template: its definition as in `resources/templates/list`, and the closure that reads each URI
    /// that matches it.
    #[must_use]
    pub fn resource_template(
        self,
        definition: Raw,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.offer(Kind::ResourceTemplates, definition, handler)
    }

    /// Answers another method, such as `completion/complete`.
    #[must_use]
    pub fn method(
        mut self,
        method: Method,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.others.insert(method, Arc::new(handler));
        self
    }

    /// Limits the MCP revisions that the server speaks when it is served alone; the default is both eras, with and
    /// without a handshake.
    #[must_use]
    pub fn eras(mut self, eras: Eras) -> Self {
        self.eras = eras;
        self
    }

    fn offer(
        mut self,
        kind: Kind,
        definition: Raw,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.offers.add(kind, definition, Arc::new(handler));
        self
    }

    pub(crate) fn info(&self) -> &Raw {
        &self.info
    }

    pub(crate) fn spoken(&self) -> Eras {
        self.eras
    }
}

#[cfg(test)]
mod tests;
