//! The typed replies of the status socket: a daemon writes them, and programs of this or another version read them.
//!
//! **Invariant:** a JSON member that another version may not send has a default, except in replies that a login needs
//! whole.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::auth::{Holding, Keeping, Kept};
use crate::manager::{CacheStatus, ConfigStatus, Ledger, Over, RateKey, Reload, ServerStatus};
use crate::router::{ClientStatus, ClusterNotes, Gauges, SessionNotes, Usage};

/// Everything a daemon reports about itself.
///
/// ```no_run
/// # async fn example() -> Result<(), mcp_host::admin::AskError> {
/// use mcp_host::admin::{self, DaemonStatus};
///
/// let status: DaemonStatus = admin::ask(None).await?;
/// for server in &status.servers {
///     println!("{} is {}", server.name, server.state);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct DaemonStatus {
    /// The daemon's process id.
    pub pid: u32,
    /// The address that the daemon serves; `None` if it has no port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Milliseconds since the daemon opened its socket.
    pub uptime_ms: u64,
    /// The daemon's version.
    pub version: String,
    /// The state of the daemon's config.
    pub config: ConfigStatus,
    /// All servers, in config order.
    pub servers: Vec<ServerStatus>,
    /// The daemon's connected clients.
    pub clients: Vec<ClientStatus>,
    /// The daemon's current gauges, such as connections and requests.
    pub gauges: Gauges,
    /// How much of each limit is in use.
    pub limits: Vec<LimitUsage>,
    /// What is at the limit of its rate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limited: Vec<AtRate>,
    /// How much is kept of the answers that calls may be given again; `None` if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheStatus>,
    /// What people should know of the sessions of clients over HTTP; `None` if there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SessionNotes>,
    /// What this replica sees of its cluster; `None` if the host serves alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterNotes>,
    /// What the tools of each view cost, in tokens.
    pub tokens: Vec<Ledger>,
}

/// A client, server, tool, or view that is at the limit of its rate: calls are refused, or wait.
///
/// ```
/// let reply: mcp_host::admin::AtRate = serde_json::from_str(r#"{"server":"github","retryAfterMs":1500}"#)?;
/// assert_eq!((reply.server.as_deref(), reply.principal), (Some("github"), None));
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct AtRate {
    /// The client; `None` if the calls of all clients are counted together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The server's alias; `None` if the calls to all servers are counted together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The server's own name of the tool; `None` if the calls of all tools are counted together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The view; `None` if calls are counted whatever view they are made in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
    /// In how many milliseconds one more call may be made.
    pub retry_after_ms: u64,
}

impl From<Over> for AtRate {
    fn from(Over { held, after }: Over) -> Self {
        let RateKey { principal, server, tool, view } = held.key;
        Self {
            principal: principal.map(|principal| principal.as_str().to_owned()),
            server: server.map(|server| server.to_string()),
            tool: tool.map(|tool| tool.to_string()),
            view: view.map(|view| view.to_string()),
            retry_after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// How much of one limit is in use.
///
/// ```
/// let reply: mcp_host::admin::LimitUsage = serde_json::from_str(r#"{"limit":"sessions","used":1,"cap":100}"#)?;
/// assert!(reply.used < reply.cap);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LimitUsage {
    /// The limit's name in `host.limits`.
    pub limit: String,
    /// The amount in use. For a limit per client, server or principal, it is the amount that the heaviest of them uses.
    pub used: u64,
    /// The limit itself.
    pub cap: u64,
    /// `bytes`; `None` if the limit is a count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl From<Usage> for LimitUsage {
    fn from(Usage { limit, used, cap, unit }: Usage) -> Self {
        let wide = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
        Self { limit: limit.to_owned(), used: wide(used), cap: wide(cap), unit: unit.map(str::to_owned) }
    }
}

/// The result of a reload.
///
/// ```
/// let reply: mcp_host::admin::Reloaded = serde_json::from_str(r#"{"reloaded":false,"error":"mcp.json: not valid JSON"}"#)?;
/// assert!(!reply.reloaded);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Reloaded {
    /// Whether the new config was applied.
    pub reloaded: bool,
    /// Why the config was not applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What changed, if the config was applied.
    #[serde(flatten)]
    pub changes: Option<Reload>,
}

impl From<Result<Reload, String>> for Reloaded {
    fn from(done: Result<Reload, String>) -> Self {
        match done {
            Ok(changes) => Self { reloaded: true, error: None, changes: Some(changes) },
            Err(error) => Self { reloaded: false, error: Some(error), changes: None },
        }
    }
}

/// The reply to a request to start a server anew.
///
/// ```
/// let reply: mcp_host::admin::Restarted = serde_json::from_str(r#"{"restarted":"files"}"#)?;
/// assert_eq!(reply.restarted, "files");
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Restarted {
    /// The name of the server in the config.
    pub restarted: String,
}

/// The reply to `forget SERVER`.
///
/// ```
/// let reply: mcp_host::admin::AsksForgotten = serde_json::from_str(r#"{"forgotten":["sampling"]}"#)?;
/// assert!(reply.forgotten == ["sampling"]);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AsksForgotten {
    /// The kinds of questions that were forgotten.
    pub forgotten: Vec<String>,
}

