//! A lock so that one process at a time renews a token: reusing a refresh token that another process has already used ends
//! the login for all (`docs/hazards.md` H72). The system releases the lock if its process dies.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::Error;
use crate::keep;

/// How long to wait: another process may take as long as two requests.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// Releases the lock when dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: Option<std::fs::File>,
}

/// Waits for the lock with this name. Without a writable directory, there is no lock between processes.
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
        // Where the system has no file locks, there is no lock between processes.
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
