//! A lock between processes, so that only one at a time renews a token: if a refresh token is used that another process
//! has already used, the login ends for all of them (`docs/hazards.md` H72). The system releases the lock if its
//! process dies.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::Error;
use crate::keep;

/// How long to wait for the lock: the process that holds it may need two requests.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// The lock while it is held; dropping this releases it.
#[derive(Debug)]
pub(super) struct Lock {
    _file: Option<std::fs::File>,
}

/// Waits for the lock with this name. Without a writable directory nothing is locked, and this succeeds at once.
pub(super) async fn take(directory: Option<&Path>, name: &str) -> Result<Lock, Error> {
    let Some(directory) = directory.map(|directory| directory.join("locks")) else { return Ok(Lock { _file: None }) };
    let path = directory.join(format!("{name}.lock"));
    let opened = keep::aside(move || {
        std::fs::create_dir_all(&directory)?;
        std::fs::File::options().create(true).truncate(false).write(true).open(path)
    });
    let file = match opened.await {
        Ok(Ok(file)) => file,
        Ok(Err(error)) => {
            tracing::warn!(%error, "no lock between processes while a token is renewed");
            return Ok(Lock { _file: None });
        }
        Err(_) => return Ok(Lock { _file: None }),
    };
    locked(file, Instant::now() + PATIENCE).await
}

async fn locked(mut file: std::fs::File, until: Instant) -> Result<Lock, Error> {
    loop {
        // Where the system has no file locks, nothing is locked between processes.
        let (back, is_held) = keep::done(move || {
            let tried = keep::try_lock(&file);
            (file, matches!(tried, Ok(false)))
        })
        .await;
        file = back;
        if !is_held {
            return Ok(Lock { _file: Some(file) });
        }
        if Instant::now() > until {
            let reason = format!("another process has been renewing the token for {PATIENCE:?}");
            return Err(Error::Unreachable { reason, unsent: true });
        }
        tokio::time::sleep(PAUSE).await;
    }
}