/// A refused request.
///
/// ```
/// let refused: mcp_host::admin::Refused = serde_json::from_str(r#"{"error":"no server \"a\""}"#)?;
/// assert_eq!((refused.to_string().as_str(), refused.usage), ("no server \"a\"", false));
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct Refused {
    /// Why it was refused.
    pub error: String,
    /// Whether the request names something that the config does not have.
    #[serde(default)]
    pub usage: bool,
}

impl Refused {
    /// Refuses a request whose target exists but that cannot be done.
    pub(crate) fn because(error: impl Into<String>) -> Self {
        Self { error: error.into(), usage: false }
    }

    /// Refuses a request whose target does not exist.
    pub(crate) fn unknown(error: impl Into<String>) -> Self {
        Self { error: error.into(), usage: true }
    }
}

/// The reply to a [`SignIn`](super::SignIn) request: one variant for each kind of reply.
///
/// ```no_run
/// # async fn example(host: &mcp_host::Host) -> Result<(), mcp_host::admin::Refused> {
/// use mcp_host::admin::{SignIn, SignInReply};
///
/// if let SignInReply::SignedOut(done) = host.sign_in(SignIn::Forget { server: "github".to_owned() }).await? {
///     println!("there was a token: {}", done.forgotten);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum SignInReply {
    /// The reply to `Begin`.
    Begun(LoginBegun),
    /// The reply to `BeginByCode`.
    BegunByCode(CodeBegun),
    /// The reply to `Finish`, and to `Look` once the login is done.
    SignedIn(SignedIn),
    /// The reply to `Look` before the login is done.
    Pending(Pending),
    /// The reply to `Abandon`.
    Abandoned(Abandoned),
    /// The reply to `Forget`.
    SignedOut(SignedOut),
    /// The reply to `Holdings`.
    Holdings(Holdings),
    /// The reply to `Keeping`.
    Keeping(Keeping),
    /// The reply to `Rehearse`.
    Rehearsed(Rehearsed),
}

/// A browser login has started.
///
/// ```
/// let reply: mcp_host::admin::LoginBegun = serde_json::from_str(r#"{"login":1,"page":"https://a.example/p","issuer":"https://a.example"}"#)?;
/// assert!(!reply.by_code);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LoginBegun {
    /// The login's number.
    pub login: u64,
    /// The page to open in a browser.
    pub page: String,
    /// The authorization server that will issue the token.
    pub issuer: String,
    /// Whether a device-code login would work too.
    #[serde(default)]
    pub by_code: bool,
}

impl LoginBegun {
    pub(crate) fn new(login: u64, page: String, issuer: String, by_code: bool) -> Self {
        Self { login, page, issuer, by_code }
    }
}

/// A device-code login has started.
///
/// ```
/// let reply: mcp_host::admin::CodeBegun = serde_json::from_str(r#"{"login":1,"page":"https://a.example","complete":null,"code":"AB-CD","issuer":"https://a.example","expiresIn":600}"#)?;
/// assert!(reply.code == "AB-CD");
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CodeBegun {
    /// The login's number.
    pub login: u64,
    /// The page to visit.
    pub page: String,
    /// The page with the code filled in.
    pub complete: Option<String>,
    /// The code to enter on the page.
    pub code: String,
    /// The authorization server that will issue the token.
    pub issuer: String,
    /// Seconds until the code expires.
    pub expires_in: u64,
}

