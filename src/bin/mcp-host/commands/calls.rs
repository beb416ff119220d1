//! `mcp-host calls`: the last calls of a running daemon, and calls as they end.

use mcp_host::admin::{FeedRequest, Part};

use super::asked::DaemonQuery;
use super::feed::{Call, Event, Feed, clock};
use crate::args::{Calls, Common};
use crate::output::Output;
use crate::paint::Tone;
use crate::report::{Exit, Failure};
use crate::table::{Cell, Column, Table};
use crate::text;

/// How many calls are asked for if only some of them are shown.
const MANY: usize = 10_000;

pub(super) async fn run(args: &Calls, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let again = common.again(false);
    let asked = DaemonQuery { command: "mcp-host calls", listen: args.listen, again: &again };
    let past = if args.failed { MANY } else { args.number.min(MANY) };
    let mut request = FeedRequest::default().parts([Part::Calls]).past(past);
    if let Some(server) = &args.server {
        request = request.server(server);
    }
    if let Some(told) = args.args {
        request = request.arguments(told.into());
    }
    let mut feed = Feed::open(&asked, &request).await?;
    let is_wanted = |call: &Call| !args.failed || call.has_failed();
    let mut ended: Vec<(Option<Call>, String)> = Vec::new();
    let running = loop {
        match feed.next().await? {
            (Event::Call(call), raw) if is_wanted(&call) => ended.push((Some(call), raw)),
            (Event::Call(_), _) => {}
            (Event::Snapshot(snapshot), raw) => {
                ended.drain(..ended.len().saturating_sub(args.number));
                ended.push((None, raw));
                break snapshot.running;
            }
            (_, raw) if output.json => output.line(&text::json(&raw))?,
            _ => {}
        }
    };
    if output.json {
        output.lines(ended.iter().map(|(_, raw)| text::json(raw)))?;
    } else {
        let mut table = Table::new(&CALLS);
        let ended: Vec<Call> = ended.into_iter().filter_map(|(call, _)| call).collect();
        let running: Vec<Call> = running.into_iter().filter(|_| !args.failed).collect();
        if ended.is_empty() && running.is_empty() {
            output.remark(if args.failed { "no call has failed so far" } else { "no calls so far" });
        } else {
            ended.iter().chain(&running).for_each(|call| table.row(cells(call)));
            output.table(table)?;
            if args.args.is_some() && !args.follow {
                output.remark("arguments are kept while somebody asks for them: follow with -f");
            }
        }
    }
    if !args.follow {
        return Ok(Exit::Ok);
    }
    loop {
        match feed.next().await? {
            (Event::Call(call), _) if args.failed && !call.has_failed() => {}
            (_, raw) if output.json => output.line(&text::json(&raw))?,
            (Event::Call(call), _) if call.phase == "end" => {
                output.line(&line(&call, output))?;
                output.lines(told(&call))?;
            }
            (Event::Call(call), _) => output.lines(counts(&call))?,
            (Event::Gap(gap), _) => output.remark(&format!("{} events are missing here", gap.missed)),
            _ => {}
        }
    }
}

const CALLS: [Column; 6] = [
    Column::stays("TIME"),
    Column::stays("SERVER"),
    Column::stays("CALL"),
    Column::stays("CLIENT"),
    Column::stays("TOOK"),
    Column::stays("OUTCOME"),
];

/// Returns the cells of a call's row in the table.
fn cells(call: &Call) -> [Cell; 6] {
    let said = |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned();
    let took = if call.outcome.is_some() { took(call.ms) } else { "-".to_owned() };
    let (outcome, tone) = outcome(call);
    [
        Cell::from(clock(call.at)).tone(Tone::Dim),
        said(call.server.as_deref()).into(),
        what(call).into(),
        said(call.client.as_deref()).into(),
        took.into(),
        Cell::from(outcome).tone(tone),
    ]
}

