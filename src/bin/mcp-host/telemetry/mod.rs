//! Log records on stderr: one line each, escaped, without secrets, at most 4 KiB, within a server's share. The library
//! emits them; only this folder subscribes. Also prints panics, without their message.

mod share;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::io;
use std::panic::Location;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::hidden;
use crate::output::Output;
use crate::text;

/// Installs the log subscriber. `RUST_LOG` decides what is logged; without it, warnings are, and more with each `-v`.
/// `told` has directives that leave out what the command prints itself.
pub(crate) fn install(output: &Output, verbose: u8, quiet: bool, told: &str) {
    let default = match verbose {
        _ if quiet => "error",
        0 => &format!("warn{told}"),
        1 => "info",
        2 => "info,mcp_host=debug",
        _ => "info,mcp_host=trace",
    };
    let wanted = std::env::var("RUST_LOG").ok().and_then(|wanted| wanted.parse::<Targets>().ok());
    let filter = wanted.unwrap_or_else(|| default.parse().unwrap_or_default());
    let shares = share::Shares::new(output.clone());
    let lines = fmt::layer().with_ansi(false).with_writer(Stderr(output.clone()));
    // This fails only if there already is a subscriber.
    let _ = tracing_subscriber::registry().with(filter).with(shares).with(lines).try_init();
    tell_panics();
}

/// Makes panics print only their location: the message may contain the data that caused it (`docs/hazards.md` H97).
fn tell_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        Output::last_words(&panicked(thread.name(), panic.location()));
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            trace.to_string().lines().for_each(Output::last_words);
        }
    }));
}

fn panicked(thread: Option<&str>, place: Option<&Location<'_>>) -> String {
    let place = place.map_or_else(|| "an unknown place".to_owned(), Location::to_string);
    format!("error: a panic in thread {:?} at {place}; this is a bug in mcp-host", thread.unwrap_or("unnamed"))
}

struct Stderr(Output);

/// Collects one log record, and writes it when it is complete.
struct Record<'a> {
    output: &'a Output,
    bytes: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Record<'a>;

    fn make_writer(&'a self) -> Record<'a> {
        Record { output: &self.0, bytes: Vec::new() }
    }
}

impl io::Write for Record<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Bytes beyond that are never shown.
        let room = (LOOKED_AT + 1).saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.output.log(one_line(&self.bytes).as_bytes());
        }
    }
}

/// Formats the record as one line.
fn one_line(record: &[u8]) -> String {
    let whole = record.len() <= LOOKED_AT;
    let record = String::from_utf8_lossy(&record[..record.len().min(LOOKED_AT)]);
    let record = hidden::all(record.trim_end_matches('\n'));
    // The end of a cut record may be half a secret.
    let record: Cow<'_, str> =
        if whole { record } else { cut(&record, record.len().saturating_sub(CAP)).to_owned().into() };
    let mut line = text::line(&record).into_owned();
    if line.len() > CAP || !whole {
        line.truncate(cut(&line, CAP - '…'.len_utf8()).len());
        line.push('…');
    }
    line.push('\n');
    line
}

/// Returns the beginning of a text, up to `limit` bytes.
fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

/// How many bytes a line has at most.
const CAP: usize = 4096;
/// How many bytes of a record are searched for secrets; the rest is not shown.
const LOOKED_AT: usize = 4 * CAP;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn h98_a_record_is_one_short_line() {
        assert_eq!(one_line(b"WARN a\nb \x1b[2J\x07\xff\n"), "WARN a\\nb \\u{1b}[2J\\u{7}\u{fffd}\n");
        let long = one_line("ü".repeat(CAP).as_bytes());
        assert!(long.len() <= CAP + 1 && long.ends_with("ü…\n"), "{}", long.len());
        let huge = one_line(&vec![b'\n'; 10 << 20]);
        assert!(huge.len() <= CAP + 1 && huge.lines().count() == 1, "{}", huge.len());
    }

    #[test]
    fn h97_a_record_shows_no_credential() {
        assert_eq!(
            one_line(b"WARN it said Authorization: Bearer t0ps3cret"),
            "WARN it said Authorization: Bearer ***\n"
        );
        assert_eq!(one_line(b"DEBUG GET http://h/x?code=abc"), "DEBUG GET http://h/x?…\n");
    }

    #[test]
    fn h97_a_panic_tells_its_place_and_nothing_else() {
        const AGAIN: &str = "MCP_HOST_TEST_PANICS";
        if std::env::var_os(AGAIN).is_some() {
            tell_panics();
            let secret = ["canary", "in", "a", "panic"].join("-");
            panic!("it fell over {secret}");
        }
        let test = "telemetry::tests::h97_a_panic_tells_its_place_and_nothing_else";
        let mut again = Command::new(std::env::current_exe().unwrap());
        let told = again.args(["--exact", test, "--nocapture"]).env(AGAIN, "1").output().unwrap();
        let told = String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned();
        assert!(told.contains("at src/bin/mcp-host/telemetry/mod.rs:"), "{told}");
        assert!(!told.contains("canary"), "{told}");
    }
}
