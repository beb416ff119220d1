//! The audit: one line of JSON for each call of a client, in a file that only grows (`docs/hazards.md` H99).
//!
//! In: calls as they begin and end. Out: lines, by one task that writes them in the order in which calls ended.
//! **Invariant:** no call goes to a server without a place for its line. The place is taken before the call begins and
//! filled when it ends, however it ends; while the file cannot be written, no call begins. Start reading at
//! [`Audit::begin`]; `file.rs` is the file, `line.rs` the line.

mod file;
mod line;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc::{self, OwnedPermit, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::file::File;
use self::line::{Ended, Line};
use crate::answered::{Answered, Failed, Kind};
use crate::config;
use crate::keep;
use crate::protocol::{Method, Raw};
use crate::redact::Scrubber;

/// Calls that may be under way or wait to be written.
const PLACES: usize = 16 * 1024;
/// Lines that are written in one go.
const BATCH: usize = 512;
/// How long until a file that could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the last lines may take at the end.
const LAST: Duration = Duration::from_secs(2);

/// A file that is written; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Audit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    places: Sender<Line>,
    trouble: Arc<Trouble>,
    stop: CancellationToken,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// Why the file cannot be written, as long as it cannot.
#[derive(Debug, Default)]
struct Trouble(Mutex<Option<String>>);

impl Trouble {
    fn now(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is(&self, trouble: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// Which server a request went to, and what it named there; filled in on the way.
#[derive(Debug, Default)]
pub(crate) struct Subject(OnceLock<(Arc<str>, Arc<str>, Arc<Scrubber>)>);

impl Subject {
    /// The request is one for that server. The first word counts.
    pub(crate) fn is(&self, server: &Arc<str>, target: &Arc<str>, scrubber: &Arc<Scrubber>) {
        let _ = self.0.set((server.clone(), target.clone(), scrubber.clone()));
    }
}

/// Whether requests of a method are written down: those that make a server do or tell something. Lists, pings, settings of
/// the session and questions after the state of a task are not.
#[must_use]
pub(crate) fn covers(method: &Method) -> bool {
    match method {
        Method::ToolsCall
        | Method::PromptsGet
        | Method::ResourcesRead
        | Method::ResourcesSubscribe
        | Method::Complete
        | Method::TasksResult
        | Method::TasksCancel
        | Method::TasksUpdate => true,
        // The method of an extension.
        Method::Other(_) => true,
        _ => false,
    }
}

/// Who calls.
#[derive(Clone, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) principal: &'a str,
    /// What the client calls itself: shown, never believed.
    pub(crate) client: Option<&'a str>,
}

impl Audit {
    /// Opens the file, and starts the task that writes it.
    ///
    /// # Errors
    /// In one sentence, when it cannot be opened or made.
    pub(crate) fn open(settings: &config::Audit) -> Result<Self, String> {
        let file = File::open(settings).map_err(|error| {
            format!("host.audit.file: {} cannot be written: {}", settings.file.display(), said(&error))
        })?;
        let (places, lines) = mpsc::channel(PLACES);
        let (trouble, stop) = (Arc::<Trouble>::default(), CancellationToken::new());
        let writer = tokio::spawn(write(file, lines, trouble.clone(), stop.clone()));
        Ok(Self(Arc::new(Inner { places, trouble, stop, writer: Mutex::new(Some(writer)) })))
    }

    /// Takes the place for a call that begins now.
    ///
    /// # Errors
    /// When there is none, or no line can be written: then the call must not be made.
    pub(crate) fn begin(
        &self,
        caller: &Caller<'_>,
        method: &Method,
        params: Option<&Raw>,
        subject: Arc<Subject>,
    ) -> Result<Record, Failed> {
        if let Some(trouble) = self.0.trouble.now() {
            return Err(refused(format!("the audit cannot be written, so no call is made: {trouble}"), Some(trouble)));
        }
        let full = || refused(format!("{PLACES} calls wait for a place in the audit, so no more is made"), None);
        let place = self.0.places.clone().try_reserve_owned().map_err(|_| full())?;
        let line = Line::begin(caller, method, params, SystemTime::now());
        Ok(Record { open: Some((place, line)), begun: Instant::now(), subject })
    }

    /// Writes what is left, and ends. Calls that still run then have no line any more.
    pub(crate) async fn finish(&self) {
        self.0.stop.cancel();
        let writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut writer) = writer
            && tokio::time::timeout(LAST, &mut writer).await.is_err()
        {
            let trouble = self.0.trouble.now().unwrap_or_else(|| "calls still run".to_owned());
            tracing::error!("the last lines of the audit are lost: {trouble}");
            writer.abort();
        }
    }
}

/// The answer to a call that is not made (`docs/bridging.md` 14).
fn refused(text: String, cause: Option<String>) -> Failed {
    let (text, cause) = (text.into(), cause.map(Into::into));
    Failed { kind: Kind::Unavailable, server: None, text, cause, sent: false, retryable: true }
}

/// One call under way. Dropped before it is finished, it was cancelled.
#[derive(Debug)]
pub(crate) struct Record {
    open: Option<(OwnedPermit<Line>, Line)>,
    begun: Instant,
    subject: Arc<Subject>,
}

impl Record {
    /// The call has its answer; `None` where its client wanted none any more.
    pub(crate) fn finish(mut self, answered: Option<&Answered>) {
        self.close(&answered.map_or_else(Ended::cancelled, Ended::of));
    }

    fn close(&mut self, ended: &Ended) {
        if let Some((place, mut line)) = self.open.take() {
            let subject = self.subject.0.get();
            line.end(subject.map(|(server, target, scrubber)| (&**server, &**target, &**scrubber)), ended);
            line.took(self.begun.elapsed());
            place.send(line);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.close(&Ended::cancelled());
    }
}

/// Writes lines until there can be no more.
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
        let mut text = Vec::with_capacity(batch.len() * 256);
        batch.drain(..).for_each(|line| line.write(&mut text));
        file = put(file, text, &trouble).await;
    }
    let _ = keep::aside(move || file.settle()).await;
}

/// Writes some lines, however long it takes until they can be written.
async fn put(mut file: File, text: Vec<u8>, trouble: &Trouble) -> File {
    let text = Arc::new(text);
    loop {
        let lines = text.clone();
        let written = keep::aside(move || {
            let written = file.append(&lines);
            (file, written)
        });
        // It does not panic, and nobody else aborts it.
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

/// What the system said, and what to do where that is known.
fn said(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such folder; make it first".to_owned(),
        _ => error.to_string(),
    }
}
