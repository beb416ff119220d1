//! A child process with its whole group: how it starts, how its standard error is drained, how it ends.
//!
//! Not here: what is said over its pipes (`stdio.rs`). **Invariant:** dropping a [`Process`] leaves no member of its group
//! alive.

use std::collections::VecDeque;
use std::fmt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

#[cfg(unix)]
use super::guard::{self, Ward};
use super::turn::Turn;
use super::{Error, Label, environment, excerpt};
use crate::config;
use crate::redact::Scrubber;

/// The last lines that a child wrote to standard error. They are shown without the secrets that it was given; as they are kept,
/// nobody has gone through them, because a child may write more than can be.
#[derive(Clone, Default)]
pub(crate) struct StderrTail {
    lines: Arc<Mutex<VecDeque<Box<[u8]>>>>,
    scrubber: Arc<Scrubber>,
}

const TAIL_LINES: usize = 200;
/// Bytes of one line that are kept; the rest of it is dropped.
const LINE: usize = 8 * 1024;
/// Of the last line, so much is told as the reason of an end.
const REASON: usize = 300;
const LINES_PER_SECOND: u32 = 100;

impl StderrTail {
    /// An empty one of a server whose secrets are known.
    pub(crate) fn of(scrubber: Arc<Scrubber>) -> Self {
        Self { scrubber, ..Self::default() }
    }

    /// What the child wrote, fit to be shown: escaped, without secrets, at most `limit` characters.
    pub(super) fn shown(&self, bytes: &[u8], limit: usize) -> String {
        self.scrubber.scrub(&excerpt(bytes, limit)).into_owned()
    }

    /// The last line that says something.
    pub(crate) fn last(&self) -> Option<String> {
        let lines = self.lock();
        let shown = lines.iter().rev().map(|line| self.shown(line, LINE)).find(|line| !line.is_empty());
        // Cut only now: half of a secret looks like none.
        shown.map(|line| line.chars().take(REASON).collect())
    }

    #[cfg(test)]
    pub(super) fn lines(&self) -> usize {
        self.lock().len()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.lock().iter().map(|line| line.len()).sum()
    }

    fn push(&self, line: &[u8]) {
        let mut lines = self.lock();
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line.into());
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Box<[u8]>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for StderrTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StderrTail({} lines)", self.lock().len())
    }
}

/// How a child is ended: its standard input is closed, then it is terminated, then killed.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    /// How long it may take to end by itself.
    pub(crate) close: Duration,
    /// How long it may take to end when told to.
    pub(crate) terminate: Duration,
    /// Cuts both short.
    pub(crate) kill: CancellationToken,
}

/// A running child and its group.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Group,
    /// Last, so that the guard hears of the end when it is one.
    #[cfg(unix)]
    _ward: Ward,
}

