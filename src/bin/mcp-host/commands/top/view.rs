//! Draws `top`: a head, one pane, and a foot. It needs 60 columns and 16 rows; wider terminals show more columns.
//!
//! **Invariant:** text from others is escaped before it is drawn. Color is never the only sign of anything.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Row, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::keys::HELP;
use super::state::{App, Pane, Server, Tool};
use crate::commands::calls;
use crate::commands::feed::{Call, Line, clock};
use crate::hidden;
use crate::paint::Tone;
use crate::text;

/// The smallest supported terminal: columns and rows.
const LEAST: (u16, u16) = (60, 16);

/// The room for the rows of a pane.
#[derive(Clone, Copy)]
struct Room {
    width: usize,
    height: usize,
}

/// A pane: the headings of its columns, and its visible rows.
struct Drawn {
    columns: String,
    rows: Vec<Row<'static>>,
    /// The index of the first visible row, and the number of all rows.
    first: usize,
    count: usize,
}

pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("top needs {} columns and {} rows", LEAST.0, LEAST.1);
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let [head, names, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(area);
    let room = Room { width: body.width.into(), height: body.height.into() };
    let Drawn { columns, rows, first, count } = pane(app, room);
    (app.scroll, app.rows) = (first, (count, room.height));
    frame.render_widget(Paragraph::new(header(app, head.width.into())), head);
    frame.render_widget(Paragraph::new(Row::styled(columns, Style::new().add_modifier(Modifier::BOLD))), names);
    frame.render_widget(Paragraph::new(rows), body);
    frame.render_widget(Paragraph::new(footer(app, foot.width.into())), foot);
    if app.is_help {
        help(frame, area);
    }
}

/// Returns the style of a tone.
fn style(app: &App, tone: Tone) -> Style {
    let plain = Style::new();
    match (tone, app.has_colors) {
        (Tone::Good, true) => plain.fg(Color::Green),
        (Tone::Bad | Tone::Error, true) => plain.fg(Color::Red),
        (Tone::Warn, true) => plain.fg(Color::Yellow),
        (Tone::Help, true) => plain.fg(Color::Cyan),
        (Tone::Bad | Tone::Error | Tone::Head, _) => plain.add_modifier(Modifier::BOLD),
        (Tone::Dim, _) => plain.add_modifier(Modifier::DIM),
        _ => plain,
    }
}

/// Returns a foreign text, escaped and padded or cut to this width.
fn cell(value: &str, room: usize) -> String {
    if room == 0 {
        return String::new();
    }
    let shown = text::line(&hidden::known(value)).into_owned();
    text::pad(&text::cut(&shown, room), room)
}

/// Returns a time followed by a blank.
fn time(at: u64) -> String {
    format!("{} ", cell(&clock(at), 14))
}

/// Returns a time without milliseconds, followed by a blank.
fn seconds(at: u64) -> String {
    format!("{} ", cell(clock(at).split('.').next().unwrap_or_default(), 8))
}

/// Returns a text aligned to the right.
fn right(value: &str, room: usize) -> String {
    let shown = text::cut(value, room);
    format!("{}{shown}", " ".repeat(room.saturating_sub(text::width(&shown))))
}

fn header(app: &App, width: usize) -> Vec<Row<'static>> {
    let model = app.shown();
    let mut states: Vec<(&str, usize)> = Vec::new();
    for server in model.servers.values() {
        match states.iter_mut().find(|(state, _)| *state == server.text("state")) {
            Some((_, count)) => *count += 1,
            None => states.push((server.text("state"), 1)),
        }
    }
    let counts: Vec<String> = states.iter().map(|(state, count)| format!("{count} {}", text::line(state))).collect();
    let rate: f64 = model.servers.values().filter_map(|server| server.number("rate")).fold(0.0, |sum, rate| sum + rate);
    let servers = text::count(model.servers.len(), "server");
    let colon = if counts.is_empty() { "" } else { ": " };
    let endpoint = model.endpoint.trim_start_matches("http://");
    let first = format!("{}  {rate:.1}/s  {servers}{colon}{}", text::line(endpoint), counts.join(", "));
    let what = match app.pane {
        Pane::Servers => format!("Servers by {}", app.sort.word()),
        Pane::Timeline => "Changes".to_owned(),
        Pane::Tools => "Tools by use".to_owned(),
        Pane::Calls => "Calls".to_owned(),
        Pane::Lines => "Lines".to_owned(),
    };
    let opened = app.opened.as_deref().map(|name| about(app, name)).unwrap_or_default();
    let filter = if app.filter.is_empty() { String::new() } else { format!("  /{}", app.filter) };
    let missed = if model.missed > 0 { format!("  {} events missed", model.missed) } else { String::new() };
    let paused = if app.is_paused() { "paused  " } else { "" };
    let untold = match app.pane {
        Pane::Calls | Pane::Tools if model.untold > 0 => format!("  {} more are counted, not told", model.untold),
        _ => String::new(),
    };
    let second = format!("{paused}{what}{opened}{filter}{untold}{missed}");
    vec![
        Row::styled(cell(&first, width), Style::new().add_modifier(Modifier::BOLD)),
        Row::styled(cell(&second, width), style(app, Tone::Dim)),
    ]
}