/// A login is done.
///
/// ```
/// let reply: mcp_host::admin::SignedIn = serde_json::from_str(r#"{"signedIn":true,"kept":"file"}"#)?;
/// assert!(reply.kept == mcp_host::auth::Kept::File);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SignedIn {
    /// Always true.
    pub signed_in: bool,
    /// Where the access token is stored.
    pub kept: Kept,
}

/// A device-code login is still pending.
///
/// ```
/// let reply: mcp_host::admin::Pending = serde_json::from_str(r#"{"pending":true}"#)?;
/// assert!(reply.pending);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Pending {
    /// Always true.
    pub pending: bool,
}

/// The reply to canceling a device-code login.
///
/// ```
/// let reply: mcp_host::admin::Abandoned = serde_json::from_str(r#"{"abandoned":true}"#)?;
/// assert!(reply.abandoned);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Abandoned {
    /// Whether the login was in progress.
    pub abandoned: bool,
}

/// The reply to forgetting an access token.
///
/// ```
/// let reply: mcp_host::admin::SignedOut = serde_json::from_str(r#"{"forgotten":true}"#)?;
/// assert!(reply.forgotten);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SignedOut {
    /// Whether there was an access token.
    pub forgotten: bool,
}

/// A login that was rehearsed would work, as far as that is known before the user signs in.
///
/// ```
/// let reply: mcp_host::admin::Rehearsed = serde_json::from_str(r#"{"issuer":"https://a.example"}"#)?;
/// assert_eq!(reply.issuer, "https://a.example");
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rehearsed {
    /// The authorization server that would sign the user in.
    pub issuer: String,
}

/// The access tokens that are held.
///
/// ```
/// let reply: mcp_host::admin::Holdings = serde_json::from_str(r#"{"servers":[]}"#)?;
/// assert!(reply.servers.is_empty());
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Holdings {
    /// All servers that take tokens from a login, in config order.
    pub servers: Vec<ServerHolding>,
}

/// The access token held for one server.
///
/// ```
/// let reply: mcp_host::admin::ServerHolding = serde_json::from_str(r#"{"name":"github","holding":null}"#)?;
/// assert!(reply.holding.is_none());
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerHolding {
    /// The server's name in the config.
    pub name: String,
    /// The token's state; `None` if there is no token.
    pub holding: Option<Holding>,
}

impl SignInReply {
    pub(crate) fn signed_in(kept: Kept) -> Self {
        Self::SignedIn(SignedIn { signed_in: true, kept })
    }

    pub(crate) fn pending() -> Self {
        Self::Pending(Pending { pending: true })
    }

    pub(crate) fn abandoned(abandoned: bool) -> Self {
        Self::Abandoned(Abandoned { abandoned })
    }

    pub(crate) fn signed_out(forgotten: bool) -> Self {
        Self::SignedOut(SignedOut { forgotten })
    }

    pub(crate) fn rehearsed(issuer: String) -> Self {
        Self::Rehearsed(Rehearsed { issuer })
    }

    pub(crate) fn holdings(held: impl IntoIterator<Item = (String, Option<Holding>)>) -> Self {
        let servers = held.into_iter().map(|(name, holding)| ServerHolding { name, holding }).collect();
        Self::Holdings(Holdings { servers })
    }
}

/// Serializes a reply to a line.
pub(super) fn line<T: Serialize>(reply: &T) -> String {
    // Replies always serialize.
    serde_json::to_string(reply).unwrap_or_default()
}

/// Serializes a reply or a refusal to a line.
pub(super) fn line_of<T: Serialize>(reply: &Result<T, Refused>) -> String {
    match reply {
        Ok(reply) => line(reply),
        Err(refused) => line(refused),
    }
}

