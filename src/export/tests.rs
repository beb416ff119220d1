//! The text of the metrics: names, labels, escapes, and the cap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::MOST;
use super::scrape::Scrape;
use super::write::write;
use crate::answered::{End, Kind};
use crate::counts::{Awaited, Count, Counts, Door, HostCount, Over, ServerCounts, Tally, Verdict};
use crate::manager::{ConfigStatus, Ledger, ServerGauges};
use crate::protocol::Method;
use crate::router::Gauges;
use crate::upstream::StateName;

fn server(counts: &Counts, name: &str) -> ServerGauges {
    ServerGauges {
        name: name.to_owned(),
        state: StateName::Connected,
        counts: counts.of(name),
        running: 1,
        queued: 2,
        leases: 1,
        ready_after: Some(Duration::from_millis(250)),
        offer: Some(Arc::default()),
        token_expires: Some(1_800_000_000),
        refreshes: Some([3, 1]),
        unapproved: 2,
    }
}

fn scrape(counts: &Counts, names: &[&str]) -> Scrape {
    Scrape {
        counts: counts.clone(),
        servers: names.iter().map(|name| server(counts, name)).collect(),
        ledgers: vec![Ledger { view: "all".to_owned(), ..Ledger::default() }],
        config: ConfigStatus::default(),
        gauges: Gauges::default(),
        has_audit: true,
        rules: vec!["no-deletes".to_owned()],
        asks: 1,
        queued: 10,
        cuts: 1,
        started: 1_700_000_000.5,
    }
}

/// Counts a call of a tool.
fn call(counts: &Counts, server: &Arc<ServerCounts>, tool: &str, end: End, kind: Option<Kind>) {
    let (tally, now) = (Tally::default(), Instant::now());
    tally.begin(&Method::ToolsCall, true, 100, now);
    tally.goes_to(server);
    tally.calls(counts, &tool.into(), Some(tool));
    let at = now + Duration::from_millis(3);
    tally.was_away(Awaited::Server, Duration::from_micros(2900));
    tally.close(counts, &Over { end, kind, bytes_out: 200, at });
}

/// Creates counters in which everything has happened.
fn everything(server: &str) -> Counts {
    let counts = Counts::default();
    counts.set_tools(&["*".to_owned()]);
    let of = counts.of(server);
    call(&counts, &of, "search", End::Ok, None);
    call(&counts, &of, "search", End::HostError, Some(Kind::Timeout));
    Count::ALL.iter().for_each(|count| of.one(*count));
    HostCount::ALL.iter().for_each(|count| counts.one(*count));
    of.queued(Duration::from_secs(2));
    counts.answered(Door::Http, 200);
    for (rule, verdict) in [(Some("no-deletes".into()), "deny"), (None, "allow"), (Some("gone".into()), "ask")] {
        counts.judged(Verdict { rule, verdict, enforced: true });
    }
    counts
}

/// Returns each metric with its kind and the names of its labels.
fn names(text: &str) -> String {
    let mut kinds: BTreeMap<String, String> = BTreeMap::new();
    let mut labels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            kinds.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') {
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
            let own = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(own, _)| own);
            let own = own.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
            labels.entry(name.to_owned()).or_default().extend(own);
        }
    }
    let mut lines = Vec::new();
    for (name, mut labels) in labels {
        labels.sort();
        labels.dedup();
        let suffixes = ["", "_total", "_info", "_bucket", "_sum", "_count"];
        let family = suffixes.iter().find_map(|suffix| kinds.get_key_value(name.strip_suffix(suffix)?)).unwrap();
        lines.push(format!("{} {name} {}", family.1, labels.join(" ")).trim_end().to_owned());
    }
    lines.join("\n")
}

