//! `mcp-host status`: shows the servers and clients of a running daemon, or everything about one server.

mod answer;
mod one;
mod watch;

use mcp_host::admin;
use mcp_host::{Ledger, Raw};

use self::answer::{AtRate, Cache, Client, Cluster, Config, DaemonStatus, Limit, Peer, Row, Sessions};
use super::asked::{DaemonQuery, failed};
use super::callers::word;
use crate::args::{Common, Status};
use crate::output::Output;
use crate::paint::Tone;
use crate::report::{Exit, Failure};
use crate::table::{Cell, Column, Table};
use crate::text::{self, quoted};

pub(crate) async fn run(args: &Status, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let (listen, again) = (args.listen, common.again(false));
    let asked = DaemonQuery { command: "mcp-host status", listen, again: &again };
    if let Some(name) = args.server.as_ref().filter(|_| args.forget) {
        let said = admin::forget(listen.map(|listen| listen.port()), name).await;
        return one::forgot(name, said.map_err(|error| failed(&asked, &error))?, output);
    }
    if args.watch {
        return watch::run(&asked, output).await;
    }
    let said = admin::ask::<Raw>(listen.map(|listen| listen.port())).await;
    let line = said.map_err(|error| failed(&asked, &error))?;
    if let Some(name) = &args.server {
        return one::show(name, line.as_str(), output);
    }
    if output.json {
        output.line(&text::json(line.as_str()))?;
        return Ok(Exit::Ok);
    }
    output.lines(page(line.as_str(), output)?)?;
    Ok(Exit::Ok)
}

/// Formats a daemon's status.
fn page(line: &str, output: &Output) -> Result<Vec<String>, Failure> {
    let answer = DaemonStatus::read(line)?;
    let mut lines = config(&answer.config);
    let mut servers = Table::new(&SERVERS);
    answer.servers.iter().for_each(|row| servers.row(cells(row)));
    lines.extend(output.drawn(servers));
    lines.extend(unapproved(&answer.servers));
    lines.extend(clients(&answer.clients, output));
    lines.extend(limits(&answer.limits));
    lines.extend(limited(&answer.limited));
    lines.extend(answer.cache.as_ref().map(cache));
    lines.extend(answer.sessions.as_ref().map(sessions).unwrap_or_default());
    lines.extend(answer.cluster.as_ref().map(cluster).unwrap_or_default());
    lines.extend(answer.tokens.iter().filter_map(Ledger::over_budget).map(|line| text::line(&line).into_owned()));
    Ok(lines)
}

/// Describes where the daemon's config differs from the files.
fn config(config: &Config) -> Vec<String> {
    let problems = config.problems.iter().map(|problem| format!("config: not reloaded: {problem}"));
    let pending = config.pending.iter().map(|key| format!("config: {key} applies after a restart"));
    let mut lines: Vec<String> = problems.chain(pending).map(|line| text::line(&line).into_owned()).collect();
    if !lines.is_empty() {
        lines.push(String::new());
    }
    lines
}

fn cells(row: &Row) -> [Cell; 8] {
    [
        row.name.as_str().into(),
        Cell::state(&row.state),
        text::duration(row.since_ms).into(),
        row.revisions_in_short().into(),
        row.transport.as_str().into(),
        row.leases.to_string().into(),
        row.calls.to_string().into(),
        last_error(row),
    ]
}

/// Returns a line for each server that lists what was not approved.
fn unapproved(servers: &[Row]) -> Vec<String> {
    let line = |row: &Row| {
        let withheld = match row.withheld {
            0 => String::new(),
            all if all == row.changed.len() as u64 => ", which clients do not see".to_owned(),
            some => format!(", {some} of which clients do not see"),
        };
        let count = text::count(row.changed.len(), "definition");
        let name = text::line(&row.name);
        format!("{name}: {count} new or changed since approved{withheld}: mcp-host approve {}", quoted(&row.name))
    };
    servers.iter().filter(|row| !row.changed.is_empty()).map(line).collect()
}

/// Formats the last error. A past error is in parentheses, with its age.
fn last_error(row: &Row) -> Cell {
    let error = text::headline(row.last_error.as_deref().unwrap_or_default());
    match row.error_age() {
        Some(age) if !row.error_stands() && !error.is_empty() => {
            Cell::from(format!("({error}, {} ago)", text::duration(age))).tone(Tone::Dim)
        }
        _ => error.into(),
    }
}

