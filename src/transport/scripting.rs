//! The process of a script, as the host sees it: how it starts, how messages pass through its pipes, how it ends.
//!
//! Not here: the meaning of its messages (`router/scripts`). **Invariant:** dropping a [`ScriptProcess`] leaves no
//! process behind.

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

/// The program that runs scripts: the current one, unless another is set.
#[derive(Debug, Default)]
pub(crate) struct ScriptProgram(#[cfg(all(unix, feature = "script"))] OnceLock<PathBuf>);

impl ScriptProgram {
    /// Sets another program. Only the first call has an effect.
    #[cfg(all(unix, feature = "script"))]
    pub(crate) fn is(&self, program: PathBuf) {
        let _ = self.0.set(program);
    }

    /// Reports whether there is a program that can run scripts.
    #[cfg(all(unix, feature = "script"))]
    pub(crate) fn is_there(&self) -> bool {
        self.0.get().is_some() || guard::is_able()
    }

    /// Returns false: this build runs no scripts.
    #[cfg(not(all(unix, feature = "script")))]
    pub(crate) fn is_there(&self) -> bool {
        false
    }

    /// Starts a process. Each of its messages may have up to `most` bytes.
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

/// The minimum room for one read, in bytes.
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
    /// The part of the current message to the process that is not written yet.
    waiting: Bytes,
    turn: Turn,
}

/// Why a process sends no further message.
#[cfg(all(unix, feature = "script"))]
#[derive(Debug)]
pub(crate) enum Ended {
    /// Its output has ended.
    Silent,
    /// It sent a message that is too long.
    TooLong,
}

#[cfg(all(unix, feature = "script"))]
impl ScriptProcess {
    /// Sends it a message, which is written while [`ScriptProcess::next`] runs. The previous one must be written
    /// completely.
    pub(crate) fn send(&mut self, frame: Vec<u8>) {
        debug_assert!(self.waiting.is_empty(), "one at a time");
        self.waiting = frame.into();
    }

    /// Reports whether nothing is left to write.
    pub(crate) fn has_written(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Waits for its next message, and writes meanwhile. Returns `None` once a message to it is written completely.
    ///
    /// # Errors
    /// When no further message will come.
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
                    // The process is about to end; its output can still be read.
                    Ok(_) | Err(_) => *waiting = Bytes::new(),
                },
            }
        }
    }

    /// Ends the process, and describes how it ended.
    pub(crate) async fn end(self) -> String {
        process::describe(self.process.end().await)
    }
}
