//! Era detection (a server is modern or legacy): which request comes first, and what the answer to the probe
//! (`server/discover`, 2026-07-28, versioning) means; pure.
//!
//! Over HTTP `server/discover` comes first, over a pipe `initialize`: that told all of 38 tested stdio servers apart,
//! and some old ones exit on any request that comes before it. `manager/known.rs` keeps the verdict; a legacy verdict
//! is kept for a day, so that an update of the server is noticed.
//!
//! | answer to the probe | over a pipe | over HTTP |
//! |---|---|---|
//! | a DiscoverResult with a revision of ours | modern | modern |
//! | a DiscoverResult with legacy revisions only | legacy | legacy |
//! | a DiscoverResult with other revisions | refused | refused |
//! | -32022 that names a revision of ours | retry once, then refused | the same |
//! | -32022 that names legacy revisions only | legacy | legacy |
//! | -32022 that names other revisions | refused, `initialize` is never sent | the same |
//! | -32020, -32021 | refused: it is modern | the same |
//! | any other error or result | legacy | legacy |
//! | any other 4xx, no body, not a message | – | legacy |
//! | 401, 403 | – | needs credentials: no verdict |
//! | 429, 5xx, no connection, a broken connection | – | no verdict |
//! | no answer in time | legacy, a late answer still counts | no verdict |
//! | exit | legacy, with another process | – |

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::handshake::{self, NoPeer, Peer};
use crate::config;
use crate::protocol::{Era, ErrorObject, Outcome, ProtocolVersion, Theirs, code};
use crate::transport::{Error, excerpt};

/// Access to what is known about a server's era; `manager/known.rs` has the file behind it.
#[derive(Clone)]
pub(crate) struct Memory {
    /// Returns the known era; `None` if none is known or it is too old.
    pub(crate) recall: Arc<dyn Fn() -> Option<Era> + Send + Sync>,
    /// Records the era after a successful handshake or probe.
    pub(crate) note: Arc<dyn Fn(Era) + Send + Sync>,
    /// Called after a handshake that begins with `initialize`: true if the server opened a session, false if it did
    /// not. Not called if that is unclear.
    pub(crate) took: Arc<dyn Fn(bool) + Send + Sync>,
}

impl Memory {
    /// Returns a memory that knows nothing and keeps nothing.
    pub(crate) fn none() -> Self {
        Self { recall: Arc::new(|| None), note: Arc::new(|_| {}), took: Arc::new(|_| {}) }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:?})", (self.recall)())
    }
}

/// What one connection attempt leaves for the next attempt of the same lease.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// A process is being probed by `server/discover` and may exit on it.
    pub(super) probing: AtomicBool,
    /// The last process exited on the probe: this one gets `initialize` at once.
    pub(super) ended: AtomicBool,
    /// The last probe over HTTP was inconclusive: this time `initialize` comes first.
    pub(super) unclear: AtomicBool,
}

impl Attempts {
    /// Returns true, once, if the process that just ended exited on the probe; the next process then gets `initialize`.
    pub(super) fn ended_of_the_probe(&self) -> bool {
        let ended = self.probing.swap(false, Ordering::Relaxed);
        if ended {
            self.ended.store(true, Ordering::Relaxed);
        }
        ended
    }
}

/// The first request on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    Initialize,
    Discover,
}

/// Returns the first request to send; `skip` rules out the probe. Over stdio it is `initialize`, unless the config or
/// an earlier connection says otherwise: in measurements old servers died on the probe, and others took it for their
/// only handshake.
pub(super) fn first(era: config::Era, over_http: bool, known: Option<Era>, skip: bool) -> First {
    match (era, known) {
        _ if skip => First::Initialize,
        (config::Era::Legacy, _) | (_, Some(Era::Legacy)) => First::Initialize,
        (config::Era::Modern, _) | (_, Some(Era::Modern)) => First::Discover,
        (config::Era::Auto, None) if over_http => First::Discover,
        (config::Era::Auto, None) => First::Initialize,
    }
}

/// Whether a failed `initialize` shows that the server has no sessions: it answered, but not with an InitializeResult.
/// Missing credentials, rate limits, and server faults show nothing.
pub(super) fn refuses_sessions(error: &Error) -> bool {
    match error {
        Error::Malformed(_) => true,
        Error::Status { status, .. } => {
            (400..500).contains(status) && !matches!(status, 401 | 403 | 407 | 408 | 425 | 429)
        }
        _ => false,
    }
}

