//! A child process with its whole group: how it starts, how it ends.
//!
//! Not here: the data on its pipes (`stdio.rs`, `stderr.rs`). **Invariant:** dropping a [`Process`] leaves no member of
//! its group alive.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

#[cfg(unix)]
use super::guard::{self, Ward};
use super::{Error, Unstartable, environment};
use crate::config;

/// The steps to end a child: its standard input is closed, then the child is terminated, then killed.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    /// How long the child may take to end on its own.
    pub(crate) close: Duration,
    /// How long the child may take to end after it is terminated.
    pub(crate) terminate: Duration,
    /// Skips both waits.
    pub(crate) kill: CancellationToken,
}

/// A running child and its group.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Group,
    /// Dropped last, so that the guard is told of the child's end only after the child has been killed.
    #[cfg(unix)]
    _ward: Ward,
}

/// The host's ends of a child's pipes.
pub(super) struct Ends {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Process {
    /// Starts the command in its own process group.
    pub(super) fn start(settings: &config::Stdio) -> Result<(Self, Ends), Error> {
        let mut command = Command::new(&settings.command);
        command.args(&settings.args).env_clear().envs(environment::inherited(&settings.forward_env));
        command.envs(settings.env.iter().map(|(name, value)| (name, value.expose())));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        if let Some(cwd) = &settings.cwd {
            command.current_dir(cwd);
        }
        let mut process = Self::begin(command).map_err(|error| not_started(settings, &error))?;
        let child = &mut process.child;
        let ends = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        match ends {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((process, Ends { stdin, stdout, stderr })),
            _ => Err(Error::Spawn { command: settings.command.clone(), reason: "it has no pipes".to_owned() }),
        }
    }

    /// Starts a command in a process group of its own, in the care of the guard.
    #[cfg_attr(not(unix), expect(unused_mut, reason = "there is no group to set"))]
    fn begin(mut command: Command) -> std::io::Result<Self> {
        #[cfg(unix)]
        let ward = Ward::new();
        #[cfg(unix)]
        command.process_group(0).env(guard::VARIABLE, ward.mark());
        let child = command.spawn()?;
        let group = Group::of(&child);
        #[cfg(unix)]
        if let Group(Some(leader)) = group {
            ward.leads(leader.as_raw_pid());
        }
        Ok(Self {
            child,
            group,
            #[cfg(unix)]
            _ward: ward,
        })
    }

    /// Starts a program of ours in a hidden mode: with an empty environment, and two pipes.
    #[cfg(all(unix, feature = "script"))]
    pub(super) fn of_ours(
        program: &std::path::Path,
        argument: &str,
    ) -> std::io::Result<(Self, ChildStdin, ChildStdout)> {
        let mut command = Command::new(program);
        command.arg0("mcp-host").arg(argument).env_clear().current_dir("/").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Self::begin(command)?;
        let ends = (process.child.stdin.take(), process.child.stdout.take());
        let (Some(stdin), Some(stdout)) = ends else { return Err(std::io::ErrorKind::BrokenPipe.into()) };
        Ok((process, stdin, stdout))
    }

