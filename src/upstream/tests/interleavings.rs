//! Every order in which a request, its answer, its end, and the end of its connection can meet (`docs/hazards.md` H56).
//!
//! Each of these is one step under one lock, so all orders of the steps are everything that threads can do with the
//! table. They run on the real connection. A model checker that replaces locks and wake-ups by its own (loom, shuttle)
//! would test a copy of it: the wake-ups here are the runtime's, and a counting waker checks them.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::connection::{Link, Parts};
use super::super::*;
use super::support::{Surroundings, world};
use crate::protocol::Method;
use crate::transport::Memory as MemoryWire;

/// Counts wake-ups.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The events of a request, each once and in the order of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Open,
    Poll,
    Drop,
    Answer,
    AnswerAgain,
    Progress,
    Lose,
    Part,
}

/// Returns all interleavings of several lines of steps.
fn orders(lines: &[&[Step]]) -> Vec<Vec<Step>> {
    let mut all = Vec::new();
    let mut at = vec![0; lines.len()];
    merge(lines, &mut at, &mut Vec::new(), &mut all);
    all
}

fn merge(lines: &[&[Step]], at: &mut [usize], so_far: &mut Vec<Step>, all: &mut Vec<Vec<Step>>) {
    let mut over = true;
    for line in 0..lines.len() {
        if let Some(step) = lines[line].get(at[line]) {
            over = false;
            at[line] += 1;
            so_far.push(*step);
            merge(lines, at, so_far, all);
            so_far.pop();
            at[line] -= 1;
        }
    }
    if over {
        all.push(so_far.clone());
    }
}

/// Creates a connection over a link in memory; its other end is returned to keep it open.
fn connection() -> (Arc<Connection>, MemoryWire, transport::Wire) {
    let Surroundings { world, news: _news, changes: _changes } = world(Nature::real());
    let (memory, _messages, wire) = MemoryWire::pair();
    let parts = Parts {
        server: "it".into(),
        announcer: Announcer::new("it", Default::default(), Default::default()),
        link: Link::Memory(memory.clone()),
        relay: Relay { lease: 1, sender: world.relay },
        binding: Arc::default(),
        roots: Arc::default(),
        client_info: Raw::empty_object(),
        caps: Caps::default(),
        pending_cap: 4,
        queue: 4096,
        depth: 128,
        stays: &[],
        users: Arc::default(),
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
        renew: |_, _| Box::pin(std::future::ready(())),
        nature: Nature::real(),
    };
    (Connection::new(parts), memory, wire)
}

/// Waits for the end of the request; resolves to the number of items before it.
type Waiter = Pin<Box<dyn Future<Output = usize>>>;

fn waiter(mut exchange: Exchange) -> Waiter {
    Box::pin(async move {
        let mut heard = 0;
        loop {
            match exchange.next().await {
                Item::Done(_) | Item::Lost(_) => return heard,
                _ => heard += 1,
            }
        }
    })
}

/// Runs one order; panics if anything is lost, duplicated, or left over.
fn take(order: &[Step]) {
    let (connection, _memory, _wire) = connection();
    let id = connection.next_id();
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(bell.clone());
    let rung = || bell.0.load(Ordering::SeqCst);
    let (mut waiting, mut rung_before, mut end) = (None::<Waiter>, None, None);
    let poll = |waiting: &mut Option<Waiter>, end: &mut Option<usize>| {
        let Some(waiter) = waiting else { return None };
        match waiter.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => Some(rung()),
            Poll::Ready(heard) => {
                *waiting = None;
                assert!(end.replace(heard).is_none(), "two ends of {order:?}");
                None
            }
        }
    };
    for step in order {
        let is_waited_for = connection.waits(id);
        match step {
            Step::Open => {
                let terms = Terms { owner: Owner(7), ..Terms::host() };
                waiting = Some(waiter(connection.open(id, &Method::ToolsCall, None, &terms)));
            }
            Step::Poll => rung_before = poll(&mut waiting, &mut end),
            Step::Drop => (waiting, rung_before) = (None, None),
            Step::Answer => connection.settle(id, Ok(Raw::from_value(&json!({ "is": "first" })))),
            Step::AnswerAgain => connection.settle(id, Ok(Raw::from_value(&json!({ "is": "second" })))),
            Step::Progress => {
                let params = format!(r#"{{"progressToken":{id},"progress":1}}"#);
                let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#);
                connection.receive(None, crate::protocol::Message::parse(&text.into()).unwrap());
            }
            Step::Lose => connection.lose(&transport::Error::Broken),
            Step::Part => {
                let parted = pin!(connection.part()).poll(&mut Context::from_waker(Waker::noop()));
                assert!(parted.is_ready(), "{order:?}");
            }
        }
        // A waiting caller is woken when an item arrives.
        let comes = matches!(step, Step::Answer | Step::AnswerAgain | Step::Progress | Step::Lose | Step::Part);
        if let (true, true, Some(before)) = (comes, is_waited_for, rung_before.take_if(|_| comes)) {
            assert!(rung() > before, "nobody was woken by {step:?} of {order:?}");
        }
    }
    // Whatever came first, a waiting caller gets one end, and the table is empty.
    connection.lose(&transport::Error::Broken);
    poll(&mut waiting, &mut end);
    assert!(waiting.is_none(), "{order:?} waits for ever");
    assert!(end.is_some() || order.contains(&Step::Drop), "{order:?} has no end");
    assert!(end.unwrap_or_default() <= 1, "{order:?}");
    assert!(!connection.waits(id), "{order:?} leaves an entry");
    assert_eq!((connection.running(), connection.questions()), (0, 0), "{order:?}");
}

#[test]
fn h56_h34_all_orders_of_a_request_its_answers_and_the_end_of_its_connection() {
    // No task runs on this runtime: creating a `World` only needs the handle of one.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _within = runtime.enter();
    let mut count = 0;
    for lines in [
        &[&[Step::Open, Step::Poll, Step::Poll][..], &[Step::Answer, Step::AnswerAgain], &[Step::Lose]][..],
        &[&[Step::Open, Step::Poll, Step::Poll], &[Step::Progress, Step::Answer], &[Step::Part]],
        &[&[Step::Open, Step::Poll, Step::Drop], &[Step::Progress, Step::Answer], &[Step::Lose]],
        &[&[Step::Open, Step::Poll, Step::Drop], &[Step::Answer], &[Step::Part, Step::Lose]],
        &[&[Step::Open, Step::Poll, Step::Poll], &[Step::Answer], &[Step::Part], &[Step::Lose]],
    ] {
        for order in orders(lines) {
            count += 1;
            take(&order);
        }
    }
    assert!(count > 300, "{count}");
}
