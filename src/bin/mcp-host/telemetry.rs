//! Log records on stderr: one line each, escaped, never over 4 KiB. The library emits them; only this file listens.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::output::Output;
use crate::text;

/// Installs the subscriber: what `RUST_LOG` says, else warnings, or more with each `-v`. `told` are directives for what
/// the command tells by itself.
pub(crate) fn install(output: &Output, verbose: u8, quiet: bool, told: &str) {
    let default = match verbose {
        _ if quiet => "error",
        0 => &format!("warn{told}"),
        1 => "info",
        2 => "info,mcp_host=debug",
        _ => "info,mcp_host=trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(Stderr(output.clone()));
    // Failing means that there is one already.
    let _ = subscriber.try_init();
}

struct Stderr(Output);

/// Collects one record and writes it when it is whole.
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
        self.bytes.extend_from_slice(bytes);
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

/// The record as one line.
fn one_line(record: &[u8]) -> String {
    let record = String::from_utf8_lossy(record);
    let mut line = text::line(record.trim_end_matches('\n')).into_owned();
    if line.len() > CAP {
        let fits = CAP - '…'.len_utf8();
        let end = line.char_indices().map(|(at, _)| at).take_while(|&at| at <= fits).last().unwrap_or(0);
        line.truncate(end);
        line.push('…');
    }
    line.push('\n');
    line
}

const CAP: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_short_line() {
        assert_eq!(one_line(b"WARN a\nb \x1b[2J\n"), "WARN a\\nb \\u{1b}[2J\n");
        let long = one_line("ü".repeat(CAP).as_bytes());
        assert!(long.len() <= CAP + 1 && long.ends_with("ü…\n"), "{}", long.len());
    }
}
