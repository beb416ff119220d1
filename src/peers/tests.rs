//! Tests of who is heard, and of who inherits.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::Full;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::{PeerSource, SecretKey};

fn settings(keys: &[u8], peers: Vec<String>) -> Cluster {
    let keys = keys.iter().map(|key| SecretKey::parse(&format!("{key:02x}").repeat(32)).unwrap()).collect();
    Cluster::new(keys, PeerSource::Addresses(peers), ([127, 0, 0, 1], 1).into())
}

fn peers(cluster: &Cluster) -> Arc<Peers> {
    Arc::new(Peers::new(Boot::fresh(), cluster, "c".to_owned()).unwrap())
}

/// Serves the peer channel of a replica, which says who it is and nothing else. Returns its address.
async fn serve(peers: Arc<Peers>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(stream) = peers.acceptor().accept(stream).await else { continue };
            let hello = serde_json::to_vec(peers.hello()).unwrap();
            tokio::spawn(async move {
                let service = service_fn(move |_| {
                    let hello = hello.clone();
                    async move { Ok::<_, std::convert::Infallible>(http::Response::new(Full::<bytes::Bytes>::from(hello))) }
                });
                let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (address, serving)
}

/// Reports whether a replica with these keys finds one with those.
async fn finds(own: &Cluster, other: &Cluster) -> bool {
    let there = peers(other);
    let (address, serving) = serve(Arc::clone(&there)).await;
    let own = Cluster { peers: PeerSource::Addresses(vec![address.to_string()]), ..own.clone() };
    let found = found(&own, there.boot()).await;
    serving.abort();
    found
}

async fn found(own: &Cluster, boot: Boot) -> bool {
    let (here, stop) = (peers(own), CancellationToken::new());
    let following = tokio::spawn({
        let (here, stop) = (Arc::clone(&here), stop.clone());
        async move { here.follow(&stop).await }
    });
    let found = here.find(boot).await.is_some();
    assert_eq!(here.seen().iter().all(|seen| seen.why.is_none()), found, "{:?}", here.seen());
    stop.cancel();
    following.await.unwrap();
    found
}

#[tokio::test]
async fn peers_find_each_other_by_any_key_that_both_have() {
    let of = |keys: &[u8]| settings(keys, Vec::new());
    // The steps of a rotation, of which two stand beside each other.
    let steps = [of(&[1]), of(&[1, 2]), of(&[2, 1]), of(&[2])];
    for pair in steps.windows(2) {
        assert!(finds(&pair[0], &pair[1]).await && finds(&pair[1], &pair[0]).await, "{pair:?}");
    }
    assert!(!finds(&steps[0], &steps[3]).await && !finds(&steps[3], &steps[0]).await, "no common key");
    assert!(!finds(&of(&[1]), &of(&[1]).namespace("other")).await, "another namespace");
    // Each shows its first key, so one alone that both know is not enough.
    assert!(!finds(&of(&[1]), &of(&[2, 1])).await);
}

#[tokio::test]
async fn h109_what_is_no_peer_channel_is_no_peer() {
    // Another program, which takes every connection and says nothing, or something else.
    for greeting in ["", "HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let other = tokio::spawn(async move {
            let mut kept = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(greeting.as_bytes()).await.unwrap();
                kept.push(stream);
            }
        });
        assert!(!found(&settings(&[1], vec![address]), Boot::fresh()).await);
        other.abort();
    }
}

#[tokio::test]
async fn h109_recorded_bytes_of_a_peer_are_worth_nothing() {
    let own = settings(&[1], Vec::new());
    let there = peers(&own);
    let (address, serving) = serve(Arc::clone(&there)).await;
    // Between the two, everything that the asker says is written down.
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = relay.local_addr().unwrap().to_string();
    let recorded = Arc::<Mutex<Vec<u8>>>::default();
    let record = Arc::clone(&recorded);
    let relaying = tokio::spawn(async move {
        let (asker, _) = relay.accept().await.unwrap();
        let (mut from, mut to) = asker.into_split();
        let (mut back, mut forth) = TcpStream::connect(address).await.unwrap().into_split();
        let forward = async {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut bytes).await {
                lock(&record).extend_from_slice(&bytes[..length]);
                forth.write_all(&bytes[..length]).await.unwrap();
            }
        };
        tokio::select! {
            () = forward => {}
            _ = tokio::io::copy(&mut back, &mut to) => {}
        }
    });
    let asker = Cluster { peers: PeerSource::Addresses(vec![through]), ..own };
    assert!(found(&asker, there.boot()).await);
    relaying.await.unwrap();
    let bytes = lock(&recorded).clone();
    assert!(bytes.len() > 500, "{} bytes", bytes.len());
    let mut again = TcpStream::connect(address).await.unwrap();
    again.write_all(&bytes).await.unwrap();
    let mut answer = Vec::new();
    // It answers the first message of the handshake, cannot read the next, and closes.
    let _ = tokio::time::timeout(Duration::from_secs(60), again.read_to_end(&mut answer)).await.unwrap();
    let boot = there.boot().to_string();
    assert!(!answer.windows(boot.len()).any(|window| window == boot.as_bytes()));
    serving.abort();
}

#[test]
fn h110_only_what_a_lost_replica_had_moves() {
    let boots: Vec<Boot> = (0..5).map(|number| Boot([number; 8])).collect();
    let heir = |of: u32, boots: &[Boot]| *boots.iter().max_by_key(|boot| weight(&of.to_be_bytes(), **boot)).unwrap();
    let mut counts = BTreeMap::<Boot, u32>::new();
    for number in 0..5000 {
        let before = heir(number, &boots);
        *counts.entry(before).or_default() += 1;
        let after = heir(number, &boots[1..]);
        assert!(before == boots[0] || after == before);
    }
    assert!(counts.values().all(|count| (800..1200).contains(count)), "{counts:?}");
}
