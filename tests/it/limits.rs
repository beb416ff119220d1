//! Each limit of `host.limits`, and each of a server's, with the test that checks it at and beyond the limit. A limit
//! without a test, or a test that does not exist, fails here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A limit and its test: file and name.
const LIMITS: [(&str, &str, &str); 55] = [
    ("answer", "src/router/tests/limits.rs", "limit_answer_of_a_person_stops_both_clocks"),
    ("body", "src/downstream/tests/refusals.rs", "h81_bodies_have_a_cap"),
    ("bodies", "src/downstream/tests/bodies.rs", "h103_bodies_in_receipt_have_a_cap_in_all"),
    ("callTimeout", "src/router/tests/limits.rs", "limit_call_timeout_and_max_call_time"),
    ("calls", "src/record/tests/mod.rs", "limit_calls_the_oldest_go_and_running_ones_stay"),
    ("catalogs", "src/manager/view.rs", "limit_catalogs_the_oldest_goes"),
    ("clientQueue", "src/downstream/tests/streams.rs", "h49_a_client_that_takes_nothing_is_cut_off"),
    ("clientQueues", "src/downstream/tests/caps.rs", "h65_what_is_kept_for_another_try_makes_way_for_what_waits"),
    ("connections", "src/downstream/tests/http.rs", "h51_connections_have_a_cap"),
    ("definitions", "src/registry/tests/offer.rs", "limits_at_their_edges"),
    ("depth", "src/protocol/tests/mod.rs", "limit_depth"),
    ("drain", "src/downstream/tests/http.rs", "h95_the_drain_has_an_end"),
    ("headerBytes", "src/downstream/tests/limits.rs", "h81_headers_have_a_size"),
    ("headers", "src/downstream/tests/limits.rs", "h81_headers_have_a_count"),
    (
        "healthy",
        "src/upstream/state.rs",
        "h8_losses_are_forgotten_after_a_healthy_minute_with_an_answer_and_not_before",
    ),
    ("leases", "src/router/tests/limits.rs", "limit_leases_in_all_and_per_server"),
    ("leasesPerServer", "src/router/tests/limits.rs", "limit_leases_in_all_and_per_server"),
    ("legacyListTtl", "src/downstream/tests/listen.rs", "race_6_the_lists_change_between_two_pages"),
    ("lines", "src/record/tests/mod.rs", "limit_lines_the_oldest_of_a_server_go"),
    ("listPages", "src/registry/tests/offer.rs", "h40_circles_and_endless_lists_fail"),
    ("listTime", "src/upstream/tests/losses.rs", "limit_list_time"),
    ("login", "src/auth/attempt.rs", "h70_ten_minutes"),
    ("maxCallTime", "src/router/tests/limits.rs", "limit_call_timeout_and_max_call_time"),
    ("maxConcurrent", "src/router/tests/limits.rs", "limit_max_concurrent_and_queue_timeout"),
    ("message", "src/protocol/tests/mod.rs", "h3_lines_at_the_cap_and_beside_it"),
    ("oauthChallenge", "src/auth/challenge.rs", "h75_caps"),
    ("oauthDocument", "tests/it/auth/limits.rs", "limit_oauth_document_and_oauth_token"),
    ("oauthRequest", "tests/it/auth/limits.rs", "limit_oauth_request"),
    ("oauthToken", "tests/it/auth/limits.rs", "limit_oauth_document_and_oauth_token"),
    ("offers", "src/manager/kept/folder.rs", "limit_offers_the_oldest_listing_makes_room"),
    ("parked", "src/router/tests/limits.rs", "limit_parked"),
    ("parkedPerPrincipal", "src/router/tests/parked.rs", "of_too_many_calls_that_wait_the_oldest_ends"),
    ("pending", "src/router/tests/limits.rs", "limit_pending_of_all_clients"),
    ("pendingPerClient", "src/router/tests/limits.rs", "limit_pending_per_client"),
    ("pendingPerServer", "src/router/tests/limits.rs", "limit_pending_per_server_and_h51_half_of_it_where_others_are"),
    ("pool", "src/router/tests/pool.rs", "limit_pool_one_less_as_many_and_one_more"),
    ("queueTimeout", "src/router/tests/limits.rs", "limit_max_concurrent_and_queue_timeout"),
    ("rateKeys", "src/manager/rates.rs", "limit_rate_keys_the_idlest_goes"),
    ("redirects", "tests/it/auth/limits.rs", "limit_redirects"),
    ("restart.maxRetries", "src/upstream/state.rs", "h8_a_crash_loop_that_looks_like_success_ends_in_failed"),
    ("restart.minDelay", "src/upstream/backoff.rs", "h8_delays_double_up_to_a_cap_and_chance_takes_all_of_them"),
    ("serverQueue", "src/transport/tests.rs", "h6_a_child_that_reads_nothing_fills_its_own_queue_alone"),
    ("results", "src/oversized/tests.rs", "limit_results_of_all_principals_the_oldest_go"),
    ("rules", "src/config/host/policy/read.rs", "limit_rules"),
    ("sessionIdle", "src/downstream/tests/http.rs", "h62_idle_sessions_leave_memory"),
    ("sessionsPerPrincipal", "src/downstream/tests/caps.rs", "h62_one_that_proves_who_it_is_has_a_cap_of_its_own"),
    ("sessions", "src/downstream/tests/http.rs", "h62_the_longest_idle_session_makes_room"),
    ("staleMax", "src/router/tests/limits.rs", "limit_stale_max_ends_what_a_lost_server_listed"),
    ("startTimeout", "src/upstream/tests/losses.rs", "h58_a_late_timer_touches_no_newer_attempt"),
    ("stopClose", "src/transport/tests.rs", "h14_a_slow_but_useful_exit_is_respected"),
    ("stopTerm", "src/transport/tests.rs", "h14_a_hundred_stubborn_children_end_side_by_side"),
    ("subscriptions", "src/router/tests/limits.rs", "h102_limit_subscriptions_of_sessions_and_of_streams"),
    ("tools", "src/registry/tests/offer.rs", "limits_at_their_edges"),
    ("uri", "src/router/tests/limits.rs", "h102_limit_uri_of_any_request"),
    ("views", "src/config/host/views.rs", "limit_views"),
];

/// Settings of a server that are limits, too.
const OF_SERVERS: [&str; 8] = [
    "callTimeout",
    "maxCallTime",
    "maxConcurrent",
    "pool",
    "queueTimeout",
    "restart.maxRetries",
    "restart.minDelay",
    "startTimeout",
];

#[test]
fn every_limit_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = fs::read_to_string(root.join("config/mcp-host.toml")).expect("the config with every key");
    let (_, limits) = config.split_once("[host.limits]").expect("the limits");
    let known: BTreeSet<&str> = limits
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| Some(line.split_once(" = ")?.0).filter(|key| !key.starts_with('#')))
        .chain(OF_SERVERS)
        .collect();
    let tested: BTreeSet<&str> = LIMITS.iter().map(|(limit, ..)| *limit).collect();
    let without: Vec<_> = known.difference(&tested).collect();
    assert!(without.is_empty(), "no test is named here for {without:?}");
    let unknown: Vec<_> = tested.difference(&known).collect();
    assert!(unknown.is_empty(), "config/mcp-host.toml has no {unknown:?}");
    for (limit, file, test) in LIMITS {
        let text = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{limit}: {file}: {error}"));
        assert!(text.contains(&format!("fn {test}(")), "{limit}: {file} has no {test}");
    }
}
