//! A server that sends unrequested messages: stray answers, progress, and questions, and endless notifications.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::{Lease, Peer, initialized};
use crate::config::Era::Legacy;
use crate::counts::Count;
use crate::protocol::meta::RELATED_TASK;
use crate::protocol::{Method, Raw};
use crate::registry::Kind;
use crate::upstream::ask::Asker as _;
use crate::upstream::{Exchange, Item, Owner, Relayed, Terms};

/// A lease and its server with these capabilities, past the handshake.
async fn shaken(capabilities: &Value) -> (Lease, Peer) {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, Legacy);
    let mut peer = peers.recv().await.unwrap();
    let (id, _) = peer.hears("initialize").await;
    let mut result = initialized();
    result["capabilities"] = capabilities.clone();
    peer.result(&id, &result).await;
    peer.hears("notifications/initialized").await;
    (lease, peer)
}

/// Starts a call of that client.
async fn call(lease: &Lease, owner: u64) -> Exchange {
    let connection = lease.connected().await;
    let terms = Terms { owner: Owner(owner), ..Terms::host() };
    connection.open(connection.next_id(), &Method::ToolsCall, Some(&Raw::empty_object()), &terms)
}

async fn nothing(exchange: &mut Exchange) {
    let next = tokio::time::timeout(Duration::from_secs(1), exchange.next()).await;
    assert!(next.is_err(), "{next:?}");
}

fn question(id: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": { "message": "?" } })
}

