//! The sessions of the HTTP door that are in memory: their principals (owners) and streams, and when they leave. `handle.rs`
//! makes their ids, and `revival.rs` brings those back that left.
//!
//! **Invariant:** to a client, a session of another principal looks as if it did not exist (`docs/hazards.md` H60).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::event_id::{EventId, Label};
use super::handle::Origin;
use super::replay::{KEPT_FOR, Record};
use crate::lock::lock;
use crate::router::{Client, Identity, Principal};

/// Stands for the id of a session, which is too long to keep: keyed hashes of the whole id, and of its end, which nobody can
/// guess. Whoever finds another text with the same hashes has guessed 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Digest([u64; 2]);

/// One session.
///
/// A session counts as used from its first request after `initialize`, its first GET stream, or its first response to a
/// question (a request to the client). From then on, anything the client sends is a use; a call or a stream is a use
/// until it ends. A session used within [`BUSY`] never makes room for another (`docs/hazards.md` H104).
#[derive(Debug)]
pub(super) struct Session {
    pub(super) digest: Digest,
    pub(super) origin: Origin,
    /// Which of the lives of this session this is: 0 is the first, any other number was drawn. Events of another life have
    /// other ids.
    pub(super) life: u32,
    pub(super) client: Arc<Client>,
    streams: Mutex<Streams>,
    /// How many calls are running and streams are open.
    active: AtomicUsize,
    /// Whether the session was ever used; a handshake alone does not count.
    was_used: AtomicBool,
    /// The end of the last use, in milliseconds of the table's clock.
    used: AtomicU64,
    clock: Instant,
}

#[derive(Debug, Default)]
struct Streams {
    /// The standalone stream (for messages outside of calls), created when the client first opens it.
    standalone: Option<Arc<Record>>,
    /// The streams that answer requests, oldest first.
    calls: Vec<Arc<Record>>,
    count: u32,
}

/// The standalone stream's number in event ids.
pub(super) const STANDALONE: u32 = 0;
/// The most ended streams that a session keeps, and the most bytes in them; the newest is kept whatever its size.
const ENDED: usize = 16;
const ENDED_BYTES: usize = 1024 * 1024;

/// How many bytes the end of an id has: the tag that proves a sealed id is within them.
const END: usize = 32;
/// How long after its last use a session still counts as in use.
const BUSY: Duration = Duration::from_secs(60);
/// How long after its handshake an unused session is more likely to be used soon than abandoned.
const FRESH: Duration = Duration::from_secs(2);

/// How long clients should wait before they reconnect when the host stops: it may be restarting.
const COME_BACK: Duration = Duration::from_secs(3);

/// All sessions of the door.
#[derive(Debug)]
pub(super) struct Sessions {
    table: Mutex<HashMap<Digest, Arc<Session>>>,
    hashes: [RandomState; 2],
    places: Places,
    caps: Caps,
    idle: Duration,
    clock: Instant,
}

/// The limits on sessions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caps {
    pub(super) all: usize,
    /// The limit for one authenticated principal.
    pub(super) of_one: usize,
}

/// How many sessions outside the table each principal has: HTTP+SSE sessions, and sessions being created.
type Places = Arc<Mutex<HashMap<Principal, usize>>>;

/// No session can make room, because each has a running call or an open stream, or was used within [`BUSY`]. Says which
/// limit is reached: that on all sessions, or that on one principal's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    All,
    OfOne,
}

/// A session's place under the limits while the session is outside the table. Dropping this frees the place.
#[derive(Debug)]
pub(super) struct SessionPlace {
    places: Places,
    principal: Principal,
}

/// Keeps its session in use while it exists.
#[derive(Debug)]
pub(super) struct Use(Arc<Session>);

impl fmt::Debug for Digest {
    /// Shows only the first digits, which tell sessions apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}..", self.0[0] >> 48)
    }
}

impl Sessions {
    /// Creates an empty table, whose sessions end when unused for `idle`.
    pub(super) fn new(caps: Caps, idle: Duration) -> Self {
        let hashes = [RandomState::new(), RandomState::new()];
        Self { table: Mutex::default(), hashes, places: Places::default(), caps, idle, clock: Instant::now() }
    }

    /// Returns what stands for the session with this id.
    pub(super) fn digest(&self, id: &[u8]) -> Digest {
        let [whole, end] = &self.hashes;
        let last = id.last_chunk::<END>().map_or(id, |last| last);
        Digest([whole.hash_one(id), end.hash_one(last)])
    }

