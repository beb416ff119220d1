//! `mcp-host sandbox learn SERVER [-- call TOOL ..]`: starts the server without a sandbox once, under strace and a
//! proxy, and shows what its entry has to list so that it works the same in a sandbox.
//!
//! **Invariant:** it asks before the start, and writes nothing into the config. Names come from the server, and are
//! escaped. Keys, HOME, and sockets are shown, but never suggested.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use mcp_host::config::{Sandbox, SandboxHost, SandboxLevel, Transport};
use mcp_host::{Learned, ServerStatus};
use serde::Serialize;
use serde_json::json;

use super::did::{self, Did};
use super::{Folder, SLOWER};
use crate::args::{CallArgs, Common, SandboxLearn};
use crate::commands::{agreed, call};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Plan;
use crate::session::{Session, failure};
use crate::table::{Column, Table};
use crate::text::{self, quoted};

/// The most lines that are shown.
const MOST: usize = 200;
/// The name under which hosts beyond the cap are counted.
const OTHERS: &str = "others";

/// Something that a level refuses.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    kind: &'static str,
    what: String,
    /// Whether `default` refuses it, unless it is listed.
    default: bool,
    /// Whether `strict` refuses it, unless it is listed.
    strict: bool,
    /// Whether the suggested table lists it.
    listed: bool,
}

/// The files, calls and hosts that a server used.
#[derive(Debug, Default)]
struct Seen {
    rows: Vec<Row>,
    learned: Learned,
    /// Hosts that the server requested from the proxy, in the config's notation.
    hosts: BTreeSet<String>,
    /// Whether there were more hosts than are counted separately.
    has_others: bool,
}

pub(super) async fn run(args: &SandboxLearn, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let wanted = wanted(&args.call)?;
    let mut plan = Plan::load(common, false, None)?;
    let mut server = plan.server(&args.server)?.clone();
    let name = server.name.clone();
    let Transport::Stdio(stdio) = &mut server.transport else {
        let error = format!("server `{}` has a URL, so there is no process to watch", text::line(&name));
        return Err(Failure::new(Exit::Usage, error).help("name a server with a `command`"));
    };
    if stdio.is_contained() {
        return Err(super::contained(&name));
    }
    let mut sandbox = stdio.sandbox.clone().unwrap_or_default();
    sandbox.level = SandboxLevel::Off;
    let folder = Folder::make()?;
    let sandbox = sandbox.traced(folder.trace());
    stdio.sandbox = Some(sandbox.clone());
    ask(args, &name, output).await?;
    // Under strace everything takes longer.
    server.start_timeout *= SLOWER;
    server.call_timeout *= SLOWER;
    plan.config.servers = vec![server];
    let again = common.again(false);
    let session = match &wanted {
        Some(_) => Box::pin(Session::call_alone(plan, again.clone(), output)).await?,
        None => Box::pin(Session::look_alone(plan, again.clone(), output)).await?,
    };
    let called = match &wanted {
        Some(wanted) => Box::pin(call::of_session(wanted, &session, output)).await.map(Some),
        None => Ok(None),
    };
    let status = session.status();
    session.close().await;
    if let Some(failure) = status.iter().find_map(|server| failure(server, &again)) {
        return Err(failure);
    }
    let trace = folder.trace();
    let read = tokio::task::spawn_blocking(move || seen(&trace, &sandbox, &status)).await;
    let seen = read.map_err(|error| Failure::new(Exit::Failed, error.to_string()))??;
    tell(&seen, &name, output)?;
    match called? {
        Some(true) => {
            output.remark("note: the call was answered with an error, so it may need more than that");
            Ok(Exit::ToolError)
        }
        _ => Ok(Exit::Ok),
    }
}