#[tokio::test(start_paused = true)]
async fn h45_whose_question_it_is_is_never_guessed() {
    let (mut lease, mut peer) = shaken(&json!({})).await;
    let mut mine = call(&lease, 1).await;
    let (first, _) = peer.hears("tools/call").await;
    // One client has a call in flight and is asked. The id equals one of our own, but it is the server's.
    peer.say(&question(&first)).await;
    let Item::Ask(ask) = mine.next().await else { panic!() };
    ask.answer(Ok(Raw::from_value(&json!({ "action": "decline" }))));
    let answered = peer.heard.recv().await.unwrap();
    let crate::protocol::Message::Response(answered) = answered else { panic!("{answered:?}") };
    assert_eq!(serde_json::to_value(answered.id.unwrap()).unwrap(), first);
    nothing(&mut mine).await;
    // Two clients have calls: neither is asked.
    let mut other = call(&lease, 2).await;
    let (second, _) = peer.hears("tools/call").await;
    peer.say(&question(&json!("q"))).await;
    let relayed = tokio::time::timeout(Duration::from_secs(1), lease.news.recv()).await;
    let (_, _, relayed) = relayed.expect("it went to one of them").unwrap();
    let Relayed::Ask { ask, unclear: true, .. } = relayed else { panic!("{relayed:?}") };
    nothing(&mut mine).await;
    nothing(&mut other).await;
    drop(ask);
    // Each answer still belongs to its own call.
    for (id, exchange, text) in [(second, other, "second"), (first, mine, "first")] {
        peer.result(&id, &json!({ "text": text })).await;
        assert_eq!(exchange.outcome().await.unwrap().unwrap().text("text").as_deref(), Some(text));
    }
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h53_progress_goes_by_our_own_tokens() {
    let (lease, mut peer) = shaken(&json!({})).await;
    let connection = lease.connected().await;
    let (mut mine, mut other) = (call(&lease, 1).await, call(&lease, 2).await);
    let (first, _) = peer.hears("tools/call").await;
    let (second, _) = peer.hears("tools/call").await;
    let progress = |token: &Value| json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": token, "progress": 1 } });
    let text = |id: &Value| json!(id.to_string());
    for token in [json!(1), json!("same"), json!(0), json!(-1), text(&first), json!(null), json!([1]), json!(1.5)] {
        peer.say(&progress(&token)).await;
    }
    nothing(&mut mine).await;
    nothing(&mut other).await;
    assert_eq!(connection.dropped(), 8);
    peer.say(&progress(&second)).await;
    assert!(matches!(other.next().await, Item::Progress(_)));
    nothing(&mut mine).await;
    // Nor for an answered call.
    peer.result(&first, &json!({})).await;
    mine.outcome().await.unwrap().unwrap();
    peer.say(&progress(&first)).await;
    nothing(&mut other).await;
    assert_eq!(connection.dropped(), 9);
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h55_a_task_is_known_by_an_id_that_has_a_length() {
    let (lease, mut peer) = shaken(&json!({})).await;
    let connection = lease.connected().await;
    for (length, is_known) in [(1024, true), (1025, false)] {
        let terms = Terms { owner: Owner(1), lasts: true, ..Terms::host() };
        let id = connection.next_id();
        let mut exchange = connection.open(id, &Method::ToolsCall, Some(&Raw::empty_object()), &terms);
        peer.hears("tools/call").await;
        peer.result(&json!(id), &json!({ "task": { "taskId": "x".repeat(length) } })).await;
        assert!(matches!(exchange.next().await, Item::Done(Ok(_))));
        let before = connection.dropped();
        let params = json!({ "progressToken": id, "progress": 1 });
        peer.say(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })).await;
        let told = tokio::time::timeout(Duration::from_secs(1), exchange.next()).await;
        assert_eq!((told.is_ok(), connection.dropped() > before), (is_known, !is_known), "{length}: {told:?}");
    }
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h55_questions_and_their_ids_have_a_size() {
    let (lease, mut peer) = shaken(&json!({})).await;
    let connection = lease.connected().await;
    let mut mine = call(&lease, 1).await;
    peer.hears("tools/call").await;
    peer.say(&question(&json!("x".repeat(1025)))).await;
    nothing(&mut mine).await;
    assert_eq!((connection.dropped(), connection.questions()), (1, 0));
    let mut large = question(&json!(1));
    large["params"]["message"] = json!("x".repeat(16 << 20));
    peer.say(&large).await;
    let Item::Ask(first) = mine.next().await else { panic!() };
    peer.say(&question(&json!(2))).await;
    let crate::protocol::Message::Response(refused) = peer.heard.recv().await.unwrap() else { panic!() };
    let error = refused.outcome.unwrap_err();
    assert!(error.message.contains("over 16 MiB together"), "{}", error.message);
    first.answer(Ok(Raw::empty_object()));
    peer.heard.recv().await.unwrap();
    peer.say(&question(&json!(3))).await;
    assert!(matches!(mine.next().await, Item::Ask(_)), "there is room again");
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h34_ids_are_new_and_not_to_be_guessed() {
    let (lease, _peer) = shaken(&json!({})).await;
    let connection = lease.connected().await;
    let ids: Vec<u64> = (0..10_000).map(|_| connection.next_id()).collect();
    assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(ids.iter().all(|id| *id < 1 << 53), "JavaScript reads them exactly");
    // The salt has no order, and differs on another connection.
    let salts = |ids: &[u64]| ids.iter().map(|id| id & 0xf_ffff).collect::<std::collections::BTreeSet<_>>();
    assert!(salts(&ids).len() > 9_000);
    let (other, _peer) = shaken(&json!({})).await;
    let connection = other.connected().await;
    let others: Vec<u64> = (0..10_000).map(|_| connection.next_id()).collect();
    let equal = ids.iter().zip(&others).filter(|(mine, other)| mine == other).count();
    assert!(equal < 10, "{equal}");
    lease.end().await;
    other.end().await;
}

#[tokio::test(start_paused = true)]
async fn h50_a_storm_of_changes_is_read_at_a_pace() {
    let (lease, mut peer) = shaken(&json!({ "tools": { "listChanged": true } })).await;
    let (id, _) = peer.hears("tools/list").await;
    peer.result(&id, &json!({ "tools": [] })).await;
    lease.connected().await;
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    let mut listed = 0;
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    while tokio::time::Instant::now() < end {
        tokio::select! {
            biased;
            (id, method, _) = peer.next() => {
                assert_eq!(method, "tools/list");
                listed += 1;
                let tool = json!({ "name": format!("t{listed}"), "inputSchema": { "type": "object" } });
                peer.result(&id, &json!({ "tools": [tool] })).await;
            }
            _ = tick.tick() => peer.say(&changed).await,
        }
    }
    assert!((20..=31).contains(&listed), "{listed}");
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h50_changes_that_follow_each_other_closely_are_read_once() {
    let (lease, mut peer) = shaken(&json!({ "tools": { "listChanged": true } })).await;
    let (id, _) = peer.hears("tools/list").await;
    peer.result(&id, &json!({ "tools": [] })).await;
    lease.connected().await;
    for _ in 0..10 {
        peer.say(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (id, _) = peer.hears("tools/list").await;
    peer.result(&id, &json!({ "tools": [] })).await;
    let more = tokio::time::timeout(Duration::from_secs(10), peer.next()).await;
    assert!(more.is_err(), "{more:?}");
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h40_a_list_that_fails_leaves_the_last_good_one_and_is_told() {
    let (lease, mut peer) = shaken(&json!({ "tools": { "listChanged": true } })).await;
    let (id, _) = peer.hears("tools/list").await;
    let tool = json!({ "name": "good", "inputSchema": { "type": "object" } });
    peer.result(&id, &json!({ "tools": [tool] })).await;
    lease.connected().await;
    let mut status = lease.upstream.watch();
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    let circle = json!({ "tools": [], "nextCursor": "a" });
    for bad in [json!({ "tools": {} }), circle.clone()] {
        peer.say(&changed).await;
        let (id, _) = peer.hears("tools/list").await;
        peer.result(&id, &bad).await;
        if bad == circle {
            let (id, _) = peer.hears("tools/list").await;
            peer.result(&id, &bad).await;
        }
        status.wait_for(|status| status.degraded).await.unwrap();
        assert_eq!(lease.upstream.offer().unwrap().count(Kind::Tools), 1, "{bad}");
        peer.say(&changed).await;
        let (id, _) = peer.hears("tools/list").await;
        peer.result(&id, &json!({ "tools": [tool] })).await;
        status.wait_for(|status| !status.degraded).await.unwrap();
    }
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h50_lists_that_were_not_to_be_had_are_asked_for_again_and_not_for_ever() {
    let (lease, mut peer) = shaken(&json!({ "tools": { "listChanged": true } })).await;
    let (id, _) = peer.hears("tools/list").await;
    peer.result(&id, &json!({ "tools": [] })).await;
    lease.connected().await;
    // The server reports a change once, and has no answer for a while.
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    peer.say(&changed).await;
    let silent = async {
        for _ in 0..3 {
            peer.hears("tools/list").await;
            peer.hears("notifications/cancelled").await;
        }
        peer.hears("tools/list").await.0
    };
    let id = tokio::time::timeout(Duration::from_secs(600), silent).await.expect("it is asked again");
    let mut status = lease.upstream.watch();
    assert!(status.borrow_and_update().degraded);
    let tool = json!({ "name": "new", "inputSchema": { "type": "object" } });
    peer.result(&id, &json!({ "tools": [tool] })).await;
    status.wait_for(|status| !status.degraded).await.unwrap();
    assert_eq!(lease.upstream.offer().unwrap().count(Kind::Tools), 1);
    // Now it returns only errors: after a few it is left alone.
    peer.say(&changed).await;
    let mut asked = Vec::new();
    while let Ok((id, method, _)) = tokio::time::timeout(Duration::from_secs(600), peer.next()).await {
        assert_eq!(method, "tools/list");
        asked.push(tokio::time::Instant::now());
        peer.error(&id, -32603, &json!({})).await;
    }
    assert_eq!(asked.len(), 7);
    assert!(asked.windows(2).all(|two| two[1] - two[0] >= Duration::from_secs(1)), "{asked:?}");
    assert_eq!(lease.upstream.offer().unwrap().count(Kind::Tools), 1, "the last good one stays");
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h50_a_flood_of_notifications_is_cut_and_an_answer_is_not() {
    let (mut lease, mut peer) = shaken(&json!({ "logging": {} })).await;
    let connection = lease.connected().await;
    let mine = call(&lease, 1).await;
    let (id, _) = peer.hears("tools/call").await;
    let updated =
        json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": "file:///a" } });
    let mut passed = 0;
    for said in [999, 1, 1, 998] {
        for _ in 0..said {
            peer.say(&updated).await;
            // Lets its reader run.
            tokio::task::yield_now().await;
            while let Ok((_, _, news)) = lease.news.try_recv() {
                passed += u32::from(matches!(news, Relayed::Updated(_)));
            }
        }
    }
    peer.say(
        &json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "x" } }),
    )
    .await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    while lease.news.try_recv().is_ok() {
        passed += 1;
    }
    assert_eq!((u64::from(passed), connection.dropped()), (1000, 1000));
    let counted = [Count::DroppedNotification, Count::DroppedLog].map(|what| connection.counts().read(what));
    assert_eq!(counted, [999, 1]);
    peer.result(&id, &json!({ "n": 1 })).await;
    assert_eq!(mine.outcome().await.unwrap().unwrap().as_str(), r#"{"n":1}"#);
    // A second later it is heard again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    peer.say(&updated).await;
    assert!(matches!(lease.news.recv().await, Some((_, _, Relayed::Updated(_)))));
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h45_what_comes_on_the_stream_of_a_call_that_is_over_is_no_other_calls() {
    let (mut lease, mut peer) = shaken(&json!({})).await;
    let over = call(&lease, 1).await;
    let (first, _) = peer.hears("tools/call").await;
    peer.result(&first, &json!({})).await;
    over.outcome().await.unwrap().unwrap();
    let mut running = call(&lease, 2).await;
    peer.hears("tools/call").await;
    let late = crate::protocol::Message::parse(&question(&json!("late")).to_string().into()).unwrap();
    peer.say.send((first.as_u64(), late)).await.unwrap_or_else(|_| panic!("the wire is open"));
    let relayed = tokio::time::timeout(Duration::from_secs(1), lease.news.recv()).await;
    let (_, _, relayed) = relayed.expect("it went to the other call").unwrap();
    assert!(matches!(relayed, Relayed::Ask { unclear: true, .. }), "{relayed:?}");
    nothing(&mut running).await;
    drop(relayed);
    lease.end().await;
}

/// Over a pipe a question names no call: even if only one client has a call in flight, the question is not that
/// client's.
#[tokio::test(start_paused = true)]
async fn h45_a_question_after_its_call_is_not_put_to_another_client_whose_call_is_under_way() {
    let (mut lease, mut peer) = shaken(&json!({})).await;
    let over = call(&lease, 1).await;
    let (first, _) = peer.hears("tools/call").await;
    peer.result(&first, &json!({})).await;
    over.outcome().await.unwrap().unwrap();
    let mut running = call(&lease, 2).await;
    peer.hears("tools/call").await;
    peer.say(&question(&json!("late"))).await;
    let relayed = tokio::time::timeout(Duration::from_secs(1), lease.news.recv()).await;
    let (_, _, relayed) = relayed.expect("it went to the other call").unwrap();
    assert!(matches!(relayed, Relayed::Ask { unclear: true, .. }), "{relayed:?}");
    nothing(&mut running).await;
    drop(relayed);
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h45_two_calls_of_a_client_without_a_session_are_not_taken_for_one() {
    let (mut lease, mut peer) = shaken(&json!({})).await;
    let connection = lease.connected().await;
    let terms = Terms { owner: Owner(1), sessionless: true, ..Terms::host() };
    let open = || connection.open(connection.next_id(), &Method::ToolsCall, Some(&Raw::empty_object()), &terms);
    let mut one = open();
    peer.hears("tools/call").await;
    peer.say(&question(&json!("its own"))).await;
    assert!(matches!(one.next().await, Item::Ask(_)), "there is no other");
    let mut two = open();
    assert!(matches!(peer.heard.recv().await, Some(crate::protocol::Message::Response(_))));
    peer.hears("tools/call").await;
    peer.say(&question(&json!("whose"))).await;
    let relayed = tokio::time::timeout(Duration::from_secs(1), lease.news.recv()).await;
    let (_, _, relayed) = relayed.expect("it went to one of them").unwrap();
    assert!(matches!(relayed, Relayed::Ask { unclear: true, .. }), "{relayed:?}");
    nothing(&mut one).await;
    nothing(&mut two).await;
    drop(relayed);
    lease.end().await;
}

/// The caller does not read what comes before the answer.
#[tokio::test(start_paused = true)]
async fn h6_what_a_call_has_said_and_nobody_hears_has_a_cap() {
    let (lease, mut peer) = shaken(&json!({ "logging": {} })).await;
    let line = |size: usize| json!({ "level": "info", "data": "x".repeat(size) });
    for (said, size, heard) in [(400, None, 256), (40, Some(64 << 10), 15)] {
        let mut mine = call(&lease, 1).await;
        let (id, _) = peer.hears("tools/call").await;
        for step in 0..said {
            let (method, params) = match size {
                None => ("progress", json!({ "progressToken": id, "progress": step })),
                Some(size) => ("message", line(size)),
            };
            peer.say(&json!({ "jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": params })).await;
        }
        peer.result(&id, &json!({})).await;
        // On a paused clock this waits until all other tasks are idle.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut before = 0;
        let outcome = loop {
            match mine.next().await {
                Item::Progress(_) | Item::Log(_) => before += 1,
                Item::Done(outcome) => break outcome,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((before, outcome.is_ok()), (heard, true), "{said} of {size:?}");
    }
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h64_from_its_first_question_on_a_lease_is_one_clients() {
    let (lease, mut peer) = shaken(&json!({})).await;
    let connection = lease.connected().await;
    let open = |owner, profile: crate::protocol::Profile| {
        let terms = Terms { owner, profile, ..Terms::host() };
        connection.open(connection.next_id(), &Method::ToolsCall, Some(&Raw::empty_object()), &terms)
    };
    let mut mine = open(Owner(1), crate::protocol::Profile::ELICITATION_FORM);
    peer.hears("tools/call").await;
    assert_eq!(lease.upstream.bound_to(), None);
    peer.say(&question(&json!("q"))).await;
    assert!(matches!(mine.next().await, Item::Ask(_)));
    // A call of another client that arrives at this moment goes elsewhere: nothing of it is sent.
    let mut other = open(Owner(2), crate::protocol::Profile::ELICITATION_FORM);
    assert!(matches!(other.next().await, Item::Lost(crate::transport::Error::Unwritten)));
    assert_eq!(lease.upstream.bound_to(), Some(Owner(1)));
    lease.end().await;
}

/// A server need not answer a cancelled request, and most do not.
#[tokio::test(start_paused = true)]
async fn h55_what_is_given_up_is_forgotten_whatever_its_server_does() {
    let (lease, mut peer) = shaken(&json!({})).await;
    let connection = lease.connected().await;
    for number in 0..3 {
        let mut given_up = call(&lease, 1).await;
        let (id, _) = peer.hears("tools/call").await;
        peer.say(&question(&json!(number))).await;
        let Item::Ask(ask) = given_up.next().await else { panic!() };
        assert_eq!(connection.leftovers(), [1, 1, 0]);
        drop((ask, given_up));
        assert_eq!(connection.leftovers(), [0, 0, 0]);
        assert!(matches!(peer.heard.recv().await, Some(crate::protocol::Message::Response(_))));
        assert_eq!(peer.hears("notifications/cancelled").await.1["requestId"], id);
    }
    let id = connection.next_id();
    let granted = connection.expect_acknowledgement(id);
    drop(connection.open(id, &Method::Listen, None, &Terms::host()));
    assert_eq!(connection.leftovers(), [0, 0, 0], "nor of a listen that was never acknowledged");
    assert!(granted.await.is_err());
    lease.end().await;
}

#[tokio::test(start_paused = true)]
async fn h52_a_handshake_is_never_cancelled() {
    let (target, mut peers) = Peer::target();
    let lease = Lease::start(target, Legacy);
    let mut peer = peers.recv().await.unwrap();
    peer.hears("initialize").await;
    // It is silent until its start times out; the next one is silent until the lease is stopped.
    assert!(peer.heard.recv().await.is_none());
    let mut peer = peers.recv().await.unwrap();
    peer.hears("initialize").await;
    lease.end().await;
    assert!(peer.heard.recv().await.is_none());
}

/// A task's question that was not delivered yet ends with the call that began the task: it is answered, and that does
/// not deadlock on the connection's table.
#[tokio::test]
async fn h55_a_question_of_a_task_that_nobody_heard_is_answered_when_its_call_goes() {
    let (lease, mut peer) = shaken(&json!({})).await;
    let connection = lease.connected().await;
    let terms = Terms { owner: Owner(1), lasts: true, ..Terms::host() };
    let mut begun = connection.open(connection.next_id(), &Method::ToolsCall, Some(&Raw::empty_object()), &terms);
    let (id, _) = peer.hears("tools/call").await;
    peer.result(&id, &json!({ "task": { "taskId": "t" } })).await;
    assert!(matches!(begun.next().await, Item::Done(Ok(_))));
    let wanted = Raw::from_value(&json!({ "taskId": "t" }));
    let terms = Terms { owner: Owner(1), ..Terms::host() };
    let result = connection.open(connection.next_id(), &Method::TasksResult, Some(&wanted), &terms);
    begun.goes_on_in(&result);
    peer.hears("tasks/result").await;
    let mut asked = question(&json!("q"));
    asked["params"]["_meta"] = json!({ RELATED_TASK: { "taskId": "t" } });
    peer.say(&asked).await;
    while connection.leftovers()[1] == 0 {
        tokio::task::yield_now().await;
    }
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(result);
        drop(begun);
        done.send(()).unwrap();
    });
    let waited = tokio::task::spawn_blocking(move || is_done.recv_timeout(Duration::from_secs(10))).await.unwrap();
    waited.expect("it waits for itself");
    assert_eq!(connection.leftovers()[1], 0);
}
