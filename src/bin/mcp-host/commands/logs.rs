//! `mcp-host logs`: the last lines of the servers of a running daemon, and lines as they come.

use std::time::SystemTime;

use clap::ValueEnum as _;
use mcp_host::admin::{FeedRequest, Part};

use super::asked::DaemonQuery;
use super::callers::unix_ms;
use super::feed::{Event, Feed, Line, clock};
use crate::args::{Common, Level, Logs, Source};
use crate::output::Output;
use crate::paint::Tone;
use crate::report::{Exit, Failure};
use crate::text;

/// How many lines are asked for if only some of them are shown.
const MANY: usize = 10_000;

pub(super) async fn run(args: &Logs, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let again = common.again(false);
    let asked = DaemonQuery { command: "mcp-host logs", listen: args.listen, again: &again };
    let picks = Picks { since: args.since.map(oldest), source: args.source, level: args.level };
    let is_picky = args.since.is_some() || args.source.is_some() || args.level.is_some();
    let mut request =
        FeedRequest::default().parts([Part::Lines]).past(if is_picky { MANY } else { args.lines.min(MANY) });
    if let Some(server) = &args.server {
        request = request.server(server);
    }
    let mut feed = Feed::open(&asked, &request).await?;
    let mut past: Vec<(Option<Line>, String)> = Vec::new();
    loop {
        match feed.next().await? {
            (Event::Line(line), raw) if picks.has(&line) => past.push((Some(line), raw)),
            (Event::Line(_), _) => {}
            (Event::Snapshot(_), raw) => {
                past.drain(..past.len().saturating_sub(args.lines));
                past.push((None, raw));
                break;
            }
            (_, raw) if output.json => output.line(&text::json(&raw))?,
            _ => {}
        }
    }
    let names = past.iter().filter_map(|(line, _)| Some(text::width(&text::line(line.as_ref()?.server.as_deref()?))));
    let mut shown = Shown { names: names.max().unwrap_or(0), is_one: args.server.is_some() };
    if output.json {
        output.lines(past.iter().map(|(_, raw)| text::json(raw)))?;
    } else {
        let lines: Vec<Line> = past.into_iter().filter_map(|(line, _)| line).collect();
        if lines.is_empty() && !args.follow {
            output.remark("no lines so far");
        }
        output.lines(lines.iter().map(|line| shown.line(line, output)))?;
    }
    if !args.follow {
        return Ok(Exit::Ok);
    }
    loop {
        match feed.next().await? {
            (Event::Line(line), _) if !picks.has(&line) => {}
            (_, raw) if output.json => output.line(&text::json(&raw))?,
            (Event::Line(line), _) => output.line(&shown.line(&line, output))?,
            (Event::Gap(gap), _) => output.remark(&format!("{} events are missing here", gap.missed)),
            _ => {}
        }
    }
}

fn oldest(age: std::time::Duration) -> u64 {
    unix_ms(SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH))
}

/// Which lines to show.
struct Picks {
    since: Option<u64>,
    source: Option<Source>,
    level: Option<Level>,
}

impl Picks {
    fn has(&self, line: &Line) -> bool {
        // A word that this program does not know comes from a newer daemon; such a line is shown.
        let is_source = |source| Source::from_str(&line.source, true).is_ok_and(|of| of == source);
        let is_level = |level| Level::from_str(&line.level, true).is_ok_and(|of| of >= level);
        self.since.is_none_or(|since| line.at >= since)
            && self.source.is_none_or(is_source)
            && self.level.is_none_or(is_level)
    }
}

/// How lines are shown.
struct Shown {
    /// The width of the longest name so far, in columns.
    names: usize,
    /// Whether all lines are from one server, so that its name is not shown.
    is_one: bool,
}

impl Shown {
    fn line(&mut self, line: &Line, output: &Output) -> String {
        let paint = output.paint();
        let time = paint.tone(Tone::Dim, &clock(line.at));
        let tone = match (line.source.as_str(), line.level.as_str()) {
            (_, "error" | "critical" | "alert" | "emergency") => Tone::Bad,
            (_, "warning") => Tone::Warn,
            (_, "debug") | ("host", _) => Tone::Dim,
            _ => Tone::Plain,
        };
        let said = paint.tone(tone, &text::line(&line.text));
        let name = text::line(line.server.as_deref().unwrap_or(HOST));
        if self.is_one && line.server.is_some() {
            return format!("{time}  {said}");
        }
        self.names = self.names.max(text::width(&name));
        format!("{time}  {}  {said}", paint.tone(Tone::Head, &text::pad(&name, self.names)))
    }
}

/// The name that is shown for lines of the host.
const HOST: &str = "-";
