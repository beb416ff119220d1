//! Access to the page: codes that the user who runs the daemon asked for, and the sessions that these codes began.
//!
//! In: codes and tokens that a browser sends, and the time. Out: sessions. **Invariant:** codes and tokens have 256
//! random bits, and only hashes of them are kept. A code begins one session. If it comes a second time, somebody else
//! has seen it, and the session that it began ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::hex;
use crate::lock::lock;
use crate::router::{Client, Identity};

/// How long a code is valid: one that a program hands to a browser, and one that a person is shown.
const AT_ONCE: Duration = Duration::from_secs(30);
const LATER: Duration = Duration::from_secs(10 * 60);
/// The maximum number of unused codes. The oldest goes first.
const CODES: usize = 64;
/// The maximum number of sessions. The one that was unused longest goes first.
const SESSIONS: usize = 16;
/// How long an unused session lasts.
pub(crate) const IDLE: Duration = Duration::from_secs(12 * 60 * 60);
/// How many wrong codes are checked within [`WRONG_WITHIN`]. After that many, no code is checked.
const WRONG: usize = 5;
const WRONG_WITHIN: Duration = Duration::from_secs(60);
/// The prefix of session tokens.
pub(crate) const PREFIX: &str = "mcpc_";

type Hash = [u8; 32];

/// The codes and the sessions of one daemon. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Access(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    codes: VecDeque<Code>,
    sessions: Vec<Arc<Session>>,
    /// The session of requests at the daemon's socket; `None` while there are none.
    of_socket: Option<Arc<Session>>,
    /// When wrong codes came.
    wrong: VecDeque<Instant>,
}

struct Code {
    hash: Hash,
    is_read_only: bool,
    until: Moment,
}

/// A moment by the monotonic clock and by the wall clock: only the wall clock advances while the machine sleeps.
#[derive(Clone, Copy)]
struct Moment(Instant, SystemTime);

/// One session of the page.
pub(crate) struct Session {
    token: Hash,
    code: Hash,
    pub(super) is_read_only: bool,
    /// Whether it is the session of the daemon's socket, which no code begins and no token opens.
    pub(super) is_of_socket: bool,
    /// When it was used last.
    used: Mutex<Moment>,
    /// How many of its requests and streams are open.
    open: AtomicUsize,
    /// Cancelled when it ends.
    pub(super) end: CancellationToken,
    /// The router's client for this session, made at the first call or list, and the identity that it has.
    pub(super) client: Mutex<Option<(Identity, Arc<Client>)>>,
    /// The open questions of its running calls, by the number of the call.
    pub(super) calls: Mutex<BTreeMap<u64, BTreeSet<i64>>>,
}

/// One use of a session, until it is dropped. It has the table if the session ends with its last use.
pub(crate) struct InUse(Arc<Session>, Option<Access>);

/// Why a code begins no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSession {
    /// The code came a second time. The session that it began is over.
    Used,
    /// The code does not exist, or has expired.
    Late,
    /// Too many wrong codes came.
    Busy,
}

impl Moment {
    fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    fn after(self, time: Duration) -> Self {
        Self(self.0 + time, self.1 + time)
    }

    fn is_over(self) -> bool {
        Instant::now() >= self.0 || SystemTime::now() >= self.1
    }
}

fn hash(text: &str) -> Hash {
    Sha256::digest(text).into()
}

/// Returns 256 random bits as text.
fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(hex::encode(&bytes))
}