/// Describes the server that is shown alone.
fn about(app: &App, name: &str) -> String {
    let Some(server) = app.shown().servers.get(name) else { return format!(" of {name}, which is gone") };
    let mut about = format!(" of {name}, {}: {}", server.text("state"), server.text("target"));
    let error = server.text("lastError");
    if !error.is_empty() && server.text("state") != "connected" {
        about = format!(" of {name}, {}: {error}", server.text("state"));
    }
    about
}

fn footer(app: &App, width: usize) -> Row<'static> {
    if let Some(server) = &app.asks {
        return Row::styled(cell(&format!("restart {server}? y or n"), width), style(app, Tone::Warn));
    }
    if app.is_typing {
        return Row::raw(cell(&format!("/{}_  Enter keeps it, Esc clears it", app.filter), width));
    }
    if let Some(note) = &app.note {
        return Row::styled(cell(note, width), style(app, Tone::Help));
    }
    let keys = match app.opened {
        None => "Enter one  / filter  s sort  c l t  r restart  p pause  ? q",
        Some(_) => "Tab next  Esc back  / filter  r restart  p pause  ? q",
    };
    Row::styled(cell(keys, width), style(app, Tone::Dim))
}

fn pane(app: &App, room: Room) -> Drawn {
    match app.pane {
        Pane::Servers => servers(app, room),
        Pane::Timeline => timeline(app, room),
        Pane::Tools => tools(app, room),
        Pane::Calls => call_rows(app, room),
        Pane::Lines => lines(app, room),
    }
}

/// Draws the visible items; shows `why` if there are none.
fn drawn<T>(
    app: &App,
    (all, first, height): (&[T], usize, usize),
    columns: String,
    why: &str,
    row: impl FnMut(&T) -> Row<'static>,
) -> Drawn {
    if all.is_empty() {
        let why = if app.filter.is_empty() { why } else { "the filter lets nothing pass: Esc clears it" };
        return Drawn { columns, rows: vec![Row::styled(why.to_owned(), style(app, Tone::Dim))], first: 0, count: 1 };
    }
    Drawn { columns, rows: all.iter().skip(first).take(height).map(row).collect(), first, count: all.len() }
}

/// Returns all items, and the index of the first visible one.
fn scrolled<'a, T>(app: &App, all: &'a [T], height: usize) -> (&'a [T], usize, usize) {
    (all, app.scroll.min(all.len().saturating_sub(height)), height)
}

/// Returns the glyph of a state.
fn glyph(state: &str) -> &'static str {
    match state {
        "connected" => "✓",
        "failed" => "✗",
        "unauthorized" => "!",
        "connecting" | "initializing" | "reconnecting" => "~",
        _ => "-",
    }
}

fn servers(app: &App, Room { width, height }: Room) -> Drawn {
    let (is_wide, has_curve) = (width >= 92, width >= 130);
    // The widths of the state, of the numbers, and of the gaps.
    let fixed = 15 + 6 + 14 + 8 + 5 + if is_wide { 6 + 8 + 9 + 6 } else { 0 } + if has_curve { 62 } else { 0 };
    let name_room = width.saturating_sub(fixed);
    let mut columns = format!("{}{}", text::pad("  STATE", 15), text::pad("NAME", name_room));
    columns += &format!("{}{}{}{}", right("RATE", 6), right("P50/P95 ms", 14), right("RUN/Q", 8), right("ERR", 5));
    if is_wide {
        columns += &format!("{}{}{}{}", right("LEASE", 6), right("TOKENS", 8), right("RSS", 9), right("CPU", 6));
    }
    if has_curve {
        columns += "  60 s";
    }
    let servers = app.servers();
    let at = app.place(&servers);
    let chosen = servers.get(at).map(|(name, _)| *name);
    // Scrolls so that the cursor is visible.
    let first = app.scroll.clamp((at + 1).saturating_sub(height), at);
    drawn(app, (&servers, first, height), columns, "no servers yet: mcp-host add", |(name, server)| {
        let state = server.text("state");
        let tone = style(app, Tone::of_state(state));
        let mut spans =
            vec![Span::styled(cell(&format!("{} {state}", glyph(state)), 15), tone), Span::raw(cell(name, name_room))];
        let errors = server.errors();
        spans.push(Span::raw(numbers(server)));
        spans.push(Span::styled(
            right(&errors.to_string(), 5),
            if errors > 0 { style(app, Tone::Bad) } else { Style::new() },
        ));
        if is_wide {
            spans.push(Span::raw(costs(server)));
        }
        if has_curve {
            spans.push(Span::styled(format!("  {}", curve(&server.curve)), style(app, Tone::Good)));
        }
        let row = Row::from(spans);
        if Some(*name) == chosen { row.style(Style::new().add_modifier(Modifier::REVERSED)) } else { row }
    })
}