/// The ends of a child that the host holds.
pub(super) struct Ends {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Process {
    /// Starts the command in a process group of its own.
    pub(super) fn start(settings: &config::Stdio) -> Result<(Self, Ends), Error> {
        let failed = |reason: String| Error::Spawn { command: settings.command.clone(), reason };
        if let Some(cwd) = settings.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
            return Err(failed(format!("its `cwd` {} is no directory", cwd.display())));
        }
        let mut command = Command::new(&settings.command);
        command.args(&settings.args).env_clear().envs(environment::inherited(&settings.forward_env));
        command.envs(settings.env.iter().map(|(name, value)| (name, value.expose())));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        if let Some(cwd) = &settings.cwd {
            command.current_dir(cwd);
        }
        #[cfg(unix)]
        let ward = Ward::new();
        #[cfg(unix)]
        command.process_group(0).env(guard::VARIABLE, ward.mark());
        let mut child = command.spawn().map_err(|error| not_started(&settings.command, &error))?;
        let group = Group::of(&child);
        #[cfg(unix)]
        if let Group(Some(leader)) = group {
            ward.leads(leader.as_raw_pid());
        }
        let ends = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Self {
            child,
            group,
            #[cfg(unix)]
            _ward: ward,
        };
        match ends {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((process, Ends { stdin, stdout, stderr })),
            _ => Err(failed("it has no pipes".to_owned())),
        }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) async fn wait(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// Ends the group, whose standard input is closed by now, one step of the ladder after the other.
    pub(super) async fn stop(mut self, ladder: Ladder) {
        let kill = ladder.kill.clone();
        kill.run_until_cancelled(self.ask(&ladder)).await;
        self.kill();
        let _ = self.child.wait().await;
    }

    async fn ask(&mut self, ladder: &Ladder) {
        let exited = tokio::time::timeout(ladder.close, self.child.wait()).await.is_ok();
        if exited && !self.is_alive() {
            return;
        }
        // A leader that is gone was a wrapper, and left its children behind.
        self.group.terminate(self.child.id().is_some());
        let until = tokio::time::Instant::now() + ladder.terminate;
        while self.is_alive() && tokio::time::Instant::now() < until {
            // A group can only be asked, not waited for.
            tokio::time::sleep(Duration::from_millis(10)).await;
            let _ = self.child.try_wait();
        }
    }

    fn is_alive(&self) -> bool {
        self.group.is_alive(self.child.id().is_some())
    }

    fn kill(&mut self) {
        self.group.kill(self.child.id().is_some());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Why a command did not start: for good, or because the machine has no room for it now (`hazards.md` H15).
fn not_started(command: &str, error: &std::io::Error) -> Error {
    let command = command.to_owned();
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        let full = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::TXTBSY];
        if Errno::from_io_error(error).is_some_and(|errno| full.contains(&errno)) {
            return Error::Exhausted { command, reason: error.to_string() };
        }
    }
    let reason = match error.kind() {
        std::io::ErrorKind::NotFound => "no such command; install it, or give its full path".to_owned(),
        std::io::ErrorKind::PermissionDenied => "it is not executable".to_owned(),
        _ => error.to_string(),
    };
    Error::Spawn { command, reason }
}

/// Says how a process ended.
pub(super) fn describe(status: Option<ExitStatus>) -> String {
    match status {
        None => "unknown status".to_owned(),
        Some(status) => match status.code() {
            Some(code) => format!("exit code {code}"),
            None => signal(status),
        },
    }
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    status.signal().map_or_else(|| "unknown status".to_owned(), |signal| format!("signal {signal}"))
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> String {
    "unknown status".to_owned()
}

/// Reads standard error to its end, into the tail, and into the log of a `server`. A child that is not read here would block.
pub(super) async fn drain(mut stderr: impl AsyncRead + Unpin, tail: StderrTail, server: Option<Label>) {
    let mut buffer = [0u8; 4096];
    let (mut line, mut turn) = (Vec::new(), Turn::default());
    let mut second = (Instant::now(), 0u32);
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        turn.bytes(count);
        for part in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
            let room = LINE - line.len().min(LINE);
            line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                turn.message();
                tell(&mut line, &tail, server.as_deref(), &mut second);
                turn.pass().await;
            }
        }
        turn.pass().await;
    }
    tell(&mut line, &tail, server.as_deref(), &mut second);
}

fn tell(line: &mut Vec<u8>, tail: &StderrTail, server: Option<&str>, second: &mut (Instant, u32)) {
    if !line.trim_ascii().is_empty() {
        if second.0.elapsed() >= Duration::from_secs(1) {
            *second = (Instant::now(), 0);
        }
        second.1 = second.1.saturating_add(1);
        if let Some(server) = server.filter(|_| second.1 <= LINES_PER_SECOND) {
            let text = tail.shown(line, LINE);
            if !text.is_empty() {
                tracing::info!(target: "mcp_host::stderr", server, "{text}");
            }
        }
        tail.push(line);
    }
    line.clear();
}

/// A process group, by the pid of its leader.
#[cfg(unix)]
#[derive(Debug)]
struct Group(Option<rustix::process::Pid>);

