//! The process of a script, as the host sees it: how it starts, what comes and goes through its pipes, how it ends.
//!
//! Not here: what it says, and what becomes of that (`router/scripts`). **Invariant:** dropping a [`ScriptProcess`] leaves
//! nothing of it.

#[cfg(all(unix, feature = "script"))]
use std::path::PathBuf;
#[cfg(all(unix, feature = "script"))]
use std::sync::OnceLock;

#[cfg(all(unix, feature = "script"))]
use bytes::{Buf as _, Bytes};
#[cfg(all(unix, feature = "script"))]
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
#[cfg(all(unix, feature = "script"))]
use tokio::process::{ChildStdin, ChildStdout};

#[cfg(all(unix, feature = "script"))]
use super::turn::Turn;
#[cfg(all(unix, feature = "script"))]
use super::{guard, process};
#[cfg(all(unix, feature = "script"))]
use crate::script::{ARGUMENT, Frames};

/// The program that runs scripts: this one, unless another is named.
#[derive(Debug, Default)]
pub(crate) struct ScriptProgram(#[cfg(all(unix, feature = "script"))] OnceLock<PathBuf>);

impl ScriptProgram {
    /// Names another program. Only the first call has an effect.
    #[cfg(all(unix, feature = "script"))]
    pub(crate) fn is(&self, program: PathBuf) {
        let _ = self.0.set(program);
    }

    /// Reports whether there is a program that can run scripts.
    #[cfg(all(unix, feature = "script"))]
    pub(crate) fn is_there(&self) -> bool {
        self.0.get().is_some() || guard::is_able()
    }

    /// Reports whether there is a program that can run scripts: not in this build.
    #[cfg(not(all(unix, feature = "script")))]
    pub(crate) fn is_there(&self) -> bool {
        false
    }

    /// Starts a process. Its messages may have `most` bytes.
    ///
    /// # Errors
    /// With the system's reason, if it cannot be started.
    #[cfg(all(unix, feature = "script"))]
    pub(crate) fn start(&self, most: usize) -> std::io::Result<ScriptProcess> {
        let program = self.0.get().cloned().map_or_else(guard::program, Ok)?;
        let (process, stdin, stdout) = process::Process::of_ours(&program, ARGUMENT)?;
        let (frames, turn) = (Frames::new(most), Turn::default());
        Ok(ScriptProcess { process, stdin, stdout, frames, waiting: Bytes::new(), turn })
    }
}

/// How many bytes are read at once at least.
#[cfg(all(unix, feature = "script"))]
const READ: usize = 16 * 1024;

/// The process of one script.
#[cfg(all(unix, feature = "script"))]
#[derive(Debug)]
pub(crate) struct ScriptProcess {
    process: process::Process,
    stdin: ChildStdin,
    stdout: ChildStdout,
    frames: Frames,
    /// What is left to write of the message that it gets now.
    waiting: Bytes,
    turn: Turn,
}

/// What comes of waiting for a process.
#[cfg(all(unix, feature = "script"))]
#[derive(Debug)]
pub(crate) enum Ended {
    /// It says no more.
    Silent,
    /// It says more in one message than it may.
    TooLong,
}

#[cfg(all(unix, feature = "script"))]
impl ScriptProcess {
    /// Sends it a message once [`ScriptProcess::next`] is polled. The one before must be written.
    pub(crate) fn send(&mut self, frame: Vec<u8>) {
        debug_assert!(self.waiting.is_empty(), "one at a time");
        self.waiting = frame.into();
    }

    /// Reports whether nothing is left to write.
    pub(crate) fn has_written(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Waits for its next message, and writes meanwhile. Returns `None` once something was written to the end.
    ///
    /// # Errors
    /// When it will say no more.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Ended> {
        loop {
            self.turn.pass().await;
            if let Some(text) = self.frames.next().map_err(|_| Ended::TooLong)? {
                self.turn.message();
                return Ok(Some(text));
            }
            let Self { stdin, stdout, frames, waiting, turn, .. } = self;
            frames.buffer.reserve(READ);
            tokio::select! {
                biased;
                read = stdout.read_buf(&mut frames.buffer) => match read {
                    Ok(0) | Err(_) => return Err(Ended::Silent),
                    Ok(count) => turn.bytes(count),
                },
                written = stdin.write(waiting), if !waiting.is_empty() => match written {
                    Ok(count) if count > 0 => {
                        waiting.advance(count);
                        if waiting.is_empty() {
                            return Ok(None);
                        }
                    }
                    // It is about to end: what it has said can still be read.
                    Ok(_) | Err(_) => *waiting = Bytes::new(),
                },
            }
        }
    }

    /// Ends it, and says how it had ended.
    pub(crate) async fn end(self) -> String {
        process::describe(self.process.end().await)
    }
}