#[test]
fn the_names_and_labels_are_stable() {
    let text = write(scrape(&everything("a"), &["a"]), MOST);
    let traced = "\ncounter mcp_host_otel_dropped_total signal";
    let names = names(&text);
    assert_eq!(names.contains(traced), cfg!(feature = "otel"));
    insta::assert_snapshot!(names.replace(traced, ""), @"
    gauge mcp_host_approvals_pending
    gauge mcp_host_asks_pending
    gauge mcp_host_audit_failing
    counter mcp_host_audit_lines_total
    info mcp_host_build_info version
    counter mcp_host_cache_total result server
    histogram mcp_host_call_duration_seconds_bucket le method server
    histogram mcp_host_call_duration_seconds_count method server
    histogram mcp_host_call_duration_seconds_sum method server
    counter mcp_host_call_errors_total kind server
    gauge mcp_host_calls_queued server
    gauge mcp_host_calls_running server
    counter mcp_host_calls_total method outcome server
    gauge mcp_host_client_queue_bytes
    counter mcp_host_clients_cut_total reason
    gauge mcp_host_config_pending
    counter mcp_host_config_reloads_total result
    gauge mcp_host_connections
    gauge mcp_host_definition_bytes server
    counter mcp_host_definition_changes_total server
    gauge mcp_host_definition_tokens server
    counter mcp_host_door_requests_total door status
    counter mcp_host_dropped_total server what
    counter mcp_host_feed_dropped_total
    counter mcp_host_heartbeats_total server
    gauge mcp_host_leases server
    gauge mcp_host_list_tokens view
    gauge mcp_host_list_tools view
    gauge mcp_host_metrics_cut
    histogram mcp_host_overhead_seconds_bucket le
    histogram mcp_host_overhead_seconds_count
    histogram mcp_host_overhead_seconds_sum
    counter mcp_host_questions_total result server what
    histogram mcp_host_queue_wait_seconds_bucket le server
    histogram mcp_host_queue_wait_seconds_count server
    histogram mcp_host_queue_wait_seconds_sum server
    counter mcp_host_rate_limited_total server
    counter mcp_host_repeats_total server
    counter mcp_host_request_bytes_total server
    counter mcp_host_response_bytes_total server
    counter mcp_host_result_tokens_total server
    counter mcp_host_server_losses_total reason server
    gauge mcp_host_server_ready_seconds server
    counter mcp_host_server_starts_total server
    gauge mcp_host_server_state server state
    gauge mcp_host_server_up server
    gauge mcp_host_servers state
    gauge mcp_host_start_time_seconds
    counter mcp_host_stderr_lines_total server
    gauge mcp_host_table_entries table
    gauge mcp_host_token_expiry_timestamp_seconds server
    counter mcp_host_token_refreshes_total result server
    histogram mcp_host_tool_call_duration_seconds_bucket le server tool
    histogram mcp_host_tool_call_duration_seconds_count server tool
    histogram mcp_host_tool_call_duration_seconds_sum server tool
    counter mcp_host_tool_calls_total outcome server tool
    gauge mcp_host_tools server
    counter mcp_host_verdicts_total enforced rule verdict
    counter process_cpu_seconds_total
    gauge process_max_fds
    gauge process_open_fds
    gauge process_resident_memory_bytes
    ");
}

/// The pages that name metrics, and the prefix that each leaves out.
const PAGES: [(&str, &str); 3] = [
    ("docs/metrics.md", include_str!("../../docs/metrics.md")),
    ("docs/metrics/alerts.yml", include_str!("../../docs/metrics/alerts.yml")),
    ("docs/metrics/dashboard.json", include_str!("../../docs/metrics/dashboard.json")),
];

#[test]
fn the_pages_name_every_metric_and_no_other() {
    let text = write(scrape(&everything("a"), &["a"]), MOST);
    let series = names(&text);
    let series: Vec<&str> = series.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    let families: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for (page, said) in PAGES {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words = said.split(|letter: char| !is_part(letter));
        let named: Vec<&str> =
            words.filter(|word| word.starts_with("mcp_host_") || word.starts_with("process_")).collect();
        // Whether there are traces depends on the build.
        for name in named.iter().filter(|name| !name.starts_with("mcp_host_otel_dropped")) {
            assert!(series.contains(name) || families.contains(name), "{page} names {name}");
        }
        if page == "docs/metrics.md" {
            let lacks: Vec<_> =
                families.iter().filter(|family| !named.iter().any(|name| name.starts_with(**family))).collect();
            assert!(lacks.is_empty(), "{page} lacks {lacks:?}");
        }
    }
    let board: serde_json::Value = serde_json::from_str(PAGES[2].1).unwrap();
    let panels = board["panels"].as_array().unwrap();
    assert!(panels.len() > 10 && panels.iter().all(|panel| !panel["targets"].as_array().unwrap().is_empty()));
    assert_eq!(PAGES[1].1.matches("- alert: ").count(), 8);
}

#[test]
fn values_are_escaped_and_each_family_is_in_one_piece() {
    let name = "a\"\\\nb";
    let text = write(scrape(&everything(name), &[name, "c"]), MOST);
    assert!(text.contains(r#"mcp_host_server_up{server="a\"\\\nb"} 1"#), "{text}");
    assert!(text.ends_with("\nmcp_host_metrics_cut 0\n# EOF\n"));
    let mut seen = Vec::new();
    for family in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let family = family.split(' ').next().unwrap().to_owned();
        assert!(!seen.contains(&family), "{family} comes twice");
        seen.push(family);
    }
    assert!(
        text.lines().all(|line| line.starts_with('#') || line.starts_with("mcp_host_") || line.starts_with("process_"))
    );
}

#[test]
fn only_verdicts_of_rules_that_exist_are_told() {
    let text = write(scrape(&everything("a"), &["a"]), MOST);
    let told: Vec<&str> = text.lines().filter(|line| line.starts_with("mcp_host_verdicts_total")).collect();
    assert_eq!(
        told,
        [
            r#"mcp_host_verdicts_total{rule="",verdict="allow",enforced="true"} 1"#,
            r#"mcp_host_verdicts_total{rule="no-deletes",verdict="deny",enforced="true"} 1"#,
        ]
    );
}

#[test]
fn without_an_audit_and_without_a_wait_there_are_no_series_of_them() {
    let counts = Counts::default();
    counts.of("a");
    let text = write(Scrape { has_audit: false, ..scrape(&counts, &["a"]) }, MOST);
    let has = |name: &str| text.lines().any(|line| line.starts_with(name));
    assert!(
        !has("mcp_host_audit_lines_total ") && !has("mcp_host_audit_failing ") && !has("mcp_host_queue_wait_seconds")
    );
    assert!(!has("mcp_host_calls_total{") && has("mcp_host_server_starts_total{"));
}

#[test]
fn series_of_tools_are_left_out_first() {
    let counts = Counts::default();
    counts.set_tools(&["*".to_owned()]);
    let names: Vec<String> = (0..500).map(|number| format!("server-{number}")).collect();
    for name in &names {
        let of = counts.of(name);
        (0..2).for_each(|number| call(&counts, &of, &format!("tool-{number}"), End::Ok, None));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let whole = write(scrape(&counts, &names), MOST);
    assert!(whole.len() < MOST && whole.contains("mcp_host_tool_call_duration_seconds_bucket{"));
    assert!(whole.contains("\nmcp_host_metrics_cut 0\n"));
    let most = whole.len() - 1000;
    let cut = write(scrape(&counts, &names), most);
    assert!(cut.len() <= most && cut.ends_with("\nmcp_host_metrics_cut 1\n# EOF\n"));
    assert!(!cut.contains("mcp_host_tool_call_duration_seconds_bucket{"));
    assert_eq!(cut.matches("mcp_host_call_duration_seconds_count{").count(), 500, "whatever is of a server stays");
}
