//! The lines of `serve` about clients that come and go: one each, or one line per second if there are many.
//!
//! Clients choose their names and connect as often as they like. So names are cut, escaped, and quoted where they could
//! be mistaken for our own words, and no client can fill the terminal.

use std::time::{SystemTime, UNIX_EPOCH};

use mcp_host::{ClientChange, ClientEvents, ClientNews, ClientStatus, Host};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep_until};

use crate::output::Output;
use crate::text;

/// The source of news about clients, and the limit for lines.
#[derive(Debug)]
pub(super) struct Callers {
    events: ClientEvents,
    room: Room,
}

impl Callers {
    pub(super) fn new(host: &Host) -> Self {
        Self { events: host.client_events(), room: Room::new(Instant::now()) }
    }

    /// Waits for the news that the next line is about. Returns `None` when the host is gone. While there is no room for
    /// a line, clients that come and go do not wake this task.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn next(&mut self) -> Option<ClientNews> {
        sleep_until(self.room.ready()).await;
        let news =
            if self.room.is_last(Instant::now()) { self.events.gathered().await } else { self.events.next().await };
        self.room.take(Instant::now());
        news
    }
}

/// Prints the line about some news.
pub(super) fn tell(news: &ClientNews, output: &Output) {
    if output.json {
        // The reader of stdout may be gone; the daemon stays.
        let _ = output.value(&as_json(news));
    } else {
        output.remark(&line(news));
    }
}

/// Converts a time to milliseconds since 1970.
pub(super) fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).ok().and_then(|at| u64::try_from(at.as_millis()).ok()).unwrap_or(0)
}

/// Formats `claude-code 2.1 connected (2025-11-25), 3 clients`.
fn line(news: &ClientNews) -> String {
    match news {
        ClientNews::One(event) => {
            let (who, clients) = (who(&event.client), text::count(event.clients, "client"));
            match event.change {
                ClientChange::Connected => format!("{who} connected ({}), {clients}", event.client.revision),
                _ => format!("{who} left, {clients}"),
            }
        }
        ClientNews::Many { connected, left, clients, .. } => {
            format!("{connected} connected and {left} left, {}", text::count(*clients, "client"))
        }
        _ => String::new(),
    }
}

fn as_json(news: &ClientNews) -> Value {
    match news {
        ClientNews::One(event) => json!({
            "event": "client", "change": event.change, "client": event.client, "clients": event.clients,
            "at": unix_ms(event.at),
        }),
        ClientNews::Many { connected, left, clients, .. } => json!({
            "event": "clients", "connected": connected, "left": left, "clients": clients,
            "at": unix_ms(SystemTime::now()),
        }),
        _ => Value::Null,
    }
}

/// How many characters of a name are shown.
const NAME: usize = 40;
/// How many characters of a version are shown.
const VERSION: usize = 20;

/// Formats a client's name and version.
pub(super) fn who(client: &ClientStatus) -> String {
    let version = client.version.as_deref().map(str::trim).filter(|version| !version.is_empty());
    let version = version.map(|version| format!(" {}", word(version, VERSION))).unwrap_or_default();
    match client.name.trim() {
        "" => "a client without a name".to_owned(),
        name => format!("{}{version}", word(name, NAME)),
    }
}

/// Cuts and escapes a word; quotes it if it has characters that names do not have.
pub(super) fn word(text: &str, width: usize) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.' | '/' | '@' | '+');
    let cut = text::cut(&text::line(text), width);
    if text.chars().all(plain) { cut } else { format!("\"{}\"", cut.replace('"', "'")) }
}

/// How many lines may come at once. After these, there is one per second.
const AT_ONCE: u32 = 8;
const SECOND: Duration = Duration::from_secs(1);

/// The room for lines: how many may be printed now. The last one is reserved for a summary of everything that waits.
#[derive(Debug)]
struct Room {
    lines: u32,
    /// Since when the room grows again.
    since: Instant,
}

impl Room {
    fn new(now: Instant) -> Self {
        Self { lines: AT_ONCE, since: now }
    }

    /// Returns the time from which there is room for a line.
    fn ready(&self) -> Instant {
        if self.lines > 0 { self.since } else { self.since + SECOND }
    }

    fn is_last(&mut self, now: Instant) -> bool {
        self.grow(now);
        self.lines <= 1
    }

    fn take(&mut self, now: Instant) {
        self.grow(now);
        self.lines = self.lines.saturating_sub(1);
    }

    fn grow(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.since).as_secs();
        let more = u32::try_from(seconds).unwrap_or(u32::MAX);
        self.lines = self.lines.saturating_add(more).min(AT_ONCE);
        self.since = if self.lines == AT_ONCE { now } else { self.since + SECOND * more };
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
        let mut room = Room::new(begun);
        let mut lines = Vec::new();
        for event in 0..10_000u32 {
            let now = begun + Duration::from_millis(1) * event;
            if room.ready() <= now {
                lines.push((event, room.is_last(now)));
                room.take(now);
            }
        }
        // Seven at once, then a summary, and another one for each of the nine whole seconds.
        assert_eq!(lines.len(), 8 + 9);
        assert!(
            lines[..7].iter().all(|(_, is_sum)| !is_sum) && lines[7..].iter().all(|(_, is_sum)| *is_sum),
            "{lines:?}"
        );
        assert!(lines[8..].windows(2).all(|pair| pair[1].0 - pair[0].0 == 1000), "{lines:?}");
        // A quiet period restores the room.
        let later = begun + Duration::from_secs(60);
        assert!(!room.is_last(later));
        assert_eq!((room.lines, room.ready()), (AT_ONCE, later));
    }
}
