//! Counts the bytes that wait to be sent to clients, down to the socket: in total (`host.limits.clientQueues`) and per
//! client.
//!
//! Code that keeps bytes for a client holds a [`Share`] of the client's [`Account`] meanwhile. This covers mailboxes,
//! inboxes of calls, questions of parked calls and tasks, streams kept for replay, and answers that are being written,
//! whose bytes carry their count into hyper. The operating system's socket buffers are not counted.
//!
//! **Invariant:** counting never waits and drops no message. If the total is over the cap, a client is cut off instead,
//! with its connections and its session. It is the one whose account has the highest cost: its bytes times how long the
//! client has taken none of them. So a client that reads is never cut off for one that does not (`docs/hazards.md` H48,
//! H49). Messages that may be lost (progress, log messages, replay copies) may use only the first half of the cap.

#![cfg_attr(not(feature = "server"), allow(dead_code, reason = "half of it is for the HTTP door"))]

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lock::lock;

/// How long a client whose queue is over its limit may take no bytes before it is cut off.
pub(crate) const STUCK: Duration = Duration::from_secs(180);

/// The queues of all clients.
#[derive(Clone, Debug)]
pub(crate) struct Queues(Arc<All>);

#[derive(Debug)]
struct All {
    cap: usize,
    /// The bytes in all accounts.
    used: AtomicUsize,
    /// The bytes of all [`Spare`]s.
    spare: AtomicUsize,
    clock: Instant,
    accounts: Mutex<HashMap<u64, Weak<Inner>>>,
    count: AtomicU64,
    /// Changes when an account is cut off.
    cut: watch::Sender<()>,
    /// How many accounts were cut off so far.
    cuts: AtomicU64,
}

/// Counts the bytes that wait for one client: for a session, a pipe, or a request without either.
#[derive(Clone, Debug)]
pub(crate) struct Account(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    all: Arc<All>,
    number: u64,
    used: AtomicUsize,
    /// When the client last took bytes, or when bytes began to wait; in milliseconds since `clock`.
    since: AtomicU64,
    /// Like `used`, but only for bytes being written to a connection.
    written: AtomicUsize,
    /// Like `since`, but only for bytes being written to a connection.
    written_since: AtomicU64,
    /// Made when somebody waits for it, or it is cut off: each session has an account, and costs memory.
    cut: OnceLock<CancellationToken>,
    /// The connections to the client, each with the token that ends it.
    ways: Mutex<Vec<(u64, CancellationToken)>>,
}

/// Bytes that count on an account until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    account: Account,
    bytes: usize,
}

/// Bytes that are kept only while there is plenty of room. They count in the total, but on no account, until this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Spare {
    all: Arc<All>,
    bytes: usize,
}

/// Ties a connection to an account as long as answers for the account are written to it. If the account is cut off
/// meanwhile, the connection ends.
#[derive(Debug)]
pub(crate) struct Way {
    account: Account,
    number: u64,
}

/// Bytes that are being written, with their share of the account.
struct Load {
    bytes: Bytes,
    share: Share,
    _way: Arc<Way>,
}

/// A part of a [`Load`]. The connection drops it once it is written, which shows that the client takes bytes.
struct Part {
    bytes: Bytes,
    account: Account,
}

/// The size of a part in bytes.
const PART: usize = 128 * 1024;

impl Queues {
    /// Creates queues that hold `cap` bytes in total, or one message of any size.
    pub(crate) fn new(cap: usize) -> Self {
        Self(Arc::new(All {
            cap,
            used: AtomicUsize::new(0),
            spare: AtomicUsize::new(0),
            clock: Instant::now(),
            accounts: Mutex::default(),
            count: AtomicU64::new(0),
            cut: watch::Sender::default(),
            cuts: AtomicU64::new(0),
        }))
    }

    /// Opens an account for a client.
    #[must_use]
    pub(crate) fn account(&self) -> Account {
        let number = self.0.next();
        let inner = Arc::new(Inner {
            all: self.0.clone(),
            number,
            used: AtomicUsize::new(0),
            since: AtomicU64::new(0),
            written: AtomicUsize::new(0),
            written_since: AtomicU64::new(0),
            cut: OnceLock::new(),
            ways: Mutex::default(),
        });
        self.0.table().insert(number, Arc::downgrade(&inner));
        Account(inner)
    }

    /// Returns how many clients were cut off so far because of what waited for them.
    pub(crate) fn cut_so_far(&self) -> u64 {
        self.0.cuts.load(Ordering::Relaxed)
    }