impl Access {
    /// Makes a code that begins a session. `is_shown` says whether a person is shown it. Also returns how long it is
    /// valid.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub(crate) fn code(&self, is_read_only: bool, is_shown: bool) -> Result<(String, Duration), getrandom::Error> {
        let (code, life) = (random()?, if is_shown { LATER } else { AT_ONCE });
        let mut table = lock(&self.0);
        table.codes.retain(|code| !code.until.is_over());
        if table.codes.len() == CODES {
            table.codes.pop_front();
        }
        table.codes.push_back(Code { hash: hash(&code), is_read_only, until: Moment::now().after(life) });
        Ok((code, life))
    }

    /// Begins a session by a code. Returns its token.
    ///
    /// # Errors
    /// When the code begins none. `Err(None)` says that the system has no random bytes.
    pub(crate) fn begin(&self, code: &str) -> Result<(String, bool), Option<NoSession>> {
        let code = hash(code);
        let mut table = lock(&self.0);
        if let Some(at) = table.sessions.iter().position(|session| session.code == code) {
            table.sessions.remove(at).end.cancel();
            return Err(Some(NoSession::Used));
        }
        let now = Instant::now();
        table.wrong.retain(|at| now.duration_since(*at) < WRONG_WITHIN);
        if table.wrong.len() >= WRONG {
            return Err(Some(NoSession::Busy));
        }
        table.codes.retain(|code| !code.until.is_over());
        let Some(at) = table.codes.iter().position(|known| known.hash == code) else {
            table.wrong.push_back(now);
            return Err(Some(NoSession::Late));
        };
        let token = format!("{PREFIX}{}", random().map_err(|_| None)?);
        let is_read_only = table.codes.remove(at).is_some_and(|code| code.is_read_only);
        table.sweep();
        if table.sessions.len() >= SESSIONS {
            table.end_idlest();
        }
        table.sessions.push(Arc::new(Session { is_read_only, ..Session::new(hash(&token), code) }));
        Ok((token, is_read_only))
    }

    /// Returns the session of requests at the daemon's socket. It lasts as long as one of them.
    pub(crate) fn of_socket(&self) -> InUse {
        let begin = || Arc::new(Session { is_of_socket: true, ..Session::new(Hash::default(), Hash::default()) });
        let mut table = lock(&self.0);
        let session = table.of_socket.get_or_insert_with(begin).clone();
        session.open.fetch_add(1, Ordering::AcqRel);
        InUse(session, Some(self.clone()))
    }

    /// Returns the session with this token.
    pub(crate) fn find(&self, token: &[u8]) -> Option<InUse> {
        let token: Hash = Sha256::digest(token).into();
        let mut table = lock(&self.0);
        table.sweep();
        // Under the lock, so that a session that is in use from now on is not swept.
        table.sessions.iter().find(|session| session.token == token).map(InUse::of)
    }

    /// Ends a session.
    pub(crate) fn end(&self, session: &Session) {
        lock(&self.0).sessions.retain(|known| known.token != session.token);
        session.end.cancel();
    }

    /// Ends all sessions, and invalidates codes that were not used yet. Returns how many sessions ended.
    pub(crate) fn end_all(&self) -> usize {
        let mut table = lock(&self.0);
        table.codes.clear();
        let ended = std::mem::take(&mut table.sessions);
        ended.iter().for_each(|session| session.end.cancel());
        ended.len()
    }

    /// Ends the sessions that were unused for too long.
    pub(crate) fn sweep(&self) {
        lock(&self.0).sweep();
    }

    /// Removes from sessions the router's clients whose identity is gone by `is_gone`, and returns these clients.
    pub(crate) fn forget_clients(&self, is_gone: impl Fn(&Identity) -> bool) -> Vec<Arc<Client>> {
        let table = lock(&self.0);
        let sessions: Vec<Arc<Session>> = table.sessions.iter().chain(&table.of_socket).cloned().collect();
        drop(table);
        let gone = |session: &Arc<Session>| lock(&session.client).take_if(|(identity, _)| is_gone(identity));
        sessions.iter().filter_map(gone).map(|(_, client)| client).collect()
    }
}

impl Table {
    fn sweep(&mut self) {
        self.sessions.retain(|session| {
            let is_over = session.is_unused() && lock(&session.used).after(IDLE).is_over();
            if is_over {
                session.end.cancel();
            }
            !is_over
        });
    }

    /// Ends the session that was used longest ago; one that is in use only if all are in use.
    fn end_idlest(&mut self) {
        let rank = |session: &Arc<Session>| (!session.is_unused(), lock(&session.used).0);
        if let Some((at, _)) = self.sessions.iter().enumerate().min_by_key(|(_, session)| rank(session)) {
            self.sessions.remove(at).end.cancel();
        }
    }
}

impl Session {
    fn new(token: Hash, code: Hash) -> Self {
        Self {
            token,
            code,
            is_read_only: false,
            is_of_socket: false,
            used: Mutex::new(Moment::now()),
            open: AtomicUsize::new(0),
            end: CancellationToken::new(),
            client: Mutex::default(),
            calls: Mutex::default(),
        }
    }

    fn is_unused(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }
}

impl InUse {
    fn of(session: &Arc<Session>) -> Self {
        session.open.fetch_add(1, Ordering::AcqRel);
        Self(session.clone(), None)
    }

    /// Returns the session.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        *lock(&self.0.used) = Moment::now();
        // Under the lock, so that a request that comes now finds the session, or begins another one.
        let table = self.1.as_ref().map(|access| lock(&access.0));
        let is_last = self.0.open.fetch_sub(1, Ordering::AcqRel) == 1;
        if let Some(mut table) = table.filter(|_| is_last) {
            table.of_socket = None;
            self.0.end.cancel();
        }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("sessions", &lock(&self.0).sessions.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("is_read_only", &self.is_read_only).finish_non_exhaustive()
    }
}