/// The meaning of an answer to the probe.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The server speaks a modern revision.
    Modern(Box<Peer>),
    /// The server names a revision of ours but refused it: retry once.
    Again,
    /// The server does not know the modern era: send `initialize`.
    Legacy,
    /// We share no revision, or the server requires something that we do not have.
    Refused(Error),
    /// The server could not be reached.
    Unclear(Error),
    /// The process has exited.
    Ended(Error),
}

/// Reads the answer to `server/discover`.
pub(super) fn verdict(answer: Result<Outcome, Error>) -> Verdict {
    match answer {
        Ok(Ok(result)) => match handshake::discovered(&result) {
            Ok(peer) => Verdict::Modern(Box::new(peer)),
            Err(NoPeer::NoResult) => Verdict::Legacy,
            Err(NoPeer::NoneOfOurs(versions)) => others(&versions),
        },
        Ok(Err(error)) => refusal(&error),
        Err(Error::Status { status: 400..=428 | 430..=499, .. } | Error::Malformed(_)) => Verdict::Legacy,
        Err(error) if error.wants_credentials() => Verdict::Refused(error),
        Err(error @ (Error::Exited { .. } | Error::Closed)) => Verdict::Ended(error),
        Err(error) => Verdict::Unclear(error),
    }
}

fn refusal(error: &ErrorObject) -> Verdict {
    let supported = || error.data.as_ref()?.member("supported")?.read::<Vec<String>>().ok();
    match error.code {
        code::UNSUPPORTED_VERSION => match supported() {
            Some(versions) if handshake::newest_modern(&versions).is_some() => Verdict::Again,
            Some(versions) => others(&versions),
            None => Verdict::Legacy,
        },
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY => Verdict::Refused(Error::Malformed(format!(
            "it refused `server/discover`: {} ({})",
            Theirs(&error.message),
            error.code
        ))),
        _ => Verdict::Legacy,
    }
}

