//! The task of one lease: it gathers inputs, lets `state.rs` decide, and carries out the actions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::backoff::Pace;
use super::connection::{Connection, Link, PROMPTS, RESOURCES, TOOLS};
use super::gate::Pass;
use super::listing::Listed;
use super::resume::until;
use super::state::{Action, Input, Policy, State};
use super::tell::set_level;
use super::work::{Done, Work, done};
use super::{Change, Mark, Settings, StateName, Status, Target, Upstream, World, listen, listing, open, probe, resume};
use crate::auth::Notice;
use crate::counts::Count;
use crate::protocol::Method;
use crate::registry::{Kind, Offer};
use crate::sandbox::Ready;
use crate::transport::{Error, excerpt};
use crate::trees;

/// How long list changes are collected before the lists are read again.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// The maximum length of a state's cause, in bytes.
const CAUSE: usize = 1024;
/// How long a start waits until the stream for messages that answer no request is open.
const OPENING: Duration = Duration::from_secs(1);
/// How long a server may take to respond after the machine slept.
const CHECK: Duration = Duration::from_secs(10);

struct Life {
    upstream: Arc<Upstream>,
    world: World,
    policy: Policy,
    state: State,
    connection: Option<Arc<Connection>>,
    /// The program to start in place of the entry's command, once its locked tree is checked and its sandbox prepared.
    program: Option<Ready>,
    work: Option<Work>,
    timer: Option<Instant>,
    /// The total time that the machine had slept when the timer was set.
    awake: Mark,
    /// When the last lists of a lost server become too old to be shown.
    stale: Option<Instant>,
    /// Held while the attempt in flight counts toward the limit on reconnections (`gate.rs`).
    pass: Option<Pass>,
    woken: watch::Receiver<u64>,
    cause: Option<String>,
    /// The earliest time at which the server accepts another attempt (`Retry-After`).
    alone: Option<Instant>,
    refreshes: Pace,
    news: crate::auth::News,
    /// All tasks that any connection of this lease started.
    tasks: TaskTracker,
    /// The stderr lines of the last failed start, which are already in the log.
    told: Vec<String>,
    is_withheld_told: bool,
}

/// Runs until the lease is stopped and its last process is gone.
pub(super) async fn live(upstream: Arc<Upstream>, world: World) {
    let settings = &upstream.settings;
    let policy =
        Policy { start_timeout: settings.start_timeout, healthy: settings.limits.healthy, restart: settings.restart };
    let mut life = Life {
        upstream: upstream.clone(),
        awake: world.vigil.mark(),
        woken: world.vigil.woken(),
        stale: None,
        pass: None,
        world,
        policy,
        state: State::Idle,
        connection: None,
        program: None,
        work: None,
        timer: None,
        cause: None,
        alone: None,
        refreshes: Pace::default(),
        news: crate::auth::News::of(settings.target.tokens()),
        tasks: TaskTracker::new(),
        told: Vec::new(),
        is_withheld_told: false,
    };
    loop {
        let input = life.input().await;
        if let Some(input) = input {
            life.step(input);
        }
        if life.state == State::Disconnected && upstream.stop.is_cancelled() {
            break;
        }
    }
    life.tasks.close();
    life.tasks.wait().await;
}