/// Formats a call that has ended as one line.
fn line(call: &Call, output: &Output) -> String {
    let paint = output.paint();
    let (outcome, tone) = outcome(call);
    let server = text::line(call.server.as_deref().unwrap_or("-")).into_owned();
    let what = text::line(&what(call)).into_owned();
    let client = call.client.as_deref().map(|client| format!("  {}", text::line(client))).unwrap_or_default();
    let time = paint.tone(Tone::Dim, &clock(call.at));
    let server = paint.tone(Tone::Head, &server);
    format!("{time}  {server}  {what}{client}  {}  {}", took(call.ms), paint.tone(tone, &text::line(&outcome)))
}

/// Formats the arguments and the result of a call, if the daemon sends them.
fn told(call: &Call) -> Vec<String> {
    let words = [("arguments", &call.args), ("result", &call.result)];
    let told = words.into_iter().filter_map(|(word, value)| Some((word, value.as_ref()?)));
    told.map(|(word, value)| text::line(&format!("    {word}  {}", value.get())).into_owned()).collect()
}

/// Formats the counts of calls that have no events of their own.
fn counts(call: &Call) -> Vec<String> {
    let line = |counted: &super::feed::Counted| {
        let server = if counted.server.is_empty() { "-" } else { &counted.server };
        let line = format!(
            "{}  {server}  {} more",
            clock(call.at),
            text::count(usize::try_from(counted.calls).unwrap_or(usize::MAX), "call")
        );
        let failed = if counted.failed > 0 { format!(", {} failed", counted.failed) } else { String::new() };
        text::line(&format!("{line}{failed}")).into_owned()
    };
    call.counts.iter().map(line).collect()
}

/// Returns the name of a called tool. Other calls have their method before the name.
pub(super) fn what(call: &Call) -> String {
    match (call.method.as_str(), call.tool.as_deref()) {
        ("tools/call", Some(tool)) => tool.to_owned(),
        (method, Some(target)) => format!("{method} {target}"),
        (method, None) => method.to_owned(),
    }
}

pub(super) fn outcome(call: &Call) -> (String, Tone) {
    let Some(word) = call.outcome.as_deref() else { return ("running".to_owned(), Tone::Plain) };
    let tone = match word {
        "ok" => Tone::Good,
        "tool_error" | "error" | "host_error" => Tone::Bad,
        _ => Tone::Warn,
    };
    let kind = call.kind.as_deref().map(|kind| format!(": {kind}")).unwrap_or_default();
    let size = if call.bytes_out >= 100 * 1024 { format!(", {} KiB", call.bytes_out / 1024) } else { String::new() };
    (format!("{word}{kind}{size}"), tone)
}

/// Formats how long a call took; below 10 ms with tenths.
pub(super) fn took(ms: f64) -> String {
    if ms < 10.0 {
        return format!("{ms:.1} ms");
    }
    // A time that no call takes is shown as the longest one.
    text::duration(
        std::time::Duration::try_from_secs_f64(ms / 1000.0)
            .map_or(u64::MAX, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_told_in_words() {
        let read = |text: &str| serde_json::from_str::<Call>(text).unwrap();
        let call =
            read(r#"{"method": "tools/call", "tool": "a", "outcome": "host_error", "kind": "timeout", "ms": 60000.0}"#);
        assert_eq!(
            (what(&call), outcome(&call), took(call.ms)),
            ("a".into(), ("host_error: timeout".into(), Tone::Bad), "1 min".into())
        );
        let read = read(
            r#"{"method": "resources/read", "tool": "file:///a", "outcome": "ok", "ms": 0.4, "bytesOut": 204800}"#,
        );
        assert_eq!(
            (what(&read), outcome(&read), took(read.ms)),
            ("resources/read file:///a".into(), ("ok, 200 KiB".into(), Tone::Good), "0.4 ms".into())
        );
        assert!(!read.has_failed() && call.has_failed());
    }
}
