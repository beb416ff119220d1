//! The limits on sessions, their lifetime, and the ownership of streams.

use std::time::Duration;

use serde_json::json;

use super::support::*;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// Returns the result of a client's `initialize`.
async fn opens(house: &House, token: Option<&'static str>) -> (u16, bool) {
    let mut peer = house.connect().await;
    peer.token = token;
    let head = peer.post(&initialize("2025-11-25")).await;
    peer.body(&head).await;
    (head.status, head.headers.contains_key("retry-after"))
}

/// Connects a client with a call in flight.
async fn busy(house: &House, token: Option<&'static str>) -> Peer {
    let mut peer = house.client_as(token, "2025-11-25").await;
    let running = house.stage.running();
    peer.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == running + 1).await;
    peer
}

#[tokio::test]
async fn h62_sessions_in_use_up_to_the_cap() {
    for limit in [3, 2, 1] {
        let house = house_of(stage_with(|limits| limits.sessions = limit).await).await;
        let (_first, _second) = match limit {
            1 => (busy(&house, None).await, None),
            _ => (busy(&house, None).await, Some(busy(&house, None).await)),
        };
        let want = if limit == 3 { (200, false) } else { (503, true) };
        assert_eq!(opens(&house, None).await, want, "limit {limit}");
    }
}

#[tokio::test]
async fn h62_the_session_that_is_idle_longest_makes_room_first() {
    let house = house_of(forgetful(stage_with(|limits| limits.sessions = 3).await)).await;
    let mut peers = Vec::new();
    for _ in 0..3 {
        peers.push(house.client("2025-11-25").await);
        // Uses are ordered by the millisecond.
        rest(Duration::from_millis(5)).await;
    }
    assert_eq!(peers[0].post(PING).await.status, 200);
    let _fourth = house.client("2025-11-25").await;
    for (peer, status) in peers.iter().zip([200, 404, 200]) {
        assert_eq!(house.again(peer).await.post(PING).await.status, status);
    }
}

#[tokio::test]
async fn h62_one_that_proves_who_it_is_has_a_cap_of_its_own() {
    let limits = |limits: &mut crate::config::Limits| limits.sessions_per_principal = 2;
    let house = house_of(forgetful(bearer(stage_with(limits).await))).await;
    let mut idle = house.client_as(Some(ANN), "2025-11-25").await;
    let mut kept = busy(&house, Some(ANN)).await;
    // At the limit the idle session of the same principal makes room, and no other.
    let mut other = house.client_as(Some(BOB), "2025-11-25").await;
    let _third = busy(&house, Some(ANN)).await;
    assert_eq!(idle.post(PING).await.status, 404);
    assert_eq!(other.post(PING).await.status, 200);
    assert_eq!(opens(&house, Some(ANN)).await, (503, true), "all in use");
    let get = format!("GET /sse HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer {ANN}\r\n\r\n");
    assert_eq!(house.connect().await.send(&get).await.status, 503, "streams of messages are sessions, too");
    assert_eq!(opens(&house, Some(BOB)).await, (200, false));
    house.stage.release();
    house.stage.release();
    kept.head().await;
    until(|| house.stage.running() == 0).await;
    assert_eq!(opens(&house, Some(ANN)).await, (503, true), "all were in use just now");
    rest(MINUTE + SOON).await;
    assert_eq!(opens(&house, Some(ANN)).await, (200, false));
    assert_eq!(house.again(&other).await.post(PING).await.status, 200);
}

/// How long after its last use a session counts as in use.
const MINUTE: Duration = Duration::from_secs(60);
/// More than anything takes here.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn h104_a_session_used_within_the_last_minute_stays() {
    let uses = ["a request", "a call", "a stream", "an answer", "a batch"];
    for what in uses {
        let house = house_of(forgetful(stage_with(|limits| limits.sessions = 1).await)).await;
        let revision = if what == "a batch" { "2025-03-26" } else { "2025-11-25" };
        let mut peer = house.client(revision).await;
        let head = match what {
            "a request" => peer.post(PING).await,
            "a call" => peer.post(&call(1, "echo")).await,
            "a stream" => peer.get("").await,
            "an answer" => peer.post(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await,
            _ => peer.post(&format!("[{PING}]")).await,
        };
        assert!(head.status == 200 || head.status == 202, "{what}: {}", head.status);
        assert_eq!(opens(&house, None).await, (503, true), "{what}");
        if what == "a stream" {
            // An open stream counts as a use.
            rest(3 * MINUTE).await;
            assert_eq!(opens(&house, None).await, (503, true), "{what}");
            let session = peer.session.clone();
            drop(std::mem::replace(&mut peer, house.connect().await));
            peer.session = session;
        }
        rest(MINUTE - SOON).await;
        assert_eq!(opens(&house, None).await, (503, true), "{what}");
        rest(2 * SOON).await;
        assert_eq!(opens(&house, None).await, (200, false), "{what}");
        assert_eq!(house.again(&peer).await.post(PING).await.status, 404, "{what}");
    }
}

