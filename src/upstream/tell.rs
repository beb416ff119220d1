//! Requests to a server whose answer no caller waits for.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Connection, listing};
use crate::protocol::{Method, Raw};
use crate::transport::HEADERS;

/// Returns a future that sends a request and resolves to true if the server agreed. It ends with the connection.
pub(super) fn asking(
    connection: &Arc<Connection>,
    method: Method,
    params: Raw,
) -> impl Future<Output = bool> + Send + use<> {
    let (task, stop) = (connection.clone(), connection.stop_token().clone());
    async move {
        let asked = async {
            match tokio::time::timeout(HEADERS, listing::ask(&task, &method, Some(&params))).await {
                Ok(Ok(Ok(_))) => return true,
                Ok(Ok(Err(error))) => tracing::debug!(server = task.label(), "{method} was refused: {}", error.message),
                Ok(Err(_)) => {}
                Err(_) => tracing::debug!("{method} had no answer within {HEADERS:?}"),
            }
            false
        };
        stop.run_until_cancelled(asked).await.unwrap_or(false)
    }
}

/// Sets the server's log level, if the server supports logging; `telling` counts the requests in flight.
pub(super) fn set_level(
    connection: &Arc<Connection>,
    level: Option<&'static str>,
    telling: &Arc<watch::Sender<usize>>,
) {
    // In the modern era each request carries the level.
    let takes = connection.peer().is_some_and(|peer| peer.offers.logging && !peer.version.is_modern());
    if let (Some(level), true) = (level, takes) {
        telling.send_modify(|count| *count += 1);
        let told = TellingGuard(telling.clone());
        let params = Raw::trusted(format!(r#"{{"level":"{level}"}}"#).into());
        let ask = asking(connection, Method::SetLevel, params);
        connection.tasks().spawn(async move {
            ask.await;
            drop(told);
        });
    }
}

/// Decrements the count of requests in flight when dropped.
struct TellingGuard(Arc<watch::Sender<usize>>);

impl Drop for TellingGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
