//! The guard: a separate process that ends the servers of a host that was killed (`docs/hazards.md` H13).
//!
//! The guard is this program in a hidden mode, in its own Unix session, and holds the read end of a pipe. The host
//! reports each child *before* the child starts, then the child's process group, and its end only *after* it has ended.
//! So the guard knows every moment in which a child may exist. End of file on the pipe means that the host is gone.
//! That can neither be missed nor come early: the write end closes on `exec`, so a child that is being forked still
//! holds it, and a child that has let go of it shows its mark when the guard scans.
//!
//! The mark is an environment variable of each child. Descendants inherit it in any group or session, and it exists
//! before anything else is known about a child. The guard uses it to find processes that left the group, and children
//! that it was not told of.
//!
//! **Invariant:** a host works the same without its guard and never waits for it. Not here: how survivors are found and
//! killed (`sweep.rs`), the guard's own life (`watch.rs`).

mod orphans;
mod sweep;
mod watch;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

pub use self::orphans::{Orphan, orphans};
use crate::hex;
use crate::lock::lock;
use crate::sandbox;
#[cfg(feature = "script")]
use crate::script;

/// The environment variable that marks our children and their descendants.
pub(super) const VARIABLE: &str = sandbox::MARK;

/// The argument that turns a program into the guard of its parent process.
const ARGUMENT: &str = "__guard";
/// How often a guard that ends is replaced before the host goes on without one.
const REPLACEMENTS: u32 = 8;

/// Whether `main` began with [`guard`], so that this program can be its own guard.
static CAN: AtomicBool = AtomicBool::new(false);
static POST: Mutex<Post> =
    Mutex::new(Post { mark: None, pipe: None, replaced: 0, count: 0, children: BTreeMap::new() });

/// What this process, as a host, knows about its guard.
#[derive(Debug)]
struct Post {
    /// Identifies this host in the marks of its children.
    mark: Option<String>,
    pipe: Option<ChildStdin>,
    replaced: u32,
    count: u64,
    /// The live children, with their groups once they have one.
    children: BTreeMap<u64, Option<i32>>,
}

/// One child in the guard's care, from before its start until this is dropped.
#[derive(Debug)]
pub(in crate::transport) struct Ward {
    number: u64,
    mark: OsString,
}

/// Lets this program be its own guard. Call it first in `main`, before anything else.
///
/// A host that is killed, or ends without [`Host::shutdown`](crate::Host::shutdown), can no longer end its servers. So,
/// with the first server that is a child process, it starts this program again in a hidden mode, and that process ends
/// the servers and everything they started. In the hidden mode this function never returns; otherwise it returns at
/// once. A program that does not call it has no guard: then servers that do not end when their input closes outlive a
/// host that was killed. Two more hidden modes run scripts (`host.catalog.mode = "code"`) and start servers whose entries have a
/// `sandbox`, so a program that does not call this function can do neither. Outside of Linux the guard knows only process
/// groups; outside of Unix there is no guard.
///
/// ```no_run
/// // The first line of `main`; arguments, logs, a runtime, and a `Host` come after it.
/// mcp_host::guard();
/// ```
pub fn guard() {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    #[cfg(feature = "script")]
    if first.as_deref().is_some_and(|argument| argument == script::ARGUMENT) {
        script::live();
        #[expect(clippy::disallowed_methods, clippy::exit, reason = "this process ran a script; no `main` follows")]
        std::process::exit(0);
    }
    if first.as_ref().is_some_and(|argument| argument == ARGUMENT) {
        let mark = arguments.next().and_then(|mark| mark.into_string().ok()).unwrap_or_default();
        watch::run(&mark);
        #[expect(clippy::disallowed_methods, clippy::exit, reason = "this process is the guard; no `main` follows")]
        std::process::exit(0);
    }
    if first.is_some_and(|argument| argument == sandbox::ARGUMENT) {
        sandbox::become_server(arguments);
    }
    CAN.store(true, Ordering::Relaxed);
    sandbox::may_launch();
}

/// Reports whether this program can be started in its hidden modes.
#[cfg(feature = "script")]
pub(in crate::transport) fn is_able() -> bool {
    CAN.load(Ordering::Relaxed)
}

