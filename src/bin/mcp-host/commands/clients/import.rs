//! `mcp-host import`: copies clients' servers into the config. Existing servers of the config are not changed; if a
//! different server has the same name, it gets the client's name as a suffix.

use std::collections::BTreeSet;

use mcp_host::config::clients::Client;
use mcp_host::config::edit::Change;
use mcp_host::config::import::Entry;
use mcp_host::config::{Server, Stdio};

use super::here::{self, Here, Known};
use super::own::Own;
use super::plan::{Plan, Planned};
use super::same::{Endpoint, same};
use crate::args::{Common, Move};
use crate::commands::edits::write;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text;

/// A server to add to the config.
#[derive(Debug)]
pub(super) struct Added {
    /// Its name in the config.
    pub(super) name: String,
    entry: Entry,
    server: Server,
    from: &'static Client,
}

/// A client's server, and the server of the config that is the same.
#[derive(Debug)]
pub(super) struct Met<'a> {
    pub(super) client: &'static Client,
    pub(super) known: &'a Known,
    /// The name in the config.
    pub(super) name: String,
}

/// The servers to add to the config, and which servers of the config are the same as a client's.
#[derive(Debug, Default)]
pub(super) struct Imports<'a> {
    pub(super) added: Vec<Added>,
    pub(super) met: Vec<Met<'a>>,
    /// The servers that cannot be converted, and why.
    pub(super) refused: Vec<(&'static Client, String, String)>,
}

pub(super) async fn run(args: &Move, common: &Common, output: &Output) -> Result<Exit, Failure> {
    write::refuse_below()?;
    let own = Own::find(common, args.user.user)?;
    let chosen = here::chosen(&args.clients, args.all, &own)?;
    let imports = Imports::of(&own, &chosen.clients);
    let mut plan = Plan::default();
    chosen.refused.iter().for_each(|(client, why)| plan.refuse(client, why));
    for here in chosen.clients.iter().filter(|here| here.text().is_none()) {
        let why = format!("has no file: {}", here.file.display());
        // With `--all`, clients without servers are skipped.
        match args.all {
            true => plan.remarks.push(format!("note: {} {why}", here.client.name)),
            false => plan.refuse(here.client, why),
        }
    }
    for (client, server, why) in &imports.refused {
        plan.refuse_server(client, server, why);
    }
    plan.files.extend(Planned::of_own(&own, imports.changes(|_| true))?);
    plan.remarks.extend(imports.remarks());
    plan.summary = match imports.added.len() {
        0 => "no server is new".to_owned(),
        count => format!("{} added to {}", text::count(count, "server"), write::shown(&own.file)),
    };
    if plan.files.is_empty() && !output.json {
        plan.remarks.iter().for_each(|remark| output.remark(remark));
    }
    plan.carry_out("import", args, output).await
}

impl<'a> Imports<'a> {
    /// Decides for each server of these clients whether to add it.
    pub(super) fn of(own: &Own, clients: &'a [Here]) -> Self {
        let mut imports = Self::default();
        // If one client has disabled a server and another one uses it, it counts as used.
        for is_off in [false, true] {
            for here in clients {
                for known in here.servers().iter().filter(|known| !known.is_host && known.is_off == is_off) {
                    if let Err(why) = imports.take(own, here.client, known) {
                        imports.refused.push((here.client, known.name.clone(), why));
                    }
                }
            }
        }
        imports
    }

    fn take(&mut self, own: &Own, client: &'static Client, known: &'a Known) -> Result<(), String> {
        let entry = known.entry.as_ref().map_err(Clone::clone)?;
        let endpoint = known.endpoint().ok_or("this host does not read it")?;
        let name = match self.twin(own, client, endpoint) {
            Some(name) => name,
            None => {
                let name = self.free(own, client, &known.name)?;
                let (entry, server) = (entry.clone(), endpoint.server.clone());
                self.added.push(Added { name: name.clone(), entry, server, from: client });
                name
            }
        };
        self.met.push(Met { client, known, name });
        Ok(())
    }

    /// Finds the same server in the config, or among those of the clients before.
    fn twin(&self, own: &Own, client: &Client, endpoint: Endpoint<'_>) -> Option<String> {
        let in_own = own.config.servers.iter().find(|server| same(endpoint, Endpoint { entry: None, server }));
        let is_twin = |added: &&Added| {
            let is_equal = added.server.transport == endpoint.server.transport;
            // Within one file, two entries that differ only in the values of variables are two servers.
            same(endpoint, Endpoint { entry: Some(&added.entry), server: &added.server })
                && (added.from != client || is_equal)
        };
        in_own
            .map(|server| server.name.clone())
            .or_else(|| self.added.iter().find(is_twin).map(|added| added.name.clone()))
    }

    /// Finds a name that no other server has.
    fn free(&self, own: &Own, client: &Client, name: &str) -> Result<String, String> {
        let of_own = own.config.servers.iter().map(|server| server.alias.as_str().to_owned());
        let taken: BTreeSet<String> = of_own.chain(self.added.iter().filter_map(|added| alias(&added.name))).collect();
        let is_free = |name: &String| alias(name).is_some_and(|alias| !taken.contains(&alias));
        let names = [name.to_owned(), format!("{name}-{}", client.id)];
        let found = names.iter().find(|name| is_free(name)).cloned();
        found.ok_or_else(|| format!("the config has other servers called `{}` and `{}`", names[0], names[1]))
    }

    /// Returns the changes that add the servers for which `wanted` is true.
    pub(super) fn changes(&self, wanted: impl Fn(&Added) -> bool) -> Vec<Change> {
        let put = |added: &Added| Change::Put { name: added.name.clone(), entry: added.entry.clone() };
        self.added.iter().filter(|added| wanted(added)).map(put).collect()
    }

    /// Returns what happens to each server, if that is not obvious.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for Met { client, known, name } in &self.met {
            let added = self.added.iter().find(|added| added.name == *name);
            let is_own =
                added.is_some_and(|added| added.from == *client && known.server.as_ref() == Some(&added.server));
            let theirs = format!("`{}` of {}", known.name, client.name);
            if !is_own {
                lines.push(format!("note: {theirs} is the same server as `{name}`"));
            } else if *name != known.name {
                lines.push(format!("note: {theirs} is called `{name}` here: another server has that name"));
            }
            if is_own && !known.left.is_empty() {
                lines.push(format!("note: {theirs}: not taken over: {}", known.left.join(", ")));
            }
        }
        lines
    }
}

/// Returns the alias for a server with this name.
fn alias(name: &str) -> Option<String> {
    Server::new(name, Stdio::default()).ok().map(|server| server.alias.as_str().to_owned())
}
