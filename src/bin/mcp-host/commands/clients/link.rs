//! `mcp-host link`, `unlink` and `export`: the one entry in a client's file that starts or connects to mcp-host.

use mcp_host::config::clients::Folders;
use mcp_host::config::edit::{self, Change};
use mcp_host::config::import;
use mcp_host::config::{LoadRequest, Transport};
use mcp_host::edits::Error;
use serde::Serialize;

use super::here::{self, ENTRY, Here, Known};
use super::own::Own;
use super::plan::{Plan, Planned};
use super::way::Way;
use crate::args::{Common, Export, Link, Move};
use crate::commands::edits::failures::failed;
use crate::commands::edits::write;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text;

/// What `link` would write, as `--json` prints it.
#[derive(Serialize)]
struct Exported<'a> {
    client: &'a str,
    file: String,
    text: &'a str,
}

pub(super) async fn link(args: &Link, common: &Common, output: &Output) -> Result<Exit, Failure> {
    write::refuse_below()?;
    let own = Own::existing(common, args.of.user.user)?;
    let chosen = here::chosen(&args.of.clients, args.of.all, &own)?;
    let mut plan = Plan::default();
    chosen.refused.iter().for_each(|(client, why)| plan.refuse(client, why));
    let (mut ways, mut linked) = (Vec::new(), Vec::new());
    for here in &chosen.clients {
        match entry(here, args.url.as_deref(), &own)? {
            Entry::There => plan.remarks.push(format!("note: {} is linked already", here.client.name)),
            Entry::Refused(why) => plan.refuse(here.client, why),
            Entry::New(way, changes) => {
                if plan.add(here, &own, changes) {
                    ways.push(*way);
                    linked.push(here);
                }
            }
        }
    }
    let settings = Planned::of_own(&own, Way::settings(&ways, &own))?;
    plan.files.splice(0..0, settings);
    plan.remarks.extend(afterwards(&linked, &plan));
    plan.summary = format!("linked {} with {}", text::count(linked.len(), "client"), write::shown(&own.file));
    if plan.files.is_empty() && !output.json {
        plan.remarks.iter().for_each(|remark| output.remark(remark));
    }
    plan.carry_out("link", &args.of, output).await
}

pub(super) async fn unlink(args: &Move, common: &Common, output: &Output) -> Result<Exit, Failure> {
    write::refuse_below()?;
    let own = Own::find(common, args.user.user)?;
    let chosen = here::chosen(&args.clients, args.all, &own)?;
    let mut plan = Plan::default();
    chosen.refused.iter().for_each(|(client, why)| plan.refuse(client, why));
    let mut names = Vec::new();
    for here in &chosen.clients {
        let changes = out(here);
        if changes.is_empty() {
            output.remark(&format!("note: {} is not linked", here.client.name));
        } else if plan.add(here, &own, changes) {
            names.push(here.client.name);
        }
    }
    plan.summary = format!("unlinked {}", text::count(names.len(), "client"));
    if !names.is_empty() {
        plan.remarks.push(format!("start again, so that they notice: {}", names.join(", ")));
    }
    plan.carry_out("unlink", args, output).await
}

pub(super) fn export(args: &Export, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let client = here::named(&args.client)?;
    let own = Own::find(common, args.user.user)?;
    let way = Way::to(client, args.url.as_deref(), &own)?;
    let wants_token = way.wants_token(&own);
    let way = if wants_token { way.with_placeholder() } else { way };
    let folders = Folders::of(&own.request.vars);
    let file = client.files(&folders).into_iter().next().ok_or_else(|| {
        let error = format!("{} has no file for a user without a home directory", client.name);
        Failure::new(Exit::Failed, error).help("set HOME")
    })?;
    let request = LoadRequest { client: Some(client), ..LoadRequest::default() };
    let change = Change::Add { name: ENTRY.to_owned(), server: way.server };
    let edited = edit::edit("", &file, &request, &change).map_err(|refused| failed(Error::Refused(refused), &file))?;
    if output.json {
        output.value(&Exported { client: client.id, file: file.display().to_string(), text: &edited.text })?;
        return Ok(Exit::Ok);
    }
    output.lines(edited.text.trim_end().lines())?;
    output.remark(&format!("it belongs into {}", write::shown(&file)));
    if wants_token {
        output.remark(&format!("mcp-host token {} makes the TOKEN", client.id));
    }
    Ok(Exit::Ok)
}

/// How a client's file has to change.
pub(super) enum Entry {
    /// Its entry is right already.
    There,
    Refused(String),
    New(Box<Way>, Vec<Change>),
}

/// Returns the changes of a client's file that link it.
pub(super) fn entry(here: &Here, url: Option<&str>, own: &Own) -> Result<Entry, Failure> {
    let way = Way::to(here.client, url, own)?;
    let hosts: Vec<&Known> = here.servers().iter().filter(|known| known.is_host).collect();
    if let [known] = hosts[..]
        && known.name == ENTRY
        && !known.is_off
        && is_as_written(known, here, &way, own)
    {
        return Ok(Entry::There);
    }
    let way = match way.wants_token(own) {
        false => way,
        true => match way.with_token(here.client, &here.file) {
            Ok(way) => way,
            Err(failure) if failure.exit == Exit::Denied => return Ok(Entry::Refused(failure.first())),
            Err(failure) => return Err(failure),
        },
    };
    let mut changes = out(here);
    changes.push(Change::Add { name: ENTRY.to_owned(), server: way.server.clone() });
    Ok(Entry::New(Box::new(way), changes))
}

/// Returns the changes that remove mcp-host from a client's file.
fn out(here: &Here) -> Vec<Change> {
    let hosts = here.servers().iter().filter(|known| known.is_host);
    hosts.map(|known| Change::Remove { name: known.name.clone() }).collect()
}

/// Reports whether an entry is what `link` would write. A token in it is kept.
fn is_as_written(known: &Known, here: &Here, way: &Way, own: &Own) -> bool {
    if way.wants_token(own) {
        let remote = known.server.as_ref().and_then(|server| match &server.transport {
            Transport::Http(remote) | Transport::Auto(remote) => Some(remote),
            _ => None,
        });
        return remote.is_some_and(|remote| {
            Some(remote.url.as_str()) == way.server.url.as_deref()
                && remote.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("Authorization"))
        });
    }
    let request = LoadRequest { client: Some(here.client), ..LoadRequest::default() };
    let change = Change::Add { name: ENTRY.to_owned(), server: way.server.clone() };
    let wanted = edit::edit("", &here.file, &request, &change).ok();
    let wanted = wanted.and_then(|edited| import::candidates(&edited.text, &here.file, Some(here.client)).ok());
    let wanted = wanted.and_then(|found| found.into_iter().next()?.entry.ok());
    wanted.is_some_and(|wanted| known.entry.as_ref() == Ok(&wanted))
}

/// Lists the clients that have to be restarted, and what else prevents them from using mcp-host.
pub(super) fn afterwards(linked: &[&Here], plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    if !linked.is_empty() {
        let names: Vec<&str> = linked.iter().map(|here| here.client.name).collect();
        lines.push(format!("start again, so that they notice: {}", names.join(", ")));
    }
    for here in linked {
        let Some(text) = plan.text_of(here) else { continue };
        let found = import::candidates(text, &here.file, Some(here.client)).unwrap_or_default();
        if found.iter().any(|candidate| candidate.name == ENTRY && candidate.is_off) {
            let what = "its settings name the servers that it starts: add `mcp-host` there";
            lines.push(format!("{}: {what} ({})", here.client.name, here.file.display()));
        }
    }
    lines
}
