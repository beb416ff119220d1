//! Passes on what one server says to people, its log messages and its stderr lines: to listeners, and to the record of
//! the last lines (`record`).
//!
//! **Invariant:** an announcement never waits, and costs nothing if there are no listeners and nothing is recorded. A
//! slow listener misses some announcements.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use tokio::sync::broadcast;

use crate::counts::{Count, ServerCounts};
use crate::protocol::Raw;
use crate::record::{Level, Record, Said, Source};
use crate::redact::Scrubber;

/// A log message of a server (`notifications/message`).
///
/// ```
/// # fn tell(message: &mcp_host::LogMessage) {
/// println!("{} [{}] {}", message.server, message.level, message.data);
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogMessage {
    /// The server's name in the config.
    pub server: String,
    /// `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`.
    pub level: String,
    /// The part of the server that logs, if the message names it.
    pub logger: Option<String>,
    /// The content: any JSON value, often a string.
    pub data: Raw,
}

/// A line that a server's process wrote to standard error, without its secrets and without control characters.
///
/// ```
/// # fn tell(line: &mcp_host::StderrLine) {
/// eprintln!("{}: {}", line.server, line.text);
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StderrLine {
    /// The server's name in the config.
    pub server: String,
    /// The line.
    pub text: String,
}

/// Something that a server says to people.
#[derive(Clone, Debug)]
pub(crate) enum Spoken {
    Log(LogMessage),
    Stderr(StderrLine),
}

/// The listeners to what servers say to people. Their queue is allocated for the first listener: it takes as much
/// memory as a small server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listeners {
    heard: Arc<OnceLock<broadcast::Sender<Spoken>>>,
    record: Record,
}

/// How many announcements a slow listener may be behind before it misses some.
const BEHIND: usize = 1024;

impl Listeners {
    /// Adds a listener to what servers say from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Spoken> {
        self.heard.get_or_init(|| broadcast::Sender::new(BEHIND)).subscribe()
    }

    /// Returns the record that keeps the last lines.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }
}

/// Passes to listeners and to the record what one server says to people.
#[derive(Clone)]
pub(crate) struct Announcer {
    server: Arc<str>,
    listeners: Listeners,
    counts: Arc<ServerCounts>,
    /// Removes the server's secrets from recorded lines when they are shown.
    scrubber: Arc<Scrubber>,
}

impl Announcer {
    /// Creates the announcer of the server with that name in the config.
    pub(crate) fn new(server: &str, listeners: Listeners, scrubber: Arc<Scrubber>) -> Self {
        let counts = listeners.record.counts().of(server);
        Self { server: server.into(), listeners, counts, scrubber }
    }

    /// Returns the server's counters.
    pub(crate) fn counts(&self) -> &Arc<ServerCounts> {
        &self.counts
    }

    /// Announces a log message, from the params of its notification.
    pub(crate) fn log(&self, params: &Raw) {
        let text = |member: Option<Raw>| Some(member?.string()?.into_owned());
        if self.listeners.record.is_on() {
            let [level, logger, data] = params.members(["level", "logger", "data"]);
            let data = data.unwrap_or_else(Raw::null);
            let words = data.string().unwrap_or_else(|| data.as_str().into());
            let line = text(logger).map_or_else(|| words.to_string(), |logger| format!("{logger}: {words}"));
            self.record(Source::Log, Level::parse(&text(level).unwrap_or_default()), &line.as_bytes().into());
        }
        self.announce(|server| {
            let [level, logger, data] = params.members(["level", "logger", "data"]);
            Spoken::Log(LogMessage {
                server,
                level: text(level).unwrap_or_default(),
                logger: text(logger),
                data: data.unwrap_or_else(Raw::null).detached(),
            })
        });
    }

    /// Announces a line on standard error.
    pub(crate) fn stderr(&self, text: &str) {
        self.announce(|server| Spoken::Stderr(StderrLine { server, text: text.to_owned() }));
    }

    /// Records a line that the process wrote to standard error, unchanged.
    pub(crate) fn wrote(&self, line: &Arc<[u8]>) {
        self.counts.one(Count::StderrLines);
        if self.listeners.record.is_on() {
            self.record(Source::Stderr, Level::Info, line);
        }
    }

    fn record(&self, source: Source, level: Level, text: &Arc<[u8]>) {
        let said = Said { server: Some(&self.server), source, level, text, scrubber: Some(&self.scrubber) };
        self.listeners.record.line(&said, SystemTime::now());
    }

    fn announce(&self, make: impl FnOnce(String) -> Spoken) {
        if let Some(listeners) = self.listeners.heard.get().filter(|listeners| listeners.receiver_count() > 0) {
            // The last listener may have left meanwhile.
            let _ = listeners.send(make(self.server.to_string()));
        }
    }
}

impl fmt::Debug for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Announcer({})", self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_reach_those_who_listen() {
        let listeners = Listeners::default();
        let announcer = Announcer::new("a b", listeners.clone(), Arc::default());
        announcer.stderr("to nobody");
        let mut heard = listeners.subscribe();
        announcer.stderr("hello");
        announcer.log(&Raw::from_value(&serde_json::json!({ "level": "info", "logger": "core", "data": { "a": 1 } })));
        announcer.log(&Raw::empty_object());
        let Ok(Spoken::Stderr(line)) = heard.try_recv() else { panic!("no line") };
        assert_eq!((line.server.as_str(), line.text.as_str()), ("a b", "hello"));
        let mut log = || match heard.try_recv() {
            Ok(Spoken::Log(log)) => (log.level, log.logger, log.data.to_string()),
            other => panic!("{other:?}"),
        };
        assert_eq!(log(), ("info".to_owned(), Some("core".to_owned()), r#"{"a":1}"#.to_owned()));
        assert_eq!(log(), (String::new(), None, "null".to_owned()));
    }
}