/// Formats a client's text about itself.
fn said(text: Option<&str>) -> String {
    text.map(str::trim).filter(|text| !text.is_empty()).map_or_else(|| "-".to_owned(), |text| word(text, NAME))
}

/// Returns a table of the clients, if there are any.
fn clients(clients: &[Client], output: &Output) -> Vec<String> {
    if clients.is_empty() {
        return Vec::new();
    }
    let proven = clients.iter().any(|client| client.user.is_some());
    let heads = ["CLIENT", "VERSION", "REVISION", "TRANSPORT", "SINCE", "LAST SEEN", "CALLS"];
    let columns: Vec<Column> = heads.into_iter().chain(proven.then_some("USER")).map(Column::stays).collect();
    let row = |client: &Client| {
        let mut cells = vec![
            said(Some(&client.name)),
            said(client.version.as_deref()),
            text::line(&client.revision).into_owned(),
            text::line(&client.transport).into_owned(),
            text::duration(client.since_ms),
            format!("{} ago", text::duration(client.idle_ms)),
            client.calls.to_string(),
        ];
        cells.extend(proven.then(|| said(client.user.as_deref())));
        cells
    };
    let mut table = Table::new(&columns);
    clients.iter().take(MOST).for_each(|client| table.row(row(client)));
    let mut lines = vec![String::new()];
    lines.extend(output.drawn(table));
    if clients.len() > MOST {
        lines.push(format!("… and {} more; --json has all of them", clients.len() - MOST));
    }
    lines
}

