//! The requests `tokens` and `definitions` of the status socket: the cost of a view's tools, and the texts for programs
//! that count tokens themselves.

use serde::Serialize;

use super::{AskError, Refused, UNKNOWN, no_view, platform, replies};
use crate::keep;
use crate::manager::Ledger;
use crate::manager::ledger::LedgerTexts;
use crate::router::Router;

/// The beginning of a request for estimates.
pub(super) const ESTIMATED: &[u8] = b"tokens ";
/// The beginning of a request for the texts.
pub(super) const TEXTS: &[u8] = b"definitions ";

/// The view that a request names.
#[derive(Debug, Default, serde::Deserialize, Serialize)]
#[serde(default)]
struct OfView {
    view: Option<String>,
}

/// Asks a daemon for the cost of a view's tools, in tokens; without a view, of the view of clients that choose none.
/// Without a port, asks the only daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn tokens(port: Option<u16>, view: Option<&str>) -> Result<Result<Ledger, Refused>, AskError> {
    let answer = asked(port, ESTIMATED, view).await?;
    replies::read(&answer).map_err(AskError::Strange)
}

/// Asks a daemon for the same cost, with the texts of the definitions.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn ledger_texts(port: Option<u16>, view: Option<&str>) -> Result<Result<LedgerTexts, Refused>, AskError> {
    let answer = asked(port, TEXTS, view).await?;
    replies::read(&answer).map_err(AskError::Strange)
}

async fn asked(port: Option<u16>, begin: &[u8], view: Option<&str>) -> Result<String, AskError> {
    let request = replies::line(&OfView { view: view.map(str::to_owned) });
    let begin = String::from_utf8_lossy(begin);
    platform::ask(&platform::directories(), port, &format!("{begin}{request}")).await
}

/// Answers a request for estimates.
pub(super) async fn estimated(router: &Router, request: &[u8]) -> String {
    let manager = router.manager().clone();
    replies::line_of(&answered(&request[ESTIMATED.len()..], move |view| manager.ledger(view)).await)
}

/// Answers a request for the texts.
pub(super) async fn texts(router: &Router, request: &[u8]) -> String {
    let manager = router.manager().clone();
    replies::line_of(&answered(&request[TEXTS.len()..], move |view| manager.ledger_texts(view)).await)
}

/// Reads a request and answers it, on a thread that may block: the catalog of the view may have to be built.
async fn answered<T: Send + 'static>(
    rest: &[u8],
    of: impl FnOnce(Option<&str>) -> Result<T, Vec<String>> + Send + 'static,
) -> Result<T, Refused> {
    let Ok(OfView { view }) = serde_json::from_slice(rest) else { return Err(Refused::because(UNKNOWN)) };
    keep::done(move || of(view.as_deref()).map_err(|views| no_view(view.as_deref(), &views))).await
}