/// Parses the words after `--`.
fn wanted(words: &[String]) -> Result<Option<CallArgs>, Failure> {
    let wrong = |error: String| {
        Failure::new(Exit::Usage, error).help("mcp-host sandbox learn SERVER -- call TOOL [JSON | KEY=VALUE]...")
    };
    match words.split_first() {
        None => Ok(None),
        Some((first, rest)) if first == "call" => {
            let first_line = |error: clap::Error| error.to_string().lines().next().unwrap_or_default().to_owned();
            let read = CallArgs::read(rest).map_err(|error| {
                wrong(format!("behind `-- call`: {}", first_line(error).trim_start_matches("error: ")))
            });
            read.map(Some)
        }
        Some((first, _)) => Err(wrong(format!("only `call` may follow `--`, not `{}`", text::line(first)))),
    }
}

/// Asks the user whether the server may start.
async fn ask(args: &SandboxLearn, name: &str, output: &Output) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    let name = text::line(name);
    if !output.interactive() {
        let error = format!("server `{name}` was not started: there is no terminal to ask on");
        let help = format!("mcp-host sandbox learn {} --yes starts it without a sandbox", quoted(&args.server));
        return Err(Failure::new(Exit::Denied, error).help(help));
    }
    output.talk(&format!("`{name}` starts without a sandbox: it may read, write, and send whatever you may."));
    match agreed("Start it once, and watch it? [y/N]", output).await {
        true => Ok(()),
        false => Err(Failure::new(Exit::Denied, format!("server `{name}` was not started"))),
    }
}

/// Reads what strace recorded, and what the proxy counted.
fn seen(trace: &Path, sandbox: &Sandbox, status: &[ServerStatus]) -> Result<Seen, Failure> {
    let wrong = |error: String| Failure::new(Exit::Failed, format!("what strace wrote cannot be read: {error}"));
    let lines = BufReader::new(File::open(trace).map_err(|error| wrong(error.to_string()))?).split(b'\n');
    let lines = lines.map_while(Result::ok).map(|line| String::from_utf8_lossy(&line).into_owned());
    let refused: Vec<&str> = Sandbox::refused_calls().collect();
    let (mut touched, mut others) = (BTreeSet::new(), BTreeMap::new());
    let (mut inner, mut own) = (Vec::new(), BTreeSet::new());
    for did in lines.flat_map(|line| did::read(&line, &refused)) {
        match did {
            Did::Path(path) => drop(touched.insert(path)),
            Did::Socket(path) => drop(others.insert(("socket", path), true)),
            Did::Call(call) => drop(others.insert(("call", call), true)),
            Did::Has(port) => drop(own.insert(port)),
            Did::Address { name, is_loopback: true, port } => inner.push((name, port)),
            Did::Address { name, .. } => drop(others.insert(("address", name), false)),
        }
    }
    // Connections of a server to itself are also possible in a network of its own.
    let inner = inner.into_iter().filter(|(_, port)| !own.contains(port));
    others.extend(inner.map(|(name, _)| (("address", name), false)));
    let learned = sandbox.learned(touched).map_err(|why| Failure::new(Exit::Failed, why))?;
    let counted = status.iter().flat_map(|server| server.refused_hosts.keys());
    let counted: BTreeSet<&String> = counted.collect();
    let hosts: BTreeSet<String> = counted.iter().filter_map(|host| short(host)).collect();
    let mut rows: Vec<Row> = learned.needed.iter().map(of_path).collect();
    let host = |host: &String| Row { kind: "host", what: host.clone(), default: false, strict: true, listed: true };
    rows.extend(hosts.iter().map(host));
    let row = |((kind, what), default)| Row { kind, what, default, strict: true, listed: false };
    rows.extend(others.into_iter().map(row));
    let has_others = counted.iter().any(|host| *host == OTHERS);
    Ok(Seen { rows, learned, hosts, has_others })
}

fn of_path(needed: &mcp_host::Needed) -> Row {
    let kind = if needed.writes { "write" } else { "read" };
    let what = needed.path.display().to_string();
    Row { kind, what, default: needed.default, strict: needed.strict, listed: needed.listed }
}

/// Formats a host as in the config: without the port, if that is 80 or 443.
fn short(host: &str) -> Option<String> {
    let (name, port) = host.rsplit_once(':')?;
    let short = if matches!(port, "80" | "443") { name } else { host };
    short.parse::<SandboxHost>().ok().map(|_| short.to_owned())
}