    /// Reserves a place for one more session. At a limit, removes an idle session and returns it; the caller must close
    /// it.
    pub(super) fn reserve(&self, principal: &Principal) -> Result<(SessionPlace, Option<Arc<Session>>), Full> {
        let mut table = self.lock();
        let mut places = lock(&self.places);
        let is_own = |session: &&Arc<Session>| session.principal() == principal;
        let own = || table.values().filter(is_own).count() + places.get(principal).copied().unwrap_or_default();
        let own_full = !principal.is_local() && own() >= self.caps.of_one;
        let mut evicted = None;
        if own_full || table.len() + places.values().sum::<usize>() >= self.caps.all {
            let now = millis(self.clock.elapsed());
            let may_go = table.values().filter(|session| !own_full || is_own(session));
            let first =
                may_go.filter_map(|session| Some((session.leaves(now)?, session))).min_by_key(|(turn, _)| *turn);
            let (_, first) = first.ok_or(if own_full { Full::OfOne } else { Full::All })?;
            let digest = first.digest;
            evicted = table.remove(&digest);
        }
        *places.entry(principal.clone()).or_default() += 1;
        Ok((SessionPlace { places: Arc::clone(&self.places), principal: principal.clone() }, evicted))
    }

    /// Adds a session in a reserved place, and marks it as in use. Returns `None`, and adds nothing, if it is there already.
    pub(super) fn add(
        &self,
        (digest, origin, life): (Digest, Origin, u32),
        place: SessionPlace,
        client: Arc<Client>,
    ) -> Option<Use> {
        let session = Arc::new(Session {
            digest,
            origin,
            life,
            client,
            streams: Mutex::default(),
            active: AtomicUsize::new(1),
            was_used: AtomicBool::new(false),
            used: AtomicU64::new(0),
            clock: self.clock,
        });
        let mut table = self.lock();
        let Entry::Vacant(free) = table.entry(digest) else { return None };
        free.insert(Arc::clone(&session));
        drop(place);
        Some(Use(session))
    }

    /// Reports whether there is a session with this id, whoever it belongs to.
    pub(super) fn has(&self, digest: Digest) -> bool {
        self.lock().contains_key(&digest)
    }

    /// Reports whether a session has a running call or an open stream.
    #[cfg(feature = "cluster")]
    pub(super) fn is_busy(&self, digest: Digest) -> bool {
        self.lock().get(&digest).is_some_and(|session| !session.is_idle())
    }

    /// Returns how many sessions cannot be taken up again once they have left.
    pub(super) fn bound(&self) -> usize {
        self.lock().values().filter(|session| session.origin == Origin::Bound).count()
    }

    /// Finds the session with this id if it belongs to the principal with these claims and uses the view, and marks it as
    /// in use.
    pub(super) fn find(&self, digest: Digest, identity: &Identity) -> Option<Use> {
        let table = self.lock();
        let is_its = |session: &&Arc<Session>| {
            *session.principal() == identity.principal
                && *session.client.chosen() == identity.view.name
                && *session.client.claims() == identity.claims
        };
        let session = table.get(&digest).filter(is_its).filter(|session| !session.is_cut())?;
        session.active.fetch_add(1, Ordering::Relaxed);
        Some(Use(Arc::clone(session)))
    }

    /// Removes a session; returns false if it was already removed.
    pub(super) fn remove(&self, session: &Session) -> bool {
        self.lock().remove(&session.digest).is_some()
    }

    /// Removes and returns the sessions that were idle too long or whose clients were disconnected because they do not
    /// read; drops old streams that no client has resumed.
    pub(super) fn sweep(&self) -> Vec<Arc<Session>> {
        let now = Instant::now();
        let (time, idle) = (millis(now - self.clock), millis(self.idle));
        let mut gone = Vec::new();
        self.lock().retain(|_, session| {
            let unused = time.saturating_sub(session.used.load(Ordering::Relaxed));
            let stays = !session.is_cut() && (!session.is_idle() || unused < idle);
            if stays {
                session.forget(now);
            } else {
                gone.push(Arc::clone(session));
            }
            stays
        });
        gone
    }

    /// Returns every session.
    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().values().cloned().collect()
    }

    /// Returns the number of all sessions, HTTP+SSE included, and the number that the busiest authenticated principal
    /// has.
    pub(super) fn counts(&self) -> (usize, usize) {
        let table = self.lock();
        let mut of_each = lock(&self.places).clone();
        for session in table.values() {
            *of_each.entry(session.principal().clone()).or_default() += 1;
        }
        drop(table);
        let proven = of_each.iter().filter(|(principal, _)| !principal.is_local());
        (of_each.values().sum(), proven.map(|(_, count)| *count).max().unwrap_or_default())
    }

    /// Returns how often to call [`sweep`](Self::sweep).
    pub(super) fn sweep_period(&self) -> Duration {
        (self.idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(30))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Arc<Session>>> {
        lock(&self.table)
    }
}

impl Session {
    /// Returns the principal that owns the session.
    pub(super) fn principal(&self) -> &Principal {
        self.client.principal()
    }

    /// Records that the session was used for more than its handshake.
    pub(super) fn note_use(&self) {
        self.was_used.store(true, Ordering::Relaxed);
    }

