//! What `serve` says of clients that come and go: a line each, and where there are many, one line a second for all of them.
//!
//! Clients choose their names, and connect as often as they like: names are cut, escaped, and quoted where they could be
//! taken for words of ours, and no client fills the terminal.

use std::time::SystemTime;

use mcp_host::{ClientChange, ClientEvent, ClientEvents, ClientStatus, Host};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep_until};

use super::watch::unix_ms;
use crate::output::Output;
use crate::text;

/// Clients that come and go.
#[derive(Debug)]
pub(super) struct Callers {
    events: ClientEvents,
    pace: Pace<Box<ClientEvent>>,
}

impl Callers {
    pub(super) fn new(host: &Host) -> Self {
        Self { events: host.client_events(), pace: Pace::new(Instant::now()) }
    }

    /// The next thing to say; `None` when the host is gone.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn next(&mut self) -> Option<News> {
        loop {
            let due = self.pace.due();
            let wait = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let news = tokio::select! {
                event = self.events.next() => {
                    let event = event?;
                    self.pace.take(event.change, Box::new(event), Instant::now())
                }
                () = wait => self.pace.flush(Instant::now()),
            };
            if news.is_some() {
                return news;
            }
        }
    }
}

/// Something to say.
pub(super) type News = Said<Box<ClientEvent>>;

/// What happened since something was said last.
#[derive(Debug, PartialEq)]
pub(super) enum Said<T> {
    One(T),
    Many { connected: usize, left: usize, last: T },
}

impl News {
    pub(super) fn tell(&self, output: &Output) {
        if output.json {
            // Whoever reads stdout may be gone; the daemon stays.
            let _ = output.value(&self.json());
        } else {
            output.remark(&self.line());
        }
    }

    /// `claude-code 2.1 connected (2025-11-25), 3 clients`
    fn line(&self) -> String {
        match self {
            Self::One(event) => {
                let (who, clients) = (who(&event.client), text::count(event.clients, "client"));
                match event.change {
                    ClientChange::Connected => format!("{who} connected ({}), {clients}", event.client.revision),
                    _ => format!("{who} left, {clients}"),
                }
            }
            Self::Many { connected, left, last } => {
                format!("{connected} connected and {left} left, {}", text::count(last.clients, "client"))
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::One(event) => json!({
                "event": "client", "change": event.change, "client": event.client, "clients": event.clients,
                "at": unix_ms(event.at),
            }),
            Self::Many { connected, left, last } => json!({
                "event": "clients", "connected": connected, "left": left, "clients": last.clients,
                "at": unix_ms(SystemTime::now()),
            }),
        }
    }
}

/// Characters of a name that are shown, and of a version.
const NAME: usize = 40;
const VERSION: usize = 20;

/// What a client calls itself.
pub(super) fn who(client: &ClientStatus) -> String {
    let version = client.version.as_deref().map(str::trim).filter(|version| !version.is_empty());
    let version = version.map(|version| format!(" {}", word(version, VERSION))).unwrap_or_default();
    match client.name.trim() {
        "" => "a client without a name".to_owned(),
        name => format!("{}{version}", word(name, NAME)),
    }
}

/// Cut and escaped; in quotes where it holds more than names do.
pub(super) fn word(text: &str, width: usize) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.' | '/' | '@' | '+');
    let cut = text::cut(&text::line(text), width);
    if text.chars().all(plain) { cut } else { format!("\"{}\"", cut.replace('"', "'")) }
}

/// How many lines may come at once; then one a second.
const AT_ONCE: u32 = 8;
const SECOND: Duration = Duration::from_secs(1);

/// What is said at once, and what is gathered.
#[derive(Debug)]
struct Pace<T> {
    room: u32,
    /// Since when room grows.
    since: Instant,
    last: Option<T>,
    connected: usize,
    left: usize,
}

impl<T> Pace<T> {
    fn new(now: Instant) -> Self {
        Self { room: AT_ONCE, since: now, last: None, connected: 0, left: 0 }
    }

    fn take(&mut self, change: ClientChange, event: T, now: Instant) -> Option<Said<T>> {
        match change {
            ClientChange::Connected => self.connected += 1,
            _ => self.left += 1,
        }
        self.last = Some(event);
        self.flush(now)
    }

    /// When what is gathered is said.
    fn due(&self) -> Option<Instant> {
        self.last.as_ref().map(|_| self.since + SECOND)
    }

    fn flush(&mut self, now: Instant) -> Option<Said<T>> {
        self.grow(now);
        if self.room == 0 {
            return None;
        }
        let last = self.last.take()?;
        self.room -= 1;
        let (connected, left) = (std::mem::take(&mut self.connected), std::mem::take(&mut self.left));
        Some(if connected + left == 1 { Said::One(last) } else { Said::Many { connected, left, last } })
    }

    fn grow(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.since).as_secs();
        let more = u32::try_from(seconds).unwrap_or(u32::MAX);
        self.room = self.room.saturating_add(more).min(AT_ONCE);
        self.since = if self.room == AT_ONCE { now } else { self.since + SECOND * more };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clients_cannot_be_taken_for_words_of_ours() {
        assert_eq!(word("claude-code", NAME), "claude-code");
        assert_eq!(word("Visual Studio Code 2", NAME), "Visual Studio Code 2");
        assert_eq!(word("error: run \"x\"\u{1b}[2J\nhelp: y", NAME), r#""error: run 'x'\u{1b}[2J\nhelp: y""#);
        assert_eq!(word(&"x".repeat(1000), NAME).chars().count(), NAME);
    }

    #[test]
    fn a_client_that_connects_a_thousand_times_a_second_gets_a_line_a_second() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        let mut said = Vec::new();
        for event in 0..10_000u32 {
            let now = begun + Duration::from_millis(1) * event;
            let change = if event % 2 == 0 { ClientChange::Connected } else { ClientChange::Left };
            said.extend(pace.take(change, event, now));
        }
        assert_eq!(said[0], Said::One(0));
        // Eight at once, then one for each of the nine whole seconds.
        assert_eq!(said.len(), 8 + 9);
        assert_eq!(said[8], Said::Many { connected: 497, left: 496, last: 1000 });
        // What is still gathered is said when its time has come.
        let due = pace.due().unwrap();
        assert_eq!(pace.flush(due - Duration::from_millis(1)), None);
        assert!(matches!(pace.flush(due), Some(Said::Many { last: 9999, .. })));
        assert_eq!((pace.due(), pace.flush(due + SECOND)), (None, None));
    }
}
