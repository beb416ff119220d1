//! The audit: one line of JSON for each client call, in an append-only file (`docs/hazards.md` H99).
//!
//! In: client calls as they begin and end. Out: lines in the order in which calls ended, written by one task.
//! **Invariant:** no call goes to a server without a place for its line in the queue of that task. The place is taken
//! before the call begins and filled when the call ends, however it ends. While the file cannot be written, no call
//! begins. Start at `Audit::begin`; `file.rs` is the file, `line.rs` the line.

mod file;
mod line;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc::{self, OwnedPermit, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::file::File;
use self::line::Line;
use crate::answered::{Failed, Kind};
use crate::config;
use crate::counts::{Counts, HostCount};
use crate::keep;
use crate::lock::lock;
use crate::observe::{Begun, Ended, Listener, Pending, Wants, is_call};
use crate::protocol::Method;

/// How many calls may be in flight or have a line that waits to be written.
const PLACES: usize = 16 * 1024;
/// Lines per write.
const BATCH: usize = 512;
/// How long to wait before retrying a failed write.
const AGAIN: Duration = Duration::from_secs(1);
/// Timeout for the last lines at shutdown.
const LAST: Duration = Duration::from_secs(2);

/// The open audit; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Audit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    places: Sender<Line>,
    trouble: Arc<Trouble>,
    stop: CancellationToken,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// Why the file cannot be written at the moment; `None` while it can.
#[derive(Debug, Default)]
struct Trouble {
    now: Mutex<Option<String>>,
    /// The counters to which written lines are added.
    counts: OnceLock<Counts>,
}

impl Trouble {
    fn now(&self) -> Option<String> {
        lock(&self.now).clone()
    }

    fn is(&self, trouble: Option<String>) {
        if let Some(counts) = self.counts.get() {
            counts.audit_fails(trouble.is_some());
        }
        *lock(&self.now) = trouble;
    }
}

impl Audit {
    /// Opens the file and starts the task that writes it.
    ///
    /// # Errors
    /// Returns one sentence if the file cannot be opened or created.
    pub(crate) fn open(settings: &config::Audit) -> Result<Self, String> {
        let file = File::open(settings).map_err(|error| {
            format!("host.audit.file: {} cannot be written: {}", settings.file.display(), said(&error))
        })?;
        let (places, lines) = mpsc::channel(PLACES);
        let (trouble, stop) = (Arc::<Trouble>::default(), CancellationToken::new());
        let writer = tokio::spawn(write(file, lines, trouble.clone(), stop.clone()));
        Ok(Self(Arc::new(Inner { places, trouble, stop, writer: Mutex::new(Some(writer)) })))
    }
}

impl Audit {
    /// Sets the counters to which written lines are added.
    pub(crate) fn count_in(&self, counts: &Counts) {
        let _ = self.0.trouble.counts.set(counts.clone());
    }
}

impl Listener for Audit {
    fn wants(&self, method: &Method) -> Wants {
        Wants::whole_if(is_call(method))
    }

    /// Takes the place for the line of a call that begins now.
    ///
    /// # Errors
    /// Fails if no place is free or the file cannot be written. Then the call must not be made.
    fn begin(&self, call: &Begun<'_>) -> Result<Box<dyn Pending>, Failed> {
        if let Some(trouble) = self.0.trouble.now() {
            return Err(refused(format!("the audit cannot be written, so no call is made: {trouble}"), Some(trouble)));
        }
        let full = || refused(format!("{PLACES} calls wait for a place in the audit, so no more is made"), None);
        let place = self.0.places.clone().try_reserve_owned().map_err(|_| full())?;
        call.subject.be_thorough();
        Ok(Box::new(Record { place, line: Line::begin(call) }))
    }

    /// Writes the lines that are left, and stops. Calls still in flight get no line.
    fn finish(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.0.stop.cancel();
            let writer = lock(&self.0.writer).take();
            if let Some(mut writer) = writer
                && tokio::time::timeout(LAST, &mut writer).await.is_err()
            {
                let trouble = self.0.trouble.now().unwrap_or_else(|| "calls still run".to_owned());
                tracing::error!("the last lines of the audit are lost: {trouble}");
                writer.abort();
            }
        })
    }
}

/// Returns the failure of a refused call (`docs/bridging.md` 14).
fn refused(text: String, cause: Option<String>) -> Failed {
    let (text, cause) = (text.into(), cause.map(Into::into));
    Failed {
        kind: Kind::Unavailable,
        server: None,
        text,
        cause,
        sent: false,
        retryable: true,
        retry_after: None,
        errors: Box::default(),
        rule: None,
    }
}

/// One call in flight: its line so far, and the place for that line.
#[derive(Debug)]
struct Record {
    place: OwnedPermit<Line>,
    line: Line,
}

impl Pending for Record {
    fn end(self: Box<Self>, ended: &Ended<'_>) {
        let Self { place, mut line } = *self;
        line.end(ended);
        place.send(line);
    }
}

/// Writes lines until the channel is closed and empty.
async fn write(mut file: File, mut lines: Receiver<Line>, trouble: Arc<Trouble>, stop: CancellationToken) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut open = true;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled(), if open => {
                open = false;
                lines.close();
                continue;
            }
            count = lines.recv_many(&mut batch, BATCH) => if count == 0 { break },
        }
        let (count, mut text) = (batch.len(), Vec::with_capacity(batch.len() * 256));
        batch.drain(..).for_each(|line| line.write(&mut text));
        file = put(file, text, &trouble).await;
        if let Some(counts) = trouble.counts.get() {
            counts.add(HostCount::AuditLines, count as u64);
        }
    }
    let _ = keep::aside(move || file.settle()).await;
}

/// Writes lines, and retries until that succeeds.
async fn put(mut file: File, text: Vec<u8>, trouble: &Trouble) -> File {
    let text = Arc::new(text);
    loop {
        let lines = text.clone();
        let written = keep::aside(move || {
            let written = file.append(&lines);
            (file, written)
        });
        // The closure does not panic, and nothing else aborts its task.
        let Ok((back, written)) = written.await else { std::future::pending().await };
        file = back;
        match written {
            Ok(()) => {
                if trouble.now().is_some() {
                    tracing::warn!("the audit is written again");
                }
                trouble.is(None);
                return file;
            }
            Err(error) => {
                if trouble.now().is_none() {
                    tracing::error!("the audit cannot be written, calls are refused until it can: {}", said(&error));
                }
                trouble.is(Some(said(&error)));
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Returns the system's error message, or what to do about the error if that is known.
fn said(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such folder; make it first".to_owned(),
        _ => error.to_string(),
    }
}
