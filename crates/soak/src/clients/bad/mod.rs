//! The worst kinds of clients, all at once, in a separate process: each continues until the input of the process ends,
//! and starts over when the host closes its connection. Each kind reports what it did at the end.

mod asking;
mod floods;
mod hogs;
mod pipe;
mod two;
mod wire;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{LocalBoxFuture, join_all};
use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

/// The first argument of the process that runs all of them.
pub(crate) const MODE: &str = "__bad-clients";

/// Runs one kind from its first connection to the end of the process.
type Run = fn(&Target) -> LocalBoxFuture<'static, ()>;

/// Every kind, under the name it is reported by.
const KINDS: [(&str, Run); 22] = [
    ("slow heads", hogs::slow_heads),
    ("slow bodies", hogs::slow_bodies),
    ("bodies without their last byte", hogs::nearly_whole),
    ("chunks without end", hogs::endless_chunks),
    ("idle connections", hogs::idle),
    ("half-closed posts", hogs::half_closed),
    ("resets after a request", hogs::resets),
    ("sessions with streams", hogs::streams),
    ("initialize", floods::initialize),
    ("requests with unread responses", floods::unread),
    ("huge unread results", floods::huge),
    ("notices about nothing", floods::notices),
    ("malformed messages", floods::malformed),
    ("guesses", floods::guesses),
    ("rapid resets over HTTP/2", two::rapid_resets),
    ("unread streams over HTTP/2", two::unread),
    ("subscriptions", asking::subscriptions),
    ("calls left at a question", asking::questions),
    ("unfetched tasks", asking::tasks),
    ("listens opened and dropped", asking::listens),
    ("events of others", asking::resumes),
    ("a line without end over stdio", pipe::endless),
];

/// The number of kinds.
pub(crate) const COUNT: usize = KINDS.len();

/// The time limit of every round, so that a hang does not go unnoticed.
const ROUND: Duration = Duration::from_secs(40);

/// What a kind connects to, and where it records what it did.
#[derive(Clone, Debug)]
pub(super) struct Target {
    place: Rc<Place>,
    /// Rounds, or parts of long ones, that achieved their purpose.
    did: Rc<Cell<u64>>,
    seen: Rc<Seen>,
}

#[derive(Debug)]
struct Place {
    address: SocketAddr,
    /// The token of clients that open sessions and keep them.
    hoarder: String,
    /// The token of all others.
    other: String,
    host: PathBuf,
    home: PathBuf,
}

/// Broken promises.
#[derive(Debug, Default)]
struct Seen {
    wrong: RefCell<Vec<String>>,
    /// The peak memory of a host over stdio, in KiB.
    pipe: Cell<u64>,
}

impl Target {
    /// Turns it into a client that keeps all its sessions.
    fn hoards(&self) -> Self {
        let place = &self.place;
        let place = Place {
            address: place.address,
            hoarder: place.hoarder.clone(),
            other: place.hoarder.clone(),
            host: place.host.clone(),
            home: place.home.clone(),
        };
        Self { place: Rc::new(place), ..self.clone() }
    }

    /// Counts a round, or a part of a long one, that achieved its purpose.
    fn did(&self) {
        self.did.set(self.did.get() + 1);
    }

    fn wrong(&self, what: String) {
        let mut wrong = self.seen.wrong.borrow_mut();
        if wrong.len() < 10 && !wrong.contains(&what) {
            wrong.push(what);
        }
    }

    /// Runs `count` of them at once, and restarts each after a pause when it ends.
    fn many<F>(&self, count: usize, pause: Duration, one: impl Fn(usize) -> F + 'static) -> LocalBoxFuture<'static, ()>
    where
        F: Future<Output = std::io::Result<()>> + 'static,
    {
        let target = self.clone();
        let begin = move |number: usize| {
            let round = one(number);
            let target = target.clone();
            async move {
                if let Ok(Ok(())) = timeout(ROUND, round).await {
                    target.did();
                }
            }
        };
        let begin = Rc::new(begin);
        let all = (0..count).map(move |number| {
            let begin = begin.clone();
            async move {
                loop {
                    begin(number).await;
                    sleep(pause).await;
                }
            }
        });
        let all = join_all(all);
        Box::pin(async move {
            all.await;
        })
    }
}

/// Runs all kinds: `__bad-clients ADDRESS HOARDER OTHER HOST HOME`.
pub(crate) fn main(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let mut next = || arguments.next().ok_or("ADDRESS HOARDER OTHER HOST HOME are wanted");
    let address = next()?.parse().map_err(|_| "no address")?;
    let place = Place { address, hoarder: next()?, other: next()?, host: next()?.into(), home: next()?.into() };
    let (place, seen) = (Rc::new(place), Rc::<Seen>::default());
    super::raise_files()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let report = LocalSet::new().block_on(&runtime, async {
        let mut kinds = JoinSet::new();
        let mut counts = Vec::new();
        for (name, run) in KINDS {
            let target = Target { place: place.clone(), did: Rc::default(), seen: seen.clone() };
            counts.push((name, target.did.clone()));
            kinds.spawn_local(run(&target));
        }
        let mut input = tokio::io::stdin();
        // Waits for the end of the input.
        let _ = input.read_to_end(&mut Vec::new()).await;
        kinds.shutdown().await;
        let did: Map<_, _> = counts.iter().map(|(name, did)| ((*name).to_owned(), Value::from(did.get()))).collect();
        json!({ "did": did, "wrong": *seen.wrong.borrow(), "pipe": seen.pipe.get() })
    });
    crate::soak::say(&report.to_string());
    Ok(())
}
