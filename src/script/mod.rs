//! Runs one script in its own process (`host.catalog.mode = "code"`). This is the code of that process.
//!
//! In: a script, its input, and its limits; then the answers to its calls. Out: its calls, its log, and how it ended.
//! All of this passes through two pipes, as frames (`frame.rs`). The process is this program in a hidden mode.
//! `confine.rs` takes from it what a script does not need, and `engine.rs` runs the script. The router starts the
//! process and makes the calls (`router/scripts`). **Invariant:** nothing here decides what a script may call, and
//! nobody trusts this process: it runs what a model wrote.

mod confine;
mod engine;
mod frame;

use std::io::{Read as _, StdinLock, StdoutLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub(crate) use self::frame::{Frames, HEAD, framed};

/// The argument with which a program becomes the process of a script.
pub(crate) const ARGUMENT: &str = "__script";

/// The first message to the process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) script: String,
    pub(crate) input: Box<RawValue>,
    /// The most bytes that the script's objects may have.
    pub(crate) memory: usize,
    /// The most processor time that the script may use.
    pub(crate) cpu: Duration,
    /// The most bytes that the script may return.
    pub(crate) output: usize,
    /// The most characters that the arguments of a call may have, as JSON.
    pub(crate) arguments: usize,
}

/// A message from the process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Said {
    /// The script calls a tool.
    Call { id: u32, name: String, arguments: Box<RawValue> },
    /// A line of the script's log.
    Log(String),
    /// The script has returned a value. This is the last message.
    Returned(Box<RawValue>),
    /// The script has returned a value of this many bytes, which are too many. This is the last message.
    Long(usize),
    /// The script has failed. This is the last message.
    Failed(Fault),
}

/// Why a script failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Fault {
    /// The limit that the script reached, if that is the reason.
    pub(crate) limit: Option<Limit>,
    /// The name of the error, such as `TypeError`.
    pub(crate) name: String,
    /// The kind of failure, if a call failed.
    pub(crate) kind: Option<String>,
    pub(crate) text: String,
    /// The line of the script, counted from 1.
    pub(crate) line: Option<u32>,
}

/// A limit that the process itself checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Limit {
    Cpu,
    Memory,
}

/// The answer to a call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) id: u32,
    /// Whether the call returned a value. If not, there is an error with `kind`, `tool` and `text`.
    pub(crate) ok: bool,
    pub(crate) value: Box<RawValue>,
}

/// Runs as the process of a script: reads the script, runs it, reports how it ended.
pub(crate) fn live() {
    let mut host = Host { input: std::io::stdin().lock(), output: std::io::stdout().lock() };
    confine::at_once();
    let Some(start) = host.read::<Start>() else { return };
    if confine::to(start.memory, start.cpu).is_err() {
        let text = "the process cannot be limited on this system".to_owned();
        host.say(&Said::Failed(Fault { name: "Error".to_owned(), text, ..Fault::default() }));
        return;
    }
    engine::run(&start, host);
}

/// The pipes to the host.
struct Host {
    input: StdinLock<'static>,
    output: StdoutLock<'static>,
}

impl engine::Outside for Host {
    fn say(&mut self, said: &Said) -> bool {
        use std::io::Write as _;
        let Ok(frame) = framed(said) else { return false };
        self.output.write_all(&frame).and_then(|()| self.output.flush()).is_ok()
    }

    fn reply(&mut self) -> Option<Reply> {
        self.read()
    }
}

impl Host {
    fn say(&mut self, said: &Said) {
        let _ = engine::Outside::say(self, said);
    }

    /// Reads a frame; `None` once the host is gone.
    fn read<T: for<'a> Deserialize<'a>>(&mut self) -> Option<T> {
        let mut head = [0; HEAD];
        self.input.read_exact(&mut head).ok()?;
        let mut body = vec![0; u32::from_le_bytes(head) as usize];
        self.input.read_exact(&mut body).ok()?;
        serde_json::from_slice(&body).ok()
    }
}
