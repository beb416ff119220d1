//! Change notifications: the streams of a modern server, subscriptions at a legacy one.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::support::*;
use crate::config::Era::{Auto, Modern};
use crate::protocol::Raw;
use crate::upstream::{Unsubscribed, Upstream};

const LISTEN: &str = "POST subscriptions/listen";

fn acknowledged(id: &Value, granted: &Value) -> Value {
    tagged(id, "notifications/subscriptions/acknowledged", json!({"notifications": granted}))
}

fn updated(id: &Value, uri: &str) -> Value {
    tagged(id, "notifications/resources/updated", json!({"uri": uri}))
}

fn tagged(id: &Value, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

fn capabilities() -> Value {
    json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}})
}

/// A modern server over HTTP that grants every listen but secret resources. Its open listens arrive on the channel: the
/// filter, the id, and a sender for messages.
async fn modern() -> (Server, mpsc::Receiver<(Value, Value, mpsc::Sender<String>)>) {
    let (tell, listens) = mpsc::channel(16);
    let server = Server::start(move |seen| match seen.what().as_str() {
        "POST server/discover" => seen.result(&discovered(&capabilities())),
        "POST tools/list" => seen.result(&json!({"tools": []})),
        "POST resources/list" => seen.result(&json!({"resources": []})),
        LISTEN => {
            let (filter, id) = (seen.body["params"]["notifications"].clone(), seen.body["id"].clone());
            let mut granted = filter.clone();
            if let Some(uris) = granted["resourceSubscriptions"].as_array_mut() {
                uris.retain(|uri| !uri.as_str().unwrap().starts_with("file:///secret"));
            }
            let (sender, reply) = stream([acknowledged(&id, &granted)]);
            tell.try_send((filter, id, sender)).unwrap();
            reply
        }
        _ => seen.error(404, -32601, &json!({})),
    })
    .await;
    (server, listens)
}

async fn subscribe(upstream: &Upstream, uri: &str) -> Result<Raw, String> {
    match upstream.subscribe(&uri.into()).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => Err(error.code.to_string()),
        Err(Unsubscribed::Unavailable(why)) => Err(format!("{why:?}")),
        Err(Unsubscribed::Lost(error)) => Err(error.to_string()),
    }
}

async fn say(sender: &mpsc::Sender<String>, message: &Value) {
    sender.send(message.to_string()).await.unwrap();
}

#[tokio::test]
async fn lists_are_listened_for_before_they_are_read() {
    let (server, mut listens) = modern().await;
    let lease = Lease::start(server.target(), Auto);
    lease.connected().await;
    let (filter, id, sender) = listens.recv().await.unwrap();
    assert_eq!(filter, json!({"toolsListChanged": true}), "no more than it tells");
    let story = server.story();
    let at = |what: &str| story.iter().position(|said| said == what).unwrap();
    assert!(at(LISTEN) < at("POST tools/list"), "{story:?}");
    say(&sender, &tagged(&id, "notifications/tools/list_changed", json!({}))).await;
    server.until("POST tools/list", 2).await;
    lease.end().await;
}

