//! Several replicas that serve as one, each with a port for clients and one for the others.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use super::support::*;
use crate::boot::Boot;
use crate::config::{Cluster, PeerSource, SecretKey};
use crate::downstream::http::Channel;
use crate::peers::Peers;
use crate::router::home;
use crate::sessions::Kept;

const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// One replica, which can be killed: it runs in a runtime of its own.
struct Replica {
    house: House,
    runtime: Option<Runtime>,
}

impl std::ops::Deref for Replica {
    type Target = House;

    fn deref(&self) -> &House {
        &self.house
    }
}

impl Replica {
    /// Returns how many others it sees.
    fn answering(&self) -> usize {
        let notes = self.stage.router.meter().cluster().unwrap_or_default();
        notes.peers.iter().filter(|peer| peer.why.is_none()).count()
    }

    /// Ends it as `kill -9` ends a process.
    fn kill(&mut self) {
        self.runtime.take().expect("it lives").shutdown_background();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn key(byte: u8) -> SecretKey {
    SecretKey::parse(&format!("{byte:02x}").repeat(32)).unwrap()
}

/// Starts replicas whose keys are these, one for each; `prepare` changes each stage.
async fn replicas(keys: &[u8], prepare: fn(Stage) -> Stage) -> Vec<Replica> {
    let mut listeners = Vec::new();
    for _ in keys {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap().into_std().unwrap());
    }
    let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let started = keys.iter().zip(listeners).map(|(byte, listener)| {
        let own = listener.local_addr().unwrap();
        let cluster = Cluster::new(vec![key(*byte)], PeerSource::Addresses(names.clone()), own);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let house = runtime.spawn(async move {
            let stage = prepare(staged(|host| host.cluster = Some(cluster.clone()), 0).await);
            let settings = stage.router.manager().settings();
            let kept = Arc::new(Kept::new(None).shared(settings.shared_keys()));
            let peers = Arc::new(Peers::new(home::boot(&stage.router), &cluster, String::new()).unwrap());
            let channel = Channel { peers, listener: Arc::new(TcpListener::from_std(listener).unwrap()) };
            house_with(stage, Settings { kept, channel: Some(channel), ..Settings::default() }).await
        });
        async move { Replica { house: house.await.unwrap(), runtime: Some(runtime) } }
    });
    let all = join_all(started).await;
    for (byte, replica) in keys.iter().zip(&all) {
        let others = keys.iter().filter(|other| *other == byte).count() - 1;
        until_some_time(|| replica.answering() == others).await;
    }
    all
}

async fn three() -> Vec<Replica> {
    replicas(&[1, 1, 1], |stage| stage).await
}

/// Connects this client to another replica.
async fn at(replica: &Replica, peer: &Peer) -> Peer {
    replica.again(peer).await
}

async fn status(replica: &Replica, peer: &Peer, method: &str) -> u16 {
    let mut again = at(replica, peer).await;
    let request = again.request(method, "", if method == "POST" { PING } else { "" });
    again.send(&request).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_at_its_home_whichever_replica_its_requests_land_at() {
    let all = three().await;
    for revision in REVISIONS {
        let peer = all[0].client(revision).await;
        for replica in &all {
            let mut there = at(replica, &peer).await;
            assert_eq!(there.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await.status, 202);
            let answer = there.ask(&call(7, "echo")).await;
            assert_eq!((&answer["id"], text(&answer)), (&json!(7), r#"{"id":7}"#), "{revision}");
            assert_eq!(text(&there.ask(&call(8, "big")).await).len(), 1 << 20);
            let head = there.post(&call(9, "quick")).await;
            assert_eq!(head.kind(), "text/event-stream");
            let events = there.events().await;
            assert!(events.iter().any(|event| event.contains("progress")), "{events:?}");
            assert!(events.last().unwrap().contains('9'), "{events:?}");
            let large = "x".repeat(2 << 20);
            let body = json!({"jsonrpc": "2.0", "id": 10, "method": "tools/call",
                "params": {"name": "echo", "arguments": {"large": large}}});
            assert!(text(&there.ask(&body.to_string()).await).contains(&large));
        }
    }
    assert_eq!(all.iter().map(|replica| replica.stage.sessions()).collect::<Vec<_>>(), [4, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn h110_streams_and_the_end_of_a_session_cross_replicas() {
    let all = three().await;
    let peer = all[0].client("2025-11-25").await;
    let mut stream = at(&all[1], &peer).await;
    assert_eq!(stream.get("").await.status, 200);
    stream.event().await.unwrap();
    all[0].stage.announce(None);
    while !stream.event().await.unwrap().ends_with("notifications/tools/list_changed") {}
    assert_eq!(at(&all[2], &peer).await.get("").await.status, 409, "it is open on another connection");
    assert_eq!(status(&all[2], &peer, "DELETE").await, 204);
    while stream.event().await.is_some() {}
    for replica in &all {
        assert_eq!(status(replica, &peer, "POST").await, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_goes_on_at_home_when_the_connection_breaks_elsewhere() {
    let all = three().await;
    let peer = all[0].client("2025-11-25").await;
    let mut there = at(&all[1], &peer).await;
    there.tell(&call(3, "progress")).await;
    let head = there.head().await;
    assert_eq!(head.kind(), "text/event-stream");
    let first = there.event().await.unwrap();
    drop(there);
    until_some_time(|| all[0].stage.running() == 1).await;
    all[0].stage.release();
    until_some_time(|| all[0].stage.running() == 0).await;
    let mut back = all[2].resumed(&peer, first.split(' ').next().unwrap()).await;
    let events = back.events().await;
    assert!(events.last().unwrap().ends_with("answer 3"), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_http_and_sse_find_their_stream() {
    let all = three().await;
    let mut stream = all[0].connect().await;
    let request = stream.request("GET", "", "").replace("/mcp", "/sse");
    assert_eq!(stream.send(&request).await.status, 200);
    let endpoint = stream.chunk().await.unwrap();
    let path = endpoint.split("data: ").nth(1).unwrap().trim().to_owned();
    for (number, replica) in all.iter().enumerate() {
        let mut there = replica.connect().await;
        let body = if number == 0 { initialize("2024-11-05") } else { call(5, "echo") };
        let request = there.request("POST", "", &body).replace("/mcp", &path);
        assert_eq!(there.send(&request).await.status, 202);
        let answer = stream.chunk().await.unwrap();
        assert!(answer.starts_with("event: message\n") && answer.contains("result"), "{answer}");
    }
    let unknown = path.replace("sessionId=", &format!("sessionId={}", Boot::fresh()));
    for path in [&unknown, &path[..path.len() - 2], "/messages"] {
        let mut there = all[1].connect().await;
        let request = there.request("POST", "", PING).replace("/mcp", path);
        assert!([400, 404].contains(&there.send(&request).await.status), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h109_no_replica_serves_a_session_to_another_principal() {
    let all = replicas(&[1, 1, 1], bearer).await;
    let ann = all[0].client_as(Some(ANN), "2025-11-25").await;
    assert_eq!(status(&all[1], &ann, "POST").await, 200);
    for replica in &all {
        let mut bob = at(replica, &ann).await;
        bob.token = Some(BOB);
        for (method, body) in [("POST", PING), ("GET", ""), ("DELETE", "")] {
            let request = bob.request(method, "", body);
            assert_eq!(at_with(replica, &bob).await.send(&request).await.status, 404, "{method}");
        }
        // What replicas say to each other means nothing at the port for clients.
        let proof = r#"{"principal":"bearer:ann"}"#;
        use base64::Engine as _;
        let proof = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(proof);
        let boot = home::boot(&all[0].stage.router);
        let forged = format!("mcp-host-proof: {proof}\r\nmcp-host-boot: {boot}\r\n");
        let request = bob.request("POST", &forged, PING);
        assert_eq!(at_with(replica, &bob).await.send(&request).await.status, 404);
        bob.token = None;
        let request = bob.request("POST", &forged, PING);
        assert_eq!(at_with(replica, &bob).await.send(&request).await.status, 401);
    }
    assert_eq!(status(&all[2], &ann, "POST").await, 200);
}

async fn at_with(replica: &Replica, peer: &Peer) -> Peer {
    replica.again(peer).await
}

#[tokio::test(flavor = "multi_thread")]
async fn h110_the_sessions_of_a_dead_replica_go_on_at_one_other() {
    let mut all = three().await;
    let mut peers = Vec::new();
    for number in 0..12 {
        let peer = all[0].client(REVISIONS[number % 4]).await;
        assert_eq!(status(&all[1], &peer, "POST").await, 200);
        peers.push(peer);
    }
    all[0].kill();
    for replica in &all[1..] {
        until_some_time(|| replica.answering() == 1).await;
    }
    for peer in &peers {
        for replica in &all[1..] {
            let mut there = at(replica, peer).await;
            assert_eq!(text(&there.ask(&call(5, "echo")).await), r#"{"id":5}"#);
        }
    }
    let (one, other) = (all[1].stage.sessions(), all[2].stage.sessions());
    assert!(one + other == 12 && one > 0 && other > 0, "{one} and {other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h110_a_call_whose_replica_dies_has_an_unknown_outcome_and_is_not_made_again() {
    let mut all = three().await;
    let peer = all[0].client("2025-11-25").await;
    let mut there = at(&all[1], &peer).await;
    there.tell(&call(3, "slow")).await;
    until_some_time(|| all[0].stage.running() == 1).await;
    all[0].kill();
    let head = there.head().await;
    let answer: Value = if head.kind() == "application/json" {
        serde_json::from_str(&there.body(&head).await).unwrap()
    } else {
        // The stream had begun, so the connection broke. The client comes back for the answer, which nobody has.
        Value::Null
    };
    if head.kind() == "application/json" {
        assert_eq!(answer["id"], 3);
        assert!(answer.to_string().contains("outcome_unknown"), "{answer}");
    }
    assert_eq!((all[1].stage.running(), all[2].stage.running()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn h110_a_replica_that_stops_hands_its_sessions_over() {
    let all = three().await;
    let idle = all[0].client("2025-11-25").await;
    let busy = all[0].client("2025-11-25").await;
    let mut there = at(&all[1], &busy).await;
    there.tell(&call(3, "slow")).await;
    until_some_time(|| all[0].stage.running() == 1).await;
    all[0].stop.cancel();
    // Until the call is over the replica is there, and takes nothing new.
    for replica in &all[1..] {
        assert_eq!(text(&at(replica, &idle).await.ask(&call(5, "echo")).await), r#"{"id":5}"#);
    }
    all[0].stage.release();
    let head = there.head().await;
    assert_eq!(head.status, 200);
    let answer =
        if head.kind() == "application/json" { there.body(&head).await } else { there.events().await.join(" ") };
    assert!(answer.contains('3') && !answer.contains("outcome_unknown"), "{answer}");
    for replica in &all[1..] {
        assert_eq!(text(&at(replica, &busy).await.ask(&call(6, "echo")).await), r#"{"id":6}"#);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h109_a_replica_with_another_key_is_no_replica() {
    let all = replicas(&[1, 1, 2], |stage| stage).await;
    let peer = all[0].client("2025-11-25").await;
    assert_eq!(status(&all[1], &peer, "POST").await, 200);
    assert_eq!(status(&all[2], &peer, "POST").await, 404);
    let own = all[2].client("2025-11-25").await;
    for replica in &all[..2] {
        assert_eq!(status(replica, &own, "POST").await, 404);
    }
    let notes = all[0].stage.router.meter().cluster().unwrap();
    let why: Vec<_> = notes.peers.iter().filter_map(|peer| peer.why.as_deref()).collect();
    assert!(notes.mode == "sealed" && notes.peers.len() == 2 && why.len() == 1, "{notes:?}");
    assert!(why[0].contains("proves no key of this cluster") || why[0].contains("broke"), "{why:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_cannot_be_taken_up_is_served_by_its_home_alone() {
    let mut all = replicas(&[1, 1, 1], forgetful).await;
    let peer = all[0].client("2025-11-25").await;
    for replica in &all {
        assert_eq!(status(replica, &peer, "POST").await, 200);
    }
    all[0].kill();
    for replica in &all[1..] {
        assert_eq!(status(replica, &peer, "POST").await, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_does_not_read_stops_nobody_else() {
    let all = three().await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        let peer = all[0].client("2025-11-25").await;
        let mut there = at(&all[1], &peer).await;
        // Four mebibytes that nobody reads.
        there.tell(&call(3, "bulk")).await;
        slow.push(there);
    }
    let peer = all[0].client("2025-11-25").await;
    for number in 0..20 {
        assert_eq!(at(&all[1], &peer).await.ask(&call(number, "echo")).await["id"], number);
    }
    assert_eq!(text(&at(&all[1], &peer).await.ask(&call(1, "big")).await).len(), 1 << 20);
}
