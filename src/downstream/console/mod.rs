//! The page at `/`, which shows the daemon's activity and calls tools, and its API below `/console/`
//! (`docs/console.md`).
//!
//! In: requests that the HTTP door has admitted, with the session whose token they carry. Out: answers, which the door
//! writes. A session begins with a code that the user who runs the daemon requested at the status socket (`access.rs`).
//!
//! **Invariant:** no request carries a command, an argument, a path, an environment, or a URL to start or to fetch, and none
//! approves an entry of a project or undoes an edit (`docs/hazards.md` H83). A session is a client of the router, under
//! views and rules as others are: its principal is `console`. Start reading at [`Console::serve`].

pub(crate) mod access;
mod answer;
mod assets;
mod call;
mod deeds;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod reads;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::StatusCode;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use self::access::{Access, IDLE, InUse, NoSession, Session};
pub(crate) use self::answer::{Answer, No};
pub(crate) use self::assets::{Asset, asset};
pub(crate) use self::deeds::{Deeds, Switched};
use super::admin::{BUSY, Feed, FeedRequest, Part, Run};
use crate::lock::lock;
use crate::protocol::{ErrorObject, Message, Method, Outcome, Profile, ProtocolVersion, Raw, Response, Theirs};
use crate::record::{Arguments, At};
use crate::router::{Abilities, Client, Identity, Named, Router, Via};

/// A route of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Session,
    Feed,
    Tools,
    Server,
    Approvals,
    Call,
    Answer,
    Cancel,
    Decide,
    Restart,
    Enable,
    Disable,
    Login,
    Logout,
    Reload,
    Approve,
}

/// All routes: path, methods, and route.
pub(crate) const ROUTES: [(&str, &str, Route); 16] = [
    ("/console/session", "POST, DELETE", Route::Session),
    ("/console/feed", "GET", Route::Feed),
    ("/console/tools", "GET", Route::Tools),
    ("/console/server", "GET", Route::Server),
    ("/console/approvals", "GET", Route::Approvals),
    ("/console/call", "POST", Route::Call),
    ("/console/answer", "POST", Route::Answer),
    ("/console/cancel", "POST", Route::Cancel),
    ("/console/decide", "POST", Route::Decide),
    ("/console/restart", "POST", Route::Restart),
    ("/console/enable", "POST", Route::Enable),
    ("/console/disable", "POST", Route::Disable),
    ("/console/login", "POST", Route::Login),
    ("/console/logout", "POST", Route::Logout),
    ("/console/reload", "POST", Route::Reload),
    ("/console/approve", "POST", Route::Approve),
];

impl Route {
    /// Returns the route of a path, and the methods that it accepts.
    pub(crate) fn of(path: &str) -> Option<(Self, &'static str)> {
        ROUTES.iter().find(|(known, ..)| *known == path).map(|(_, methods, route)| (*route, *methods))
    }

    /// Returns the route of a request at the daemon's socket, by its name. The socket has feeds of its own, and needs no
    /// session.
    pub(crate) fn at_socket(name: &str) -> Option<Self> {
        let (route, _) = Self::of(&format!("/console/{name}"))?;
        (!matches!(route, Self::Session | Self::Feed)).then_some(route)
    }

    /// Reports whether a read-only session may use it: it changes and calls nothing, except that a session may end
    /// itself.
    pub(crate) fn looks(self) -> bool {
        matches!(self, Self::Session | Self::Feed | Self::Tools | Self::Server | Self::Approvals)
    }

    /// Reports whether the answer is a stream of lines that lasts until its reader leaves.
    pub(crate) fn streams(self) -> bool {
        matches!(self, Self::Feed | Self::Call)
    }
}

/// A daemon's state for the page and its API.
pub(crate) struct Console {
    router: Router,
    access: Access,
    run: Run,
    deeds: Option<Arc<dyn Deeds>>,
    stopping: CancellationToken,
    /// The number of the last call.
    calls: AtomicU64,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("access", &self.access).finish_non_exhaustive()
    }
}

/// A request that carries the token of a session.
pub(crate) struct Asked {
    pub(crate) in_use: InUse,
    /// The identity under which the session calls tools.
    pub(crate) identity: Identity,
    /// The members of its query.
    pub(crate) query: HashMap<String, String>,
    pub(crate) body: Bytes,
}

/// The body of `POST session`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    code: String,
}

/// Reads the body of a request.
fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, No> {
    serde_json::from_slice(body)
        .map_err(|error| No::malformed(format!("the body is not what this takes: {}", Theirs(&error.to_string()))))
}

