//! The limits in `status` that clients can reach: each table that they fill is there, with its limit.

use std::collections::HashMap;
use std::path::Path;

use serde_json::json;

use super::support::*;
use crate::router::Usage;

fn by_limit(house: &House) -> HashMap<&'static str, Usage> {
    house.stage.router.meter().usage().into_iter().map(|usage| (usage.limit, usage)).collect()
}

fn used(house: &House, limit: &str) -> usize {
    by_limit(house).get(limit).unwrap_or_else(|| panic!("{limit} is not told")).used
}

#[tokio::test]
async fn h101_to_h107_what_clients_fill_is_told_beside_its_cap() {
    let house = house_of(bearer(stage().await)).await;
    for (limit, usage) in by_limit(&house) {
        assert_eq!(usage.used, usize::from(limit.starts_with("leases")), "{limit} before anybody is there");
    }
    let mut ann = house.client_as(Some(ANN), "2025-11-25").await;
    let subscribe =
        json!({"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": "test://watched"}});
    let head = ann.post(&subscribe.to_string()).await;
    assert_eq!(head.status, 200);
    ann.body(&head).await;
    ann.tell(&call(2, "slow")).await;
    until(|| house.stage.running() == 1).await;
    for limit in [
        "connections",
        "sessions",
        "sessionsPerPrincipal",
        "pending",
        "pendingPerClient",
        "pendingPerServer",
        "subscriptions",
    ] {
        assert_eq!(used(&house, limit), 1, "{limit}");
    }
    // A client that reads nothing.
    let mut bob = house.client_as(Some(BOB), "2025-11-25").await;
    bob.tell(&call(3, "stream")).await;
    until(|| used(&house, "clientQueue") > 0 && used(&house, "clientQueues") > 0).await;
    assert_eq!(
        (used(&house, "connections"), used(&house, "sessions"), used(&house, "sessionsPerPrincipal")),
        (2, 2, 1)
    );
}

#[tokio::test]
async fn the_caps_are_those_of_the_config() {
    let house = house_of(stage().await).await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/mcp-host.toml");
    let text = std::fs::read_to_string(file).unwrap();
    let (_, limits) = text.split_once("[host.limits]").unwrap();
    for (limit, usage) in by_limit(&house) {
        let value = limits.lines().find_map(|line| line.strip_prefix(&format!("{limit} = "))).unwrap_or_default();
        let value = value.split('#').next().unwrap_or_default().trim().trim_matches('"');
        let said = match usage.unit {
            Some("bytes") => format!("{}MiB", usage.cap >> 20),
            _ => usage.cap.to_string(),
        };
        assert_eq!(said, value, "{limit}");
    }
}