    /// Returns how many bytes are queued now.
    #[must_use]
    pub(crate) fn used(&self) -> usize {
        self.0.total()
    }

    /// Returns how many bytes are queued now, without those of accounts that were cut off.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        let living: usize = self.0.living().iter().map(Account::used).sum();
        living + self.0.spare.load(Ordering::Relaxed)
    }

    /// Reports whether the queues are over the cap by more than a quarter, so that no new work should begin. Accounts
    /// that were cut off may cause this for a while.
    #[must_use]
    pub(crate) fn is_swamped(&self) -> bool {
        self.0.total() > self.0.cap.saturating_add(self.0.cap / 4)
    }

    /// Returns a channel that changes whenever an account is cut off.
    #[must_use]
    pub(crate) fn cuts(&self) -> watch::Receiver<()> {
        self.0.cut.subscribe()
    }

    /// Cuts off accounts with more than `queue` bytes whose clients have taken none of the bytes being written for
    /// `patience`, and accounts of any size for which that lasts longer than `long`.
    pub(crate) fn cut_stuck(&self, queue: usize, patience: Duration, long: Duration) {
        let now = self.0.now();
        for account in self.0.living() {
            let stuck = account.stuck(now);
            if stuck > millis(long) || (stuck > millis(patience) && account.used() > queue) {
                account.cut_off("it takes nothing");
            }
        }
    }
}

impl All {
    fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        millis(self.clock.elapsed())
    }

    fn total(&self) -> usize {
        self.used.load(Ordering::Relaxed).saturating_add(self.spare.load(Ordering::Relaxed))
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, Weak<Inner>>> {
        lock(&self.accounts)
    }

    /// Returns the accounts that are not cut off. They are collected first, since the last handle of an account must
    /// not be dropped while the table is locked.
    fn living(&self) -> Vec<Account> {
        let all: Vec<Arc<Inner>> = self.table().values().filter_map(Weak::upgrade).collect();
        all.into_iter().map(Account).filter(|account| !account.is_cut()).collect()
    }

    /// Cuts off accounts until the others are within the cap. The newest `size` bytes may stay if they are the only
    /// ones, even over the cap.
    fn relieve(&self, size: usize) {
        let mut living = self.living();
        let spare = self.spare.load(Ordering::Relaxed);
        let mut left = living.iter().fold(spare, |sum, account| sum.saturating_add(account.used()));
        let now = self.now();
        while left > self.cap && left - spare > size {
            let costs = |account: &Account| {
                let waited = now.saturating_sub(account.0.since.load(Ordering::Relaxed)) + 1;
                u128::from(waited) * account.used() as u128
            };
            let Some(at) = (0..living.len()).max_by_key(|at| costs(&living[*at])) else { return };
            let worst = living.swap_remove(at);
            left -= worst.used().min(left);
            worst.cut_off("all queues together are full (host.limits.clientQueues)");
        }
    }
}

impl Account {
    /// Creates an account without a cap, for a program that embeds the host: messages that it does not read fill only
    /// its own memory.
    #[must_use]
    pub(crate) fn free() -> Self {
        Queues::new(usize::MAX).account()
    }

    /// Returns an empty share of this account.
    #[must_use]
    pub(crate) fn share(&self) -> Share {
        Share { account: self.clone(), bytes: 0 }
    }

    /// Returns an empty count of bytes that are kept only while there is plenty of room.
    #[must_use]
    pub(crate) fn spare(&self) -> Spare {
        Spare { all: self.0.all.clone(), bytes: 0 }
    }

    /// Returns how many bytes wait for the client.
    #[must_use]
    pub(crate) fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Reports whether more than `queue` bytes wait and the client has taken none for longer than `patience`.
    #[must_use]
    pub(crate) fn is_behind(&self, queue: usize, patience: Duration) -> bool {
        let since = self.0.since.load(Ordering::Relaxed);
        self.used() > queue && self.0.all.now().saturating_sub(since) > millis(patience)
    }

    /// Reports whether there is room for `size` more bytes of messages that may be lost, that is in the first half of
    /// the cap.
    #[must_use]
    pub(crate) fn has_plenty(&self, size: usize) -> bool {
        self.0.all.total().saturating_add(size) <= self.0.all.cap / 2
    }

    /// Reports whether the client was cut off.
    #[must_use]
    pub(crate) fn is_cut(&self) -> bool {
        self.0.cut.get().is_some_and(CancellationToken::is_cancelled)
    }