#[tokio::test]
async fn a_listen_that_ends_is_opened_anew_and_what_it_told_of_counts_as_changed() {
    let (server, mut listens) = modern().await;
    let mut lease = Lease::start(server.target(), Auto);
    lease.connected().await;
    let (_, id, lists) = listens.recv().await.unwrap();
    assert!(subscribe(&lease.upstream, "file:///a").await.is_ok());
    let (filter, _, resources) = listens.recv().await.unwrap();
    assert_eq!(filter, json!({"resourceSubscriptions": ["file:///a"]}));
    // One stream ends properly, the other is cut off.
    say(&lists, &json!({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete"}})).await;
    drop((lists, resources));
    let mut filters = Vec::new();
    let mut kept = Vec::new();
    for _ in 0..2 {
        let (filter, _, sender) = listens.recv().await.unwrap();
        filters.push(filter.to_string());
        kept.push(sender);
    }
    filters.sort();
    assert_eq!(filters, [r#"{"resourceSubscriptions":["file:///a"]}"#, r#"{"toolsListChanged":true}"#]);
    server.until("POST tools/list", 2).await;
    assert_eq!(lease.updated().await, "file:///a");
    lease.end().await;
}

#[tokio::test]
async fn only_what_is_granted_is_watched() {
    let (server, mut listens) = modern().await;
    let lease = Lease::start(server.target(), Auto);
    lease.connected().await;
    let _lists = listens.recv().await.unwrap();
    assert_eq!(subscribe(&lease.upstream, "file:///secret").await, Err("-32602".to_owned()));
    let _refused = listens.recv().await.unwrap();
    assert!(subscribe(&lease.upstream, "file:///a").await.is_ok());
    let open = listens.recv().await.unwrap();
    assert_eq!(open.0, json!({"resourceSubscriptions": ["file:///a"]}), "nobody wants the other one");
    lease.end().await;
    server.until_closed(LISTEN, 3).await;
}

#[tokio::test]
async fn h105_what_is_not_watched_is_named_in_few_characters() {
    let (server, mut listens) = modern().await;
    let lease = Lease::start(server.target(), Auto);
    lease.connected().await;
    let _lists = listens.recv().await.unwrap();
    let uri = format!("file:///secret\n\u{202e}{}", "x".repeat(1 << 20));
    let Ok(Err(error)) = lease.upstream.subscribe(&uri.as_str().into()).await else { panic!("it is watched") };
    let why = error.message;
    assert!(why.len() < 1024 && !why.contains(['\n', '\u{202e}']), "{} bytes: {why:.300}", why.len());
    lease.end().await;
}

#[tokio::test]
async fn race_7_nothing_is_lost_and_nothing_told_twice_while_a_listen_takes_the_place_of_another() {
    let (server, mut listens) = modern().await;
    let mut lease = Lease::start(server.target(), Auto);
    lease.connected().await;
    let _lists = listens.recv().await.unwrap();
    assert!(subscribe(&lease.upstream, "file:///a").await.is_ok());
    let (_, old_id, old) = listens.recv().await.unwrap();
    let second = subscribe(&lease.upstream, "file:///b");
    let (second, listen) = tokio::join!(second, listens.recv());
    assert!(second.is_ok());
    let (filter, new_id, new) = listen.unwrap();
    assert_eq!(filter, json!({"resourceSubscriptions": ["file:///a", "file:///b"]}));
    // The new stream is acknowledged; the old one still has a message on its way.
    say(&old, &updated(&old_id, "file:///a")).await;
    assert_eq!(lease.updated().await, "file:///a");
    // Both report one change: it is relayed once.
    say(&old, &updated(&old_id, "file:///a/x")).await;
    assert_eq!(lease.updated().await, "file:///a/x");
    say(&new, &updated(&new_id, "file:///a/x")).await;
    say(&new, &updated(&new_id, "file:///b")).await;
    assert_eq!(lease.updated().await, "file:///b");
    server.until_closed(LISTEN, 1).await;
    lease.end().await;
}

#[tokio::test]
async fn h54_the_last_subscriber_closes_the_stream() {
    let (server, mut listens) = modern().await;
    let lease = Lease::start(server.target(), Auto);
    lease.connected().await;
    let _lists = listens.recv().await.unwrap();
    assert!(subscribe(&lease.upstream, "file:///a").await.is_ok());
    assert!(subscribe(&lease.upstream, "file:///a").await.is_ok());
    let _open = listens.recv().await.unwrap();
    lease.upstream.unwant_uri("file:///a");
    lease.upstream.unwant_uri("file:///a");
    server.until_closed(LISTEN, 1).await;
    assert!(listens.try_recv().is_err(), "two subscribers, one stream");
    lease.end().await;
}

#[tokio::test]
async fn a_server_without_listens_is_used_without() {
    let server = Server::start(|seen| match seen.what().as_str() {
        "POST server/discover" => seen.result(&discovered(&capabilities())),
        "POST tools/list" => seen.result(&json!({"tools": []})),
        _ => seen.error(404, -32601, &json!({})),
    })
    .await;
    let lease = Lease::start(server.target(), Auto);
    lease.connected().await;
    assert_eq!(subscribe(&lease.upstream, "file:///a").await, Err("-32601".to_owned()));
    lease.end().await;
    assert_eq!(server.story().iter().filter(|said| *said == LISTEN).count(), 2, "never asked again");
}

#[tokio::test(start_paused = true)]
async fn over_a_pipe_listens_are_told_apart_by_their_ids_and_cancelled() {
    let (target, mut peers) = Peer::target();
    let mut lease = Lease::start(target, Modern);
    let mut peer = peers.recv().await.unwrap();
    let (id, _) = peer.hears("server/discover").await;
    peer.result(&id, &discovered(&json!({"resources": {"subscribe": true}}))).await;
    let (id, _) = peer.hears("resources/list").await;
    let (templates, _) = peer.hears("resources/templates/list").await;
    peer.result(&id, &json!({"resources": []})).await;
    peer.result(&templates, &json!({"resourceTemplates": []})).await;
    let upstream = lease.upstream.clone();
    let subscribed = tokio::spawn(async move { subscribe(&upstream, "file:///a").await });
    let (first, params) = peer.hears("subscriptions/listen").await;
    assert!(params["_meta"]["io.modelcontextprotocol/clientInfo"].is_object());
    peer.say(&acknowledged(&first, &json!({"resourceSubscriptions": ["file:///a"]}))).await;
    assert!(subscribed.await.unwrap().is_ok());
    // An update before the next listen is acknowledged comes through the first.
    let upstream = lease.upstream.clone();
    let subscribed = tokio::spawn(async move { subscribe(&upstream, "file:///b").await });
    let (second, _) = peer.hears("subscriptions/listen").await;
    peer.say(&updated(&first, "file:///a")).await;
    assert_eq!(lease.updated().await, "file:///a");
    peer.say(&acknowledged(&second, &json!({"resourceSubscriptions": ["file:///a", "file:///b"]}))).await;
    assert!(subscribed.await.unwrap().is_ok());
    let (_, params) = peer.hears("notifications/cancelled").await;
    assert_eq!(params["requestId"], first);
    // The server ends the second: it is opened again, and its resources count as changed.
    peer.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": second}})).await;
    let (third, _) = peer.hears("subscriptions/listen").await;
    peer.say(&acknowledged(&third, &json!({"resourceSubscriptions": ["file:///a", "file:///b"]}))).await;
    assert_eq!([lease.updated().await, lease.updated().await], ["file:///a", "file:///b"]);
}

#[tokio::test(start_paused = true)]
async fn whoever_watches_more_does_not_wait_for_a_server_whose_streams_keep_ending() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, Modern);
    let mut peer = peers.recv().await.unwrap();
    let (id, _) = peer.hears("server/discover").await;
    peer.result(&id, &discovered(&json!({"resources": {"subscribe": true}}))).await;
    let (id, _) = peer.hears("resources/list").await;
    let (templates, _) = peer.hears("resources/templates/list").await;
    peer.result(&id, &json!({"resources": []})).await;
    peer.result(&templates, &json!({"resourceTemplates": []})).await;
    let upstream = lease.upstream.clone();
    let subscribed = tokio::spawn(async move { subscribe(&upstream, "file:///a").await });
    for _ in 0..9 {
        let (id, _) = peer.hears("subscriptions/listen").await;
        peer.say(&acknowledged(&id, &json!({"resourceSubscriptions": ["file:///a"]}))).await;
        peer.result(&id, &json!({"resultType": "complete"})).await;
    }
    assert!(subscribed.await.unwrap().is_ok());
    // The next attempt is minutes away.
    assert!(tokio::time::timeout(Duration::from_secs(60), peer.next()).await.is_err());
    let upstream = lease.upstream.clone();
    let subscribed = tokio::spawn(async move { subscribe(&upstream, "file:///b").await });
    let heard = tokio::time::timeout(Duration::from_secs(1), peer.hears("subscriptions/listen")).await;
    let (id, params) = heard.expect("at once");
    assert_eq!(params["notifications"], json!({"resourceSubscriptions": ["file:///a", "file:///b"]}));
    peer.say(&acknowledged(&id, &json!({"resourceSubscriptions": ["file:///a", "file:///b"]}))).await;
    assert!(subscribed.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_listen_without_acknowledgement_is_given_up_and_tried_again() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, Modern);
    let mut peer = peers.recv().await.unwrap();
    let (id, _) = peer.hears("server/discover").await;
    peer.result(&id, &discovered(&json!({"tools": {"listChanged": true}}))).await;
    let (first, _) = peer.hears("subscriptions/listen").await;
    // The lists do not wait for the stream forever.
    let (id, _) = peer.hears("tools/list").await;
    peer.result(&id, &json!({"tools": []})).await;
    lease.connected().await;
    let (_, params) = peer.hears("notifications/cancelled").await;
    assert_eq!(params["requestId"], first);
    let (second, _) = peer.hears("subscriptions/listen").await;
    peer.say(&acknowledged(&second, &json!({"toolsListChanged": true}))).await;
    peer.hears("tools/list").await;
}

/// Performs the handshake of a legacy server with resources.
async fn serve(peer: &mut Peer) {
    let (id, _) = peer.hears("initialize").await;
    let mut result = initialized();
    result["capabilities"] = json!({"resources": {"subscribe": true}});
    peer.result(&id, &result).await;
    peer.hears("notifications/initialized").await;
    let (id, _) = peer.hears("resources/list").await;
    let (templates, _) = peer.hears("resources/templates/list").await;
    peer.result(&id, &json!({"resources": []})).await;
    peer.result(&templates, &json!({"resourceTemplates": []})).await;
}

type Subscribing = tokio::task::JoinHandle<Result<Raw, String>>;

fn subscribing(lease: &Lease, uri: &'static str) -> Subscribing {
    let upstream = lease.upstream.clone();
    tokio::spawn(async move { subscribe(&upstream, uri).await })
}

/// Asserts that nothing arrives for a while.
async fn hears_nothing(peer: &mut Peer) {
    let heard = tokio::time::timeout(Duration::from_secs(1), peer.next()).await;
    assert!(heard.is_err(), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn h54_what_is_wanted_anew_is_not_taken_back_by_what_came_before() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, Auto);
    let mut peer = peers.recv().await.unwrap();
    serve(&mut peer).await;
    let first = subscribing(&lease, "file:///a");
    let (id, _) = peer.hears("resources/subscribe").await;
    peer.result(&id, &json!({})).await;
    assert!(first.await.unwrap().is_ok());
    // The subscriber leaves, and another arrives before the server is told.
    lease.upstream.unwant_uri("file:///a");
    let anew = tokio::time::timeout(Duration::from_secs(1), subscribe(&lease.upstream, "file:///a")).await;
    assert!(anew.expect("it is watched").is_ok());
    hears_nothing(&mut peer).await;
    // The same while the server is being told.
    lease.upstream.unwant_uri("file:///a");
    let (over, _) = peer.hears("resources/unsubscribe").await;
    let anew = subscribing(&lease, "file:///a");
    hears_nothing(&mut peer).await;
    peer.result(&over, &json!({})).await;
    let (id, _) = peer.hears("resources/subscribe").await;
    peer.result(&id, &json!({})).await;
    assert!(anew.await.unwrap().is_ok());
    // A server that does not answer is waited for, but not for long.
    lease.upstream.unwant_uri("file:///a");
    peer.hears("resources/unsubscribe").await;
    let anew = subscribing(&lease, "file:///a");
    peer.hears("notifications/cancelled").await;
    let (id, _) = peer.hears("resources/subscribe").await;
    peer.result(&id, &json!({})).await;
    assert!(anew.await.unwrap().is_ok());
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h54_nobody_counts_as_subscribed_before_the_server_has_agreed() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, Auto);
    let mut peer = peers.recv().await.unwrap();
    serve(&mut peer).await;
    // The first is refused, the second gives up: the server tells each of the others itself.
    let first = subscribing(&lease, "file:///a");
    let (id, _) = peer.hears("resources/subscribe").await;
    let others = [subscribing(&lease, "file:///a"), subscribing(&lease, "file:///a"), subscribing(&lease, "file:///a")];
    hears_nothing(&mut peer).await;
    peer.error(&id, -32002, &json!({})).await;
    assert_eq!(first.await.unwrap(), Err("-32002".to_owned()));
    peer.hears("resources/subscribe").await;
    let [second, third, fourth] = others;
    second.abort();
    peer.hears("notifications/cancelled").await;
    let (id, _) = peer.hears("resources/subscribe").await;
    assert!(!third.is_finished());
    peer.result(&id, &json!({})).await;
    assert!(third.await.unwrap().is_ok());
    assert!(fourth.await.unwrap().is_ok(), "it is watched");
    hears_nothing(&mut peer).await;
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h54_a_legacy_server_is_subscribed_to_once_and_again_after_a_loss() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, Auto);
    let mut peer = peers.recv().await.unwrap();
    serve(&mut peer).await;
    let upstream = lease.upstream.clone();
    let first = tokio::spawn(async move { subscribe(&upstream, "file:///a").await });
    let (id, params) = peer.hears("resources/subscribe").await;
    assert_eq!(params, json!({"uri": "file:///a"}));
    peer.result(&id, &json!({})).await;
    assert!(first.await.unwrap().is_ok());
    assert!(subscribe(&lease.upstream, "file:///a").await.is_ok());
    // A refused subscriber does not count.
    let upstream = lease.upstream.clone();
    let refused = tokio::spawn(async move { subscribe(&upstream, "file:///b").await });
    let (id, _) = peer.hears("resources/subscribe").await;
    peer.error(&id, -32002, &json!({})).await;
    assert_eq!(refused.await.unwrap(), Err("-32002".to_owned()));
    peer.hears("resources/unsubscribe").await;
    // Nor does one that gives up waiting.
    let given_up = tokio::time::timeout(Duration::from_secs(1), subscribe(&lease.upstream, "file:///c")).await;
    assert!(given_up.is_err());
    peer.hears("resources/subscribe").await;
    drop(peer);
    let mut peer = peers.recv().await.unwrap();
    serve(&mut peer).await;
    let (id, params) = peer.hears("resources/subscribe").await;
    assert_eq!(params, json!({"uri": "file:///a"}));
    peer.result(&id, &json!({})).await;
    lease.upstream.unwant_uri("file:///a");
    lease.upstream.unwant_uri("file:///a");
    assert_eq!(peer.hears("resources/unsubscribe").await.1, json!({"uri": "file:///a"}));
}
