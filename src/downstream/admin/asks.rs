//! Requests about calls that wait for a person's permission: `asks` lists them, and another request decides one.

use serde::{Deserialize, Serialize};

use super::{AskError, Refused, platform, read, replies};
use crate::router::{Decided, OpenAsk, Router};

/// The requests that wait for a person's permission.
///
/// ```no_run
/// # async fn example() -> Result<(), mcp_host::admin::AskError> {
/// for ask in mcp_host::admin::open_asks(None).await?.asks {
///     println!("{}: {} of {}", ask.id, ask.name, ask.server);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenAsks {
    /// The open questions, oldest first.
    pub asks: Vec<OpenAsk>,
}

/// The reply to a decision.
///
/// ```
/// let reply: mcp_host::admin::DecidedOn = serde_json::from_str(r#"{"decided":3}"#)?;
/// assert_eq!(reply.decided, 3);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DecidedOn {
    /// The number of the question.
    pub decided: u64,
}

/// The request with a decision.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Decision {
    decide: Of,
}

#[derive(Debug, Serialize, Deserialize)]
struct Of {
    ask: u64,
    verdict: Decided,
}

impl Decision {
    /// Records the decision.
    pub(super) fn record(&self, router: &Router) -> Result<DecidedOn, Refused> {
        let Of { ask, verdict } = self.decide;
        if router.clients().asks().decide(ask, verdict) {
            return Ok(DecidedOn { decided: ask });
        }
        Err(Refused::unknown(format!("nothing with the number {ask} waits for a decision")))
    }
}

/// Asks a daemon which requests wait for a person's permission. Without a port, asks the only daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn open_asks(port: Option<u16>) -> Result<OpenAsks, AskError> {
    read(&platform::ask(&platform::directories(), port, "asks").await?)
}

/// Tells a daemon a person's decision about a question. Without a port, asks the only daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn decide(port: Option<u16>, ask: u64, verdict: Decided) -> Result<Result<DecidedOn, Refused>, AskError> {
    let request = replies::line(&Decision { decide: Of { ask, verdict } });
    let answer = platform::ask(&platform::directories(), port, &request).await?;
    replies::read(&answer).map_err(AskError::Strange)
}
