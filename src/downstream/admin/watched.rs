//! What a feed reports about servers: their status, their recent calls, their cost, and where their entries are.
//!
//! **Invariant:** the runtime is blocked for a few servers at a time, however many there are.

use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::Part;
use super::usage::{Usage, Used};
use crate::manager::{Server, ServerGauges, ServerStatus};
use crate::pieces::in_pieces;
use crate::record::{Lately, Moment, Record, Wanted};
use crate::registry::Kind;
use crate::registry::tokens::of_bytes;
use crate::router::Router;

/// How many servers are visited before calls get a turn: that takes less than a millisecond.
const PIECE: usize = 16;

/// One server, as a feed reports it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Watched<'a> {
    #[serde(flatten)]
    status: &'a ServerStatus,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timeline: Vec<Moment>,
    #[serde(flatten)]
    lately: Lately,
    /// Calls that wait for a slot.
    calls_queued: usize,
    #[serde(flatten)]
    used: Option<Used>,
    /// The estimated tokens of its tools' definitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<usize>,
    /// Until when its access token is valid, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    login_until: Option<u64>,
    /// The file and the line of its entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// Its command or URL, without secrets.
    target: String,
}

impl Watched<'_> {
    /// Writes the members of one server.
    fn members(
        (server, status, gauges): (&Server, &ServerStatus, &ServerGauges),
        record: &Record,
        usage: &Usage,
    ) -> Option<Box<RawValue>> {
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
            target: server.scrubber.scrub(&server.config.transport.shown()).into_owned(),
        };
        // Every key is a string.
        to_raw_value(&watched).ok()
    }
}

/// Visits the servers that a feed covers, in config order and in pieces. `take` gets each server's status, and its
/// members if the feed reports servers.
pub(super) async fn each<T>(
    router: &Router,
    wanted: &Wanted,
    usage: &Usage,
    mut take: impl FnMut(ServerStatus, Option<Box<RawValue>>) -> T,
) -> Vec<T> {
    let (manager, has_members) = (router.manager(), wanted.has(Part::Servers));
    let (record, servers, merged) = (manager.record(), manager.servers(), manager.merged());
    if has_members {
        let counted = servers.iter().map(|server| (&*server.config.name, &**server.counts()));
        record.read(SystemTime::now(), counted);
    }
    let is_wanted = |name: &str| wanted.server.as_ref().is_none_or(|(wanted, _)| wanted == name);
    let servers: Vec<_> = servers.iter().filter(|server| is_wanted(&server.config.name)).cloned().collect();
    let look = |server: &Arc<Server>| {
        let status = manager.status_of(server, &merged);
        let members = || Watched::members((server, &status, &manager.gauges_of(server)), record, usage);
        let members = has_members.then(members).flatten();
        take(status, members)
    };
    in_pieces(&servers, PIECE, look).await
}
