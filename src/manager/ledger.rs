//! What the tools cost that clients are listed, in tokens: of each server, and of a whole list.
//!
//! All numbers are estimates (`registry/tokens.rs`). Nothing is asked of a server.

use serde::{Deserialize, Serialize};

use super::Manager;
use super::lease::Chosen;
use crate::config::{ALL_VIEW, CatalogMode, Words as _};
use crate::registry::Catalog;
use crate::registry::tokens::estimate;

/// What the tools of a view cost, in tokens. All numbers are estimates.
///
/// ```
/// # fn show(host: &mcp_host::Host) {
/// for server in host.tokens(None).into_iter().flat_map(|ledger| ledger.servers) {
///     println!("{}: {} tools, {} tokens", server.server, server.tools, server.definitions);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Ledger {
    /// The name of the view.
    pub view: String,
    /// How its tools are listed: `full`, `search`, `code`, or `auto`.
    pub mode: String,
    /// How many tools its clients may call.
    pub tools: usize,
    /// How many tools its list has for a client of no known limit.
    pub listed: usize,
    /// What that list costs.
    pub tokens: usize,
    /// What a full list may cost (`catalog.budget`).
    pub budget: usize,
    /// The servers that have tools, in config order.
    pub servers: Vec<ServerTokens>,
}

/// What the tools of one server cost, in tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ServerTokens {
    /// The alias of the server.
    pub server: String,
    /// How many tools it has.
    pub tools: usize,
    /// Their definitions, without output schemas.
    pub definitions: usize,
    /// Their output schemas. Many clients do not pass them to the model.
    pub output_schemas: usize,
}

impl Manager {
    /// Returns what the tools of a view cost; without a name, of that of clients that choose none.
    ///
    /// # Errors
    /// Returns the names of the views if there is none of that name.
    pub(crate) fn ledger(&self, view: Option<&str>) -> Result<Ledger, Vec<String>> {
        let settings = self.settings();
        if view.is_some_and(|name| name != ALL_VIEW && !settings.views.contains_key(name)) {
            let all = std::iter::once(ALL_VIEW.to_owned());
            return Err(all.chain(settings.views.keys().filter(|name| *name != ALL_VIEW).cloned()).collect());
        }
        let chosen = view.map_or(Chosen::Default, Chosen::named);
        let name = chosen.name(&settings).to_owned();
        let all = self.seen_in(&chosen);
        let catalog = settings.catalog_of(&name);
        let searches = match catalog.mode {
            CatalogMode::Full => false,
            CatalogMode::Search | CatalogMode::Code => true,
            CatalogMode::Auto => super::listed::is_over(catalog, &all, 100),
        };
        let listed = self.form(&settings, &name, searches).map(|form| self.relisted(&settings, &name, form, &all));
        let shown = listed.as_ref().unwrap_or(&all);
        Ok(Ledger {
            view: name,
            mode: catalog.mode.word().to_owned(),
            tools: all.tools().len(),
            listed: shown.tools().len(),
            tokens: shown.tools().iter().map(|entry| estimate(entry.source_text())).sum(),
            budget: catalog.budget,
            servers: servers(&all),
        })
    }
}

fn servers(all: &Catalog) -> Vec<ServerTokens> {
    let mut servers: Vec<ServerTokens> = Vec::new();
    for entry in all.tools() {
        let alias = entry.server().as_str();
        if servers.last().is_none_or(|last| last.server != alias) {
            servers.push(ServerTokens { server: alias.to_owned(), ..ServerTokens::default() });
        }
        let Some(server) = servers.last_mut() else { continue };
        let output = entry.source_member("outputSchema").map_or(0, |schema| estimate(schema.as_str()));
        server.tools += 1;
        server.output_schemas += output;
        server.definitions += estimate(entry.source_text()).saturating_sub(output);
    }
    servers
}
