//! An endless line to a host over stdio, which reports it once and ends.

use std::process::Stdio;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::Target;
use crate::hostile::memory;

/// Far more than the host keeps of a line.
const LINE: usize = 300 << 20;
/// How long the host may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn endless(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(1, Duration::from_secs(3), move |_| {
        let target = of.clone();
        async move {
            let place = &target.place;
            let mut command = Command::new(&place.host);
            command.arg("stdio").arg("--config").arg(super::super::stdio_config(&place.home));
            super::super::environment(command.as_std_mut(), &place.home);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
            let mut host = command.spawn()?;
            let (Some(mut input), Some(pid)) = (host.stdin.take(), host.id()) else { return Ok(()) };
            let piece = vec![b'a'; 1 << 20];
            let mut written = 0;
            while written < LINE {
                if input.write_all(&piece).await.is_err() {
                    break;
                }
                written += piece.len();
                if let Ok(now) = memory(pid, "VmHWM:") {
                    target.seen.pipe.set(target.seen.pipe.get().max(now));
                }
            }
            drop(input);
            match timeout(PATIENCE, host.wait()).await {
                Ok(_) => {}
                Err(_) => target.wrong(format!("a host over stdio is alive {PATIENCE:?} after a line without end")),
            }
            Ok(())
        }
    })
}