    /// Returns this session's rank in the order in which sessions make room, smallest first: sessions with only a
    /// handshake; then the least recently used; then those whose handshake is fresh. `None` while the session is in
    /// use.
    fn leaves(&self, now: u64) -> Option<(u8, u64)> {
        if !self.is_idle() {
            return None;
        }
        let used = self.used.load(Ordering::Relaxed);
        Some((turn(self.was_used.load(Ordering::Relaxed), now.saturating_sub(used))?, used))
    }

    fn touch(&self) {
        self.used.store(millis(self.clock.elapsed()), Ordering::Relaxed);
    }

    /// Creates a stream to answer a request, which its event ids say; at most `cap` bytes wait in it while no one reads.
    pub(super) fn call_stream(&self, label: Label, cap: usize) -> Arc<Record> {
        let mut streams = self.streams();
        streams.forget(None);
        streams.count += 1;
        let record = Arc::new(Record::new((self.life, STANDALONE + streams.count), label, cap, self.client.account()));
        streams.calls.push(Arc::clone(&record));
        record
    }

    /// Returns the standalone stream; creates it if necessary, as [`Self::call_stream`] does.
    pub(super) fn standalone(&self, cap: usize) -> Arc<Record> {
        let (mut streams, account) = (self.streams(), self.client.account());
        let record = streams
            .standalone
            .get_or_insert_with(|| Arc::new(Record::new((self.life, STANDALONE), Label::default(), cap, account)));
        Arc::clone(record)
    }

    /// Reports whether the session was taken up again and has had no standalone stream since.
    pub(super) fn is_back(&self) -> bool {
        self.life != 0 && self.streams().standalone.is_none()
    }

    /// Returns the stream of this event, if it is still kept.
    pub(super) fn stream(&self, EventId { life, stream: number, .. }: &EventId) -> Option<Arc<Record>> {
        let streams = self.streams();
        if *life != self.life {
            return None;
        }
        let known = streams.standalone.iter().chain(&streams.calls).find(|record| record.number == *number);
        known.cloned()
    }

    /// Ends the standalone stream.
    pub(super) fn end_standalone(&self) {
        if let Some(record) = &self.streams().standalone {
            // The last frame tells the client when to reconnect.
            record.hang_up(COME_BACK);
            record.end();
        }
    }

    /// Ends every stream and forgets it.
    pub(super) fn end_streams(&self) {
        let streams = std::mem::take(&mut *self.streams());
        for record in streams.standalone.iter().chain(&streams.calls) {
            record.end();
        }
    }

    /// Reports whether the client was disconnected because it does not read.
    pub(super) fn is_cut(&self) -> bool {
        self.client.account().is_cut()
    }

    fn is_idle(&self) -> bool {
        self.active.load(Ordering::Acquire) == 0
    }

    fn forget(&self, now: Instant) {
        self.streams().forget(Some(now));
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        lock(&self.streams)
    }
}

/// Returns the eviction rank (0 goes first) of a session that has been quiet for this many milliseconds; `None` if it
/// may not be evicted.
fn turn(was_used: bool, quiet: u64) -> Option<u8> {
    match was_used {
        true if quiet < millis(BUSY) => None,
        true => Some(1),
        false if quiet < millis(FRESH) => Some(2),
        false => Some(0),
    }
}

impl Streams {
    /// Drops ended streams above the limits and, if `now` is given, those that ended long ago.
    fn forget(&mut self, now: Option<Instant>) {
        let (mut count, mut bytes) = (0, 0);
        let mut newest_first: Vec<Arc<Record>> = std::mem::take(&mut self.calls);
        newest_first.reverse();
        newest_first.retain(|record| {
            let Some((size, ended)) = record.rest() else { return true };
            count += 1;
            bytes += size;
            let fits = count == 1 || (count <= ENDED && bytes <= ENDED_BYTES);
            fits && now.is_none_or(|now| now - ended < KEPT_FOR)
        });
        newest_first.reverse();
        newest_first.shrink_to_fit();
        self.calls = newest_first;
    }
}

impl Use {
    /// Returns the session in use.
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.0
    }

    /// Creates another use of the same session.
    pub(super) fn again(&self) -> Self {
        self.0.active.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        let mut places = lock(&self.places);
        if let Some(count) = places.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                places.remove(&self.principal);
            }
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.touch();
        // With this ordering, any thread that sees the session idle also sees the time of its last use.
        self.0.active.fetch_sub(1, Ordering::Release);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h104_whose_turn_it_is_to_make_room() {
        let cases = [
            ("used", true, [(0, None), (59_000, None), (59_999, None), (60_000, Some(1)), (61_000, Some(1))]),
            (
                "only opened",
                false,
                [(0, Some(2)), (1_999, Some(2)), (2_000, Some(0)), (59_000, Some(0)), (61_000, Some(0))],
            ),
        ];
        for (what, was_used, turns) in cases {
            for (quiet, want) in turns {
                assert_eq!(turn(was_used, quiet), want, "{what}, {quiet} ms ago");
            }
        }
    }
}
