//! What other programs read of a host: its metrics, as OpenMetrics text.
//!
//! In: the counts of the host (`counts`) and the gauges of its tables, at the moment of a scrape. Out: text, at most
//! [`MOST`] bytes, made at most once a second. **Invariant:** a scrape starts no server, waits for none, and does not hold
//! up the runtime: numbers are gathered there in short pieces, text is written on a thread that may block, and neither holds
//! a lock that calls wait for. Label values are names in the config, names of tools that the config wants, and words of
//! fixed sets; never anything of a client. Start at [`text`]; `families.rs` has every metric.

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
/// How long a text is given to whoever asks.
const FRESH: Duration = Duration::from_secs(1);

/// Returns the metrics of a host as OpenMetrics text.
///
/// # Cancel safety
/// Dropping the future loses nothing: the text is made anew for the next one who asks.
pub(crate) async fn text(router: &Router) -> Bytes {
    // Whoever asks meanwhile waits for this text.
    let mut last = router.observer().counted().text().await;
    if let Some((at, text)) = &*last
        && at.elapsed() < FRESH
    {
        return text.clone();
    }
    let (mut scrape, manager) = (Scrape::of(router).await, router.manager().clone());
    // A panic there leaves a text without metrics, which is none to a scraper.
    let written = tokio::task::spawn_blocking(move || {
        scrape.ledgers = manager.ledgers();
        write::write(scrape, MOST)
    });
    let written = written.await;
    let text = Bytes::from(written.unwrap_or_default());
    *last = Some((Instant::now(), text.clone()));
    text
}
