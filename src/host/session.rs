//! Sessions of the embedding program in addition to the host's own, for servers that keep state for each client.

use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};

use super::call::{Call, Completion};
use super::conversation::Conversation;
use super::handler::ClientHandler;
use super::{Host, call};
use crate::error::{Error, ErrorKind};
use crate::protocol::{Method, Raw};
use crate::registry::{Catalog, Kind};
use crate::router::{Chosen, is_part};

/// A separate client within the embedding program, such as one conversation or one user of an agent. Cheap to clone.
/// The session, and the state that servers keep for it, end with the last clone.
///
/// A server with `"sharing": "session"` gets a connection (a process) for each session that calls it. By default
/// (`"auto"`), sessions share a connection until its server asks a question. Under `"profile"`, sessions with equal
/// [`ClientHandler::profile`]s share a connection.
///
/// ```no_run
/// # async fn example(host: &mcp_host::Host) -> Result<(), mcp_host::Error> {
/// let (ann, bob) = (host.session(), host.session());
/// ann.call_tool("browser__open", serde_json::json!({ "url": "https://example.com" })).await?;
/// // Bob has his own browser.
/// bob.call_tool("browser__open", serde_json::json!({ "url": "https://example.org" })).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Session {
    host: Host,
    conversation: Arc<Conversation>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Host {
    /// Begins a session. The host's handler answers the questions of servers.
    #[must_use]
    pub fn session(&self) -> Session {
        self.converse(self.0.own.handler.clone(), Chosen::Default)
    }

    /// Begins a session with this handler for the questions of servers.
    #[must_use]
    pub fn session_with(&self, handler: impl ClientHandler) -> Session {
        self.converse(Some(Arc::new(handler)), Chosen::Default)
    }

    /// Begins a session that sees and calls only what a view of the config shows (`host.views`); `all` shows
    /// everything. If the config loses the view, the session sees nothing.
    ///
    /// ```no_run
    /// # async fn example(host: &mcp_host::Host) -> Result<(), mcp_host::Error> {
    /// let review = host.view("review")?;
    /// for tool in review.catalog_ready().await.tools() {
    ///     println!("{}", tool.name());
    /// }
    /// review.call_tool("github__search", serde_json::json!({ "query": "open" })).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the config has no view of that name.
    pub fn view(&self, name: &str) -> Result<Session, Error> {
        if !self.0.manager.settings().has_view(name) {
            return Err(Error::new(ErrorKind::Unknown, format!("no view is called {name:?} (host.views)")));
        }
        Ok(self.converse(self.0.own.handler.clone(), Chosen::named(name)))
    }

    fn converse(&self, handler: Option<Arc<dyn super::handler::Answers>>, view: Chosen) -> Session {
        let conversation = Conversation::begin(&self.0.router, handler, &self.0.name, view);
        Session { host: self.clone(), conversation }
    }

    /// Returns the host's own conversation as a session.
    fn own(&self) -> Session {
        Session { host: self.clone(), conversation: self.0.own.clone() }
    }
}

