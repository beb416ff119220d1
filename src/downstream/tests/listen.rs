//! Change streams of modern clients.

use serde_json::json;

use super::support::*;

#[tokio::test]
async fn the_acknowledgement_comes_first_and_says_what_is_honored() {
    let house = house().await;
    let mut peer = house.connect().await;
    let filter = json!({
        "toolsListChanged": true, "promptsListChanged": false,
        "resourceSubscriptions": ["test://watched", "none://such"], "unknown": 1,
    });
    let head = peer.post_modern(&listen("9", filter)).await;
    assert_eq!((head.status, head.kind()), (200, "text/event-stream"));
    let acknowledged = peer.message().await.unwrap();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(subscription(&acknowledged), "9", "the type of the id is kept");
    let honored = json!({"toolsListChanged": true, "resourceSubscriptions": ["none://such", "test://watched"]});
    // The only server with resources may have some that it does not list.
    assert_eq!(acknowledged["params"]["notifications"], honored);
}

#[tokio::test]
async fn only_what_was_asked_for_is_told() {
    let house = house().await;
    let (mut tools, mut resource, mut other) = (house.connect().await, house.connect().await, house.connect().await);
    for (peer, id, filter) in [
        (&mut tools, 1, json!({"toolsListChanged": true})),
        (&mut resource, 1, json!({"resourceSubscriptions": ["test://watched"]})),
        (&mut other, 2, json!({"promptsListChanged": true, "resourcesListChanged": true})),
    ] {
        peer.post_modern(&listen(id, filter)).await;
        assert_eq!(subscription(&peer.message().await.unwrap()), id);
    }
    let mut actor = house.connect().await;
    let (_, touched) = actor.ask_modern(&act("touch", json!({"uri": "test://watched/part"}))).await;
    assert_eq!(text(&touched), "true", "the server was told that somebody watches");
    let updated = resource.message().await.unwrap();
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!((&updated["params"]["uri"], subscription(&updated)), (&json!("test://watched/part"), &json!(1)));
    actor.ask_modern(&act("touch", json!({"uri": "test://watched-not"}))).await;
    actor.ask_modern(&act("change", json!({}))).await;
    let changed = tools.message().await.unwrap();
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(subscription(&changed), 1);
    // Lists change before the notification goes out.
    let (_, listed) = actor.ask_modern(&modern(1, "tools/list", json!({}))).await;
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 7);
    // The streams got nothing else.
    house.stop.cancel();
    for (peer, id) in [(&mut tools, 1), (&mut resource, 1), (&mut other, 2)] {
        let end = peer.message().await.unwrap();
        assert_eq!(
            (&end["id"], &end["result"]["resultType"], subscription(&end)),
            (&json!(id), &json!("complete"), &json!(id))
        );
        assert_eq!(peer.message().await, None);
    }
    house.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_goes_listens_no_more() {
    let house = house().await;
    let (mut first, mut second) = (house.connect().await, house.connect().await);
    for peer in [&mut first, &mut second] {
        peer.post_modern(&listen(1, json!({"resourceSubscriptions": ["test://watched"]}))).await;
        peer.message().await.unwrap();
    }
    assert!(house.stage.is_busy());
    drop(first);
    let mut actor = house.connect().await;
    let (_, touched) = actor.ask_modern(&act("touch", json!({"uri": "x"}))).await;
    assert_eq!(text(&touched), "true", "another one watches it still");
    drop(second);
    until(|| !house.stage.is_busy()).await;
    while text(&actor.ask_modern(&act("touch", json!({"uri": "x"}))).await.1) == "true" {}
}

#[tokio::test]
async fn filters_that_are_none() {
    let house = house().await;
    let mut peer = house.connect().await;
    let cases = [
        (modern(1, "subscriptions/listen", json!({})), 200, -32602),
        (listen(1, json!([])), 200, -32602),
        (listen(1, json!({"toolsListChanged": "yes"})), 200, -32602),
        (listen(1, json!({"resourceSubscriptions": [1]})), 200, -32602),
        (
            listen(
                1,
                json!({"resourceSubscriptions": (0..1001).map(|number| format!("a:{number}")).collect::<Vec<_>>()}),
            ),
            200,
            -32602,
        ),
        (listen(1, json!({"taskIds": ["t"]})), 400, -32021),
    ];
    for (body, status, code) in cases {
        let (got, answer) = peer.ask_modern(&body).await;
        assert_eq!((got, &answer["error"]["code"]), (status, &json!(code)), "{answer}");
    }
}

#[tokio::test]
async fn h49_a_stream_that_is_not_read_is_cut_off() {
    let house = house_of(stage_with(|limits| limits.client_queue = 500_000).await).await;
    let mut peer = house.connect().await;
    peer.post_modern(&listen(1, json!({"resourceSubscriptions": ["test://watched"]}))).await;
    peer.message().await.unwrap();
    let mut actor = house.connect().await;
    // More than the sockets of both sides hold.
    for number in 0..100 {
        let uri = format!("test://watched/{number}/{}", "x".repeat(200_000));
        assert_eq!(actor.ask_modern(&act("touch", json!({"uri": uri}))).await.0, 200);
    }
    let mut got = 0;
    while let Some(message) = peer.message().await {
        assert_eq!(
            message["method"], "notifications/resources/updated",
            "there is no result where something is lacking"
        );
        got += 1;
    }
    assert!(got < 100, "{got}");
    until(|| !house.stage.is_busy()).await;
}

/// Race 6 of the list: the lists change between page one and page two.
#[tokio::test]
async fn race_6_the_lists_change_between_two_pages() {
    let house = house_of(stage_of(|_| {}, 20).await).await;
    let mut peer = house.connect().await;
    let page =
        |cursor: Option<&str>| modern(1, "tools/list", cursor.map_or(json!({}), |cursor| json!({"cursor": cursor})));
    let (_, first) = peer.ask_modern(&page(None)).await;
    let cursor = first["result"]["nextCursor"].as_str().unwrap().to_owned();
    let mut listening = house.connect().await;
    listening.post_modern(&listen(1, json!({"toolsListChanged": true}))).await;
    listening.message().await.unwrap();
    let mut actor = house.connect().await;
    actor.ask_modern(&act("change", json!({}))).await;
    assert_eq!(listening.message().await.unwrap()["method"], "notifications/tools/list_changed");

    // A client that started with the old list reads it to its end; a client that starts now reads the new one.
    let (_, second) = peer.ask_modern(&page(Some(&cursor))).await;
    let count = |page: &serde_json::Value| page["result"]["tools"].as_array().unwrap().len();
    assert_eq!(count(&first) + count(&second), 26);
    let (_, first) = peer.ask_modern(&page(None)).await;
    let newer = first["result"]["nextCursor"].as_str().unwrap();
    assert_ne!(newer, cursor);
    let (_, second) = peer.ask_modern(&page(Some(newer))).await;
    assert_eq!(count(&first) + count(&second), 27);
    for list in [&first, &second] {
        assert_eq!((&list["result"]["ttlMs"], &list["result"]["cacheScope"]), (&json!(30000), &json!("public")));
    }
    // A cursor of one list does not work for another.
    let foreign = modern(1, "prompts/list", json!({"cursor": cursor}));
    assert_eq!(peer.ask_modern(&foreign).await.1["error"]["code"], -32602);
}
