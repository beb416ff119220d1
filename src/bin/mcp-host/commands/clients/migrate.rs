//! `mcp-host migrate`: copies the servers of clients, starts each once, links the clients, and removes from their files
//! the servers that work here. A server that does not work stays in the client's file, and only there.

use mcp_host::config::edit::{self, Change};
use mcp_host::config::{Config, Transport};
use mcp_host::edits::Error;
use mcp_host::{ServerStatus, StateName};

use super::here::{self, Here};
use super::import::{Imports, Met};
use super::link::{self, Entry};
use super::own::{Own, with};
use super::plan::{Plan, Planned};
use super::way::Way;
use crate::args::{Common, Link, Move};
use crate::commands::edits::failures::failed;
use crate::commands::edits::write;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers;
use crate::session::{Session, failure};
use crate::text;

/// The result of starting a server of the config once.
#[derive(Debug)]
struct Tried {
    name: String,
    /// Why the server does not work; `None` if it works or needs a login.
    why: Option<String>,
    wants_login: bool,
    tools: usize,
}

pub(super) async fn run(args: &Link, common: &Common, output: &Output) -> Result<Exit, Failure> {
    write::refuse_below()?;
    may_ask(&args.of, output)?;
    let own = Own::find(common, args.of.user.user)?;
    let chosen = here::chosen(&args.of.clients, args.of.all, &own)?;
    let imports = Imports::of(&own, &chosen.clients);
    let mut plan = Plan::default();
    chosen.refused.iter().for_each(|(client, why)| plan.refuse(client, why));
    for (client, server, why) in &imports.refused {
        plan.refuse_server(client, server, format!("stays there: {why}"));
    }
    let tried = Box::pin(attempt(&own, &imports, output)).await?;
    let works = |name: &str| tried.iter().any(|tried| tried.name == name && tried.why.is_none());
    for Met { client, known, name } in &imports.met {
        let found = tried.iter().find(|tried| tried.name == *name);
        match found.map(|tried| tried.why.as_deref()) {
            Some(None) => {}
            Some(Some(why)) => plan.refuse_server(client, &known.name, format!("stays there: {why}")),
            None if known.is_off => {
                plan.remarks.push(format!("note: `{}` of {} is off, and stays there", known.name, client.name))
            }
            None => plan.refuse_server(client, &known.name, "stays there: it is turned off in the config"),
        }
    }
    let mut changes = imports.changes(|added| works(&added.name));
    if own.text.is_none() && changes.is_empty() {
        plan.remarks.push("no server works here, so no client is linked".to_owned());
        return plan.carry_out("migrate", &args.of, output).await;
    }
    let (mut ways, mut linked, mut moved) = (Vec::new(), Vec::new(), Vec::new());
    for here in &chosen.clients {
        let gone: Vec<&Met<'_>> =
            imports.met.iter().filter(|met| met.client == here.client && works(&met.name)).collect();
        let (way, mut edits) = match link::entry(here, args.url.as_deref(), &own)? {
            Entry::There => (None, Vec::new()),
            Entry::Refused(why) => {
                plan.refuse(here.client, why);
                continue;
            }
            Entry::New(way, edits) => (Some(*way), edits),
        };
        edits.extend(gone.iter().map(|met| Change::Remove { name: met.known.name.clone() }));
        if plan.add(here, &own, edits) {
            ways.extend(way);
            linked.push(here);
            moved.extend(gone);
        }
    }
    changes.extend(Way::settings(&ways, &own));
    let own_file = Planned::of_own(&own, changes)?;
    plan.files.splice(0..0, own_file);
    plan.remarks.extend(imports.remarks());
    plan.remarks.extend(logins(&tried));
    plan.remarks.extend(too_many(&linked, &tried));
    plan.remarks.extend(link::afterwards(&linked, &plan));
    plan.summary = summary(&moved, &linked);
    plan.carry_out("migrate", &args.of, output).await
}