impl fmt::Debug for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InUse").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_millis(1);

    async fn pass(time: Duration) {
        tokio::time::advance(time).await;
    }

    fn code(access: &Access) -> String {
        access.code(false, false).unwrap().0
    }

    fn begin(access: &Access) -> String {
        access.begin(&code(access)).unwrap().0
    }

    fn knows(access: &Access, token: &str) -> bool {
        access.find(token.as_bytes()).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_begins_one_session_and_a_second_use_ends_it() {
        let access = Access::default();
        let code = code(&access);
        assert_eq!(code.len(), 64);
        let (token, is_read_only) = access.begin(&code).unwrap();
        assert!(token.starts_with(PREFIX) && token.len() == 69 && !is_read_only);
        let other = begin(&access);
        let session = access.find(token.as_bytes()).unwrap();
        assert!(!knows(&access, "") && !knows(&access, &code) && !knows(&access, &token[..68]));
        assert_eq!(access.begin(&code), Err(Some(NoSession::Used)));
        assert!(session.session().end.is_cancelled() && !knows(&access, &token) && knows(&access, &other));
        assert_eq!(access.begin(&code), Err(Some(NoSession::Late)), "its session is over already");
    }

    #[tokio::test(start_paused = true)]
    async fn codes_get_old() {
        let access = Access::default();
        for (is_shown, life) in [(false, AT_ONCE), (true, LATER)] {
            let (in_time, told) = access.code(true, is_shown).unwrap();
            let late = access.code(false, is_shown).unwrap().0;
            assert_eq!(told, life);
            pass(life - NOW).await;
            assert!(access.begin(&in_time).unwrap().1, "it only looks");
            pass(NOW).await;
            assert_eq!(access.begin(&late), Err(Some(NoSession::Late)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_codes_close_the_door_for_a_minute() {
        let access = Access::default();
        let good = access.code(false, true).unwrap().0;
        for _ in 0..WRONG {
            assert_eq!(access.begin("wrong"), Err(Some(NoSession::Late)));
        }
        assert_eq!(access.begin("wrong"), Err(Some(NoSession::Busy)));
        assert_eq!(access.begin(&good), Err(Some(NoSession::Busy)));
        pass(WRONG_WITHIN).await;
        let token = access.begin(&good).unwrap().0;
        for _ in 0..WRONG {
            assert_eq!(access.begin("wrong"), Err(Some(NoSession::Late)));
        }
        // Whoever has stolen a code must not keep the session by guessing.
        assert_eq!(access.begin(&good), Err(Some(NoSession::Used)));
        assert!(!knows(&access, &token));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unused_session_ends_and_one_in_use_stays() {
        let access = Access::default();
        let (unused, in_use) = (begin(&access), begin(&access));
        let stream = access.find(in_use.as_bytes()).unwrap();
        pass(IDLE - NOW).await;
        assert!(knows(&access, &unused), "that is a use");
        pass(IDLE).await;
        assert!(!knows(&access, &unused) && knows(&access, &in_use));
        drop(stream);
        pass(IDLE).await;
        access.sweep();
        assert!(lock(&access.0).sessions.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_idlest_session_gives_way() {
        let access = Access::default();
        let tokens: Vec<String> = (0..SESSIONS).map(|_| begin(&access)).collect();
        let _stream = access.find(tokens[0].as_bytes()).unwrap();
        pass(NOW).await;
        for token in &tokens[2..] {
            assert!(knows(&access, token));
        }
        let newest = begin(&access);
        assert!(knows(&access, &newest) && knows(&access, &tokens[0]) && !knows(&access, &tokens[1]));
        let (waiting, _) = access.code(false, false).unwrap();
        assert_eq!((access.end_all(), access.begin(&waiting)), (SESSIONS, Err(Some(NoSession::Late))));
        assert!(!knows(&access, &newest));
    }

    #[tokio::test(start_paused = true)]
    async fn the_session_of_the_socket_lasts_as_long_as_its_requests() {
        let access = Access::default();
        let (one, other) = (access.of_socket(), access.of_socket());
        let session = one.session().clone();
        assert!(Arc::ptr_eq(&session, other.session()) && session.is_of_socket && !session.is_read_only);
        assert_eq!((access.end_all(), session.end.is_cancelled()), (0, false), "no link began it");
        drop(one);
        assert!(!session.end.is_cancelled() && access.find(&[0; 32]).is_none());
        drop(other);
        assert!(session.end.is_cancelled());
        assert!(!access.of_socket().session().end.is_cancelled(), "the next request begins another one");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_shows_a_secret() {
        let access = Access::default();
        let code = code(&access);
        let (token, _) = access.begin(&code).unwrap();
        let in_use = access.find(token.as_bytes());
        let shown = format!("{access:?} {in_use:?}");
        assert!(!shown.contains(&code) && !shown.contains(&token[5..]), "{shown}");
    }
}
