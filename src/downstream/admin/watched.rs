//! What a feed tells of a server beyond its status: what it did lately, what it costs, and where it comes from.

use serde::Serialize;
use serde_json::{Map, Value};

use super::usage::{Usage, Used};
use crate::manager::{Server, ServerGauges, ServerStatus};
use crate::record::{Lately, Moment, Record};
use crate::registry::Kind;
use crate::registry::tokens::of_bytes;

/// One server, as a feed tells it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Watched<'a> {
    #[serde(flatten)]
    status: &'a ServerStatus,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timeline: Vec<Moment>,
    #[serde(flatten)]
    lately: Lately,
    /// Calls that wait for their turn.
    calls_queued: usize,
    #[serde(flatten)]
    used: Option<Used>,
    /// The tokens of the definitions of its tools, about.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<usize>,
    /// Until when its access token is good, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    login_until: Option<u64>,
    /// The file and the line of its entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// Its command or URL, without secrets.
    target: String,
}

impl Watched<'_> {
    /// Returns the members of one server.
    pub(super) fn members(
        (server, status, gauges): (&Server, &ServerStatus, &ServerGauges),
        record: &Record,
        usage: &Usage,
    ) -> Map<String, Value> {
        let (timeline, lately) = record.lately(&status.name);
        let bytes = gauges.offer.as_ref().map(|offer| offer.bytes(Kind::Tools));
        let watched = Watched {
            status,
            timeline,
            lately,
            calls_queued: gauges.queued,
            used: usage.of(&status.pids),
            tokens: bytes.map(|bytes| of_bytes(bytes as u64)),
            login_until: gauges.token_expires.map(|second| second.saturating_mul(1000)),
            source: server.config.source.shown(),
            target: server.config.transport.shown(),
        };
        match serde_json::to_value(&watched) {
            Ok(Value::Object(members)) => members,
            // Every key is a string.
            _ => Map::new(),
        }
    }
}
