//! Every metric: its name, its kind, and where its numbers come from. The names are stable, and `docs/metrics.md` has
//! them.
//!
//! **Invariant:** the value of a label is a name in the config, the name of a tool that the config wants, or a word of a
//! fixed set.

use std::fmt;

use prometheus_client::metrics::MetricType;

use super::series::{Facts, Series};
use crate::answered::{End, Kind};
use crate::counts::{Buckets, Count, Door, Group, HostCount};
use crate::manager::{Ledger, ServerGauges};
use crate::policy::DEFAULT;
use crate::registry::tokens::{estimate, of_bytes};
use crate::upstream::StateName;

/// One metric with all its series.
#[derive(Clone, Copy)]
pub(super) struct Family {
    /// The name without the prefix and, for counters, without `_total`.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricType,
    /// Whether it has a series for each tool. Such metrics are left out first.
    pub(super) of_tools: bool,
    pub(super) series: fn(&Facts, &mut Series<'_>) -> fmt::Result,
}

const C: MetricType = MetricType::Counter;
const G: MetricType = MetricType::Gauge;
const H: MetricType = MetricType::Histogram;

const fn family(
    name: &'static str,
    kind: MetricType,
    help: &'static str,
    series: fn(&Facts, &mut Series<'_>) -> fmt::Result,
) -> Family {
    Family { name, help, kind, of_tools: false, series }
}

const fn of_tools(family: Family) -> Family {
    Family { of_tools: true, ..family }
}

/// All metrics, in the order of the text.
pub(super) const FAMILIES: &[Family] = &[
    family("build", MetricType::Info, "The version of mcp-host.", |_, out| {
        out.info(&[("version", env!("CARGO_PKG_VERSION"))])
    }),
    family("start_time_seconds", G, "When the host started, in seconds since 1970.", |facts, out| {
        out.number(&[], facts.scrape.started)
    }),
    family("config_pending", G, "Keys of the config that wait for the next start.", |facts, out| {
        out.count(&[], facts.scrape.config.pending.len() as u64)
    }),
    family("config_reloads", C, "Changes of the config files.", |facts, out| {
        out.count(&[("result", "ok")], facts.scrape.counts.read(HostCount::ReloadOk))?;
        out.count(&[("result", "refused")], facts.scrape.counts.read(HostCount::ReloadRefused))
    }),
    family("servers", G, "Servers by state.", |facts, out| {
        STATES.iter().try_for_each(|state| {
            let count = facts.scrape.servers.iter().filter(|server| server.state == *state).count();
            out.count(&[("state", state.as_str())], count as u64)
        })
    }),
    family("server_up", G, "1 if the server is connected or idle.", |facts, out| {
        each(facts, out, |server| Some(u64::from(matches!(server.state, StateName::Connected | StateName::Idle))))
    }),
    family("server_state", G, "1 for the state of the server, 0 for all others.", |facts, out| {
        facts.scrape.servers.iter().try_for_each(|server| {
            STATES.iter().try_for_each(|state| {
                let labels = [("server", server.name.as_str()), ("state", state.as_str())];
                out.count(&labels, u64::from(server.state == *state))
            })
        })
    }),
    family("server_starts", C, "Attempts to start the server or to connect to it.", |facts, out| {
        counted(facts, out, Count::Starts)
    }),
    family("server_losses", C, "Connections, and attempts at one, that were lost.", |facts, out| {
        by_word(
            facts,
            out,
            "reason",
            &[
                ("exit", Count::LostExit),
                ("timeout", Count::LostTimeout),
                ("transport", Count::LostTransport),
                ("protocol", Count::LostProtocol),
            ],
        )
    }),
    family(
        "server_ready_seconds",
        G,
        "The time from the first start of the server to its first list.",
        |facts, out| {
            facts.scrape.servers.iter().try_for_each(|server| match server.ready_after {
                Some(time) => out.number(&[("server", &server.name)], time.as_secs_f64()),
                None => Ok(()),
            })
        },
    ),
    family("leases", G, "Connections to the server.", |facts, out| {
        each(facts, out, |server| Some(server.leases as u64))
    }),
    family("calls", C, "Requests of clients that have ended.", calls),
    family("call_errors", C, "Requests that the host itself failed.", errors),
    family("call_duration_seconds", H, "How long requests took.", durations),
    family("overhead_seconds", H, "The part of a call that was spent in the host.", |facts, out| {
        out.histogram(&[], &facts.scrape.counts.overhead())
    }),
    family("calls_running", G, "Calls in flight at the server.", |facts, out| {
        each(facts, out, |server| Some(server.running as u64))
    }),
    family("calls_queued", G, "Calls that wait for a slot of the server (maxConcurrent).", |facts, out| {
        each(facts, out, |server| Some(server.queued as u64))
    }),
    family("queue_wait_seconds", H, "How long calls waited for a slot or for their rate.", |facts, out| {
        facts.scrape.servers.iter().try_for_each(|server| match server.counts.queue() {
            Some(waits) => out.histogram(&[("server", &server.name)], &waits),
            None => Ok(()),
        })
    }),
    family("repeats", C, "Requests that were sent to the server once more.", |facts, out| {
        counted(facts, out, Count::Repeats)
    }),
    family("request_bytes", C, "Bytes of the params of requests.", |facts, out| {
        counted(facts, out, Count::RequestBytes)
    }),
    family("response_bytes", C, "Bytes of results and errors.", |facts, out| counted(facts, out, Count::ResponseBytes)),
    family("result_tokens", C, "Tokens of the results of tools that clients got, as estimated.", |facts, out| {
        each(facts, out, |server| Some(of_bytes(server.counts.results()) as u64))
    }),
    family("stderr_lines", C, "Lines that the server wrote to standard error.", |facts, out| {
        counted(facts, out, Count::StderrLines)
    }),
    family("rate_limited", C, "Calls that were refused because of a rate.", |facts, out| {
        each(facts, out, |server| Some(server.counts.failures(Kind::RateLimited)))
    }),
    family("heartbeats", C, "Progress that the host itself sent for silent calls.", |facts, out| {
        counted(facts, out, Count::Heartbeats)
    }),
    family("dropped", C, "Messages of the server that were dropped.", |facts, out| {
        by_word(
            facts,
            out,
            "what",
            &[
                ("notification", Count::DroppedNotification),
                ("answer", Count::DroppedAnswer),
                ("log", Count::DroppedLog),
                ("noise", Count::DroppedNoise),
            ],
        )
    }),
    family("questions", C, "Questions of the server to clients.", questions),
    family("verdicts", C, "What rules said of requests.", verdicts),
    family("cache", C, "Calls that may be given a kept answer.", |facts, out| {
        by_word(
            facts,
            out,
            "result",
            &[("hit", Count::CacheHit), ("miss", Count::CacheMiss), ("joined", Count::CacheJoined)],
        )
    }),
    family("tools", G, "Tools that the server lists.", |facts, out| {
        each(facts, out, |server| Some(server.offer.as_ref()?.count(crate::registry::Kind::Tools) as u64))
    }),
    family("definition_bytes", G, "Bytes of the definitions of the server's tools.", |facts, out| {
        each(facts, out, |server| definition_bytes(server).map(|bytes| bytes as u64))
    }),
    family("definition_tokens", G, "Tokens of the definitions of the server's tools, as estimated.", |facts, out| {
        each(facts, out, |server| Some(server.offer.as_ref()?.tokens(estimate) as u64))
    }),
    family("list_tools", G, "Tools in each list of the view.", |facts, out| lists(facts, out, |ledger| ledger.listed)),
    family("list_tokens", G, "Tokens of each list of tools of the view, as estimated.", |facts, out| {
        lists(facts, out, |ledger| ledger.tokens)
    }),
    family(
        "definition_changes",
        C,
        "Definitions that were not as approved when the server listed them.",
        |facts, out| counted(facts, out, Count::DefinitionChanges),
    ),
    family("token_expiry_timestamp_seconds", G, "When the access token for the server expires.", |facts, out| {
        each(facts, out, |server| server.token_expires)
    }),
    family("token_refreshes", C, "Renewals of the access token for the server.", |facts, out| {
        facts.scrape.servers.iter().try_for_each(|server| {
            let Some([ok, failed]) = server.refreshes else { return Ok(()) };
            out.count(&[("server", &server.name), ("result", "ok")], ok)?;
            out.count(&[("server", &server.name), ("result", "failed")], failed)
        })
    }),
    family("table_entries", G, "Entries of the host's tables (gauges in status).", tables),
    family("approvals_pending", G, "Definitions that wait for somebody's approval.", |facts, out| {
        out.count(&[], facts.scrape.servers.iter().map(|server| server.unapproved as u64).sum())
    }),
    family("asks_pending", G, "Calls that wait for a person's permission.", |facts, out| {
        out.count(&[], facts.scrape.asks as u64)
    }),
    family("connections", G, "Connections of clients.", |facts, out| {
        out.count(&[], facts.scrape.gauges.connections as u64)
    }),
    family("client_queue_bytes", G, "Bytes that wait for clients.", |facts, out| {
        out.count(&[], facts.scrape.queued as u64)
    }),
    family("door_requests", C, "Answers to requests, by the door that they came through.", doors),
    family("clients_cut", C, "Clients that were cut off.", |facts, out| {
        out.count(&[("reason", "queue")], facts.scrape.cuts)?;
        out.count(&[("reason", "auth")], facts.scrape.counts.read(HostCount::CutAuth))
    }),
    family("audit_lines", C, "Lines written to the audit.", |facts, out| match facts.scrape.has_audit {
        true => out.count(&[], facts.scrape.counts.read(HostCount::AuditLines)),
        false => Ok(()),
    }),
    family("audit_failing", G, "1 while the audit cannot be written, so that calls are refused.", |facts, out| {
        match facts.scrape.has_audit {
            true => out.count(&[], u64::from(facts.scrape.counts.is_audit_failing())),
            false => Ok(()),
        }
    }),
    family("feed_dropped", C, "Events that a feed missed because it read too slowly.", |facts, out| {
        out.count(&[], facts.scrape.counts.read(HostCount::FeedDropped))
    }),
    #[cfg(feature = "otel")]
    family("otel_dropped", C, "Spans and metrics that the collector did not take.", |facts, out| {
        let counts = &facts.scrape.counts;
        out.count(&[("signal", "traces")], counts.read(HostCount::OtelSpansDropped))?;
        out.count(&[("signal", "metrics")], counts.read(HostCount::OtelMetricsDropped))
    }),
    family("process_resident_memory_bytes", G, "Resident memory in bytes.", |facts, out| {
        facts.process.resident_bytes.map_or(Ok(()), |value| out.count(&[], value))
    }),
    family("process_cpu_seconds", C, "User and system time in seconds.", |facts, out| {
        facts.process.cpu_seconds.map_or(Ok(()), |value| out.number(&[], value))
    }),
    family("process_open_fds", G, "Open file descriptors.", |facts, out| {
        facts.process.open_fds.map_or(Ok(()), |value| out.count(&[], value))
    }),
    family("process_max_fds", G, "The limit on open file descriptors.", |facts, out| {
        facts.process.max_fds.map_or(Ok(()), |value| out.count(&[], value))
    }),
    of_tools(family("tool_calls", C, "Calls of single tools (host.metrics.tools).", |facts, out| {
        facts.scrape.servers.iter().try_for_each(|server| {
            server.counts.tools().iter().try_for_each(|(tool, counts)| {
                let ended = End::ALL.iter().map(|end| (end, counts.calls(*end))).filter(|(_, count)| *count > 0);
                ended.into_iter().try_for_each(|(end, count)| {
                    out.count(&[("server", &server.name), ("tool", tool), ("outcome", end.word())], count)
                })
            })
        })
    })),
    of_tools(family("tool_call_duration_seconds", H, "How long calls of single tools took.", |facts, out| {
        facts.scrape.servers.iter().try_for_each(|server| {
            server.counts.tools().iter().try_for_each(|(tool, counts)| {
                out.histogram(&[("server", &server.name), ("tool", tool)], &counts.durations())
            })
        })
    })),
];

/// All states of servers.
const STATES: [StateName; 10] = [
    StateName::Idle,
    StateName::Connecting,
    StateName::Initializing,
    StateName::Connected,
    StateName::Reconnecting,
    StateName::Unauthorized,
    StateName::Disconnecting,
    StateName::Disconnected,
    StateName::Failed,
    StateName::Disabled,
];

/// Writes a number for each server for which `of` returns one.
fn each(facts: &Facts, out: &mut Series<'_>, of: impl Fn(&ServerGauges) -> Option<u64>) -> fmt::Result {
    facts.scrape.servers.iter().try_for_each(|server| match of(server) {
        Some(value) => out.count(&[("server", &server.name)], value),
        None => Ok(()),
    })
}

/// Writes a counter of each server.
fn counted(facts: &Facts, out: &mut Series<'_>, count: Count) -> fmt::Result {
    each(facts, out, |server| Some(server.counts.read(count)))
}

/// Writes several counters of each server as series that differ in one label. A server has either all of them or none.
fn by_word(facts: &Facts, out: &mut Series<'_>, label: &'static str, words: &[(&str, Count)]) -> fmt::Result {
    for server in &facts.scrape.servers {
        if words.iter().any(|(_, count)| server.counts.read(*count) > 0) {
            for (word, count) in words {
                out.count(&[("server", &server.name), (label, word)], server.counts.read(*count))?;
            }
        }
    }
    Ok(())
}

/// Calls `of` with the name and the counters of each server, and with those of requests that went to no server.
fn with_none(facts: &Facts, mut of: impl FnMut(&str, &crate::counts::ServerCounts) -> fmt::Result) -> fmt::Result {
    of("", facts.scrape.counts.none())?;
    facts.scrape.servers.iter().try_for_each(|server| of(&server.name, &server.counts))
}

fn calls(facts: &Facts, out: &mut Series<'_>) -> fmt::Result {
    with_none(facts, |server, counts| {
        for (group, end) in Group::ALL.iter().flat_map(|group| End::ALL.iter().map(move |end| (group, end))) {
            let count = counts.calls(*group, *end);
            if count > 0 {
                out.count(&[("server", server), ("method", group.word()), ("outcome", end.word())], count)?;
            }
        }
        Ok(())
    })
}

fn errors(facts: &Facts, out: &mut Series<'_>) -> fmt::Result {
    with_none(facts, |server, counts| {
        let failed = Kind::ALL.iter().map(|kind| (kind, counts.failures(*kind))).filter(|(_, count)| *count > 0);
        failed.into_iter().try_for_each(|(kind, count)| out.count(&[("server", server), ("kind", kind.word())], count))
    })
}

fn durations(facts: &Facts, out: &mut Series<'_>) -> fmt::Result {
    with_none(facts, |server, counts| {
        let taken = Group::ALL.iter().filter_map(|group| Some((group, counts.durations(*group)?)));
        taken.into_iter().try_for_each(|(group, times): (&Group, Buckets)| {
            out.histogram(&[("server", server), ("method", group.word())], &times)
        })
    })
}

fn questions(facts: &Facts, out: &mut Series<'_>) -> fmt::Result {
    const ALL: [(&str, &str, Count); 9] = [
        ("elicitation", "answered", Count::ElicitationAnswered),
        ("elicitation", "refused", Count::ElicitationRefused),
        ("elicitation", "expired", Count::ElicitationExpired),
        ("sampling", "answered", Count::SamplingAnswered),
        ("sampling", "refused", Count::SamplingRefused),
        ("sampling", "expired", Count::SamplingExpired),
        ("roots", "answered", Count::RootsAnswered),
        ("roots", "refused", Count::RootsRefused),
        ("roots", "expired", Count::RootsExpired),
    ];
    for server in &facts.scrape.servers {
        for (what, result, count) in ALL {
            let count = server.counts.read(count);
            if count > 0 {
                out.count(&[("server", &server.name), ("what", what), ("result", result)], count)?;
            }
        }
    }
    Ok(())
}

/// Writes the verdicts of the config's rules. A request that no rule matched has an empty `rule`.
fn verdicts(facts: &Facts, out: &mut Series<'_>) -> fmt::Result {
    for (verdict, count) in facts.scrape.counts.verdicts() {
        let is_known = |rule: &str| facts.scrape.rules.iter().any(|known| known == rule);
        // The default decision is reported under a name of its own, which is not a rule.
        let rule = verdict.rule.as_deref().filter(|rule| *rule != DEFAULT || is_known(rule)).unwrap_or_default();
        if rule.is_empty() || is_known(rule) {
            let enforced = if verdict.enforced { "true" } else { "false" };
            out.count(&[("rule", rule), ("verdict", verdict.verdict), ("enforced", enforced)], count)?;
        }
    }
    Ok(())
}

fn tables(facts: &Facts, out: &mut Series<'_>) -> fmt::Result {
    // The names are those of `gauges` in `status`, whatever they are.
    let gauges = serde_json::to_value(facts.scrape.gauges).unwrap_or_default();
    let entries = gauges.as_object().into_iter().flatten();
    entries.into_iter().try_for_each(|(table, count)| match count.as_u64() {
        Some(count) => out.count(&[("table", table)], count),
        None => Ok(()),
    })
}

fn doors(facts: &Facts, out: &mut Series<'_>) -> fmt::Result {
    const STATUS: [(&str, usize); 4] = [("2xx", 2), ("3xx", 3), ("4xx", 4), ("5xx", 5)];
    for (door, (status, hundred)) in Door::ALL.iter().flat_map(|door| STATUS.iter().map(move |status| (door, *status)))
    {
        let count = facts.scrape.counts.answers(*door, hundred);
        out.count(&[("door", door.word()), ("status", status)], count)?;
    }
    Ok(())
}

/// Writes a number about the list of each view.
fn lists(facts: &Facts, out: &mut Series<'_>, number: fn(&Ledger) -> usize) -> fmt::Result {
    facts.scrape.ledgers.iter().try_for_each(|ledger| out.count(&[("view", &ledger.view)], number(ledger) as u64))
}

fn definition_bytes(server: &ServerGauges) -> Option<usize> {
    let offer = server.offer.as_ref()?;
    Some(offer.bytes(crate::registry::Kind::Tools))
}