#[cfg(unix)]
impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw))
    }

    /// The group, if its number still means it. That is sure while its leader is `held`, that is not yet waited for.
    /// Then the number stays taken while there are members, and no new process can get it; so if one has it, the group
    /// is gone and the number is another's (`hazards.md` H12).
    fn checked(&self, held: bool) -> Option<rustix::process::Pid> {
        let free = |group| rustix::process::test_kill_process(group) == Err(rustix::io::Errno::SRCH);
        self.0.filter(|group| held || free(*group))
    }

    fn is_alive(&self, held: bool) -> bool {
        self.checked(held).is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok())
    }

    fn terminate(&self, held: bool) {
        self.signal(held, rustix::process::Signal::TERM);
    }

    /// Kills what is left, once: a group that is empty may be somebody else's the next moment.
    fn kill(&mut self, held: bool) {
        self.signal(held, rustix::process::Signal::KILL);
        self.0 = None;
    }

    fn signal(&self, held: bool, signal: rustix::process::Signal) {
        if let Some(group) = self.checked(held) {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }
}

/// Elsewhere only the child itself is ended (`kill_on_drop`).
#[cfg(not(unix))]
#[derive(Debug)]
struct Group;

#[cfg(not(unix))]
impl Group {
    fn of(_: &Child) -> Self {
        Self
    }
    fn is_alive(&self, _: bool) -> bool {
        false
    }
    fn terminate(&self, _: bool) {}
    fn kill(&mut self, _: bool) {}
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use super::*;
    use crate::redact::Learned;

    /// Drains that, and tells how often others had their turn meanwhile.
    async fn turns(said: &[u8], tail: &StderrTail) -> usize {
        let mut turns = 0;
        let others = std::future::poll_fn(|_| {
            turns += 1;
            std::task::Poll::<()>::Pending
        });
        tokio::select! {
            biased;
            () = drain(said, tail.clone(), Some("it".into())) => {}
            () = others => {}
        }
        turns
    }

    #[tokio::test]
    async fn h5_a_flood_on_standard_error_leaves_the_others_their_turn() {
        let tail = StderrTail::default();
        // Of what is there at once: by the bytes, and by the lines.
        assert!(turns(&vec![b'x'; 1 << 20], &tail).await >= 30);
        assert!(turns("x\n".repeat(1 << 16).as_bytes(), &tail).await >= 1000);
        assert!(turns("://".repeat(2730).as_bytes().repeat(100).as_slice(), &tail).await >= 20);
        assert!(turns(b"x\n", &tail).await == 0);
    }

    #[tokio::test]
    async fn h97_the_last_words_are_shown_without_what_is_secret_by_then() {
        let (learned, mut knows) = (Learned::default(), Scrubber::default());
        knows.know("correct horse");
        knows.follow(&learned);
        let tail = StderrTail::of(Arc::new(knows));
        // Most of it is over the rate.
        let said = "it was correct horse and tr0ub4dor\n".repeat(1000) + "\u{3000}\n \t\n";
        drain(said.as_bytes(), tail.clone(), Some("it".into())).await;
        assert_eq!(tail.last().as_deref(), Some("it was *** and tr0ub4dor"));
        let mut more = Scrubber::default();
        more.know("tr0ub4dor");
        learned.learn(&more);
        assert_eq!(tail.last().as_deref(), Some("it was *** and ***"));
        assert!(!format!("{tail:?}").contains("tr0ub4dor"));
    }

    #[test]
    fn h12_a_number_that_is_anothers_is_not_signalled() {
        let other = std::process::Command::new("sleep").arg("600").process_group(0).spawn();
        let mut other = other.expect("there is `sleep`");
        let pid = rustix::process::Pid::from_raw(i32::try_from(other.id()).expect("a small number"));
        // As if its leader had been waited for, and the number given to this process since.
        let mut group = Group(pid);
        assert!(!group.is_alive(false));
        group.terminate(false);
        group.kill(false);
        assert!(other.try_wait().expect("it is ours").is_none(), "it was signalled");
        Group(pid).kill(true);
        other.wait().expect("it is ours");
    }

    #[test]
    fn h15_a_full_machine_is_no_fault_of_the_command() {
        use rustix::io::Errno;
        let started = |errno: Errno| not_started("x", &std::io::Error::from_raw_os_error(errno.raw_os_error()));
        for errno in [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM] {
            let error = started(errno);
            assert!(matches!(error, Error::Exhausted { .. }) && error.not_sent(), "{errno:?}");
        }
        assert!(matches!(started(Errno::NOENT), Error::Spawn { .. }));
    }
}
