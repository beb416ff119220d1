//! Starts servers without delaying the first list: leases that no client waits for start once the first list is
//! written, or after [`GRACE`]. Fifty forks before the first response delayed it by 18 ms.
//!
//! A server about which nothing is known starts at once, because the first list waits for it. Either way, one server
//! starts per turn of the runtime. A lazy server whose list is kept stays `idle` until it is called.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::lock;

/// Leases that wait for their start.
#[derive(Debug, Default)]
pub(super) struct Starts {
    at_once: Queue,
    soon: Queue,
    /// Counts the list requests that were answered.
    listed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<VecDeque<Begin>>,
    news: Notify,
}

/// Starts one lease.
struct Begin(Box<dyn FnOnce() + Send>);

impl fmt::Debug for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Begin")
    }
}

/// How long leases wait for the first list: a client that starts together with the host has requested it by then.
pub(super) const GRACE: Duration = Duration::from_millis(20);

impl Starts {
    /// Starts a lease soon; a client that needs it earlier starts it at once.
    pub(super) fn put(&self, begin: impl FnOnce() + Send + 'static) {
        self.soon.put(begin);
    }

    /// Starts a lease without waiting for the first list, after those queued before it.
    pub(super) fn put_first(&self, begin: impl FnOnce() + Send + 'static) {
        self.at_once.put(begin);
    }

    /// Notes that a list request was answered. Its task writes the response in the same turn of the runtime.
    pub(super) fn listed(&self) {
        self.listed.send_modify(|count| *count += 1);
    }

    /// Waits until the next list is answered and written, for [`GRACE`] at most.
    pub(super) async fn door(&self) {
        written(&mut self.listed.subscribe()).await;
    }

    /// Starts waiting leases until `stop`.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let at_once = async {
            loop {
                self.at_once.news.notified().await;
                self.at_once.begin().await;
            }
        };
        // A list that is answered before leases are queued counts, too.
        let mut listed = self.listed.subscribe();
        let soon = async {
            loop {
                self.soon.news.notified().await;
                written(&mut listed).await;
                self.soon.begin().await;
            }
        };
        stop.run_until_cancelled(futures_util::future::join(at_once, soon)).await;
        lock(&self.at_once.waiting).clear();
        lock(&self.soon.waiting).clear();
    }
}

/// Waits until a new list is answered and written, for [`GRACE`] at most.
async fn written(listed: &mut watch::Receiver<u64>) {
    if tokio::time::timeout(GRACE, listed.changed()).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

impl Queue {
    fn put(&self, begin: impl FnOnce() + Send + 'static) {
        lock(&self.waiting).push_back(Begin(Box::new(begin)));
        self.news.notify_one();
    }

    async fn begin(&self) {
        while let Some(Begin(begin)) = self.next() {
            begin();
            // Lets the runtime handle new input before the next start.
            tokio::task::yield_now().await;
        }
    }

    fn next(&self) -> Option<Begin> {
        lock(&self.waiting).pop_front()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    /// What happened, in order, and when.
    #[derive(Clone, Debug, Default)]
    struct Events(Arc<Mutex<Vec<(&'static str, Duration)>>>);

    impl Events {
        fn note(&self, what: &'static str, since: Instant) {
            lock(&self.0).push((what, since.elapsed()));
        }

        fn all(&self) -> Vec<(&'static str, u128)> {
            lock(&self.0).iter().map(|(what, at)| (*what, at.as_millis())).collect()
        }
    }

    /// Three leases that wait for their start.
    fn waiting(since: Instant) -> (Arc<Starts>, Events, CancellationToken) {
        let (starts, seen, stop) = (Arc::<Starts>::default(), Events::default(), CancellationToken::new());
        for name in ["a", "b", "c"] {
            let seen = seen.clone();
            starts.put(move || seen.note(name, since));
        }
        tokio::spawn(starts.clone().run(stop.clone()));
        (starts, seen, stop)
    }

    #[tokio::test(start_paused = true)]
    async fn leases_start_a_moment_after_the_doors_are_open() {
        let (_, seen, _stop) = waiting(Instant::now());
        sleep(Duration::from_millis(19)).await;
        assert_eq!(seen.all(), []);
        sleep(Duration::from_millis(5)).await;
        assert_eq!(seen.all(), [("a", 20), ("b", 20), ("c", 20)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_was_answered_before_counts() {
        let (since, seen) = (Instant::now(), Events::default());
        let (starts, stop) = (Arc::<Starts>::default(), CancellationToken::new());
        tokio::spawn(starts.clone().run(stop.clone()));
        sleep(Duration::from_millis(3)).await;
        starts.listed();
        sleep(Duration::from_millis(1)).await;
        let late = seen.clone();
        starts.put(move || late.note("late", since));
        sleep(Duration::from_millis(1)).await;
        assert_eq!(seen.all(), [("late", 4)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_list_waits_for_no_moment() {
        let since = Instant::now();
        let (starts, seen, _stop) = waiting(since);
        for name in ["unknown", "unknown too"] {
            let seen = seen.clone();
            starts.put_first(move || seen.note(name, since));
        }
        sleep(Duration::from_millis(1)).await;
        assert_eq!(seen.all(), [("unknown", 0), ("unknown too", 0)]);
        sleep(GRACE).await;
        assert_eq!(seen.all().len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn leases_start_once_the_first_list_is_written_and_the_doors_have_their_turns() {
        let since = Instant::now();
        let (starts, seen, _stop) = waiting(since);
        sleep(Duration::from_millis(7)).await;
        let (door, other) = (seen.clone(), seen.clone());
        tokio::spawn(async move {
            starts.listed();
            // Its task continues in the same turn.
            door.note("written", since);
        });
        tokio::spawn(async move {
            // The runtime polls ready tasks round by round, in either order.
            while other.all().last().is_none_or(|(what, _)| *what != "c") {
                if other.all().last().is_some_and(|(what, _)| *what != "turn") {
                    other.note("turn", since);
                }
                tokio::task::yield_now().await;
            }
        });
        sleep(Duration::from_millis(1)).await;
        let names: Vec<_> = seen.all().into_iter().map(|(what, _)| what).collect();
        let place = |what: &str| names.iter().position(|name| *name == what).unwrap();
        assert_eq!((place("written"), place("turn")), (0, 1));
        assert!(names[place("a")..place("c")].contains(&"turn"), "not all in one turn: {names:?}");
        assert!(seen.all().iter().all(|(_, at)| *at == 7), "not after its moment: {:?}", seen.all());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_starts_once_the_host_stops() {
        let (starts, seen, stop) = waiting(Instant::now());
        sleep(Duration::from_millis(5)).await;
        stop.cancel();
        sleep(Duration::from_millis(50)).await;
        assert_eq!((seen.all(), lock(&starts.soon.waiting).len()), (Vec::new(), 0));
    }
}