/// Describes the limits that are more than three quarters used.
fn limits(limits: &[Limit]) -> Vec<String> {
    let near =
        limits.iter().filter(|limit| limit.cap > 0 && limit.used.saturating_mul(4) > limit.cap.saturating_mul(3));
    let line = |limit: &Limit| {
        let unit = limit.unit.as_deref().map(|unit| format!(" {unit}")).unwrap_or_default();
        let line = format!("limit: host.limits.{}: {} of {}{unit} taken", limit.limit, limit.used, limit.cap);
        text::line(&line).into_owned()
    };
    let mut lines: Vec<String> = near.map(line).collect();
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

/// Describes how much is kept of answers.
fn cache(cache: &Cache) -> String {
    let Cache { entries, bytes, size } = cache;
    let word = if *entries == 1 { "answer" } else { "answers" };
    format!("cache: {entries} {word}, {} of {} KiB", bytes.div_ceil(1024), size / 1024)
}

/// Describes which sessions cannot be taken up again.
fn sessions(Sessions { why, bound }: &Sessions) -> Vec<String> {
    let why = why.as_ref().map(|why| format!("sessions: all end with the daemon: {why}"));
    let bound = match bound {
        0 => None,
        1 => Some("sessions: 1 ends with the daemon or when it is idle: its id would be too long".to_owned()),
        more => {
            Some(format!("sessions: {more} end with the daemon or when they are idle: their ids would be too long"))
        }
    };
    let blank = (why.is_some() || bound.is_some()).then(String::new);
    blank.into_iter().chain(why).chain(bound).map(|line| text::line(&line).into_owned()).collect()
}

/// Describes the cluster: how many replicas answer, and one line for each.
fn cluster(Cluster { mode, replica, peers }: &Cluster) -> Vec<String> {
    let answering = peers.iter().filter(|peer| peer.why.is_none()).count();
    let own = text::line(replica);
    let head = format!(
        "cluster: {}, replica {own}, {answering} of {} answer",
        text::line(mode),
        text::count(peers.len(), "peer")
    );
    let line = |peer: &Peer| {
        let address = text::line(&peer.address);
        let mut line = match (&peer.why, &peer.replica) {
            (Some(why), _) => format!("  {address} does not answer: {}", text::line(why)),
            (None, Some(replica)) => format!("  {address} answers as replica {}", text::line(replica)),
            (None, None) => format!("  {address} answers"),
        };
        line.push_str(if peer.leaves { ", and stops" } else { "" });
        line.push_str(if peer.differs { "; its servers or rules differ from those here" } else { "" });
        line
    };
    [String::new(), head].into_iter().chain(peers.iter().map(line)).collect()
}

/// Describes what is at the limit of its rate.
fn limited(limited: &[AtRate]) -> Vec<String> {
    let line = |at: &AtRate| {
        let tool = at.tool.as_deref().map(|tool| format!("{tool} of "));
        let server = match (&at.server, &at.view) {
            (Some(server), _) => format!("server {server}"),
            (None, Some(view)) => format!("view {view}"),
            (None, None) => "all tools".to_owned(),
        };
        let client = at.principal.as_deref().map_or("all clients".to_owned(), |client| format!("client {client}"));
        let (tool, seconds) = (tool.unwrap_or_default(), at.retry_after_ms.div_ceil(1000));
        text::line(&format!("rate: {tool}{server}, {client}: one more call in {seconds} s")).into_owned()
    };
    let mut lines: Vec<String> = limited.iter().take(MOST).map(line).collect();
    if limited.len() > MOST {
        lines.push(format!("… and {} more; --json has all of them", limited.len() - MOST));
    }
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

const SERVERS: [Column; 8] = [
    Column::stays("SERVER"),
    Column::stays("STATE"),
    Column::stays("SINCE"),
    Column::stays("REVISION"),
    Column::stays("TRANSPORT"),
    Column::stays("LEASES"),
    Column::stays("CALLS"),
    Column::wraps("LAST ERROR"),
];
/// How many characters of a client's text about itself are shown.
const NAME: usize = 40;
/// How many clients a table shows.
const MOST: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_when_they_are_nearly_reached() {
        let line = r#"{"limits": [
            {"limit": "sessions", "used": 768, "cap": 1024}, {"limit": "parked", "used": 769, "cap": 1024},
            {"limit": "bodies", "used": 67108864, "cap": 67108864, "unit": "bytes"}, {"limit": "of a later one"}]}"#;
        let answer = DaemonStatus::read(line).ok().unwrap();
        let expected = [
            "",
            "limit: host.limits.parked: 769 of 1024 taken",
            "limit: host.limits.bodies: 67108864 of 67108864 bytes taken",
        ];
        assert_eq!(limits(&answer.limits), expected);
        assert_eq!(limits(&answer.limits[..1]), Vec::<String>::new());
    }

    #[test]
    fn a_cluster_is_told_with_who_answers() {
        let told = |line: &str| DaemonStatus::read(line).ok().unwrap().cluster.as_ref().map(cluster);
        assert_eq!(told("{}"), None);
        let line = r#"{"cluster":{"mode":"sealed","replica":"0a","peers":[{"address":"10.0.0.6:8809","replica":"0b"},
            {"address":"10.0.0.7:8809","replica":"0c","leaves":true,"differs":true},
            {"address":"10.0.0.8:8809","why":"it cannot be reached: refused"}]}}"#;
        insta::assert_snapshot!(told(line).unwrap().join("\n"), @"

        cluster: sealed, replica 0a, 2 of 3 peers answer
          10.0.0.6:8809 answers as replica 0b
          10.0.0.7:8809 answers as replica 0c, and stops; its servers or rules differ from those here
          10.0.0.8:8809 does not answer: it cannot be reached: refused
        ");
    }

    #[test]
    fn sessions_that_do_not_last_are_told() {
        let told = |line: &str| DaemonStatus::read(line).ok().unwrap().sessions.as_ref().map(sessions);
        assert_eq!(told("{}"), None);
        let long = "sessions: 2 end with the daemon or when they are idle: their ids would be too long";
        assert_eq!(told(r#"{"sessions":{"bound":2}}"#).unwrap(), ["", long]);
        let (all, one) = (
            "sessions: all end with the daemon: a.json is broken",
            "sessions: 1 ends with the daemon or when it is idle: its id would be too long",
        );
        assert_eq!(told(r#"{"sessions":{"bound":1,"why":"a.json is broken"}}"#).unwrap(), ["", all, one]);
    }

    #[test]
    fn what_is_at_its_rate_is_told() {
        let line = r#"{"limited": [
            {"principal": "local", "server": "git", "tool": "push", "retryAfterMs": 5400},
            {"principal": "bearer:ci", "retryAfterMs": 1}, {"server": "git", "retryAfterMs": 1000},
            {"view": "review", "retryAfterMs": 2000}]}"#;
        let answer = DaemonStatus::read(line).ok().unwrap();
        let expected = [
            "",
            "rate: push of server git, client local: one more call in 6 s",
            "rate: all tools, client bearer:ci: one more call in 1 s",
            "rate: server git, all clients: one more call in 1 s",
            "rate: view review, all clients: one more call in 2 s",
        ];
        assert_eq!(limited(&answer.limited), expected);
        assert_eq!(limited(&[]), Vec::<String>::new());
    }
}
