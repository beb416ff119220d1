//! `mcp-host check --locked`: starts the locked servers, and shows how what they list differs from the lock.

use std::path::Path;

use mcp_host::config::{self, Server};
use mcp_host::pins::{self, Pin, Pins, Stated, Unlocked, What};
use serde::Serialize;

use super::super::approve::differing;
use super::super::check::{not_approved, unusable};
use super::{enabled, listed, texts_of};
use crate::args::{Check, Common};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{Plan, state_directory};
use crate::text;

/// The result, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Compared<'a> {
    lock: &'a Path,
    equal: bool,
    servers: &'a [String],
    definitions: &'a [Unlocked],
}

pub(crate) async fn run(args: &Check, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let mut plan = Plan::load(common, false, None)?;
    plan.tell_notes(output);
    let Some(lock) = plan.config.lock.clone() else {
        let file = plan.config.lock_file().map(|file| file.display().to_string()).unwrap_or_default();
        return Err(Failure::new(Exit::Usage, format!("there is no lock: no file {file}")).help("mcp-host lock"));
    };
    if let Some(failure) = unusable(&plan.config).or_else(|| not_approved(&plan.config)) {
        return Err(failure);
    }
    let mut wrong = outside(&lock, &plan.config.servers, args.server.as_deref());
    if let Some(name) = &args.server {
        let server = plan.server(name)?.clone();
        plan.config.servers = vec![server];
    }
    let servers = enabled(&mut plan.config, output).to_vec();
    for server in servers.iter().filter(|server| server.locked.is_none()) {
        wrong.push(match lock.servers.get(server.alias.as_str()) {
            Some(_) => {
                format!("the entry of server `{}` is not the one that was locked; it was not started", server.name)
            }
            None => format!("server `{}` is not in the lock; it was not started", server.name),
        });
    }
    plan.config.servers.retain(|server| server.locked.is_some());
    let servers: Vec<Server> = plan.config.servers.clone();
    let (stated, failure) = match listed(plan, common, output).await? {
        Ok(stated) => (stated, None),
        Err(failure) => (Vec::new(), Some(failure)),
    };
    let mut changed = Vec::new();
    if failure.is_none() {
        for server in &servers {
            changed.extend(compared(server, &stated, args.definitions.as_deref()).await);
        }
    }
    let equal = failure.is_none() && wrong.is_empty() && changed.is_empty();
    if output.json {
        output.value(&Compared { lock: &lock.file, equal, servers: &wrong, definitions: &changed })?;
    } else {
        let told = wrong.iter().map(|line| text::line(line).into_owned()).chain(changed.iter().flat_map(lines));
        output.lines(told.collect::<Vec<_>>())?;
    }
    let differing = wrong.len() + changed.len();
    if differing > 0 {
        let error = format!("{} from {}", text::count(differing, "difference"), lock.file.display());
        return Err(Failure::new(Exit::Denied, error).help("review them, then run: mcp-host lock"));
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    if !output.json {
        output.remark(&format!("{} as locked in {}", text::count(stated.len(), "definition"), lock.file.display()));
    }
    Ok(Exit::Ok)
}

/// Returns a line for each locked server that the config lacks. If the user chose one server, there are none.
fn outside(lock: &config::Lock, servers: &[Server], one: Option<&str>) -> Vec<String> {
    let is_there = |alias: &str| servers.iter().any(|server| server.alias.as_str() == alias);
    let gone = lock.servers.keys().filter(|alias| one.is_none() && !is_there(alias));
    gone.map(|alias| format!("server `{alias}` is in the lock, and not in the config")).collect()
}

/// Compares one server. Former texts come from the folder that `lock --definitions` wrote, or from the user's record.
async fn compared(server: &Server, stated: &[Stated], directory: Option<&Path>) -> Vec<Unlocked> {
    let Some(locked) = &server.locked else { return Vec::new() };
    let texts = directory.and_then(|directory| std::fs::read_to_string(texts_of(directory, server)).ok());
    let blind = pins::compare(server, locked, stated, |_, _, _| None);
    let mut recorded: Vec<(What, String, Pin, String)> = Vec::new();
    if let Some(state) = state_directory() {
        for one in &blind {
            let Some(pin) = one.locked else { continue };
            if let Ok(Some(text)) = Pins::of(&state).text(server, one.what, &one.name, pin).await {
                recorded.push((one.what, one.name.clone(), pin, text));
            }
        }
    }
    pins::compare(server, locked, stated, |what, name, pin| {
        let written = texts.as_deref().and_then(|texts| pins::text_in(texts, what, name));
        let is_it = |one: &&(What, String, Pin, String)| one.0 == what && one.1 == name && one.2 == pin;
        written.or_else(|| recorded.iter().find(is_it).map(|one| one.3.clone()))
    })
}

/// Formats a difference.
fn lines(one: &Unlocked) -> Vec<String> {
    let subject = match one.what {
        What::Instructions => format!("the instructions of server `{}`", one.server),
        what => format!("{what} `{}` of server `{}`", one.name, one.server),
    };
    let how = match (one.locked, one.pin) {
        (None, _) => "is not in the lock",
        (_, None) => "is in the lock, and not listed any more",
        _ => "has changed since it was locked",
    };
    let mut lines = vec![format!("{subject} {how}:")];
    lines.extend(one.changes.iter().flat_map(differing));
    if one.changes.is_empty() {
        lines[0].pop();
        if one.locked.is_some() && one.pin.is_some() {
            lines.push(
                "  its former text is not known here; `mcp-host lock --definitions DIR` keeps the texts".to_owned(),
            );
        }
    }
    lines.push(String::new());
    lines.iter().map(|line| text::line(line).into_owned()).collect()
}