    /// Waits until the client is cut off.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn cut(&self) {
        self.0.cut.get_or_init(CancellationToken::new).cancelled().await;
    }

    /// Ties a connection to this account. Cancelling `end` closes the connection.
    #[must_use]
    pub(crate) fn way(&self, end: &CancellationToken) -> Arc<Way> {
        let number = self.0.all.next();
        self.ways().push((number, end.clone()));
        if self.is_cut() {
            end.cancel();
        }
        Arc::new(Way { account: self.clone(), number })
    }

    /// Returns for how many milliseconds the client has taken none of the bytes being written. Returns 0 if nothing is
    /// being written.
    fn stuck(&self, now: u64) -> u64 {
        if self.0.written.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        now.saturating_sub(self.0.written_since.load(Ordering::Relaxed))
    }

    /// Cuts the client off and ends its connections.
    pub(crate) fn cut_off(&self, why: &str) {
        if self.is_cut() {
            return;
        }

        tracing::warn!(queued = self.used(), "a client is cut off: {why}");
        self.0.cut.get_or_init(CancellationToken::new).cancel();
        for (_, end) in self.ways().iter() {
            end.cancel();
        }
        self.0.all.cuts.fetch_add(1, Ordering::Relaxed);
        self.0.all.cut.send_replace(());
    }

    fn add(&self, size: usize) {
        if self.0.used.fetch_add(size, Ordering::Relaxed) == 0 {
            self.0.since.store(self.0.all.now(), Ordering::Relaxed);
        }
        let all = &self.0.all;
        let used = all.used.fetch_add(size, Ordering::Relaxed) + size;
        if used.saturating_add(all.spare.load(Ordering::Relaxed)) > all.cap {
            all.relieve(size);
        }
    }

    fn give_back(&self, size: usize) {
        if size > 0 {
            let used = self.0.used.fetch_sub(size, Ordering::Relaxed);
            self.0.all.used.fetch_sub(size, Ordering::Relaxed);
            // If no other bytes wait, the time starts with the next bytes.
            if used > size {
                self.0.since.store(self.0.all.now(), Ordering::Relaxed);
            }
        }
    }

    fn ways(&self) -> MutexGuard<'_, Vec<(u64, CancellationToken)>> {
        lock(&self.0.ways)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.all.table().remove(&self.number);
    }
}

impl Share {
    /// Returns the number of bytes.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds `size` bytes. If that exceeds the cap, accounts are cut off, maybe this one.
    pub(crate) fn add(&mut self, size: usize) {
        self.bytes += size;
        self.account.add(size);
    }

