//! `mcp-host status SERVER`: shows everything about one server.

use mcp_host::admin::{AsksForgotten, Refused};
use serde_json::Value;

use super::answer::{DaemonStatus, Row, ServerInfo};
use super::quoted;
use crate::advice;
use crate::commands::asked::unknown;
use crate::output::Output;
use crate::paint::{Paint, Tone};
use crate::report::{Exit, Failure};
use crate::text;

/// Shows the server with that name or alias from a daemon's status.
pub(super) fn show(name: &str, line: &str, output: &Output) -> Result<Exit, Failure> {
    let answer = DaemonStatus::read(line)?;
    let Some(at) = answer.servers.iter().position(|row| row.name == name || row.alias == name) else {
        let names: Vec<&str> = answer.servers.iter().map(|row| row.name.as_str()).collect();
        return Err(unknown(name, &names));
    };
    if output.json {
        // Prints the daemon's own JSON, which may contain more than this program knows.
        let whole: Value = serde_json::from_str(line).unwrap_or_default();
        output.value(&whole["servers"][at])?;
        return Ok(Exit::Ok);
    }
    output.lines(lines(&answer.servers[at], output.paint()))?;
    Ok(Exit::Ok)
}

/// Reports what was forgotten about the server.
pub(super) fn forgot(name: &str, said: Result<AsksForgotten, Refused>, output: &Output) -> Result<Exit, Failure> {
    let done = said.map_err(|refused| Failure::new(Exit::Usage, text::line(&refused.error)))?;
    if output.json {
        output.value(&done)?;
        return Ok(Exit::Ok);
    }
    let asked = &done.forgotten;
    let what = if asked.is_empty() { "nothing was known".to_owned() } else { asked.join(", ") };
    output.lines(vec![format!("forgotten what {} asks its clients: {what}", quoted(name))])?;
    Ok(Exit::Ok)
}

fn lines(row: &Row, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |name: &str, values: Vec<String>, tone: Tone| {
        for (index, value) in values.iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            let name = paint.tone(Tone::Dim, &format!("{name:WIDTH$}"));
            lines.push(format!("{name}  {}", paint.tone(tone, &text::line(value))).trim_end().to_owned());
        }
    };
    let alias = if row.alias == row.name { String::new() } else { format!(", shown as {}", row.alias) };
    say("server", vec![format!("{}{alias}", row.name)], Tone::Head);
    say("state", vec![state(row)], Tone::of_state(&row.state));
    say("transport", vec![row.transport.clone()], Tone::Plain);
    say("revision", row.revisions(), Tone::Plain);
    say("says it is", row.server_info.iter().filter_map(info).collect(), Tone::Plain);
    say("offers", vec![offers(row)], Tone::Plain);
    say("calls", vec![format!("{}, {} running", row.calls, row.calls_running)], Tone::Plain);
    say("leases", vec![leases(row)], Tone::Plain);
    say("sharing", row.sharing.clone(), Tone::Plain);
    say("not checked", row.unchecked.clone(), Tone::Plain);
    say("sandbox", row.sandbox.iter().cloned().collect(), Tone::Plain);
    say("refused", refused(row), Tone::Warn);
    say("restarts", vec![row.restarts.to_string()], Tone::Plain);
    if row.dropped > 0 {
        let dropped = format!("{} (responses without a request, notifications over the rate limit)", row.dropped);
        say("dropped", vec![dropped], Tone::Plain);
    }
    say("problems", row.problems.clone(), Tone::Warn);
    let are_all_withheld = row.withheld == row.changed.len() as u64;
    say(if are_all_withheld { "withheld" } else { "not approved" }, row.changed.clone(), Tone::Warn);
    if !row.changed.is_empty() {
        say("to see how", vec![format!("mcp-host approve {}", quoted(&row.name))], Tone::Plain);
    }
    if let Some(error) = &row.last_error {
        let age = row.error_age().map(|age| format!("{} ago", text::duration(age)));
        let over = (!row.error_stands()).then(|| "over".to_owned());
        let told: Vec<String> = age.into_iter().chain(over).collect();
        let told = if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) };
        let (name, tone) = if row.error_stands() { ("error", Tone::Bad) } else { ("last error", Tone::Dim) };
        say(name, vec![format!("{error}{told}")], tone);
    }
    say("stderr", row.stderr.clone(), Tone::Plain);
    if row.error_stands() && row.last_error.is_some() {
        let said = row.stderr.iter().chain(&row.last_error).map(String::as_str);
        let denied = row.sandbox.as_ref().and_then(|_| advice::denied(&row.name, said));
        let denied = advice::refused(&row.name, &row.refused_hosts, row.last_error.as_deref()).or(denied);
        say("perhaps", denied.into_iter().collect(), Tone::Plain);
        say("look closer", vec![format!("mcp-host check --connect {} -v", quoted(&row.name))], Tone::Plain);
    }
    lines
}

/// Returns the hosts that its sandbox refused.
fn refused(row: &Row) -> Vec<String> {
    let times = |count: u64| text::count(usize::try_from(count).unwrap_or(usize::MAX), "time");
    row.refused_hosts.iter().map(|(host, count)| format!("{host} ({})", times(*count))).collect()
}

fn state(row: &Row) -> String {
    let ready = row.ready_after_ms.map(|took| format!("; ready {} after its start", text::duration(took)));
    let waiting = row.waiting_for.as_ref().map(|line| format!("; it said last: {line}"));
    let degraded = row.degraded.then(|| "; its last list failed, an older one is shown".to_owned());
    let more: String = [ready, waiting, degraded].into_iter().flatten().collect();
    format!("{} for {}{more}", row.state, text::duration(row.since_ms))
}

fn info(info: &ServerInfo) -> Option<String> {
    let name = info.name.as_deref()?;
    let version = info.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
    let title = info.title.as_deref().filter(|title| *title != name);
    Some(format!("{name}{version}{}", title.map(|title| format!(" ({title})")).unwrap_or_default()))
}

fn offers(row: &Row) -> String {
    let parts = [
        (row.tools, "tool"),
        (row.prompts, "prompt"),
        (row.resources, "resource"),
        (row.resource_templates, "resource template"),
    ];
    let parts = parts.map(|(number, noun)| text::count(usize::try_from(number).unwrap_or(usize::MAX), noun));
    parts.join(", ")
}

fn leases(row: &Row) -> String {
    let pids: Vec<String> = row.pids.iter().map(u32::to_string).collect();
    match pids.len() {
        0 => row.leases.to_string(),
        1 => format!("{} (process {})", row.leases, pids[0]),
        _ => format!("{} (processes {})", row.leases, pids.join(", ")),
    }
}

const WIDTH: usize = 11;
