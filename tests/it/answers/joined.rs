//! Equal requests under way are one request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mcp_host::{ClientHandler, ElicitAnswer, Elicitation, Profile};
use serde_json::json;

use super::{Seen, start, until};

const MANY: usize = 100;

#[tokio::test]
async fn a_hundred_equal_calls_are_one_request_and_each_has_its_progress() {
    let seen = Arc::<Seen>::default();
    let host = start(&seen, &json!({ "it__slow": { "cache": "1h" } }), &json!({})).await;
    let told = Arc::<AtomicUsize>::default();
    let calls: Vec<_> = (0..MANY)
        .map(|_| {
            let told = told.clone();
            let call = host.call_tool("it__slow", json!({})).on_progress(move |step| {
                assert_eq!(step.progress, 1.0);
                told.fetch_add(1, Ordering::SeqCst);
            });
            tokio::spawn(call.into_future())
        })
        .collect();
    until(|| seen.held() == 1).await;
    seen.release.notify_one();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().text(), "slow 1 {}");
    }
    assert_eq!(seen.count("slow"), 1);
    assert!(told.load(Ordering::SeqCst) > 0, "those who were there by then heard it");
    host.shutdown().await;
}

#[tokio::test]
async fn a_hundred_equal_reads_are_one_request_that_the_last_one_to_leave_ends() {
    let seen = Arc::<Seen>::default();
    let host = start(&seen, &json!({}), &json!({ "reads": "1h" })).await;
    let read = || {
        let read = host.read_resource("it+file:///a").meta(json!({ "com.example/hold": true }));
        tokio::spawn(read.into_future())
    };
    let mut reads: Vec<_> = (0..MANY).map(|_| read()).collect();
    until(|| seen.held() == 1).await;
    let last = reads.pop().unwrap();
    for one in reads {
        one.abort();
        let _ = one.await;
    }
    assert_eq!((seen.count("file:///a"), seen.cancelled()), (1, 0), "it is still wanted");
    seen.release.notify_one();
    assert_eq!(last.await.unwrap().unwrap().text(), "read 1");
    // It is kept for the next, so the others must say something else.
    let reads: Vec<_> = (0..MANY)
        .map(|_| {
            let read = host.read_resource("it+file:///a").meta(json!({ "com.example/hold": "anew" }));
            tokio::spawn(read.into_future())
        })
        .collect();
    until(|| seen.held() == 2).await;
    for one in reads {
        one.abort();
        let _ = one.await;
    }
    until(|| seen.cancelled() == 1).await;
    assert_eq!(seen.count("file:///a"), 2);
    host.shutdown().await;
}

/// Answers questions with how many it got.
struct Counts(Arc<Mutex<Vec<&'static str>>>, &'static str);

impl ClientHandler for Counts {
    fn profile(&self) -> Profile {
        Profile::ELICITATION_FORM
    }

    async fn elicit(&self, _: Elicitation) -> ElicitAnswer {
        self.0.lock().unwrap().push(self.1);
        ElicitAnswer::accept(json!({}))
    }
}

#[tokio::test]
async fn a_question_is_for_one_alone_and_the_others_are_asked_themselves() {
    let seen = Arc::<Seen>::default();
    let host = start(&seen, &json!({ "it__ask": { "cache": "1h" } }), &json!({})).await;
    let asked = Arc::<Mutex<Vec<&'static str>>>::default();
    let session = host.session_with(Counts(asked.clone(), "ann"));
    let calls: Vec<_> =
        (0..3).map(|_| session.call_tool("it__ask", json!({}))).map(|call| tokio::spawn(call.into_future())).collect();
    let mut texts = Vec::new();
    for call in calls {
        texts.push(call.await.unwrap().unwrap().text());
    }
    texts.sort();
    assert_eq!(texts, ["ask 1 {}", "ask 2 {}", "ask 3 {}"], "each has its own answer");
    assert_eq!(*asked.lock().unwrap(), ["ann", "ann", "ann"]);
    host.shutdown().await;
}

#[tokio::test]
async fn a_call_that_leaves_does_not_take_the_others_along() {
    let seen = Arc::<Seen>::default();
    let host = start(&seen, &json!({ "it__slow": { "cache": "1h" } }), &json!({})).await;
    let first = tokio::spawn(host.call_tool("it__slow", json!({})).into_future());
    until(|| seen.held() == 1).await;
    let (ann, bob) = (host.session(), host.session());
    let others = [ann.call_tool("it__slow", json!({})), bob.call_tool("it__slow", json!({}))];
    let others = others.map(|call| tokio::spawn(call.into_future()));
    // Both are routed in one turn of the runtime, and wait for nothing else.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    first.abort();
    let _ = first.await;
    seen.release.notify_one();
    for other in others {
        assert_eq!(other.await.unwrap().unwrap().text(), "slow 1 {}");
    }
    assert_eq!((seen.count("slow"), seen.cancelled()), (1, 0));
    host.shutdown().await;
}
