//! The feed of a running daemon, as commands read it. The daemon may be older or newer than this program.

use std::borrow::Cow;
use std::time::SystemTime;

use mcp_host::admin::{self, FeedReader, FeedRequest};
use serde::Deserialize;

use super::asked::{DaemonQuery, failed, unknown_at};
use super::callers::unix_ms;
use crate::report::{Exit, Failure};
use crate::text;

/// An open feed.
pub(super) struct Feed<'a> {
    reader: FeedReader,
    asked: &'a DaemonQuery<'a>,
}

/// An event, as far as commands use it.
#[derive(Debug)]
pub(super) enum Event {
    /// Everything before this event happened before the feed was opened.
    Snapshot(Snapshot),
    Server(Change),
    /// Changed members of servers.
    Servers,
    Call(Call),
    Line(Line),
    /// Events were dropped.
    Gap(Gap),
    /// A heartbeat.
    Beat,
    /// The first event.
    Hello,
    Other,
}

/// The kind of an event.
#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow, rename = "type")]
    word: Cow<'a, str>,
}

impl Event {
    /// Parses a line. An event that this program does not know, or with a member of another type, becomes an unknown
    /// one.
    pub(super) fn read(line: &str) -> Self {
        Self::known(line).unwrap_or(Self::Other)
    }

    /// Members of events that no command uses are skipped.
    fn known(line: &str) -> serde_json::Result<Self> {
        let kind: Kind<'_> = serde_json::from_str(line)?;
        Ok(match &*kind.word {
            "snapshot" => Self::Snapshot(serde_json::from_str(line)?),
            "server" => Self::Server(serde_json::from_str(line)?),
            "servers" => Self::Servers,
            "call" => Self::Call(serde_json::from_str(line)?),
            "line" => Self::Line(serde_json::from_str(line)?),
            "gap" => Self::Gap(serde_json::from_str(line)?),
            "beat" => Self::Beat,
            "hello" => Self::Hello,
            _ => Self::Other,
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Snapshot {
    pub(super) running: Vec<Call>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Change {
    pub(super) at: u64,
    pub(super) server: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) cause: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Call {
    pub(super) at: u64,
    pub(super) phase: String,
    pub(super) server: Option<String>,
    pub(super) tool: Option<String>,
    pub(super) method: String,
    pub(super) client: Option<String>,
    pub(super) outcome: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) ms: f64,
    pub(super) bytes_out: u64,
    /// Its arguments and its result, if the daemon sends them.
    pub(super) args: Option<Box<serde_json::value::RawValue>>,
    pub(super) result: Option<Box<serde_json::value::RawValue>>,
    /// Counts of calls that have no events of their own, because there are too many.
    pub(super) counts: Vec<Counted>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Counted {
    pub(super) server: String,
    pub(super) calls: u64,
    pub(super) failed: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Line {
    pub(super) at: u64,
    pub(super) server: Option<String>,
    pub(super) source: String,
    pub(super) level: String,
    pub(super) text: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Gap {
    pub(super) missed: u64,
}

impl Call {
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.outcome.as_deref(), Some("tool_error" | "error" | "host_error"))
            || self.counts.iter().any(|counted| counted.failed > 0)
    }
}

impl<'a> Feed<'a> {
    /// Asks a daemon for its feed.
    pub(super) async fn open(asked: &'a DaemonQuery<'a>, request: &FeedRequest) -> Result<Self, Failure> {
        let port = asked.listen.map(|listen| listen.port());
        match admin::feed(port, request).await.map_err(|error| failed(asked, &error))? {
            Ok(reader) => Ok(Self { reader, asked }),
            Err(refused) if refused.usage => {
                Err(unknown_at(asked, request.server.as_deref().unwrap_or_default()).await)
            }
            Err(refused) => {
                let help = match refused.error.starts_with("busy") {
                    true => "end another command that follows, such as `mcp-host logs -f`",
                    false => "it may be an older one: stop it, and start this one",
                };
                Err(Failure::new(Exit::Failed, format!("the running mcp-host refuses: {}", refused.error)).help(help))
            }
        }
    }

    /// Returns the next event, and its line.
    ///
    /// # Cancel safety
    /// Dropping the wait loses nothing.
    pub(super) async fn next(&mut self) -> Result<(Event, String), Failure> {
        match self.reader.next().await {
            Ok(Some(line)) => Ok((Event::read(&line), line)),
            Ok(None) => Err(Failure::new(Exit::Unreachable, "the running mcp-host has stopped")
                .help(format!("mcp-host serve{}", self.asked.again))),
            Err(error) => Err(failed(self.asked, &error)),
        }
    }
}

/// Formats the time of an event in UTC; an event of another day is shown by its age.
pub(super) fn clock(at: u64) -> String {
    let now = unix_ms(SystemTime::now());
    if now / DAY != at / DAY && now.saturating_sub(at) > DAY {
        return format!("{} ago", text::duration(now - at));
    }
    let (of_day, millis) = (at % DAY / 1000, at % 1000);
    format!("{:02}:{:02}:{:02}.{millis:03}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

const DAY: u64 = 24 * 60 * 60 * 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_other_versions_are_read() {
        let read = Event::read;
        assert!(matches!(read(r#"{"type":"beat","seq":1,"at":2}"#), Event::Beat));
        assert!(matches!(read(r#"{"seq":1,"type":"ga\u0070","missed":2}"#), Event::Gap(Gap { missed: 2 })));
        assert!(matches!(read(r#"{"type":"gap","missed":"two"}"#), Event::Other));
        assert!(matches!(read("no JSON"), Event::Other));
        assert!(matches!(read(r#"{"type":"of later","seq":1}"#), Event::Other));
        assert!(matches!(read(r#"{"type":"line","more":1}"#), Event::Line(line) if line.text.is_empty()));
        assert!(matches!(read(r#"{"type":"hello","v":2,"boot":"x"}"#), Event::Hello));
    }

    #[test]
    fn times_are_of_the_day_or_ages() {
        let now = unix_ms(SystemTime::now());
        assert_eq!(clock(now).len(), "12:00:00.000Z".len());
        assert_eq!(clock(now - 3 * DAY), "3 d 0 h ago");
    }
}
