//! Messages that wait for one client: up to the cap, over it, and what is dropped first.

use std::sync::Arc;

use crate::config::Limits;
use crate::protocol::{Message, Method, Notification, Raw, Request, RequestId};
use crate::queues::{Account, Queues};
use crate::router::Mailbox;

/// Bytes that every message counts for beside its params.
const OVERHEAD: usize = 128;

/// A mailbox with this cap.
fn sized(cap: usize, account: Account) -> Mailbox {
    Mailbox::new(Arc::new(Limits { client_queue: cap, ..Limits::default() }), account)
}

fn notice(method: Method, length: usize) -> Message {
    let params = Some(Raw::from_value(&"x".repeat(length - OVERHEAD - 2)));
    Message::Notification(Notification { method, params })
}

fn request(length: usize) -> Message {
    let params = Some(Raw::from_value(&"x".repeat(length - OVERHEAD - 2)));
    Message::Request(Request { id: RequestId::Number(1), method: Method::Elicit, params })
}

fn methods(mailbox: &Mailbox) -> Vec<String> {
    let next = || {
        mailbox.try_next().map(|message| match message {
            Message::Notification(notice) => notice.method.to_string(),
            Message::Request(request) => request.method.to_string(),
            Message::Response(_) => "answer".to_owned(),
        })
    };
    std::iter::from_fn(next).collect()
}

#[tokio::test]
async fn h49_at_the_cap_and_beside_it() {
    for (second, fits) in [(499, true), (500, true), (501, false)] {
        let queues = Queues::new(1 << 20);
        let mailbox = sized(1000, queues.account()).of_request();
        mailbox.put(request(500));
        mailbox.put(request(second));
        assert_eq!((mailbox.overflowed(), mailbox.account().is_cut()), (!fits, !fits), "{second}");
        assert_eq!(mailbox.account().used(), if fits { 500 + second } else { 0 });
        assert_eq!(methods(&mailbox).len(), if fits { 2 } else { 0 });
    }
    // An empty one takes one message of any size.
    let mailbox = sized(1000, Queues::new(1 << 20).account()).of_request();
    mailbox.put(request(5000));
    assert!(!mailbox.overflowed());
}

#[tokio::test]
async fn h49_progress_and_log_lines_go_first_and_changes_are_told_once() {
    let mailbox = sized(1000, Queues::new(1 << 20).account()).of_request();
    mailbox.put(notice(Method::Progress, 300));
    mailbox.put(request(200));
    mailbox.put(notice(Method::LogMessage, 300));
    for _ in 0..10 {
        mailbox.put(notice(Method::ToolsListChanged, 200));
    }
    assert_eq!(mailbox.account().used(), 1000);
    // One more droppable message drops all of its kind; undroppable ones take their room.
    mailbox.put(notice(Method::Progress, 900));
    assert_eq!(mailbox.account().used(), 400);
    mailbox.put(request(600));
    mailbox.put(notice(Method::LogMessage, 200));
    assert!(!mailbox.overflowed());
    assert_eq!(methods(&mailbox), ["elicitation/create", "notifications/tools/list_changed", "elicitation/create"]);
    assert_eq!(mailbox.account().used(), 0);
}

#[tokio::test]
async fn h49_a_box_that_nobody_reads_ends_alone() {
    // A session may have no stream: its calls continue.
    let mailbox = sized(1000, Queues::new(1 << 20).account());
    mailbox.put(request(700));
    mailbox.put(request(700));
    assert!(mailbox.overflowed() && !mailbox.account().is_cut());
}

#[tokio::test]
async fn h49_what_may_be_lost_is_when_all_queues_are_half_full() {
    let queues = Queues::new(2000);
    let other = sized(5000, queues.account()).of_request();
    other.put(request(900));
    let mailbox = sized(5000, queues.account()).of_request();
    mailbox.put(notice(Method::Progress, 200));
    mailbox.put(notice(Method::Progress, 200));
    mailbox.put(request(200));
    assert_eq!(methods(&mailbox), ["elicitation/create"]);
    other.try_next();
    mailbox.put(request(200));
    mailbox.put(notice(Method::Progress, 200));
    assert_eq!(methods(&mailbox), ["elicitation/create", "notifications/progress"]);
}