/// Decides by the revisions that a server names, none of which is a modern revision that we speak.
fn others(versions: &[String]) -> Verdict {
    if versions.iter().any(|version| ProtocolVersion::parse_handshake(version).is_some()) {
        return Verdict::Legacy;
    }
    let known: Vec<&str> = ProtocolVersion::ALL.iter().map(|version| version.as_str()).collect();
    let theirs: Vec<String> = versions.iter().take(8).map(|version| excerpt(version.as_bytes(), 20)).collect();
    Verdict::Refused(Error::Malformed(format!(
        "it speaks revision {} only; this build speaks {}",
        theirs.join(", "),
        known.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protocol::Raw;

    fn word(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Modern(_) => "modern",
            Verdict::Again => "again",
            Verdict::Legacy => "legacy",
            Verdict::Refused(_) => "refused",
            Verdict::Unclear(_) => "unclear",
            Verdict::Ended(_) => "ended",
        }
    }

    /// Checks the table in the module's doc, row by row.
    #[test]
    fn the_table_holds() {
        let result = |value: serde_json::Value| Ok(Ok(Raw::from_value(&value)));
        let error = |code: i64, data: serde_json::Value| {
            Ok(Err(ErrorObject::new(code, "no").with_data(Raw::from_value(&data))))
        };
        let status = |status| Err(Error::Status { place: String::new(), status, body: None, retry: None });
        let exited = Error::Exited { status: "exit code 1".to_owned(), stderr: None };
        let unreachable = Error::Unreachable { origin: String::new(), reason: String::new() };
        let cases: Vec<(Result<Outcome, Error>, &str)> = vec![
            (result(json!({"supportedVersions": ["2026-07-28"]})), "modern"),
            (result(json!({"resultType": "complete", "supportedVersions": ["2099-01-01", "2026-07-28"]})), "modern"),
            (result(json!({"supportedVersions": ["2025-11-25"]})), "legacy"),
            (result(json!({"supportedVersions": ["2099-01-01"]})), "refused"),
            (result(json!({"resultType": "input_required", "supportedVersions": ["2026-07-28"]})), "legacy"),
            (result(json!({"supportedVersions": "2026-07-28"})), "legacy"),
            (result(json!({})), "legacy"),
            (error(-32022, json!({"supported": ["2026-07-28"]})), "again"),
            (error(-32022, json!({"supported": ["2025-11-25", "2024-11-05"]})), "legacy"),
            (error(-32022, json!({"supported": ["2099-01-01"]})), "refused"),
            (error(-32022, json!({"supported": []})), "refused"),
            (error(-32022, json!({})), "legacy"),
            (error(-32020, json!({})), "refused"),
            (error(-32021, json!({})), "refused"),
            (error(-32601, json!({})), "legacy"),
            (error(-32602, json!({})), "legacy"),
            (error(-32000, json!({})), "legacy"),
            (error(-32001, json!({})), "legacy"),
            (error(-32004, json!({"supported": ["2026-07-28"]})), "legacy"),
            (error(0, json!({})), "legacy"),
            (status(400), "legacy"),
            (status(404), "legacy"),
            (status(405), "legacy"),
            (status(429), "unclear"),
            (status(500), "unclear"),
            (status(503), "unclear"),
            (Err(Error::Malformed("it answered with HTML".to_owned())), "legacy"),
            (Err(Error::Unauthorized { place: String::new(), status: 401, helper: None }), "refused"),
            (Err(unreachable), "unclear"),
            (Err(Error::Broken), "unclear"),
            (Err(exited), "ended"),
            (Err(Error::Closed), "ended"),
        ];
        for (answer, want) in cases {
            let shown = format!("{answer:?}");
            assert_eq!(word(&verdict(answer)), want, "{shown}");
        }
    }

    #[test]
    fn who_is_asked_first() {
        use config::Era::{Auto, Legacy as Old, Modern as New};
        let (pipe, http) = (false, true);
        let cases = [
            (Auto, pipe, None, First::Initialize),
            (Auto, pipe, Some(Era::Modern), First::Discover),
            (Auto, pipe, Some(Era::Legacy), First::Initialize),
            (Auto, http, None, First::Discover),
            (Auto, http, Some(Era::Modern), First::Discover),
            (Auto, http, Some(Era::Legacy), First::Initialize),
            (New, pipe, None, First::Discover),
            (New, pipe, Some(Era::Legacy), First::Initialize),
            (New, http, None, First::Discover),
            (Old, pipe, Some(Era::Modern), First::Initialize),
            (Old, http, None, First::Initialize),
        ];
        for (era, over_http, known, want) in cases {
            assert_eq!(first(era, over_http, known, false), want, "{era:?} {over_http} {known:?}");
            assert_eq!(first(era, over_http, known, true), First::Initialize);
        }
    }

    #[test]
    fn a_discover_result_makes_a_peer() {
        let result = json!({
            "supportedVersions": ["2026-07-28"], "instructions": "be kind", "ttlMs": 3_600_000, "cacheScope": "public",
            "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": true}, "extensions": {"x/y": {}}},
            "serverInfo": {"name": "draft"}, "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s"}}
        });
        let Verdict::Modern(peer) = verdict(Ok(Ok(Raw::from_value(&result)))) else { panic!() };
        assert_eq!((peer.version, peer.info.as_str()), (ProtocolVersion::V2026_07_28, r#"{"name":"s"}"#));
        assert_eq!(peer.instructions.as_deref(), Some("be kind"));
        let offers = handshake::Offers {
            tools: true,
            tools_changed: true,
            resources: true,
            subscribe: true,
            ..handshake::Offers::default()
        };
        assert_eq!(peer.offers, offers);
        assert!(peer.cache.public && peer.cache.ttl == std::time::Duration::from_secs(3600));
        assert_eq!(peer.extensions.unwrap().as_str(), r#"{"x/y":{}}"#);
    }

    #[test]
    fn h105_why_it_refused_is_told_in_few_characters() {
        let long = format!("a\n\u{202e}{}", "x".repeat(1 << 20));
        let supported = Raw::from_value(&json!({ "supported": vec![long.clone(); 100] }));
        let refused = [
            ErrorObject::new(code::HEADER_MISMATCH, &*long),
            ErrorObject::new(code::UNSUPPORTED_VERSION, "no").with_data(supported),
        ];
        for error in refused {
            let Verdict::Refused(error) = verdict(Ok(Err(error))) else { panic!("no refusal") };
            let why = error.to_string();
            assert!(why.len() < 1024 && !why.contains(['\n', '\u{202e}']), "{} bytes: {why:.300}", why.len());
        }
    }
}
