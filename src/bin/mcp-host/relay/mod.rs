//! `mcp-host stdio` beside a daemon of the same user and config: this process is no host, only a relay between the
//! client and the daemon's socket (`docs/bridging.md` 16).
//!
//! In: the client's messages on stdin. Out: the daemon's answers on stdout. The relay is one thread in `poll`. It runs
//! before the runtime and clap, so that it starts in milliseconds and holds little memory.
//!
//! The relay asks to be let in at the status socket (`downstream/admin/client.rs`). Both ends check the other's user,
//! and the daemon compares config files, working directory, and variables with its own. From then on, the daemon treats
//! the socket like the stdin and stdout of one more client.
//!
//! A daemon that stops says how many messages it has taken; it answers those, and the next daemon gets the rest. When a
//! daemon dies, a tool call that was sent to it is answered with `outcome_unknown`, reads are sent once more, and
//! questions (requests to the client) are withdrawn. The ids of questions begin far above those of the previous daemon,
//! so a late answer matches no new question. If no daemon is found within five seconds of the client's next message,
//! the relay starts a host in this process (`own.rs`).
//!
//! **Invariant:** each request of the client gets one answer, whatever happens to the daemon: from that daemon, from
//! the next one, from a host in this process, or from the relay. Start at `pump/mod.rs`.

mod ends;
mod kept;
mod own;
mod peer;
mod pump;
mod scan;
mod words;

use std::io::{self, IsTerminal as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;

use mcp_host::admin::{self, Introduction, Joined, NotJoined};
use mcp_host::config::LoadRequest;

use self::ends::{End, Ends, Source};
use self::pump::Pump;
pub(crate) use self::words::Words;
use crate::args::Common;
use crate::output::Output;
use crate::paint::When;
use crate::report::{Exit, Failure};
use crate::starter::Starter;

/// Serves the client through a daemon, if one lets us in. Returns `None` if this process must be a host itself.
pub(crate) fn attempt(words: &Words) -> Option<Exit> {
    let output = || Output::new(false, words.quiet, When::default());
    if words.own || (words.join.is_none() && !is_wanted()) {
        return None;
    }
    let named = words.join.as_ref();
    let Some(client) = introduction(words) else {
        return named.map(|_| refused("the config files are not there", &output()));
    };
    match admin::join(&client, named) {
        Ok(joined) => Some(relay(words, client, joined, &output())),
        Err(error) if named.is_some() => Some(refused(&error.to_string(), &output())),
        Err(error) => {
            let why = match starter(words, &error) {
                Some(Ok(mut starter)) => match starter.wait(&client) {
                    Ok(joined) => return Some(relay(words, client, joined, &output())),
                    Err(why) => why,
                },
                Some(Err(why)) => why,
                None if error == NotJoined::NotRunning => return None,
                None => error.to_string(),
            };
            output().remark(&format!("note: {why}; this process has a host of its own"));
            None
        }
    }
}

/// Returns the starter for the daemon of our config, or why it cannot start one. Returns `None` if no starter is wanted
/// or it would not help.
fn starter(words: &Words, error: &NotJoined) -> Option<Result<Starter, String>> {
    let (files, is_project) = files(&words.config);
    let common = Common { config: words.config.clone(), project: words.project.clone(), ..Common::default() };
    if is_project || !Starter::helps(error) {
        return None;
    }
    Starter::of_files(&common, &files)
}

/// Reports whether to join a daemon that was not named. Returns false below another host, where the marks decide
/// (`lineage`).
pub(crate) fn is_wanted() -> bool {
    let is_below = std::env::var_os("_MCP_HOST_CHAIN").is_some_and(|chain| !chain.is_empty());
    !is_below && std::env::var_os("MCP_HOST_JOIN").is_none_or(|join| join != "never")
}

/// Returns our introduction: the config files that a host in this process would read.
fn introduction(words: &Words) -> Option<Introduction> {
    if words.join.is_some() {
        return Some(Introduction::to_any().view(words.view.as_deref()));
    }
    let (files, project) = files(&words.config);
    Some(Introduction::of(&files, project, words.project.as_deref())?.view(words.view.as_deref()))
}

/// Returns the config files, and whether they belong to a project. If there are none, any daemon will do.
pub(crate) fn files(named: &[PathBuf]) -> (Vec<PathBuf>, bool) {
    if named.is_empty() {
        return LoadRequest::from_process().standing().unwrap_or_default();
    }
    (named.to_vec(), false)
}

fn refused(why: &str, output: &Output) -> Exit {
    Failure::new(Exit::Unreachable, why)
        .help("mcp-host status lists the daemons; leave out --join for a host of its own")
        .tell(output)
}

/// Relays until the client has left.
fn relay(words: &Words, client: Introduction, joined: Joined, output: &Output) -> Exit {
    output.remark(&format!("note: joined {}", joined.at));
    if io::stdin().is_terminal() {
        output.remark("note: this speaks MCP over stdin and stdout; clients start it themselves");
    }
    // Most of the code was only needed to start.
    mcp_host_heap::forget_code();
    let mut daemons = Daemons { words, client, starter: None, output, own: None };
    let ended = Ends::new().and_then(|ends| Pump::new(&mut daemons, joined)?.run(&ends));
    if let Some(host) = daemons.own.take() {
        // A host in this process stops its servers, and has already reported errors.
        let _ = host.join();
    }
    match ended {
        Ok(End::Done) => Exit::Ok,
        Ok(End::Failed) => Exit::Failed,
        Ok(End::Gone) => Exit::Unreachable,
        Err(error) => Failure::new(Exit::Failed, format!("standard input or output: {error}")).tell(output),
    }
}

/// Finds the next daemon of a relay.
struct Daemons<'a> {
    words: &'a Words,
    client: Introduction,
    /// Starts a daemon. The outer `None` means that it was not needed yet, the inner one that there can be no starter.
    starter: Option<Option<Starter>>,
    output: &'a Output,
    own: Option<JoinHandle<()>>,
}

impl Daemons<'_> {
    /// Notes that a host serves the client: any other process may start a daemon now, since this one need not.
    fn is_served(&mut self) {
        if let Some(Some(starter)) = &mut self.starter {
            starter.give_way();
        }
    }
}

impl Source for Daemons<'_> {
    fn find(&mut self, asked: u64, is_wanted: bool) -> Option<Joined> {
        let client = self.client.clone().asked(asked);
        let error = match admin::join(&client, self.words.join.as_ref()) {
            Ok(joined) => {
                self.is_served();
                return Some(joined);
            }
            Err(error) => error,
        };
        if !is_wanted || self.words.join.is_some() {
            return None;
        }
        let starter = self.starter.get_or_insert_with(|| starter(self.words, &error)?.ok());
        starter.as_mut()?.look(&client).ok()
    }

    fn own(&mut self, asked: u64) -> io::Result<UnixStream> {
        self.is_served();
        if let Some(named) = &self.words.join {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{named} has ended")));
        }
        let (stream, thread) = own::start(self.words, asked, self.output)?;
        self.own = Some(thread);
        Ok(stream)
    }

    fn tell(&self, text: &str) {
        if text.starts_with("error") { self.output.talk(text) } else { self.output.remark(text) }
    }
}