/// Requests in a session. [`Host`] has the same methods for its own session.
impl Session {
    /// Returns what all servers offer now, under the names that [`Session::call_tool`] takes.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        let catalog = self.conversation.client.view(self.conversation.router.manager()).shown;
        self.conversation.follow_lists();
        catalog
    }

    /// Waits until every server has sent its lists, failed, or used up `startupWait`; then returns what they offer.
    ///
    /// # Cancel safety
    /// Dropping the wait changes nothing.
    pub async fn catalog_ready(&self) -> Arc<Catalog> {
        let catalog = self
            .conversation
            .client
            .settled_view(self.conversation.router.manager(), self.conversation.router.background())
            .await
            .shown;
        self.conversation.follow_lists();
        catalog
    }

    /// Calls a tool by its exposed name; `arguments` is a JSON object.
    pub fn call_tool(&self, name: &str, arguments: impl Into<Raw>) -> Call {
        self.call(Method::ToolsCall, Kind::Tools, name, call::named(name, &arguments.into()))
    }

    /// Gets a prompt by its exposed name; `arguments` is a JSON object of strings.
    pub fn get_prompt(&self, name: &str, arguments: impl Into<Raw>) -> Call {
        self.call(Method::PromptsGet, Kind::Prompts, name, call::named(name, &arguments.into()))
    }

    /// Reads a resource by its exposed URI.
    pub fn read_resource(&self, uri: &str) -> Call {
        self.call(Method::ResourcesRead, Kind::Resources, uri, call::located(uri))
    }

    /// Asks for suggested values while a user types an argument;
    /// [`CallResult::completions`](super::CallResult::completions) returns them. A server without completions suggests
    /// none.
    pub fn complete(&self, completion: Completion) -> Call {
        let (kind, name, params) = completion.into_parts();
        self.call(Method::Complete, kind, &name, params)
    }

    /// Watches a resource by its exposed URI. Dropping the [`Updates`] ends the watch.
    ///
    /// # Errors
    /// As for a [`Call`]; also when the server does not offer subscriptions, or the session has too many
    /// (`host.limits.subscriptions`).
    ///
    /// # Cancel safety
    /// Dropping the wait leaves no subscription.
    pub async fn subscribe(&self, uri: &str) -> Result<Updates, Error> {
        self.conversation.watch(uri);
        // From here on updates are received. If the request fails, dropping `updates` ends the watch.
        let updates = Updates {
            heard: self.conversation.updates.subscribe(),
            conversation: self.conversation.clone(),
            uri: uri.into(),
        };
        self.call(Method::ResourcesSubscribe, Kind::Resources, uri, call::located(uri)).await?;
        Ok(updates)
    }

    fn call(&self, method: Method, kind: Kind, name: &str, params: Raw) -> Call {
        Call::new(self.host.clone(), self.conversation.clone(), (method, kind), name, params)
    }
}

impl Host {
    /// Returns what all servers offer now, under the names that [`Host::call_tool`] takes. After the first call,
    /// [`Host::events`] reports when the lists change.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.own().catalog()
    }

    /// Waits until every server has sent its lists, failed, or used up `startupWait`; then returns what they offer.
    ///
    /// # Cancel safety
    /// Dropping the wait changes nothing.
    pub async fn catalog_ready(&self) -> Arc<Catalog> {
        self.own().catalog_ready().await
    }

    /// Calls a tool by its exposed name; `arguments` is a JSON object.
    pub fn call_tool(&self, name: &str, arguments: impl Into<Raw>) -> Call {
        self.own().call_tool(name, arguments)
    }

    /// Gets a prompt by its exposed name; `arguments` is a JSON object of strings.
    pub fn get_prompt(&self, name: &str, arguments: impl Into<Raw>) -> Call {
        self.own().get_prompt(name, arguments)
    }

    /// Reads a resource by its exposed URI.
    pub fn read_resource(&self, uri: &str) -> Call {
        self.own().read_resource(uri)
    }

    /// Asks for suggested values while a user types an argument, as [`Session::complete`] does.
    pub fn complete(&self, completion: Completion) -> Call {
        self.own().complete(completion)
    }

    /// Watches a resource by its exposed URI, as [`Session::subscribe`] does.
    ///
    /// # Errors
    /// As [`Session::subscribe`].
    pub async fn subscribe(&self, uri: &str) -> Result<Updates, Error> {
        self.own().subscribe(uri).await
    }
}

/// Updates of one watched resource. Dropping this ends the watch.
///
/// ```no_run
/// # async fn example(host: &mcp_host::Host) -> Result<(), mcp_host::Error> {
/// let mut updates = host.subscribe("files+file:///notes.txt").await?;
/// while let Some(uri) = updates.next().await {
///     println!("{}", host.read_resource(&uri).await?.text());
/// }
/// # Ok(()) }
/// ```
#[must_use = "the resource is watched while this lives"]
pub struct Updates {
    heard: broadcast::Receiver<Arc<str>>,
    conversation: Arc<Conversation>,
    uri: Box<str>,
}

impl std::fmt::Debug for Updates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Updates").field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl Updates {
    /// Waits for the next update, and returns the URI of the resource or of the part that changed; `None` once the
    /// session is over. A reader that falls behind gets several updates as one.
    ///
    /// # Cancel safety
    /// Dropping the wait loses nothing.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            let heard = tokio::select! {
                biased;
                heard = self.heard.recv() => heard,
                () = self.conversation.over.cancelled() => return None,
            };
            match heard {
                Ok(uri) if is_part(&uri, &self.uri) => return Some(uri.to_string()),
                Ok(_) => {}
                // Some of the missed updates may concern this resource.
                Err(RecvError::Lagged(_)) => return Some(self.uri.to_string()),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        self.conversation.unwatch(&self.uri);
    }
}