    /// Kills the group, and waits for its leader.
    #[cfg(all(unix, feature = "script"))]
    pub(super) async fn end(mut self) -> Option<ExitStatus> {
        self.kill();
        self.child.wait().await.ok()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) async fn wait(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// Ends the group step by step; its standard input is closed already.
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
        // A leader that is gone was a wrapper that left its children behind.
        self.group.terminate(self.child.id().is_some());
        let until = tokio::time::Instant::now() + ladder.terminate;
        while self.is_alive() && tokio::time::Instant::now() < until {
            // A group can only be polled, not waited for.
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

/// Returns the error for a command that did not start: a permanent one, or a passing one if the machine is out of
/// resources (`docs/hazards.md` H15).
fn not_started(settings: &config::Stdio, error: &std::io::Error) -> Error {
    let command = settings.command.clone();
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        let full = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::TXTBSY];
        if Errno::from_io_error(error).is_some_and(|errno| full.contains(&errno)) {
            return Error::Exhausted { command, reason: error.to_string() };
        }
    }
    if let Some(found) = Unstartable::of(settings) {
        let reason = found.to_string();
        return Error::Spawn { command: found.command, reason };
    }
    if is_no_program(error) {
        return Error::Spawn { command, reason: format!("it is a program for another kind of machine ({error})") };
    }
    // The file exists and is executable, so something that it needs is missing, a loader for example.
    Error::Spawn { command, reason: format!("this system cannot run that file: {error}") }
}

#[cfg(unix)]
fn is_no_program(error: &std::io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NOEXEC)
}

#[cfg(not(unix))]
fn is_no_program(_: &std::io::Error) -> bool {
    false
}

/// Describes how a process ended.
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

/// A process group, identified by the pid of its leader.
#[cfg(unix)]
#[derive(Debug)]
struct Group(Option<rustix::process::Pid>);

#[cfg(unix)]
impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw))
    }

    /// Returns the group if its number still belongs to it. That is certain while the group's leader is `held`, that
    /// is, not yet waited for. After that the number stays reserved while the group has members, and no new process can
    /// get it as its pid. So if a process has that pid, the group is gone and the number belongs to another
    /// (`docs/hazards.md` H12).
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

    /// Kills the remaining members, once: the number of an empty group may be reused at any moment.
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

/// On other systems only the child itself is ended (`kill_on_drop`).
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

    #[test]
    fn h12_a_number_that_is_anothers_is_not_signalled() {
        let other = std::process::Command::new("sleep").arg("600").process_group(0).spawn();
        let mut other = other.expect("there is `sleep`");
        let pid = rustix::process::Pid::from_raw(i32::try_from(other.id()).expect("a small number"));
        // As if its leader had been waited for, and the number had been reused for this process.
        let mut group = Group(pid);
        assert!(!group.is_alive(false));
        group.terminate(false);
        group.kill(false);
        assert!(other.try_wait().expect("it is ours").is_none(), "it was signalled");
        Group(pid).kill(true);
        other.wait().expect("it is ours");
    }

    #[test]
    fn a_script_that_cannot_start_says_what_its_first_line_lacks() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().expect("a folder");
        let started = |said: &[u8]| {
            let path = home.path().join("server");
            std::fs::write(&path, said).expect("a file");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
            let settings = config::Stdio { command: path.display().to_string(), ..config::Stdio::default() };
            loop {
                match Process::start(&settings) {
                    // A child of another test has inherited the open file, and has not begun its program yet.
                    Err(Error::Spawn { reason, .. }) if reason.contains("busy") => std::thread::yield_now(),
                    Err(Error::Spawn { reason, .. }) => return reason,
                    other => panic!("{:?}", other.map(|_| ())),
                }
            }
        };
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let _inside = runtime.enter();
        let says = |said: &[u8], words: &str| {
            let reason = started(said);
            assert!(reason.contains(words), "{words}: {reason}");
        };
        says(b"echo hello\n", "a script without a `#!` line");
        says(b"\x7fELF\x01\x01\x01nothing that runs here", "a program for another kind of machine");
        says(b"#!/no/such/node --flag\n", "names /no/such/node, which does not exist");
    }

    #[test]
    fn h15_a_full_machine_is_no_fault_of_the_command() {
        use rustix::io::Errno;
        let settings = config::Stdio { command: "no-such-command".to_owned(), ..config::Stdio::default() };
        let started = |errno: Errno| not_started(&settings, &std::io::Error::from_raw_os_error(errno.raw_os_error()));
        for errno in [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM] {
            let error = started(errno);
            assert!(matches!(error, Error::Exhausted { .. }) && error.not_sent(), "{errno:?}");
        }
        assert!(matches!(started(Errno::NOENT), Error::Spawn { .. }));
    }
}