#[tokio::test]
async fn h104_a_handshake_is_no_use_and_the_oldest_makes_room_first() {
    let house = house_of(forgetful(stage_with(|limits| limits.sessions = 4).await)).await;
    let mut used = house.client("2025-11-25").await;
    let head = used.post(PING).await;
    used.body(&head).await;
    let mut opened = Vec::new();
    for _ in 0..3 {
        let mut peer = house.client("2025-11-25").await;
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(peer.post(initialized).await.status, 202);
        opened.push(peer);
        // Uses are ordered by the millisecond.
        rest(Duration::from_millis(5)).await;
    }
    // A session used long ago goes before fresh ones, and after abandoned ones.
    rest(2 * MINUTE).await;
    let mut fresh = house.client("2025-11-25").await;
    for status in [404, 200] {
        let peer = opened.remove(0);
        assert_eq!(house.again(&peer).await.post(PING).await.status, status);
    }
    let _second = house.client("2025-11-25").await;
    assert_eq!(house.again(&opened.remove(0)).await.post(PING).await.status, 404);
    let _third = house.client("2025-11-25").await;
    assert_eq!(house.again(&used).await.post(PING).await.status, 404);
    assert_eq!(fresh.post(PING).await.status, 200);
}

#[tokio::test]
async fn h104_a_flood_of_sessions_with_streams_takes_no_place_from_one_in_use() {
    let house = house_of(stage_with(|limits| limits.sessions = 8).await).await;
    let mut busy = house.client("2025-11-25").await;
    let (mut flood, mut refused) = (Vec::new(), 0);
    for number in 0..50 {
        assert_eq!(busy.ask(&call(number, "echo")).await["id"], number);
        let mut peer = house.connect().await;
        let head = peer.post(&initialize("2025-11-25")).await;
        let body = peer.body(&head).await;
        if head.status == 503 {
            assert!(body.contains("host.limits.sessions") && body.contains("DELETE"), "{body}");
            refused += 1;
        } else {
            peer.session = head.headers.get("mcp-session-id").cloned();
            assert_eq!(peer.get("").await.status, 200);
            flood.push(peer);
        }
        rest(Duration::from_millis(40)).await;
    }
    assert_eq!((flood.len(), refused), (7, 43));
}

#[tokio::test]
async fn h62_whoever_is_there_without_a_token_has_none() {
    let house = house_of(stage_with(|limits| limits.sessions_per_principal = 1).await).await;
    let (mut first, mut second) = (house.client("2025-11-25").await, house.client("2025-11-25").await);
    assert_eq!((first.post(PING).await.status, second.post(PING).await.status), (200, 200));
}

#[tokio::test]
async fn h62_clients_without_a_session_have_the_same_caps() {
    let limits = |limits: &mut crate::config::Limits| limits.sessions_per_principal = 1;
    let house = house_of(bearer(stage_with(limits).await)).await;
    let apart = |id: u64, tool: &str, word: &str| {
        let meta = json!({"mcp-host/affinity": word});
        modern(id, "tools/call", json!({"name": tool, "arguments": {}, "_meta": meta}))
    };
    let mut ann = house.connect().await;
    ann.token = Some(ANN);
    ann.tell_modern(&apart(1, "slow", "one")).await;
    until(|| house.stage.running() == 1).await;
    for (token, word, status) in [(ANN, "two", 503), (ANN, "one", 200), (BOB, "two", 200)] {
        let mut peer = house.connect().await;
        peer.token = Some(token);
        assert_eq!(peer.ask_modern(&apart(2, "echo", word)).await.0, status, "{token} {word}");
    }
}

