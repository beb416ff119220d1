//! Runs one script in a process of its own: the side of that process (`host.catalog.mode = "code"`).
//!
//! In: a script, its input, and its limits; then the answers to its calls. Out: its calls, its log, and how it ended. All of
//! that goes through two pipes, as frames (`frame.rs`). The process is this program in a hidden mode; `confine.rs` takes from
//! it what a script does not need, and `engine.rs` runs the script. The router starts it and makes the calls
//! (`router/scripts`). **Invariant:** nothing here decides what a script may call, and nobody believes this process: it runs
//! what a model wrote.

mod confine;
mod engine;
mod frame;

use std::io::{Read as _, StdinLock, StdoutLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub(crate) use self::frame::{Frames, HEAD, framed};

/// The argument that turns a program into the process of a script.
pub(crate) const ARGUMENT: &str = "__script";

/// What the process begins with.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) script: String,
    pub(crate) input: Box<RawValue>,
    /// How many bytes its objects may have.
    pub(crate) memory: usize,
    /// How long it may compute.
    pub(crate) cpu: Duration,
    /// How many bytes it may return.
    pub(crate) output: usize,
    /// How many characters the arguments of a call may have, as JSON.
    pub(crate) arguments: usize,
}

/// What the process says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Said {
    /// It calls a tool.
    Call { id: u32, name: String, arguments: Box<RawValue> },
    /// A line of its log.
    Log(String),
    /// It has returned a value. This is the last thing that it says.
    Returned(Box<RawValue>),
    /// It has returned a value of so many bytes, which are too many. This is the last thing that it says.
    Long(usize),
    /// It has failed. This is the last thing that it says.
    Failed(Fault),
}

/// Why a script failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Fault {
    /// The limit that it reached, if that is why.
    pub(crate) limit: Option<Limit>,
    /// The name of the error, such as `TypeError`.
    pub(crate) name: String,
    /// The kind of a call's failure.
    pub(crate) kind: Option<String>,
    pub(crate) text: String,
    /// The line of the script, from 1.
    pub(crate) line: Option<u32>,
}

/// A limit that the process itself notices.
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
    /// Whether the call has a value, or an error with `kind`, `tool` and `text`.
    pub(crate) ok: bool,
    pub(crate) value: Box<RawValue>,
}

/// Lives as the process of a script: reads it, runs it, says how it ended.
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