/// Reads a reply that may be a refusal.
pub(super) fn read<T: for<'a> Deserialize<'a>>(line: &str) -> serde_json::Result<Result<T, Refused>> {
    match serde_json::from_str(line) {
        Ok(refused) => Ok(Err(refused)),
        Err(_) => serde_json::from_str(line).map(Ok),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn written(reply: &impl Serialize) -> Value {
        serde_json::from_str(&line(reply)).expect("JSON")
    }

    #[test]
    fn replies_are_written_as_they_always_were() {
        let begun = LoginBegun::new(7, "https://a/p".to_owned(), "https://a".to_owned(), true);
        let code = CodeBegun {
            login: 8,
            page: "https://a/d".to_owned(),
            complete: None,
            code: "AB-CD".to_owned(),
            issuer: "https://a".to_owned(),
            expires_in: 600,
        };
        for (reply, wanted) in [
            (
                SignInReply::Begun(begun),
                json!({ "login": 7, "page": "https://a/p", "issuer": "https://a", "byCode": true }),
            ),
            (
                SignInReply::BegunByCode(code),
                json!({
                    "login": 8, "page": "https://a/d", "complete": null, "code": "AB-CD", "issuer": "https://a",
                    "expiresIn": 600,
                }),
            ),
            (SignInReply::signed_in(Kept::File), json!({ "signedIn": true, "kept": "file" })),
            (SignInReply::pending(), json!({ "pending": true })),
            (SignInReply::abandoned(false), json!({ "abandoned": false })),
            (SignInReply::signed_out(true), json!({ "forgotten": true })),
            (SignInReply::holdings([("a".to_owned(), None)]), json!({ "servers": [{ "name": "a", "holding": null }] })),
            (SignInReply::Keeping(Keeping::at(Kept::Memory)), json!({ "kept": "memory" })),
            (SignInReply::rehearsed("https://a.example".to_owned()), json!({ "issuer": "https://a.example" })),
        ] {
            assert_eq!(written(&reply), wanted);
        }
        let refused: Result<SignInReply, _> = Err(Refused::unknown("no server"));
        assert_eq!(line_of(&refused), r#"{"error":"no server","usage":true}"#);
    }

    #[test]
    fn a_reload_is_told_with_its_changes_or_its_error() {
        let changes =
            Reload { added: vec!["a".to_owned()], pending: vec!["host.listen".to_owned()], ..Reload::default() };
        let done = Reloaded::from(Ok(changes));
        let wanted =
            json!({ "reloaded": true, "added": ["a"], "removed": [], "changed": [], "pending": ["host.listen"] });
        assert_eq!(written(&done), wanted);
        assert_eq!(serde_json::from_value::<Reloaded>(wanted).expect("a reply"), done);
        let failed = Reloaded::from(Err("mcp.json:1: no".to_owned()));
        assert_eq!(written(&failed), json!({ "reloaded": false, "error": "mcp.json:1: no" }));
        let read: Reloaded = serde_json::from_value(written(&failed)).expect("a reply");
        assert_eq!((read.reloaded, read.error.as_deref()), (false, Some("mcp.json:1: no")));
    }

    #[test]
    fn a_status_is_read_whatever_else_its_daemon_tells() {
        let status = DaemonStatus { pid: 1, version: "1.2.3".to_owned(), ..DaemonStatus::default() };
        let mut told = written(&status);
        told["servers"] = json!([{ "name": "a", "state": "connected", "mood": "good" }]);
        told["clients"] = json!([{ "name": "c", "transport": "http" }, { "name": "d", "transport": "pigeon" }]);
        told["gauges"]["doors"] = json!(1);
        told["limits"] = json!([{ "limit": "bodies", "used": 1, "cap": 2, "unit": "bytes" }]);
        let read: DaemonStatus = serde_json::from_value(told).expect("a status");
        assert_eq!((read.pid, read.version.as_str(), read.servers[0].name.as_str()), (1, "1.2.3", "a"));
        let transports: Vec<&str> = read.clients.iter().map(|client| client.transport).collect();
        assert_eq!(transports, ["http", ""]);
        assert_eq!(read.limits[0].unit.as_deref(), Some("bytes"));
        // An older daemon reports less.
        let older: DaemonStatus = serde_json::from_str(r#"{"pid":2}"#).expect("a status");
        assert_eq!((older.pid, older.servers.len()), (2, 0));
    }

    #[test]
    fn a_refusal_is_told_from_a_reply() {
        assert_eq!(read::<SignedOut>(r#"{"forgotten":true}"#).expect("JSON"), Ok(SignedOut { forgotten: true }));
        assert_eq!(read::<SignedOut>(r#"{"error":"no"}"#).expect("JSON"), Err(Refused::because("no")));
        read::<SignedOut>(r#"{"something":"else"}"#).expect_err("it is neither");
    }
}
