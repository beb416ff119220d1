//! Summarizes what a server prints between its messages in one log line: the number of lines, and the first
//! (`docs/hazards.md` H1).

use std::time::Duration;

use tokio::time::Instant;

use super::Label;
use super::stderr::StderrTail;

/// How long noise is collected before it is logged: most servers print a banner of a few lines.
const GATHER: Duration = Duration::from_secs(1);
/// The interval between log lines about a server that keeps printing.
const EVERY: Duration = Duration::from_secs(3600);
/// The maximum number of lines per second that are logged in full, if that is enabled.
const LINES_PER_SECOND: u32 = 100;

/// The lines of one process that are not messages.
#[derive(Debug, Default)]
pub(super) struct Noise {
    lines: u64,
    /// The value of `lines` at the last log line.
    told: u64,
    first: Option<String>,
    due: Option<Instant>,
    /// When the last log line was written.
    last: Option<Instant>,
    second: Option<(Instant, u32)>,
}

impl Noise {
    /// Counts a line that is not a message, and schedules the log line about it.
    pub(super) fn note(&mut self, server: &Label, tail: &StderrTail, line: &[u8], reason: &str) {
        self.lines += 1;
        tail.note_noise();
        if self.first.is_none() {
            self.first = Some(tail.line(line));
        }
        if self.due.is_none() {
            self.due = Some(self.last.map_or_else(|| Instant::now() + GATHER, |last| last + EVERY));
        }
        if tracing::enabled!(target: "mcp_host::stdout", tracing::Level::INFO) && self.may_tell_whole() {
            let text = tail.line(line);
            let lines = self.lines;
            tracing::info!(target: "mcp_host::stdout", server = &**server, lines, "not a message on standard output ({reason}): {text}");
        }
    }

    /// Waits until `due`, when a log line must be written. Waits forever if it is `None`, that is, if there is no
    /// noise.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn is_due(due: Option<Instant>) {
        match due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Logs the noise since the last log line.
    pub(super) fn tell(&mut self, server: &Label) {
        self.due = None;
        if self.lines == self.told {
            return;
        }
        (self.told, self.last) = (self.lines, Some(Instant::now()));
        let first = self.first.as_deref().unwrap_or_default();
        let what = match self.lines {
            1 => "1 line on stdout that is not an MCP message".to_owned(),
            lines => format!("{lines} lines on stdout that are not MCP messages"),
        };
        tracing::warn!(server = &**server, "{what}: first \"{first}\"");
    }

    fn may_tell_whole(&mut self) -> bool {
        let now = Instant::now();
        let (since, count) = self.second.filter(|(since, _)| now - *since < Duration::from_secs(1)).unwrap_or((now, 0));
        self.second = Some((since, count.saturating_add(1)));
        count < LINES_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::redact::Scrubber;

    #[tokio::test(start_paused = true)]
    async fn h1_noise_is_told_after_a_second_and_then_once_an_hour() {
        let (server, tail) = (Label::from("it"), StderrTail::default());
        let mut noise = Noise::default();
        let begin = Instant::now();
        let mut told = Vec::new();
        // Twenty lines every twelve minutes, for three hours.
        for round in 0..15 {
            for _ in 0..20 {
                noise.note(&server, &tail, b"a banner", "it is noise");
            }
            let next = begin + Duration::from_secs(720 * (round + 1));
            while noise.due().is_some_and(|due| due < next) {
                Noise::is_due(noise.due()).await;
                noise.tell(&server);
                told.push((begin.elapsed().as_secs(), noise.told));
            }
            tokio::time::sleep_until(next).await;
        }
        assert_eq!(told, [(1, 20), (3601, 120), (7201, 220)]);
        assert_eq!(noise.first.as_deref(), Some("a banner"));
    }

    #[tokio::test]
    async fn h97_no_half_of_a_secret_is_told_where_a_line_is_cut() {
        let mut knows = Scrubber::default();
        knows.know("tr0ub4dor");
        let tail = StderrTail::of(Arc::new(knows));
        for length in 180..320 {
            let mut noise = Noise::default();
            let line = format!("{}tr0ub4dor{}", "x".repeat(length), "y".repeat(200));
            noise.note(&"it".into(), &tail, line.as_bytes(), "it is noise");
            let first = noise.first.unwrap();
            assert!(first.starts_with("xxx") && !first.contains('t'), "{length}: {first}");
        }
    }
}