impl Life {
    /// Waits for the next event. Returns its input, or `None` if the event does not concern the state machine.
    async fn input(&mut self) -> Option<Input> {
        let stopping = matches!(self.state, State::Disconnecting | State::Disconnected);
        let timer = self.timer;
        let connected = matches!(self.state, State::Connected { .. });
        let idle = self.work.is_none();
        let connection = self.connection.clone();
        let slow = async {
            match &self.pass {
                Some(pass) => pass.slow().await,
                None => std::future::pending().await,
            }
        };
        let lost = async {
            match &connection {
                Some(connection) => connection.stop_token().cancelled().await,
                None => std::future::pending().await,
            }
        };
        let changed = async {
            match &connection {
                Some(connection) if connected && idle => connection.changed().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.upstream.stop.cancelled(), if !stopping => Some(Input::Stop),
            done = done(&mut self.work) => self.done(done),
            () = lost, if !stopping => {
                let error = connection.as_ref().and_then(|connection| connection.lost());
                if error.as_ref().is_some_and(|error| self.ask_another(error)) {
                    return None;
                }
                self.note_proof();
                Some(self.lost(error))
            }
            () = until(timer) => self.due(),
            () = until(self.stale) => {
                self.stale = None;
                self.world.generation.send_modify(|generation| *generation += 1);
                None
            }
            () = slow => {
                self.pass = None;
                None
            }
            Ok(()) = self.woken.changed() => {
                self.check();
                None
            }
            _kinds = changed => {
                self.refresh();
                None
            }
            () = self.upstream.wake.notified() => Some(Input::Start),
            () = self.upstream.again.notified() => Some(Input::Try),
            // The notice on `news` that follows carries the result.
            () = self.upstream.settings.target.signed_in_elsewhere(), if self.state == State::Unauthorized => None,
            notice = self.news.next() => match notice {
                Notice::Came => self.came(),
                Notice::SignedOut => self.signed_out(),
            },
        }
    }

    /// Handles a fired timer. If the machine slept during an attempt, the attempt's deadline is extended by that time.
    fn due(&mut self) -> Option<Input> {
        let at = self.timer.take();
        if self.state.name().is_starting() {
            let (slept, now) = self.world.vigil.slept_since(self.awake);
            if !slept.is_zero() {
                (self.timer, self.awake) = (at.map(|at| at + slept), now);
                return None;
            }
            self.upstream.settings.announcer.counts().one(Count::LostTimeout);
            let said = self.upstream.tail.load().cause();
            let said = said.map(|said| format!("; on standard error it said: {said}")).unwrap_or_default();
            self.cause = Some(format!("no answer within {:?} (startTimeout){said}", self.policy.start_timeout));
        }
        Some(Input::TimedOut)
    }

    /// Handles a new access token. If the login changed, the lists are read again under the new login.
    fn came(&self) -> Option<Input> {
        let listed = self.upstream.listed().filter(|listed| listed.login != self.upstream.settings.target.login());
        if let (Some(_), Some(connection)) = (listed, &self.connection) {
            connection.mark(TOOLS | PROMPTS | RESOURCES);
        }
        Some(Input::Start)
    }

    /// Handles a sign-out: nothing more is sent under that login. Requests in flight were admitted under it and finish
    /// on their own; if they were cut off, their outcome would be unknown.
    fn signed_out(&mut self) -> Option<Input> {
        let error = self.upstream.settings.target.signed_out()?;
        self.connection.as_ref()?.failed(&error);
        Some(self.lost(Some(error)))
    }

    /// Tells the state machine what the lost connection has proven.
    fn note_proof(&mut self) {
        let Some(connection) = self.connection.clone() else { return };
        if connection.has_answered() {
            self.step(Input::Answered);
        }
        if connection.has_served() {
            self.step(Input::Served);
        }
    }

    /// Checks after a sleep of the machine that the server is still there, before anything counts as lost.
    fn check(&self) {
        let Some(connection) = self.connection.clone().filter(|connection| connection.peer().is_some()) else { return };
        let stop = connection.stop_token().clone();
        let method = if connection.is_modern() { Method::Discover } else { Method::Ping };
        self.tasks.spawn(async move {
            let asked = tokio::time::timeout(CHECK, listing::ask(&connection, &method, None));
            if let Some(Err(_)) = stop.run_until_cancelled(asked).await {
                connection.lose(&Error::Silent(CHECK));
            }
        });
    }

    fn done(&mut self, done: Done) -> Option<Input> {
        self.work = None;
        match done {
            Done::Looked(looked) => match *looked {
                Ok(program) => {
                    self.program = Some(program);
                    Some(self.start())
                }
                Err(error) => Some(self.lost(Some(error))),
            },
            Done::Shaken(Ok(listed)) => {
                self.refreshes.done();
                self.publish_offer(listed, true);
                Some(Input::Ready)
            }
            Done::Shaken(Err(error)) => {
                let why = self.connection.as_ref().and_then(|connection| connection.lost());
                let error = if error == Error::Unwritten { why.unwrap_or(error) } else { error };
                if self.ask_another(&error) {
                    return None;
                }
                Some(self.lost(Some(error)))
            }
            Done::Refreshed(lists) => {
                self.refreshed(lists);
                None
            }
            Done::Admitted(pass) => {
                self.pass = pass;
                Some(Input::Admitted)
            }
            Done::Closed => Some(Input::Closed),
        }
    }

    /// Publishes the new lists, or schedules a retry: the server does not report the same change twice.
    fn refreshed(&mut self, lists: Result<Listed, Error>) {
        let failed = match lists {
            Ok(listed) => {
                let degraded = Kind::ALL.into_iter().any(|kind| listed.offer.failed(kind));
                self.publish_offer(listed, false);
                degraded.then_some(Duration::ZERO)
            }
            Err(error) => {
                let server = &*self.upstream.settings.server;
                tracing::warn!(server, "keeping its previous lists, because the new ones cannot be read: {error}");
                Some(error.retry_after().unwrap_or_default())
            }
        };
        self.degraded(failed.is_some());
        let Some(alone) = failed else { return self.refreshes.done() };
        let again = self.refreshes.failed(Instant::now().into_std(), alone, (self.world.nature.chance)());
        if let Some(connection) = self.connection.as_ref().filter(|_| again) {
            connection.mark(TOOLS | PROMPTS | RESOURCES);
        }
    }

    /// If the process exited on the probe, starts another one that gets `initialize` first, and returns true. Old
    /// servers exit on any other first request, so that is no loss. Returns false if the error is a loss.
    fn ask_another(&mut self, error: &Error) -> bool {
        let ended = matches!(error, Error::Exited { .. } | Error::Closed | Error::Broken)
            && matches!(self.state, State::Initializing { .. })
            && self.upstream.attempts.ended_of_the_probe();
        if !ended {
            return false;
        }
        tracing::info!(server = &*self.upstream.settings.server, "it exited on the probe: retrying with `initialize`");
        self.abandon();
        match open::connect(&self.upstream, &self.world, &self.tasks, self.program.as_ref()) {
            Ok(connection) => {
                self.connection = Some(connection);
                (self.timer, self.awake) = (Some(Instant::now() + self.policy.start_timeout), self.world.vigil.mark());
                self.shake();
                true
            }
            Err(_) => false,
        }
    }

    fn lost(&mut self, error: Option<Error>) -> Input {
        let input = match &error {
            Some(error) if error.refuses_start() => Input::Refused,
            Some(Error::Spawn { .. } | Error::Untrusted { .. }) => Input::Hopeless,
            Some(Error::SessionEnded) => Input::Expired,
            Some(Error::Itself) => Input::Itself,
            _ => Input::Lost,
        };
        if let Some(reason) = error.as_ref().and_then(Error::loss) {
            self.upstream.settings.announcer.counts().one(reason);
        }
        let retry = error.as_ref().and_then(Error::retry_after);
        self.alone = retry.map(|retry| Instant::now() + retry);
        // Any part of the text may come from the server.
        let cause = error.map(|error| excerpt(format!("{error}{}", error.elsewhere()).as_bytes(), CAUSE));
        self.cause = cause.or(self.cause.take());
        input
    }

    fn step(&mut self, input: Input) {
        let before = self.state.name();
        let mut todo = Vec::new();
        let state = std::mem::replace(&mut self.state, State::Disconnected);
        let chance = (self.world.nature.chance)();
        #[cfg(feature = "otel")]
        let since = state.since();
        self.state = state.on(input, &self.policy, Instant::now().into_std(), chance, &mut todo);
        #[cfg(feature = "otel")]
        self.upstream.settings.announcer.counts().session(since, self.state.since());
        if matches!(input, Input::Ready) && self.state.name() == StateName::Connected {
            self.connect();
        }
        if !self.state.name().is_starting() {
            self.pass = None;
        }
        self.publish(before);
        for action in todo {
            match action {
                Action::SetTimer(at) => {
                    let alone = self.alone.filter(|_| self.state.name() == StateName::Reconnecting);
                    let at = Instant::from_std(at);
                    (self.timer, self.awake) = (Some(alone.map_or(at, |alone| alone.max(at))), self.world.vigil.mark());
                }
                Action::ClearTimer => self.timer = None,
                Action::Open => {
                    if let Some(opened) = self.open() {
                        self.step(opened);
                    }
                }
                Action::Shake => self.shake(),
                Action::Abandon => self.abandon(),
                Action::Queue => self.work = Some(Work::Queue(Box::pin(self.world.gate.clone().admit()))),
                Action::Close => self.close(),
            }
        }
    }

    /// Opens the transport. Returns `None` if first a locked tree must be checked, or a sandbox prepared.
    fn open(&mut self) -> Option<Input> {
        self.cause = None;
        self.upstream.settings.announcer.counts().one(Count::Starts);
        match &self.upstream.settings.target {
            Target::Stdio(stdio) if trees::is_locked(stdio) || stdio.is_confined() => {
                let prepared = open::prepared(self.upstream.clone(), stdio.clone(), self.world.state.clone());
                self.work = Some(Work::Look(Box::pin(prepared)));
                None
            }
            _ => Some(self.start()),
        }
    }

    fn start(&mut self) -> Input {
        match open::connect(&self.upstream, &self.world, &self.tasks, self.program.as_ref()) {
            Ok(connection) => {
                self.connection = Some(connection);
                Input::Opened
            }
            Err(error) => self.lost(Some(error)),
        }
    }

    fn shake(&mut self) {
        let Some(connection) = self.connection.clone() else { return };
        let (upstream, last) = (self.upstream.clone(), self.upstream.offer());
        let settings = upstream.settings.clone();
        let dialer = self.world.dialer.clone();
        self.work = Some(Work::Shake(Box::pin(async move {
            probe::shake(&connection, &upstream, &dialer).await?;
            let lists = lists(&connection, &settings, last.as_deref());
            if connection.is_modern() {
                // Changes after the lists are read arrive on the streams.
                open_streams(&connection, &upstream).await;
                return lists.await;
            }
            futures_util::join!(open_streams(&connection, &upstream), lists).1
        })));
    }

    fn refresh(&mut self) {
        let Some(connection) = self.connection.clone() else { return };
        let (settings, last) = (self.upstream.settings.clone(), self.upstream.offer());
        let earliest = Instant::from_std(self.refreshes.next(Instant::now().into_std()));
        self.work = Some(Work::Refresh(Box::pin(async move {
            tokio::time::sleep(DEBOUNCE).await;
            tokio::time::sleep_until(earliest).await;
            // Everything the server has reported up to here is in the lists requested now.
            connection.forget_changes();
            lists(&connection, &settings, last.as_deref()).await
        })));
    }

    /// Marks the lease ready: calls may use the connection, and the server gets the log level and the subscriptions of the
    /// clients.
    fn connect(&self) {
        let Some(connection) = self.connection.clone() else { return };
        // Locked until the connection is stored: a client that stops watching meanwhile must find this connection.
        let mut wanted = self.upstream.wanted();
        set_level(&connection, wanted.level, &self.upstream.telling);
        if connection.is_modern() {
            let (stop, watch) =
                (connection.stop_token().clone(), listen::resources(connection.clone(), self.upstream.clone()));
            connection.tasks().spawn(async move { stop.run_until_cancelled(watch).await });
        } else {
            self.upstream.watch_again(&connection, &mut wanted);
        }
        // Set before any caller can get the connection.
        if connection.is_modern() {
            self.upstream.was_modern.store(true, Ordering::Relaxed);
            self.world.note_modern();
        }
        self.upstream.connection.store(Some(connection));
    }

    fn abandon(&mut self) {
        self.work = None;
        self.upstream.connection.store(None);
        if let Some(connection) = self.connection.take() {
            connection.lose(&Error::Closed);
        }
    }

    fn close(&mut self) {
        self.upstream.connection.store(None);
        let connection = self.connection.take();
        let (tasks, limit) = (self.tasks.clone(), self.upstream.settings.limits.stop_close);
        self.work = Some(Work::Close(Box::pin(async move {
            if let Some(connection) = connection {
                let leave = async {
                    connection.part().await;
                    if let Link::Http(http) = connection.link() {
                        http.delete().await;
                    }
                };
                let _ = tokio::time::timeout(limit, leave).await;
                connection.lose(&Error::Closed);
            }
            tasks.close();
            tasks.wait().await;
        })));
    }

    fn publish_offer(&self, listed: Listed, first: bool) {
        let Listed { offer, login, untouched } = listed;
        if let Some(connection) = self.connection.as_ref().filter(|connection| connection.is_modern()) {
            connection.keep_offer(offer.clone());
        }
        let old = self.upstream.listed().filter(|old| old.offer.hash() == offer.hash());
        let same = old.as_ref().is_some_and(|old| old.login == login);
        let untouched = untouched || old.as_ref().is_some_and(|old| old.untouched);
        let offer = old.map_or(offer, |old| old.offer.clone());
        self.upstream.listed.store(Some(Arc::new(Listed { offer, login, untouched })));
        if !same && !first {
            // Still connected, but the lists are different.
            let (state, at) = (StateName::Connected, std::time::SystemTime::now());
            let change = Change { lease: self.upstream.id, from: state, to: state, cause: None, at };
            let _ = self.world.changes.try_send(change);
            self.world.generation.send_modify(|generation| *generation += 1);
        }
    }

    /// Logs the stderr of a failed start, unless the log already has it.
    fn tell_last_lines(&mut self) {
        let lines = self.upstream.last_lines();
        let withheld = self.upstream.withheld();
        if !withheld.is_empty() && !self.is_withheld_told {
            let server = &*self.upstream.settings.server;
            let names = withheld.join(", ");
            tracing::warn!(target: "mcp_host::start", server, "set here and not passed to the server (\"inheritEnv\" in its entry passes them): {names}");
            self.is_withheld_told = true;
        }
        if lines == self.told || tracing::enabled!(target: "mcp_host::stderr", tracing::Level::INFO) {
            return;
        }
        let server = &*self.upstream.settings.server;
        lines.iter().for_each(|line| tracing::warn!(target: "mcp_host::stderr", server, "{line}"));
        self.told = lines;
    }

    fn degraded(&self, degraded: bool) {
        self.upstream.status.send_if_modified(|status| std::mem::replace(&mut status.degraded, degraded) != degraded);
    }

    fn publish(&mut self, from: StateName) {
        let to = self.state.name();
        if from == to {
            return;
        }
        let now = Instant::now();
        if to == StateName::Connected {
            self.stale = None;
        } else if from == StateName::Connected {
            self.stale = now.checked_add(self.upstream.settings.limits.stale_max);
        }
        let scrubber = &self.upstream.settings.scrubber;
        let cause = self.cause.as_deref();
        let cause = cause.map(|cause| scrubber.scrub(cause).chars().take(CAUSE).collect::<String>());
        self.upstream.status.send_modify(|status: &mut Status| {
            status.state = to;
            status.since = now;
            if from == StateName::Connected {
                status.gone = Some(now);
            }
            match to {
                StateName::Connecting => {
                    status.first_start.get_or_insert(now);
                }
                StateName::Connected => {
                    status.ready_after = status.ready_after.or(status.first_start.map(|start| now - start));
                    status.degraded = false;
                    status.gone = None;
                }
                StateName::Reconnecting => status.restarts += 1,
                _ => {}
            }
            if cause.is_some() {
                let bad = matches!(to, StateName::Failed | StateName::Reconnecting | StateName::Unauthorized);
                if bad || status.cause != cause {
                    status.caused = Some(now);
                }
                status.cause.clone_from(&cause);
            }
        });
        let server = &*self.upstream.settings.server;
        match (&cause, to) {
            (
                Some(cause),
                StateName::Failed | StateName::Reconnecting | StateName::Unauthorized | StateName::Disabled,
            ) => {
                tracing::warn!(server, "{from} -> {to}: {cause}");
                if from.is_starting() {
                    self.tell_last_lines();
                }
            }
            _ => tracing::info!(server, "{from} -> {to}"),
        }
        let change = Change { lease: self.upstream.id, from, to, cause, at: std::time::SystemTime::now() };
        // The status is the truth; change events may be lost when nobody reads them.
        let _ = self.world.changes.try_send(change);
        self.world.generation.send_modify(|generation| *generation += 1);
    }
}

/// Opens the stream for messages that answer no request. Messages that the server sends before the stream is open may
/// be lost, so this waits until it is open, but not long: some servers send nothing on it, not even headers, until they
/// have a message.
async fn open_streams(connection: &Arc<Connection>, upstream: &Arc<Upstream>) {
    let (tell, ready) = tokio::sync::oneshot::channel();
    let stop = connection.stop_token().clone();
    let task = connection.clone();
    match connection.link() {
        _ if connection.is_modern() => {
            connection.tasks().spawn(async move { stop.run_until_cancelled(listen::lists(task, tell)).await });
        }
        Link::Http(http) => {
            let listen = resume::listen(task, upstream.clone(), http.clone(), tell);
            connection.tasks().spawn(async move { stop.run_until_cancelled(listen).await });
        }
        Link::Pipe(_) | Link::Sse(_) | Link::Memory(_) => return,
    }
    let _ = tokio::time::timeout(OPENING, ready).await;
}

async fn lists(connection: &Arc<Connection>, settings: &Settings, last: Option<&Offer>) -> Result<Listed, Error> {
    let peer = connection.peer().ok_or(Error::Closed)?;
    // The login that is known before the lists are read; a user who signs in meanwhile may see other lists.
    let login = settings.target.login();
    let offer = listing::list(connection, peer, settings.caps, settings.limits.list_time, last).await?;
    Ok(Listed { offer: Arc::new(offer), login, untouched: connection.is_untouched() })
}
