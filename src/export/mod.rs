//! The metrics of a host as OpenMetrics text, for other programs to read.
//!
//! In: the counters of the host (`counts`) and the gauges of its tables, at the moment of a scrape. Out: text of at
//! most [`MOST`] bytes, written at most once a second. **Invariant:** a scrape starts no server, waits for none, and
//! does not block the runtime: numbers are gathered there in short pieces, text is written on a thread that may block,
//! and neither holds a lock that calls wait for. Label values are names in the config, names of tools that the config
//! wants, and words of fixed sets; never anything from a client. Start at [`text`]; `families.rs` has every metric.

mod families;
#[cfg(feature = "otel")]
pub(crate) mod otlp;
mod process;
mod scrape;
mod series;
#[cfg(test)]
mod tests;
mod write;

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use self::scrape::Scrape;
use crate::router::Router;

/// The media type of the text.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The most bytes of the text. Series of single tools are left out first.
const MOST: usize = 8 << 20;
/// How long a text is reused.
const FRESH: Duration = Duration::from_secs(1);

/// Returns the metrics of a host as OpenMetrics text.
///
/// # Cancel safety
/// Dropping the future loses nothing: the next caller writes the text again.
pub(crate) async fn text(router: &Router) -> Bytes {
    // Callers that come meanwhile wait for this text.
    let mut last = router.observer().counted().text().await;
    if let Some((at, text)) = &*last
        && at.elapsed() < FRESH
    {
        return text.clone();
    }
    let (mut scrape, manager) = (Scrape::of(router).await, router.manager().clone());
    // If this panics, the text is empty, which scrapers reject.
    let written = tokio::task::spawn_blocking(move || {
        scrape.ledgers = manager.ledgers();
        write::write(scrape, MOST)
    });
    let written = written.await;
    let text = Bytes::from(written.unwrap_or_default());
    *last = Some((Instant::now(), text.clone()));
    text
}
