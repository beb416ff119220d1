//! A feed beside a router with many servers, on a paused clock.

use std::collections::HashMap;
use std::task::Poll;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::config::{Config, Server, Stdio, Transport};
use crate::downstream::admin::{Feed, FeedRequest, Part, Run};
use crate::manager::Manager;
use crate::protocol::Raw;
use crate::record::At;
use crate::router::Router;

/// A router with `count` servers, none of which is started.
fn router(count: usize) -> Router {
    let mut config = Config::default();
    for number in 0..count {
        let mut server = Server::new(&format!("s{number:03}"), Transport::Stdio(Stdio::default())).unwrap();
        server.disabled = Some("disabled in the config".to_owned());
        config.servers.push(server);
    }
    let info = Raw::empty_object();
    let (manager, news) = Manager::start(config, &HashMap::new(), info.clone(), None, Default::default());
    Router::start(manager, news, info)
}

async fn open(router: &Router, request: FeedRequest) -> Feed {
    let hello = Run::new(None).hello(router);
    Feed::open(router, hello, request, At::Socket).await.unwrap()
}

/// Returns the next events, and how often other tasks ran meanwhile.
async fn next(feed: &mut Feed) -> (Vec<Value>, usize) {
    let mut turns = 0;
    let next = feed.next();
    tokio::pin!(next);
    loop {
        match futures_util::poll!(next.as_mut()) {
            Poll::Ready(lines) => {
                let lines = String::from_utf8(lines).unwrap();
                return (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), turns);
            }
            Poll::Pending => turns += 1,
        }
        assert!(turns < 1000, "it waits for something else than its turn");
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_looks_at_a_few_servers_at_a_time() {
    for (count, turns) in [(1, 1), (16, 1), (17, 2), (200, 13)] {
        let router = router(count);
        let mut feed = open(&router, FeedRequest::default()).await;
        assert_eq!(next(&mut feed).await.0[0]["type"], "hello");
        let (events, seen) = next(&mut feed).await;
        assert_eq!((&events[0]["type"], events[0]["servers"].as_array().unwrap().len()), (&"snapshot".into(), count));
        assert_eq!(seen, turns, "{count} servers");
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_is_dropped_while_it_looks_loses_nothing() {
    let router = router(40);
    let mut feed = open(&router, FeedRequest::default().from(99)).await;
    for _ in 0..2 {
        let next = feed.next();
        tokio::pin!(next);
        assert!(futures_util::poll!(next.as_mut()).is_pending());
    }
    let (events, _) = next(&mut feed).await;
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["hello", "gap", "snapshot"]);
    assert_eq!(events[2]["servers"].as_array().unwrap().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_feed_to_which_nothing_happens_gives_a_sign_of_life() {
    let router = router(1);
    let mut feed = open(&router, FeedRequest::default().parts([Part::Servers])).await;
    feed.next().await;
    feed.next().await;
    let begun = Instant::now();
    for beat in 1..=3 {
        let lines = feed.next().await;
        let event: Value = serde_json::from_slice(&lines).unwrap();
        assert_eq!((&event["type"], begun.elapsed()), (&"beat".into(), beat * Duration::from_secs(15)));
    }
}