/// Fails before anything is started if the user could not be asked to confirm afterwards.
fn may_ask(how: &Move, output: &Output) -> Result<(), Failure> {
    if how.yes || how.dry_run || output.interactive() {
        return Ok(());
    }
    let error = "nothing was started or written: there is no terminal to ask on";
    let help = "mcp-host migrate … --dry-run shows what would be written, --yes writes it";
    Err(Failure::new(Exit::Denied, error).help(help))
}

/// Starts each server that a client has, once.
async fn attempt(own: &Own, imports: &Imports<'_>, output: &Output) -> Result<Vec<Tried>, Failure> {
    let text = own.text.as_deref().unwrap_or_default();
    let changes = imports.changes(|_| true);
    let (text, _) = edit::edit_all(text, &own.file, &own.request, &changes)
        .map_err(|refused| failed(Error::Refused(refused), &own.file))?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let request = with(&own.request, &text);
    let mut config = servers::load(&request)?;
    let is_met = |name: &str| imports.met.iter().any(|met| met.name == name);
    config.servers.retain(|server| is_met(&server.name) && server.disabled.is_none());
    let mut tried = unusable(&mut config);
    if config.servers.is_empty() {
        return Ok(tried);
    }
    output.remark(&format!("starting {} once", text::count(config.servers.len(), "server")));
    let session = Box::pin(Session::look_alone(servers::Plan::of(config, request), String::new(), output)).await?;
    let status = session.status();
    session.close().await;
    tried.extend(status.iter().map(outcome));
    Ok(tried)
}

/// Removes and returns the servers that cannot be started as configured.
fn unusable(config: &mut Config) -> Vec<Tried> {
    let tried = config.servers.iter().filter_map(|server| {
        let why = server.unusable.as_ref()?.to_string();
        Some(Tried { name: server.name.clone(), why: Some(why), wants_login: false, tools: 0 })
    });
    let tried = tried.collect();
    config.servers.retain(|server| server.unusable.is_none());
    tried
}

fn outcome(status: &ServerStatus) -> Tried {
    let wants_login = status.state == StateName::Unauthorized;
    let why = if wants_login { None } else { failure(status, "").map(|failure| failure.first()) };
    Tried { name: status.name.clone(), why, wants_login, tools: status.tools }
}

/// Describes how many processes are saved: `12 processes -> 4, 3 clients`.
fn summary(moved: &[&Met<'_>], linked: &[&Here]) -> String {
    let clients = text::count(linked.len(), "client");
    let processes: Vec<&&Met<'_>> = moved.iter().filter(|met| met.known.is_process()).collect();
    let distinct = |all: &[&&Met<'_>]| {
        let mut names: Vec<&str> = all.iter().map(|met| met.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    };
    let remote: Vec<&&Met<'_>> = moved.iter().filter(|met| is_remote(met)).collect();
    let urls = match remote.len() {
        0 => String::new(),
        count => format!(", {} -> {}", text::count(count, "connection"), distinct(&remote)),
    };
    match moved.len() {
        0 => format!("linked {clients}"),
        _ => {
            let noun = if processes.len() == 1 { "process" } else { "processes" };
            format!("{} {noun} -> {}{urls}, {clients}", processes.len(), distinct(&processes))
        }
    }
}

fn is_remote(met: &Met<'_>) -> bool {
    !met.known.is_off
        && met.known.server.as_ref().is_some_and(|server| !matches!(server.transport, Transport::Stdio(_)))
}

fn logins(tried: &[Tried]) -> Vec<String> {
    let wanted = tried.iter().filter(|tried| tried.wants_login);
    wanted
        .map(|tried| format!("`{}` wants a login: mcp-host login {}", tried.name, text::quoted(&tried.name)))
        .collect()
}

/// Returns a line for each client that accepts fewer tools than there are now.
fn too_many(linked: &[&Here], tried: &[Tried]) -> Vec<String> {
    let tools: usize = tried.iter().map(|tried| tried.tools).sum();
    let over = linked.iter().filter_map(|here| Some((here.client, here.client.tools.filter(|most| *most < tools)?)));
    let line = |(client, most): (&mcp_host::config::clients::Client, usize)| {
        format!(
            "{} takes {most} tools at most, and these servers have {tools}: a view shows it fewer (host.views)",
            client.name
        )
    };
    over.map(line).collect()
}