/// Returns the rate, the times, and how many calls run and wait.
fn numbers(server: &Server) -> String {
    let rate = format!("{:.1}", server.number("rate").unwrap_or_default());
    let time = |key: &str| server.number(key).map_or_else(|| "-".to_owned(), short);
    let times = format!("{}/{}", time("p50"), time("p95"));
    let count = |key: &str| server.whole(key).unwrap_or_default();
    let running = format!("{}/{}", count("callsRunning"), count("callsQueued"));
    format!("{}{}{}", right(&rate, 6), right(&times, 14), right(&running, 8))
}

/// Returns the leases, the tokens of the definitions, memory, and processor time.
fn costs(server: &Server) -> String {
    let leases = server.whole("leases").unwrap_or_default().to_string();
    let tokens = server.whole("tokens").map_or_else(
        || "-".to_owned(),
        |tokens| match tokens {
            0..1000 => tokens.to_string(),
            _ => format!("{}.{}k", tokens / 1000, tokens % 1000 / 100),
        },
    );
    let memory = server.whole("rss").map_or_else(|| "-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    let cpu = server.number("cpu").map_or_else(|| "-".to_owned(), |share| format!("{share:.0}%"));
    format!("{}{}{}{}", right(&leases, 6), right(&tokens, 8), right(&memory, 9), right(&cpu, 6))
}

/// Formats milliseconds in a few characters.
fn short(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

/// Formats counts as bars, the newest at the right.
fn curve(counts: &VecDeque<u64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = counts.iter().copied().max().unwrap_or_default().max(1);
    let bar = |count: &u64| match count {
        0 => ' ',
        count => BARS[usize::try_from((count * 7).div_ceil(most)).unwrap_or(7).min(7)],
    };
    let bars: String = counts.iter().map(bar).collect();
    format!("{}{bars}", " ".repeat(60_usize.saturating_sub(counts.len())))
}

fn timeline(app: &App, Room { width, height }: Room) -> Drawn {
    let server = app.opened.as_ref().and_then(|name| app.shown().servers.get(name));
    let word = |moment: &serde_json::Value, key: &str| moment[key].as_str().unwrap_or_default().to_owned();
    let moments: Vec<_> = server.iter().flat_map(|server| server.list("timeline")).rev().collect();
    let columns = format!("{}{}{}CAUSE", text::pad("TIME", 15), text::pad("FROM", 18), text::pad("TO", 16));
    let why = match server {
        Some(_) => "its state has not changed since the daemon has started",
        None => "the server is gone: Esc goes back",
    };
    drawn(app, scrolled(app, &moments, height), columns, why, |moment| {
        let (from, to, cause) = (word(moment, "from"), word(moment, "to"), word(moment, "cause"));
        let time = time(moment["at"].as_u64().unwrap_or_default());
        Row::from(vec![
            Span::styled(time, style(app, Tone::Dim)),
            Span::raw(cell(&format!("{from} ->"), 18)),
            Span::styled(cell(&format!("{} {to}", glyph(&to)), 16), style(app, Tone::of_state(&to))),
            Span::raw(cell(&cause, width.saturating_sub(49))),
        ])
    })
}

fn tools(app: &App, Room { width, height }: Room) -> Drawn {
    let is_of = |server: &str| app.opened.as_deref().is_none_or(|opened| opened == server);
    let known = app.shown().tools.iter();
    let mut used: Vec<(&(String, String), &Tool)> =
        known.filter(|((server, tool), _)| is_of(server) && app.passes(&[server, tool])).collect();
    used.sort_by_key(|(_, tool)| std::cmp::Reverse(tool.calls));
    let server_room = if app.opened.is_some() { 0 } else { 16 };
    let tool_room = width.saturating_sub(server_room + 30);
    let server = if server_room > 0 { text::pad("SERVER", server_room) } else { String::new() };
    let columns = format!(
        "{server}{}{}{}{}",
        text::pad("TOOL", tool_room),
        right("CALLS", 10),
        right("FAILED", 8),
        right("MEAN ms", 12)
    );
    drawn(app, scrolled(app, &used, height), columns, "no calls since top looks", |((server, name), tool)| {
        #[expect(clippy::cast_precision_loss, reason = "a mean needs no exact count")]
        let mean = tool.ms / tool.calls.max(1) as f64;
        let tone = if tool.failed > 0 { style(app, Tone::Bad) } else { Style::new() };
        Row::from(vec![
            Span::raw(if server_room > 0 { cell(server, server_room) } else { String::new() }),
            Span::raw(cell(name, tool_room)),
            Span::raw(right(&tool.calls.to_string(), 10)),
            Span::styled(right(&tool.failed.to_string(), 8), tone),
            Span::raw(right(&short(mean), 12)),
        ])
    })
}

fn call_rows(app: &App, Room { width, height }: Room) -> Drawn {
    let is_of = |call: &&Call| app.opened.is_none() || app.opened.as_deref() == call.server.as_deref();
    let passing = |call: &&Call| {
        let texts = [call.server.as_deref(), call.tool.as_deref(), call.client.as_deref(), call.outcome.as_deref()];
        app.passes(&texts.map(Option::unwrap_or_default))
    };
    // A narrow terminal leaves its room to the name of what is called.
    let is_narrow = width < 80;
    let (time_room, server_room, outcome_room) = if is_narrow { (9, 10, 12) } else { (15, 14, 16) };
    let client_room = if width >= 92 { 16 } else { 0 };
    let what_room = width.saturating_sub(time_room + server_room + client_room + outcome_room + 12);
    let columns = format!(
        "{}{}{}{}{}  OUTCOME",
        text::pad("TIME", time_room),
        text::pad("SERVER", server_room),
        text::pad("CALL", what_room),
        text::pad(if client_room > 0 { "CLIENT" } else { "" }, client_room),
        right("TOOK", 10)
    );
    let calls: Vec<&Call> = app.shown().calls.iter().rev().filter(is_of).filter(passing).collect();
    drawn(app, scrolled(app, &calls, height), columns, "no calls since top looks", |call| {
        let (outcome, tone) = calls::outcome(call);
        Row::from(vec![
            Span::styled(if is_narrow { seconds(call.at) } else { time(call.at) }, style(app, Tone::Dim)),
            Span::raw(cell(call.server.as_deref().unwrap_or("-"), server_room)),
            Span::raw(cell(&calls::what(call), what_room)),
            Span::raw(cell(call.client.as_deref().unwrap_or("-"), client_room)),
            Span::raw(right(&calls::took(call.ms), 10)),
            Span::styled(format!("  {}", cell(&outcome, outcome_room)), style(app, tone)),
        ])
    })
}

fn lines(app: &App, Room { width, height }: Room) -> Drawn {
    let is_of = |line: &&Line| app.opened.is_none() || app.opened.as_deref() == line.server.as_deref();
    let passing = |line: &&Line| app.passes(&[line.server.as_deref().unwrap_or_default(), &line.text, &line.level]);
    let columns = format!("{}{}{}TEXT", text::pad("TIME", 15), text::pad("SERVER", 14), text::pad("FROM", 8));
    let lines: Vec<&Line> = app.shown().lines.iter().rev().filter(is_of).filter(passing).collect();
    drawn(app, scrolled(app, &lines, height), columns, "no lines yet", |line| {
        let tone = match &*line.level {
            "error" | "critical" | "alert" | "emergency" => Tone::Bad,
            "warning" => Tone::Warn,
            _ => Tone::Plain,
        };
        Row::from(vec![
            Span::styled(time(line.at), style(app, Tone::Dim)),
            Span::raw(cell(line.server.as_deref().unwrap_or("-"), 14)),
            Span::raw(cell(&line.source, 8)),
            Span::styled(cell(&line.text, width.saturating_sub(37)), style(app, tone)),
        ])
    })
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let rows: Vec<Row<'static>> =
        HELP.iter().map(|(keys, what)| Row::raw(format!(" {} {what} ", text::pad(keys, 10)))).collect();
    let width = rows.iter().map(Row::width).max().unwrap_or_default();
    let (width, height) = (u16::try_from(width).unwrap_or(area.width).min(area.width), 12.min(area.height));
    let inner = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, inner);
    frame.render_widget(Paragraph::new(rows).style(Style::new().add_modifier(Modifier::REVERSED)), inner);
}