    /// Gives back `size` bytes, which the client has taken.
    pub(crate) fn take(&mut self, size: usize) {
        let size = size.min(self.bytes);
        self.bytes -= size;
        self.account.give_back(size);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

impl Spare {
    /// Adds `size` bytes if there is plenty of room. Returns false, and adds nothing, if there is not.
    #[must_use]
    pub(crate) fn try_add(&mut self, size: usize) -> bool {
        let fits = self.all.total().saturating_add(size) <= self.all.cap / 2;
        if fits {
            self.all.spare.fetch_add(size, Ordering::Relaxed);
            self.bytes += size;
        }
        fits
    }

    /// Gives back `size` bytes.
    pub(crate) fn take(&mut self, size: usize) {
        let size = size.min(self.bytes);
        self.bytes -= size;
        self.all.spare.fetch_sub(size, Ordering::Relaxed);
    }

    /// Returns the number of bytes.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.all.spare.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Way {
    /// Queues bytes that count as `size` on the account until they are written. More than [`PART`] bytes are split into
    /// parts, so that the account shows whether the client takes them.
    pub(crate) fn load(self: &Arc<Self>, pieces: &mut VecDeque<Bytes>, bytes: Bytes, size: usize) {
        let whole = self.count(bytes, size);
        if whole.len() <= PART {
            return pieces.push_back(whole);
        }
        pieces.extend((0..whole.len()).step_by(PART).map(|start| {
            let bytes = whole.slice(start..whole.len().min(start + PART));
            Bytes::from_owner(Part { bytes, account: self.account.clone() })
        }));
    }

    fn count(self: &Arc<Self>, bytes: Bytes, size: usize) -> Bytes {
        let mut share = self.account.share();
        share.add(size);
        let inner = &self.account.0;
        if inner.written.fetch_add(size, Ordering::Relaxed) == 0 {
            inner.written_since.store(inner.all.now(), Ordering::Relaxed);
        }
        Bytes::from_owner(Load { bytes, share, _way: self.clone() })
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.account.ways().retain(|(number, _)| *number != self.number);
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let inner = &self.account.0;
        let now = inner.all.now();
        inner.since.store(now, Ordering::Relaxed);
        inner.written_since.store(now, Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for Load {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let inner = &self.share.account.0;
        inner.written.fetch_sub(self.share.bytes, Ordering::Relaxed);
        inner.written_since.store(inner.all.now(), Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(queues: &Queues, size: usize) -> (Account, Share) {
        let account = queues.account();
        let mut share = account.share();
        share.add(size);
        (account, share)
    }

    #[tokio::test(start_paused = true)]
    async fn h49_at_the_cap_whoever_waited_longest_with_most_is_cut_off() {
        for (more, cut) in [(9, false), (10, false), (11, true)] {
            let queues = Queues::new(100);
            let (slow, _slow) = waiting(&queues, 60);
            tokio::time::advance(Duration::from_secs(5)).await;
            let (small, _small) = waiting(&queues, 30);
            let (fresh, _fresh) = waiting(&queues, more);
            assert_eq!([slow.is_cut(), small.is_cut(), fresh.is_cut()], [cut, false, false], "{more}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn h48_who_reads_is_not_cut_off_for_who_does_not() {
        let queues = Queues::new(100);
        let (slow, _held) = waiting(&queues, 20);
        tokio::time::advance(Duration::from_secs(60)).await;
        // Large answers again and again, each taken at once.
        let reader = queues.account();
        for _ in 0..10 {
            let mut share = reader.share();
            share.add(80);
            tokio::time::advance(Duration::from_millis(50)).await;
        }
        assert!(!slow.is_cut() && !reader.is_cut(), "there was room all the time");
        let mut share = reader.share();
        share.add(81);
        assert!(slow.is_cut() && !reader.is_cut());
    }

    #[tokio::test]
    async fn one_message_alone_may_have_any_size() {
        let queues = Queues::new(100);
        let (first, share) = waiting(&queues, 1000);
        assert!(!first.is_cut());
        let (second, _share) = waiting(&queues, 1);
        assert!(first.is_cut() && !second.is_cut());
        // The bytes that it still holds are on their way out, and cost other clients nothing.
        let (third, _share) = waiting(&queues, 99);
        assert!(!second.is_cut() && !third.is_cut() && queues.is_swamped());
        drop(share);
        assert_eq!((queues.used(), queues.is_swamped()), (100, false));
    }

    #[tokio::test]
    async fn what_may_be_lost_has_the_first_half() {
        let queues = Queues::new(100);
        let (account, share) = waiting(&queues, 30);
        let mut spare = account.spare();
        assert!(spare.try_add(20) && !spare.try_add(1));
        assert!(!account.has_plenty(1));
        drop(share);
        assert!(account.has_plenty(30) && !account.has_plenty(31));
        drop(spare);
        assert_eq!(queues.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn h49_what_is_written_counts_until_it_is_out() {
        let queues = Queues::new(100);
        let (account, end) = (queues.account(), CancellationToken::new());
        let way = account.way(&end);
        let mut pieces = VecDeque::new();
        way.load(&mut pieces, vec![0; 2 * PART + 1].into(), 40);
        drop(way);
        assert_eq!(pieces.len(), 3);
        let last = pieces.pop_back();
        assert_eq!((queues.used(), account.used()), (40, 40));
        queues.cut_stuck(39, Duration::from_secs(1), Duration::from_secs(9));
        assert!(!end.is_cancelled());
        tokio::time::advance(Duration::from_secs(2)).await;
        pieces.pop_front();
        queues.cut_stuck(39, Duration::from_secs(1), Duration::from_secs(9));
        assert!(!end.is_cancelled(), "some of it is out");
        tokio::time::advance(Duration::from_secs(2)).await;
        queues.cut_stuck(40, Duration::from_secs(1), Duration::from_secs(9));
        assert!(!end.is_cancelled(), "no more than it may have");
        queues.cut_stuck(39, Duration::from_secs(1), Duration::from_secs(9));
        assert!(end.is_cancelled() && account.is_cut());
        drop(pieces);
        assert_eq!(queues.used(), 40, "a part holds the whole");
        drop(last);
        assert_eq!(queues.used(), 0);
        assert!(account.ways().is_empty());
    }
}