#[tokio::test]
async fn h62_abandoned_sessions_leave_nothing() {
    let house = house_of(stage_with(|limits| limits.sessions = 16).await).await;
    let mut peer = house.connect().await;
    for _ in 0..500 {
        let head = peer.post(&initialize("2025-11-25")).await;
        assert_eq!(head.status, 200);
        peer.body(&head).await;
        assert!(house.stage.sessions() <= 16);
    }
    assert_eq!(house.stage.queued(), 0);
}

#[tokio::test]
async fn h62_a_quiet_stream_shows_every_fifteen_seconds_that_it_lives() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    assert_eq!(peer.get("").await.status, 200);
    assert_eq!([peer.event().await, peer.event().await], [Some(":".to_owned()), Some("0-0".to_owned())]);
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    for turn in 1..=3 {
        assert_eq!(peer.event().await.unwrap(), ":");
        let passed = begun.elapsed();
        assert!(passed <= Duration::from_secs(15 * turn + 1), "{turn}: {passed:?}");
        assert!(passed >= Duration::from_secs(15 * turn - 1), "{turn}: {passed:?}");
    }
}

#[tokio::test]
async fn h62_quiet_streams_of_other_kinds_show_it_as_well() {
    let house = house().await;
    let (mut listening, mut messages) = (house.connect().await, house.connect().await);
    listening.post_modern(&listen(1, json!({"toolsListChanged": true}))).await;
    listening.message().await.unwrap();
    messages.send("GET /sse HTTP/1.1\r\nHost: HOST\r\n\r\n").await;
    assert!(messages.chunk().await.unwrap().starts_with("event: endpoint"));
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    for turn in 1..=3 {
        for peer in [&mut listening, &mut messages] {
            assert_eq!(peer.chunk().await.as_deref(), Some(":\n\n"));
            let passed = begun.elapsed();
            assert!(passed <= Duration::from_secs(15 * turn + 1), "{turn}: {passed:?}");
            assert!(passed >= Duration::from_secs(15 * turn - 1), "{turn}: {passed:?}");
        }
    }
    // A client that opens a stream and sends nothing loses it after a minute.
    while messages.chunk().await.is_some() {}
    assert_eq!(begun.elapsed().as_secs().div_ceil(5) * 5, 60, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn h62_clients_without_a_session_go_when_they_are_idle_and_not_before() {
    let idle = Duration::from_millis(20);
    let limits = |limits: &mut crate::config::Limits| (limits.session_idle, limits.sessions) = (idle, 1);
    let house = house_of(stage_with(limits).await).await;
    let apart = |id: u64, tool: &str, word: &str| {
        let meta = json!({"mcp-host/affinity": word});
        modern(id, "tools/call", json!({"name": tool, "arguments": {}, "_meta": meta}))
    };
    let (mut busy, mut other) = (house.connect().await, house.connect().await);
    busy.tell_modern(&apart(1, "slow", "one")).await;
    until(|| house.stage.running() == 1).await;
    assert_eq!(other.ask_modern(&apart(2, "echo", "two")).await.0, 503, "there may be one, and it is busy");
    rest(10 * idle).await;
    assert_eq!((house.stage.sessions(), house.stage.running()), (1, 1));
    house.stage.release();
    assert_eq!(busy.head().await.status, 200);
    until_some_time(|| house.stage.sessions() == 0).await;
    assert_eq!(other.ask_modern(&apart(2, "echo", "two")).await.0, 200);
}

#[tokio::test]
async fn h61_of_two_streams_at_once_one_gets_everything() {
    let house = house().await;
    for _ in 0..10 {
        let first = house.client("2025-11-25").await;
        let (mut one, mut two) = (house.again(&first).await, house.again(&first).await);
        let (left, right) = tokio::join!(one.get(""), two.get(""));
        let (mut open, refused) = if left.status == 200 { (one, right) } else { (two, left) };
        assert_eq!(refused.status, 409);
        for _ in 0..3 {
            house.stage.announce(None);
            while !open.event().await.unwrap().ends_with("list_changed") {}
        }
        let delete = first.request("DELETE", "", "");
        assert_eq!(house.connect().await.send(&delete).await.status, 204);
    }
}

#[tokio::test]
async fn h65_an_event_id_is_good_in_its_session_and_for_its_principal_only() {
    let house = house_of(bearer(stage().await)).await;
    let mut ann = house.client_as(Some(ANN), "2025-11-25").await;
    ann.post(&call(1, "quick")).await;
    assert_eq!(ann.events().await, ["1-0", "1-1 progress 1", "1-2 answer 1"]);
    let mut bob = house.client_as(Some(BOB), "2025-11-25").await;
    bob.post(&call(1, "quick")).await;
    bob.events().await;
    // In a client's own session, the same id means its own stream.
    let mut stolen = house.again(&bob).await;
    stolen.session.clone_from(&ann.session);
    let mut sessions = vec![(stolen, 404)];
    let mut second = house.client_as(Some(ANN), "2025-11-25").await;
    second.post(PING).await;
    sessions.push((house.again(&second).await, 400));
    for (mut peer, status) in sessions {
        let head = peer.get("Last-Event-ID: 1-0\r\n").await;
        assert_eq!(head.status, status);
        let body = peer.body(&head).await;
        assert!(!body.contains("progress") && !body.contains("answer"), "{body}");
    }
    let mut back = house.resumed(&ann, "1-0").await;
    assert_eq!(back.events().await, [":", "1-1 progress 1", "1-2 answer 1"]);
}

#[tokio::test]
async fn h65_a_session_keeps_so_many_streams_and_bytes_for_another_try() {
    let house = house().await;
    for (calls, tool, newest) in [(20, "quick", "20-1"), (3, "stream", "3-1")] {
        let mut peer = house.client("2025-11-25").await;
        for number in 1..=calls {
            peer.post(&call(number, tool)).await;
            while peer.chunk().await.is_some() {}
        }
        let mut back = house.resumed(&peer, newest).await;
        assert_eq!(back.event().await.unwrap(), ":");
        assert!(back.chunk().await.unwrap().contains(&format!("{calls}-2")), "{tool}");
        let mut late = house.again(&peer).await;
        let head = late.get("Last-Event-ID: 1-1\r\n").await;
        assert_eq!(head.status, 400, "{tool}");
        assert!(!late.body(&head).await.contains("answer"), "{tool}");
    }
}

#[tokio::test]
async fn h65_what_is_kept_for_another_try_goes_after_five_minutes() {
    let house = house().await;
    let mut peer = house.client("2025-11-25").await;
    peer.post(&call(1, "quick")).await;
    assert_eq!(peer.events().await.len(), 3);
    rest(Duration::from_secs(290)).await;
    let mut back = house.resumed(&peer, "1-1").await;
    assert_eq!(back.events().await, [":", "1-2 answer 1"]);
    // The table is swept every half minute.
    rest(Duration::from_secs(70)).await;
    let head = house.again(&peer).await.get("Last-Event-ID: 1-1\r\n").await;
    assert_eq!(head.status, 400);
}

#[tokio::test]
async fn h65_what_is_kept_for_another_try_makes_way_for_what_waits() {
    let house = house_of(stage_with(|limits| limits.client_queues = 20_000).await).await;
    let mut peers = Vec::new();
    for number in 0..60 {
        let mut peer = house.client("2025-11-25").await;
        peer.post(&call(number, "quick")).await;
        assert_eq!(peer.events().await.len(), 3, "the answer comes, whatever is kept");
        assert!(house.stage.queued() <= 20_000, "{}", house.stage.queued());
        peers.push(peer);
    }
    // Nobody was cut off for that.
    for peer in &mut peers {
        assert_eq!(peer.post(PING).await.status, 200);
    }
}

#[tokio::test]
async fn h60_an_id_is_ours_and_has_to_be_said() {
    let house = house().await;
    let mut peer = house.connect().await;
    let proposed = "0123456789abcdef".repeat(4);
    peer.session = Some(proposed.clone());
    let head = peer.post(&initialize("2025-11-25")).await;
    peer.body(&head).await;
    let given = head.headers["mcp-session-id"].clone();
    assert_ne!(given, proposed, "none is taken from a client");
    // Even if only one session exists, a request must name it exactly.
    let forms = [(Some(proposed), 404), (Some(given.to_uppercase()), 404), (None, 400), (Some(given), 200)];
    for (session, status) in forms {
        peer.session.clone_from(&session);
        let head = peer.post(PING).await;
        peer.body(&head).await;
        assert_eq!(head.status, status, "{session:?}");
    }
}
