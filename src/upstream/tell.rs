//! What a server is told without anybody waiting for its answer.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Connection, listing};
use crate::protocol::{Method, Raw};
use crate::transport::HEADERS;

/// Asks something that nobody waits for, until the connection ends; tells whether the server agreed.
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

/// Tells the server how much to log, if it logs at all; `telling` counts meanwhile.
pub(super) fn set_level(
    connection: &Arc<Connection>,
    level: Option<&'static str>,
    telling: &Arc<watch::Sender<usize>>,
) {
    // In the modern era each request says it.
    let takes = connection.peer().is_some_and(|peer| peer.offers.logging && !peer.version.is_modern());
    if let (Some(level), true) = (level, takes) {
        telling.send_modify(|count| *count += 1);
        let told = Told(telling.clone());
        let params = Raw::trusted(format!(r#"{{"level":"{level}"}}"#).into());
        let ask = asking(connection, Method::SetLevel, params);
        connection.tasks().spawn(async move {
            ask.await;
            drop(told);
        });
    }
}

/// Counts down when the server was told.
struct Told(Arc<watch::Sender<usize>>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