impl Console {
    pub(crate) fn new(
        router: Router,
        access: Access,
        run: Run,
        (deeds, stopping): (Option<Arc<dyn Deeds>>, CancellationToken),
    ) -> Self {
        Self { router, access, run, deeds, stopping, calls: AtomicU64::new(0) }
    }

    /// Returns the codes and the sessions.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Begins a session by a code.
    ///
    /// # Errors
    /// When the code begins none.
    pub(crate) fn begin(&self, body: &[u8]) -> Result<Answer, No> {
        const AGAIN: &str = "run `mcp-host open` again";
        let Begin { code } = read(body)?;
        match self.access.begin(&code) {
            Ok((token, is_read_only)) => Ok(Answer::of(&serde_json::json!({
                "token": token, "readOnly": is_read_only, "idleMs": IDLE.as_millis(),
            }))),
            Err(Some(NoSession::Used)) => {
                tracing::warn!("a code of `mcp-host open` came twice: the session that it began is over");
                let text =
                    "this link was used twice, so the session that it began is over: somebody else may have the link";
                Err(No::new(StatusCode::FORBIDDEN, "code_used", text).help(AGAIN))
            }
            Err(Some(NoSession::Late)) => {
                Err(No::new(StatusCode::FORBIDDEN, "code_late", "this link is not good any more").help(AGAIN))
            }
            Err(Some(NoSession::Busy)) => {
                Err(No::busy("too many wrong links within a minute")
                    .help("wait a minute, then run `mcp-host open` again"))
            }
            Err(None) => Err(No::failed("the system has no random bytes for a session")),
        }
    }

    /// Serves a request of a session.
    ///
    /// # Errors
    /// When the request is refused.
    pub(crate) async fn serve(&self, route: Route, asked: Asked) -> Result<Answer, No> {
        let session = asked.in_use.session().clone();
        if session.is_read_only && !route.looks() {
            let text = "this session only looks";
            return Err(No::new(StatusCode::FORBIDDEN, "read_only", text).help("run `mcp-host open` for one that acts"));
        }
        match route {
            Route::Session => {
                self.access.end(&session);
                Ok(Answer::of(&serde_json::json!({ "ended": true })))
            }
            Route::Feed => self.feed(asked).await,
            Route::Tools => self.tools(&session, &asked).await,
            Route::Server => self.server(&asked),
            Route::Call => self.call(asked),
            Route::Answer => call::answer(&session, &asked.body),
            Route::Cancel => self.cancel(&session, &asked.body),
            route => self.act(route, &asked.body).await,
        }
    }

    /// Serves a request of the user who runs the daemon, who asks at its socket. `identity` is that of the page.
    ///
    /// # Errors
    /// When the request is refused.
    pub(crate) async fn serve_at_socket(&self, route: Route, identity: Identity, body: Bytes) -> Result<Answer, No> {
        let query: HashMap<String, String> = match route {
            Route::Tools | Route::Server | Route::Approvals => read(&body)?,
            _ => HashMap::new(),
        };
        if route == Route::Approvals && !query.is_empty() {
            return Err(No::malformed("approvals takes nothing"));
        }
        self.serve(route, Asked { in_use: self.access.of_socket(), identity, query, body }).await
    }

    /// Opens a feed.
    async fn feed(&self, asked: Asked) -> Result<Answer, No> {
        let request = feed_request(&asked.query)?;
        let hello = self.run.hello(&self.router);
        let feed = Feed::open(&self.router, hello, request, At::Page).await;
        let feed = feed.map_err(|refused| match refused.error.as_str() {
            BUSY => No::busy("too many pages are open").help("close one of them"),
            _ => No::unknown(refused.error),
        })?;
        let end = asked.in_use.session().end.clone();
        let lines = stream::unfold((feed, asked.in_use), |(mut feed, in_use)| async move {
            let lines = Bytes::from(feed.next().await);
            Some((lines, (feed, in_use)))
        });
        let stopping = self.stopping.clone().cancelled_owned();
        Ok(Answer::Lines(lines.take_until(end.cancelled_owned()).take_until(stopping).boxed()))
    }

