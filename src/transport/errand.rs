//! Runs a program to its end, such as the one that fetches a server's package before its first start.
//!
//! It runs as servers do: in a group of its own, in the care of the guard, with its standard error in the log.

use std::pin::pin;

use tokio::time::timeout;

use super::process::{Ends, Process, describe};
use super::stderr::{StderrTail, drain};
use super::stdio::LAST_WORDS;
use super::{Error, Label};
use crate::config;

/// Runs the command without input, and ignores its output.
///
/// # Cancel safety
/// A dropped future kills the program and its group.
pub(crate) async fn run(settings: &config::Stdio, server: Label, tail: StderrTail) -> Result<(), Error> {
    let (mut process, Ends { stdin, mut stdout, stderr }) = Process::start(settings)?;
    drop(stdin);
    let mut reading = pin!(async {
        let mut nothing = tokio::io::sink();
        let _ = tokio::join!(drain(stderr, tail.clone(), Some(server)), tokio::io::copy(&mut stdout, &mut nothing));
    });
    let status = tokio::select! {
        status = process.wait() => {
            // Processes that it left behind may hold the pipes open.
            let _ = timeout(LAST_WORDS, &mut reading).await;
            status
        }
        () = &mut reading => process.wait().await,
    };
    if status.is_some_and(|status| status.success()) {
        return Ok(());
    }
    let status = format!("{}, while its package was fetched", describe(status));
    Err(Error::Exited { status, stderr: tail.cause() })
}