/// Returns a value of `sandbox` that allows the files and hosts that the server used.
fn table(seen: &Seen) -> serde_json::Value {
    let mut table = json!({ "level": "strict" });
    let paths = |paths: &[std::path::PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    for (key, list) in [
        ("read", paths(&seen.learned.read)),
        ("write", paths(&seen.learned.write)),
        ("network", seen.hosts.iter().cloned().collect()),
    ] {
        if !list.is_empty() {
            table[key] = json!(list);
        }
    }
    table
}

fn tell(seen: &Seen, name: &str, output: &Output) -> Result<(), Failure> {
    let entry = table(seen);
    if output.json {
        return Ok(output.value(&json!({ "sandbox": entry, "refused": seen.rows }))?);
    }
    if seen.rows.is_empty() {
        output.line(&format!("{} needs nothing that a level refuses", text::line(name)))?;
    } else {
        let word = |refused: bool| if refused { "refuses" } else { "grants" };
        let mut table = Table::new(&["DID", "WHAT", "DEFAULT", "STRICT", "LISTED"].map(Column::stays));
        for row in seen.rows.iter().take(MOST) {
            let listed = if row.listed { "yes" } else { "no" };
            let what = text::line(&row.what).into_owned();
            table.row([row.kind.to_owned(), what, word(row.default).into(), word(row.strict).into(), listed.into()]);
        }
        output.table(table)?;
        if seen.rows.len() > MOST {
            output.talk(&format!("and {} more; --json shows all", seen.rows.len() - MOST));
        }
    }
    output.line(&text::line(&format!("\"sandbox\": {entry}")))?;
    hints(seen, name).iter().for_each(|hint| output.talk(hint));
    Ok(())
}

/// Prints how to allow the rows that the table leaves out.
fn hints(seen: &Seen, name: &str) -> Vec<String> {
    let has = |kind: &str| seen.rows.iter().any(|row| row.kind == kind && !row.listed);
    let has_call = |word: &str| seen.rows.iter().any(|row| row.kind == "call" && row.what.contains(word));
    let mut hints = vec![format!(
        "nothing was written: read each line, and put into the entry of {} what it is to have",
        quoted(name)
    )];
    if has("read") || has("write") {
        hints.push("a path that is not listed is HOME, above it, or holds keys: list it by hand, if at all".to_owned());
    }
    if has("address") {
        hints.push(
            "an address is a connection past the proxy: with a list of hosts it fails, since the program does not read HTTPS_PROXY"
                .to_owned(),
        );
    }
    if has("socket") {
        hints.push("Unix sockets need \"unix\": true".to_owned());
    }
    if has_call("CLONE_NEW") || has_call("unshare") {
        hints.push("it makes a sandbox of its own, as browsers do: with \"sandbox\": \"off\" it can, or by its option --no-sandbox it does without".to_owned());
    } else if has("call") {
        hints.push(
            "most programs do without a call that is refused; if this one does not, only \"sandbox\": \"off\" helps"
                .to_owned(),
        );
    }
    if seen.has_others {
        hints.push("it asked for more hosts than are counted: list a domain, such as \"*.example.com\"".to_owned());
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_written_as_the_config_has_them() {
        for (counted, expected) in [
            ("api.example.com:443", Some("api.example.com")),
            ("api.example.com:8443", Some("api.example.com:8443")),
            ("10.0.0.1:80", Some("10.0.0.1")),
            ("[::1]:9", Some("[::1]:9")),
            ("others", None),
        ] {
            assert_eq!(short(counted).as_deref(), expected, "{counted}");
        }
    }

    #[test]
    fn only_a_call_stands_behind_the_line() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let call = wanted(&words("call a__b x=1 --no-check")).expect("it is one").expect("it is there");
        assert_eq!((call.tool.as_str(), &call.arguments[..], call.no_check), ("a__b", &["x=1".to_owned()][..], true));
        assert!(wanted(&[]).is_ok_and(|call| call.is_none()));
        for wrong in ["read x", "call", "call a --nonsense"] {
            assert!(wanted(&words(wrong)).is_err_and(|failure| failure.exit == Exit::Usage), "{wrong}");
        }
    }
}