    /// Returns the router's client for a session.
    fn client(&self, session: &Arc<Session>, identity: &Identity) -> Arc<Client> {
        let mut kept = lock(&session.client);
        if let Some((known, client)) = &*kept
            && known == identity
        {
            return client.clone();
        }
        // A form or a page to visit: what a person can answer here.
        let profile = Profile::EMPTY.with(Profile::ELICITATION_FORM).with(Profile::ELICITATION_URL);
        let abilities = Abilities { revision: ProtocolVersion::LATEST_HANDSHAKE, profile, extensions: None };
        let (name, via) = match session.is_of_socket {
            true => ("mcp-host socket", Via::Socket),
            false => ("mcp-host console", Via::Console),
        };
        let named = Named::new(name, Some(env!("CARGO_PKG_VERSION")));
        let account = self.router.queues().account();
        let client = self.router.clients().admit(identity.clone(), abilities, named, account);
        self.router.clients().roster().welcome(&client, via);
        self.router.background().spawn(accompany(self.router.clone(), client.clone(), session.end.clone()));
        let before = kept.replace((identity.clone(), client.clone()));
        drop(kept);
        if let Some((_, before)) = before {
            self.router.clients().close(&before);
        }
        client
    }

    /// Ends the clients whose view is gone. Their sessions stay.
    pub(crate) fn forget_clients(&self, is_gone: impl Fn(&Identity) -> bool) {
        for client in self.access.forget_clients(is_gone) {
            self.router.clients().close(&client);
        }
    }

    fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Reads the messages for a client that belong to none of its calls, until its session ends. Then closes the client.
async fn accompany(router: Router, client: Arc<Client>, end: CancellationToken) {
    let read = async {
        let _reading = client.mailbox().read();
        while let Some(message) = client.mailbox().next().await {
            // Only during a call is a person there to answer.
            if let Message::Request(request) = message {
                client.answer(Response { id: Some(request.id), outcome: refusal(&request.method) });
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = end.cancelled() => {}
    }
    router.clients().close(&client);
}

/// Returns the answer to a question that nobody can be asked.
fn refusal(method: &Method) -> Outcome {
    match method {
        Method::Elicit => Ok(Raw::from_value(&serde_json::json!({ "action": "cancel" }))),
        other => Err(ErrorObject::method_not_found(&other.to_string())),
    }
}

/// Reads the query of a feed.
fn feed_request(query: &HashMap<String, String>) -> Result<FeedRequest, No> {
    let mut request = FeedRequest::default();
    for (name, value) in query {
        let number = || No::malformed(format!("{name}: not a number"));
        match name.as_str() {
            "from" => request.from = Some(value.parse().map_err(|_| number())?),
            "past" => request.past = Some(value.parse().map_err(|_| number())?),
            "server" => request.server = Some(value.clone()),
            "parts" => {
                let part = |word: &str| serde_json::from_value::<Part>(word.into());
                let parts: Result<Vec<Part>, _> = value.split(',').map(part).collect();
                let unknown =
                    "parts: of servers, calls, lines, config, approvals, asks, logins, with commas between them";
                request.parts = Some(parts.map_err(|_| No::malformed(unknown))?);
            }
            "arguments" => {
                let known = serde_json::from_value::<Arguments>(value.as_str().into());
                let unknown = "arguments: none, shape, or masked";
                request.arguments = Some(known.map_err(|_| No::malformed(unknown))?);
            }
            _ => return Err(No::malformed("a feed takes from, past, parts, server, and arguments")),
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new request must not add a program either.
    #[test]
    fn h83_the_requests_of_the_socket_are_these() {
        let names = ROUTES.iter().filter_map(|(path, ..)| path.strip_prefix("/console/"));
        let taken: Vec<&str> = names.filter(|name| Route::at_socket(name).is_some()).collect();
        insta::assert_snapshot!(taken.join(" "), @"tools server approvals call answer cancel decide restart enable disable login logout reload approve");
        assert_eq!([Route::at_socket("session"), Route::at_socket("feed"), Route::at_socket("")], [None; 3]);
    }

    /// A new route must not add a program: what does that is typed in a terminal.
    #[test]
    fn h83_the_routes_of_the_page_are_these() {
        let shown: Vec<String> = ROUTES.iter().map(|(path, methods, _)| format!("{methods} {path}")).collect();
        insta::assert_snapshot!(shown.join("\n"), @r"
        POST, DELETE /console/session
        GET /console/feed
        GET /console/tools
        GET /console/server
        GET /console/approvals
        POST /console/call
        POST /console/answer
        POST /console/cancel
        POST /console/decide
        POST /console/restart
        POST /console/enable
        POST /console/disable
        POST /console/login
        POST /console/logout
        POST /console/reload
        POST /console/approve
        ");
    }
}
