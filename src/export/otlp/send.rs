//! Sends one request to the collector, and retries it up to three times if the collector allows that. Once the host
//! shuts down, no request waits before its last attempt.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Request;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::environment::Signal;
use crate::config::Remote;
use crate::counts::{Counts, HostCount};
use crate::dial::Dialer;
use crate::transport::retry_after;

/// How often a request is retried.
const RETRIES: u32 = 3;
/// The delay before the first retry, unless the collector states one; it doubles with each retry.
const WAIT: Duration = Duration::from_secs(1);
/// The longest delay that a collector may ask for.
const LONGEST: Duration = Duration::from_secs(30);

pub(super) struct Sender {
    dialer: Dialer,
    counts: Counts,
    /// Cancelled when the host shuts down, so that retries stop.
    stop: CancellationToken,
    /// Whether the last request failed: a collector that is down is logged once.
    is_failing: bool,
}

/// The outcome of one attempt.
enum Sent {
    Taken,
    /// The request may be retried, after this delay if the collector states one.
    Later(Option<Duration>, String),
    Refused(String),
}

impl Sender {
    pub(super) fn new(counts: Counts, stop: CancellationToken) -> Self {
        Self { dialer: Dialer::new(None), counts, stop, is_failing: false }
    }

    /// Sends a body. If the collector does not take it, counts its content as dropped.
    pub(super) async fn send(&mut self, to: &Signal, body: Vec<u8>, (what, number): (HostCount, u64)) {
        let body = Bytes::from(body);
        let mut wait = WAIT;
        let mut left = RETRIES;
        let why = loop {
            match self.once(to, body.clone()).await {
                Sent::Taken => {
                    self.is_failing = false;
                    return;
                }
                Sent::Refused(why) => break why,
                Sent::Later(_, why) if left == 0 || self.stop.is_cancelled() => break why,
                Sent::Later(told, _) => {
                    left -= 1;
                    let wait_now = sleep(told.unwrap_or(wait).min(LONGEST));
                    // If the host shuts down meanwhile, the next attempt is made at once and is the last.
                    let _ = self.stop.run_until_cancelled(wait_now).await;
                    wait *= 2;
                }
            }
        };
        self.counts.add(what, number);
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                "the collector of host.otel at {} takes nothing: {why}",
                to.url.origin().ascii_serialization()
            );
        }
    }

    async fn once(&self, to: &Signal, body: Bytes) -> Sent {
        let Signal { url, headers, timeout: patience } = to;
        let mut request = Request::post(url.as_str()).header("content-type", "application/x-protobuf");
        for (name, value) in headers {
            request = request.header(name, value.expose());
        }
        let request = match request.header("host", authority(url)).body(body) {
            Ok(request) => request,
            Err(error) => return Sent::Refused(error.to_string()),
        };
        let client = match self.dialer.client(&Remote::new(url.clone())) {
            Ok(client) => client,
            Err(why) => return Sent::Refused(why),
        };
        let response = match timeout(*patience, client.send(request)).await {
            Err(_) => return Sent::Later(None, format!("no answer within {patience:?}")),
            Ok(Err(error)) => return Sent::Later(None, error.to_string()),
            Ok(Ok(response)) => response,
        };
        let status = response.status();
        let told = retry_after(response.headers(), SystemTime::now());
        match status.as_u16() {
            200..300 => Sent::Taken,
            429 | 502 | 503 | 504 => Sent::Later(told, format!("it answers {status}")),
            _ => Sent::Refused(format!("it answers {status}")),
        }
    }
}

/// Returns host and port, as for the header `Host`.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
