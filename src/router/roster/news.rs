//! Tells listeners which clients connect and leave.
//!
//! Thousands of clients may connect and leave each second. **Invariant:** a slow listener costs a few
//! queued events and two counts at most. While its queue is full, further events only add to the counts, so its totals
//! are always right.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use serde::Serialize;
use tokio::sync::Notify;

use super::ClientStatus;

/// Whether a client connected or left.
///
/// ```
/// # fn show(event: &mcp_host::ClientEvent) {
/// if event.change == mcp_host::ClientChange::Connected {
///     println!("welcome, {}", event.client.name);
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ClientChange {
    /// The client connected. For a client without a session: it sent its first request in a while.
    Connected,
    /// The client's session ended. For a client without a session: it was silent for a while.
    Left,
}

/// A client connected or left.
///
/// ```
/// # fn show(event: &mcp_host::ClientEvent) {
/// println!("{}: {:?}; {} clients now", event.client.name, event.change, event.clients);
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientEvent {
    /// Whether it connected or left.
    pub change: ClientChange,
    /// The client, as it was at that moment.
    pub client: ClientStatus,
    /// How many clients there were after that.
    pub clients: usize,
    /// When it happened.
    pub at: SystemTime,
}

/// One piece of news about clients.
///
/// ```
/// # fn show(news: &mcp_host::ClientNews) {
/// use mcp_host::ClientNews;
///
/// match news {
///     ClientNews::One(event) => println!("{}: {:?}", event.client.name, event.change),
///     news => println!("{news:?}"),
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientNews {
    /// A client connected or left.
    One(Box<ClientEvent>),
    /// The totals for clients that connected and left before the listener asked for them one by one.
    Many {
        /// How many connected.
        connected: usize,
        /// How many left.
        left: usize,
        /// How many clients there were after the last of these changes.
        clients: usize,
    },
}

/// The clients that connect and leave, for one listener. A listener that reads slowly gets totals for what it missed.
///
/// ```no_run
/// # async fn follow(host: &mcp_host::Host) {
/// use mcp_host::ClientNews;
///
/// let mut events = host.client_events();
/// while let Some(news) = events.next().await {
///     if let ClientNews::One(event) = news {
///         println!("{}: {:?}", event.client.name, event.change);
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct ClientEvents(Arc<Ear>);

/// All listeners.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    ears: Mutex<Vec<Weak<Ear>>>,
    count: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Ear {
    unheard: Mutex<Unheard>,
    news: Notify,
    /// Whether the host has ended.
    is_over: AtomicBool,
    listeners: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Unheard {
    first: VecDeque<Box<ClientEvent>>,
    /// How many clients connected and left after the events in `first`.
    connected: usize,
    left: usize,
    clients: usize,
}

/// How many events are kept one by one for a listener.
const KEPT: usize = 16;

impl Listeners {
    pub(super) fn listen(&self) -> ClientEvents {
        self.count.fetch_add(1, Ordering::Relaxed);
        let ear = Arc::new(Ear {
            unheard: Mutex::default(),
            news: Notify::new(),
            is_over: AtomicBool::new(false),
            listeners: self.count.clone(),
        });
        let mut ears = locked(&self.ears);
        ears.retain(|ear| ear.strong_count() > 0);
        ears.push(Arc::downgrade(&ear));
        ClientEvents(ear)
    }

    /// Tells all listeners. `client` and `clients` run only if there is a listener.
    pub(super) fn tell(&self, change: ClientChange, clients: impl Fn() -> usize, client: impl Fn() -> ClientStatus) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let event = || ClientEvent { change, client: client(), clients: clients(), at: SystemTime::now() };
        for ear in locked(&self.ears).iter().filter_map(Weak::upgrade) {
            locked(&ear.unheard).add(change, &clients, event);
            ear.news.notify_one();
        }
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        for ear in locked(&self.ears).iter().filter_map(Weak::upgrade) {
            ear.is_over.store(true, Ordering::Release);
            ear.news.notify_one();
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Unheard {
    fn add(&mut self, change: ClientChange, clients: impl Fn() -> usize, event: impl Fn() -> ClientEvent) {
        if self.first.len() < KEPT && self.connected + self.left == 0 {
            self.first.push_back(Box::new(event()));
            return;
        }
        *self.count(change) += 1;
        self.clients = clients();
    }

    fn count(&mut self, change: ClientChange) -> &mut usize {
        match change {
            ClientChange::Connected => &mut self.connected,
            ClientChange::Left => &mut self.left,
        }
    }

    fn next(&mut self) -> Option<ClientNews> {
        if let Some(event) = self.first.pop_front() {
            return Some(ClientNews::One(event));
        }
        self.sum()
    }

    fn sum(&mut self) -> Option<ClientNews> {
        let Self { connected, left, clients, .. } = std::mem::take(self);
        (connected + left > 0).then_some(ClientNews::Many { connected, left, clients })
    }

    fn all(&mut self) -> Option<ClientNews> {
        if self.first.len() == 1 && self.connected + self.left == 0 {
            return self.next();
        }
        if self.connected + self.left == 0 {
            self.clients = self.first.back().map_or(0, |last| last.clients);
        }
        for event in std::mem::take(&mut self.first) {
            *self.count(event.change) += 1;
        }
        self.sum()
    }
}

impl ClientEvents {
    /// Waits for the next client that connects or leaves. Returns `None` once the host has ended.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub async fn next(&mut self) -> Option<ClientNews> {
        self.heard(Unheard::next).await
    }

    /// Waits for news, and returns all unheard news as one value. Returns `None` once the host has ended. This is for
    /// listeners that want to be told only now and then.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub async fn gathered(&mut self) -> Option<ClientNews> {
        self.heard(Unheard::all).await
    }

    async fn heard(&self, read: impl Fn(&mut Unheard) -> Option<ClientNews>) -> Option<ClientNews> {
        loop {
            // This is read before the news, so that news from before the host's end is still returned.
            let is_over = self.0.is_over.load(Ordering::Acquire);
            let news = read(&mut locked(&self.0.unheard));
            if news.is_some() || is_over {
                return news;
            }
            self.0.news.notified().await;
        }
    }

    #[cfg(all(test, feature = "server"))]
    pub(crate) fn heard_so_far(&self) -> Option<ClientNews> {
        locked(&self.0.unheard).next()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
