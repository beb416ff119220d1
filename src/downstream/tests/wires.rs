//! Connections that give way to new ones (`docs/hazards.md` H107).

use std::time::Duration;

use tokio::io::AsyncReadExt as _;

use super::support::*;

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: HOST\r\n\r\n";

async fn small(connections: usize) -> Stage {
    stage_with(|limits| limits.connections = connections).await
}

/// Reports whether the connection ends without a byte.
async fn ends(peer: &mut Peer) -> bool {
    !matches!(peer.stream.read(&mut [0; 1]).await, Ok(length) if length > 0)
}

#[tokio::test]
async fn h107_a_newcomer_is_served_where_all_slots_are_idle() {
    for token in [None, Some(ANN)] {
        let stage = small(8).await;
        let house = house_of(if token.is_some() { bearer(stage) } else { stage }).await;
        let mut idle = Vec::new();
        for number in 0..8 {
            let mut peer = house.connect().await;
            if number % 2 == 0 {
                let head = peer.send(HEALTH).await;
                assert_eq!((head.status, peer.body(&head).await.as_str()), (200, "ok\n"));
            }
            idle.push(peer);
        }
        let mut clients = Vec::new();
        for id in 0..8 {
            let mut peer = house.client_as(token, "2025-11-25").await;
            assert_eq!(peer.ask(&call(id, "echo")).await["id"], id);
            clients.push(peer);
        }
        // No proven connection gave way for an unproven one.
        for (id, peer) in clients.iter_mut().enumerate() {
            assert_eq!(peer.ask(&call(id as u64, "echo")).await["id"], id);
        }
        for peer in &mut idle {
            assert!(ends(peer).await, "one that proved nothing stays where others are in want");
        }
        // Now all are equal: the connection that was idle longest gives way.
        let mut newcomer = house.client_as(token, "2025-11-25").await;
        assert!(ends(&mut clients[0]).await);
        assert_eq!(clients[1].ask(&call(1, "echo")).await["id"], 1);
        assert_eq!(newcomer.ask(&call(1, "echo")).await["id"], 1);
    }
}

#[tokio::test]
async fn h107_those_that_prove_nothing_have_a_quarter_and_close_nobody_else() {
    let house = house_of(bearer(small(8).await)).await;
    let mut client = house.client_as(Some(ANN), "2025-11-25").await;
    let mut first = house.connect().await;
    let mut second = house.connect().await;
    rest(Duration::from_secs(2)).await;
    // Activity does not help: it was opened first.
    assert_eq!(first.send(HEALTH).await.status, 200);
    assert_eq!(second.post(&initialize("2025-11-25")).await.status, 401, "that proves nothing");
    let _third = house.connect().await;
    first.stream.read_exact(&mut [0; 3]).await.unwrap();
    assert!(ends(&mut first).await, "there are slots, and these have their quarter");
    let mut flood = Vec::new();
    for _ in 0..40 {
        flood.push(house.connect().await);
    }
    assert_eq!(client.ask(&call(1, "echo")).await["id"], 1);
}

#[tokio::test]
async fn h107_a_connection_that_is_in_use_is_never_closed() {
    let house = house_of(bearer(small(4).await)).await;
    let mut calling = house.client_as(Some(ANN), "2025-11-25").await;
    calling.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    let mut listening = house.again(&calling).await;
    assert_eq!(listening.get("").await.status, 200);
    let mut reading = house.client_as(Some(BOB), "2025-11-25").await;
    // More than the sockets hold: the answer is ready, but not fully written.
    reading.tell(&call(2, "bulk")).await;
    until(|| house.stage.kept() > 0).await;
    for id in 0..20 {
        let mut peer = house.client_as(Some(BOB), "2025-11-25").await;
        assert_eq!(peer.ask(&call(id, "echo")).await["id"], id);
    }
    assert_eq!(listening.event().await.unwrap(), ":");
    let head = reading.head().await;
    assert!(reading.body(&head).await.len() > 4 << 20);
    house.stage.release();
    assert_eq!(calling.head().await.status, 200);
}

#[tokio::test]
async fn h107_a_body_that_is_not_whole_proves_nothing() {
    let house = house_of(small(4).await).await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut peer = house.connect().await;
        let request = peer.request("POST", "", "").replace("Content-Length: 0", "Content-Length: 9");
        let request = format!("{}{{", request.replace("HOST", &format!("127.0.0.1:{}", house.port)));
        tokio::io::AsyncWriteExt::write_all(&mut peer.stream, request.as_bytes()).await.unwrap();
        slow.push(peer);
    }
    let mut newcomer = house.client("2025-11-25").await;
    assert_eq!(newcomer.ask(&call(1, "echo")).await["id"], 1);
    assert!(ends(&mut slow[0]).await);
}