/// Returns the program of this process, even if another file has its name by now.
pub(in crate::transport) fn program() -> std::io::Result<std::path::PathBuf> {
    let own = std::path::PathBuf::from("/proc/self/exe");
    if own.exists() { Ok(own) } else { std::env::current_exe() }
}

impl Ward {
    /// Announces a child before its start: from here on the guard looks for it.
    pub(in crate::transport) fn new() -> Self {
        let mut post = post();
        post.count += 1;
        let number = post.count;
        post.children.insert(number, None);
        if post.pipe.is_none() && post.replaced <= REPLACEMENTS && CAN.load(Ordering::Relaxed) {
            post.start();
        }
        post.tell(&format!("? {number}\n"));
        let own = post.mark.as_ref().map(|mark| format!("{mark}.{number}"));
        // A host may itself be the child of a host; then both guards care for its children.
        let above = std::env::var_os(VARIABLE);
        let words = above.into_iter().chain(own.map(OsString::from)).collect::<Vec<_>>();
        Self { number, mark: words.join(std::ffi::OsStr::new(" ")) }
    }

    /// The value of [`VARIABLE`] for the child.
    pub(in crate::transport) fn mark(&self) -> &OsString {
        &self.mark
    }

    /// Reports that the child runs and leads this group.
    pub(in crate::transport) fn leads(&self, group: i32) {
        let mut post = post();
        post.children.insert(self.number, Some(group));
        post.tell(&format!("+ {} {group}\n", self.number));
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        let mut post = post();
        post.children.remove(&self.number);
        post.tell(&format!("- {}\n", self.number));
    }
}

impl Post {
    fn start(&mut self) {
        self.replaced += 1;
        let mark = self.mark.get_or_insert_with(random).clone();
        match spawn(&mark) {
            Ok((child, pipe)) => {
                self.pipe = Some(pipe);
                for (number, group) in self.children.clone() {
                    self.tell(&match group {
                        Some(group) => format!("+ {number} {group}\n"),
                        None => format!("? {number}\n"),
                    });
                }
                // A thread, because a child is waited for by the process and not by one of its runtimes.
                let waiting = std::thread::Builder::new().name("mcp-host-guard".to_owned());
                if waiting.spawn(move || replace(child)).is_err() {
                    tracing::debug!("the guard is not waited for: no thread");
                }
            }
            Err(error) => {
                tracing::warn!("the guard cannot be started, so servers go on running if mcp-host is killed: {error}")
            }
        }
    }

    /// Sends a message to the guard. The message is shorter than what a pipe takes in one piece. A guard that is gone
    /// is replaced and told everything again; one that does not read, because it was stopped, is not waited for.
    fn tell(&mut self, line: &str) {
        if let Some(pipe) = &mut self.pipe
            && let Err(error) = pipe.write_all(line.as_bytes())
        {
            tracing::debug!("the guard was not told: {error}");
        }
    }
}

/// Waits for the end of a guard, which should not end while the host lives, and replaces that guard, at most
/// [`REPLACEMENTS`] times.
fn replace(mut child: Child) {
    let ended = child.wait();
    let mut post = post();
    post.pipe = None;
    tracing::warn!("the guard ended: {ended:?}");
    if post.replaced <= REPLACEMENTS {
        post.start();
    }
}

/// Starts this program as a guard. It inherits nothing but its end of the pipe: no terminal, no output whose end a
/// caller may wait for, no working directory.
fn spawn(mark: &str) -> std::io::Result<(Child, ChildStdin)> {
    let mut command = Command::new(program()?);
    command.arg0("mcp-host").args([ARGUMENT, mark]).env_clear().current_dir("/");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let pipe = child.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
    fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
    Ok((child, pipe))
}

fn random() -> String {
    let mut bytes = [0u8; 16];
    if getrandom::fill(&mut bytes).is_err() {
        // It need not be secret, only different from other hosts' marks.
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
        bytes = (nanos ^ (u128::from(std::process::id()) << 96)).to_be_bytes();
    }
    hex::encode(&bytes)
}

fn post() -> MutexGuard<'static, Post> {
    lock(&POST)
}
