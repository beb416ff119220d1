//! The cost in tokens of the tools that clients are listed: of each server's tools, and of a whole list.
//!
//! All numbers are estimates (`registry/tokens.rs`). No request is sent to a server.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::budget::is_over;
use super::lease::Chosen;
use super::{Manager, lock};
use crate::config::{ALL_VIEW, CatalogMode, CatalogSettings, HostSettings, Words as _};
use crate::counts::ServerCounts;
use crate::registry::Catalog;
#[cfg(feature = "server")]
use crate::registry::Entry;
use crate::registry::tokens::{estimate, of_bytes};

/// The cost in tokens of the tools of a view. All numbers are estimates.
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
    /// How many tools are in its list for a client whose limit on tools is unknown.
    pub listed: usize,
    /// The cost of that list.
    pub tokens: usize,
    /// The budget of a full list (`catalog.budget`).
    pub budget: usize,
    /// The cost of all results that its clients got since the host started, including results of the host's own tools.
    pub results: usize,
    /// The servers that have tools, in config order.
    pub servers: Vec<ServerTokens>,
}

/// The cost in tokens of the tools of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ServerTokens {
    /// The alias of the server.
    pub server: String,
    /// How many tools it has.
    pub tools: usize,
    /// The cost of their definitions, without output schemas.
    pub definitions: usize,
    /// The cost of their output schemas. Many clients do not pass these to the model.
    pub output_schemas: usize,
    /// The cost of the results of its tools that clients of the view got since the host started.
    pub results: usize,
}

/// A ledger and the texts whose tokens it estimates, for a program that has a tokenizer.
#[cfg(feature = "server")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct LedgerTexts {
    /// The ledger, as estimated.
    pub ledger: Ledger,
    /// The definitions of the list for a client whose limit on tools is unknown.
    pub listed: Vec<String>,
    /// The tools of each server, in the order of the ledger.
    pub servers: Vec<Vec<ToolTexts>>,
}

/// The text of a tool's definition.
#[cfg(feature = "server")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ToolTexts {
    /// The whole definition.
    pub definition: String,
    /// The output schema in it; empty if it has none.
    pub output_schema: String,
}

#[cfg(feature = "server")]
impl LedgerTexts {
    /// Returns the ledger with the counts of this tokenizer. The cost of results stays an estimate, because results are
    /// not kept.
    ///
    /// ```
    /// let texts = mcp_host::admin::LedgerTexts::default();
    /// assert_eq!(texts.counted(|text| text.split(' ').count()).tokens, 0);
    /// ```
    #[must_use]
    pub fn counted(self, count: impl Fn(&str) -> usize) -> Ledger {
        let mut ledger = self.ledger;
        ledger.tokens = self.listed.iter().map(|text| count(text)).sum();
        for (server, tools) in ledger.servers.iter_mut().zip(&self.servers) {
            let output = tools.iter().filter(|tool| !tool.output_schema.is_empty());
            server.output_schemas = output.map(|tool| count(&tool.output_schema)).sum();
            let all: usize = tools.iter().map(|tool| count(&tool.definition)).sum();
            server.definitions = all.saturating_sub(server.output_schemas);
        }
        ledger
    }
}

/// Remembers the cost of lists.
#[derive(Debug, Default)]
pub(super) struct Weighed {
    /// The last ledger of each view, with what it was computed from.
    ledgers: Mutex<HashMap<String, Counted>>,
    /// The views whose full list a client has requested: when the list was last weighed. `None` once the log says that
    /// it is over its budget.
    told: Mutex<HashMap<String, Option<Instant>>>,
}

#[derive(Debug)]
struct Counted {
    of: Weak<Catalog>,
    settings: CatalogSettings,
    reads_on: bool,
    ledger: Ledger,
}

/// The shortest time between two checks of whether a view's full list is over its budget.
const WEIGHED: Duration = Duration::from_secs(60);

impl Manager {
    /// Returns the ledgers of all views, ordered by name. Only what has changed is counted again. This may build
    /// catalogs of views, so call it on a thread that may block.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status and the metrics ask"))]
    pub(crate) fn ledgers(&self) -> Vec<Ledger> {
        let settings = self.settings();
        let mut names: BTreeSet<&str> = settings.views.keys().map(String::as_str).collect();
        names.insert(ALL_VIEW);
        names.into_iter().filter_map(|name| self.ledger(Some(name)).ok()).collect()
    }

    /// Logs once that the full list of a view is over its budget. Called when a client has requested that list.
    pub(super) fn weigh(&self, settings: &HostSettings, view: &str, shown: &Arc<Catalog>) {
        let catalog = settings.catalog_of(view);
        if catalog.mode != CatalogMode::Full || shown.tools().is_empty() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (listed, now) = (self.listed_state(), Instant::now());
        {
            let mut told = lock(&listed.weighed.told);
            match told.get(view) {
                Some(None) => return,
                Some(Some(last)) if now.duration_since(*last) < WEIGHED => return,
                _ => drop(told.insert(view.to_owned(), Some(now))),
            }
        }
        let (shown, view, budget) = (shown.clone(), view.to_owned(), catalog.budget);
        // The task is not awaited.
        drop(runtime.spawn_blocking(move || {
            let tokens: usize = shown.tools().iter().map(|entry| estimate(entry.source_text())).sum();
            if tokens > budget {
                tracing::warn!("{}", over(&view, tokens, budget));
                lock(&listed.weighed.told).insert(view, None);
            }
        }));
    }

    /// Returns the ledger of the view of this name; without a name, of the view of clients that choose none.
    ///
    /// # Errors
    /// Returns the names of all views if there is none of this name.
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
        let (listed, reads_on) = (self.listed_state(), self.reads_on(&settings, &name));
        let is_it = |counted: &&Counted| {
            std::ptr::eq(counted.of.as_ptr(), Arc::as_ptr(&all))
                && counted.settings == *catalog
                && counted.reads_on == reads_on
        };
        if let Some(counted) = lock(&listed.weighed.ledgers).get(&name).filter(is_it) {
            return Ok(self.with_results(&settings, counted.ledger.clone()));
        }
        let ledger = self.counted(&settings, name.clone(), &all);
        let counted = Counted { of: Arc::downgrade(&all), settings: catalog.clone(), reads_on, ledger: ledger.clone() };
        lock(&listed.weighed.ledgers).insert(name, counted);
        Ok(self.with_results(&settings, ledger))
    }

    /// Adds what results have cost so far. These costs change with every call, so they are read each time.
    fn with_results(&self, settings: &HostSettings, mut ledger: Ledger) -> Ledger {
        let is_default = settings.default_view == ledger.view;
        let of = |counts: &ServerCounts| counts.results_in(&ledger.view, is_default);
        let mut all = of(self.record().counts().none());
        let servers = self.servers();
        let given: HashMap<&str, u64> =
            servers.iter().map(|server| (server.config.alias.as_str(), of(server.counts()))).collect();
        all += given.values().sum::<u64>();
        for server in &mut ledger.servers {
            server.results = of_bytes(given.get(&*server.server).copied().unwrap_or_default());
        }
        ledger.results = of_bytes(all);
        ledger
    }

    /// Returns the ledger of a view, with the texts of its definitions. Without a name, takes the view of clients that
    /// choose none.
    ///
    /// # Errors
    /// Returns the names of all views if there is none of this name.
    #[cfg(feature = "server")]
    pub(crate) fn ledger_texts(&self, view: Option<&str>) -> Result<LedgerTexts, Vec<String>> {
        let (ledger, settings) = (self.ledger(view)?, self.settings());
        let all = self.seen_in(&Chosen::named(&ledger.view));
        let texts = |entry: &Entry| ToolTexts {
            definition: entry.source_text().to_owned(),
            output_schema: entry.source_member("outputSchema").map_or_else(String::new, |raw| raw.as_str().to_owned()),
        };
        let of = |server: &ServerTokens| {
            let its = all.tools().iter().filter(|entry| entry.server().as_str() == server.server);
            its.map(texts).collect()
        };
        let servers = ledger.servers.iter().map(of).collect();
        let shown = self.list_of(&settings, &ledger.view, &all);
        let listed = shown.tools().iter().map(|entry| entry.source_text().to_owned()).collect();
        Ok(LedgerTexts { ledger, listed, servers })
    }

    /// Returns the list of a view for a client whose limit on tools is unknown.
    fn list_of(&self, settings: &HostSettings, view: &str, all: &Arc<Catalog>) -> Arc<Catalog> {
        let catalog = settings.catalog_of(view);
        let searches = match catalog.mode {
            CatalogMode::Full => false,
            CatalogMode::Search | CatalogMode::Code => true,
            CatalogMode::Auto => is_over(catalog, all, 100),
        };
        let form = self.form(settings, view, searches);
        form.map_or_else(|| all.clone(), |form| self.relisted(settings, view, form, all))
    }

    fn counted(&self, settings: &HostSettings, name: String, all: &Arc<Catalog>) -> Ledger {
        let (catalog, shown) = (settings.catalog_of(&name), self.list_of(settings, &name, all));
        Ledger {
            view: name,
            mode: catalog.mode.word().to_owned(),
            tools: all.tools().len(),
            listed: shown.tools().len(),
            tokens: shown.tools().iter().map(|entry| estimate(entry.source_text())).sum(),
            budget: catalog.budget,
            results: 0,
            servers: servers(all),
        }
    }
}

/// Returns the message that a full list is over its budget.
fn over(view: &str, tokens: usize, budget: usize) -> String {
    format!(
        "view {view}: each list of tools costs about {tokens} tokens, over the budget of {budget} (host.catalog.budget): \
         `mcp-host tokens` shows what each server costs, and `host.catalog.mode` \"search\" lists less"
    )
}

impl Ledger {
    /// Returns a message if the list of all tools is over its budget; `None` if it is not, or if the view lists fewer
    /// tools.
    ///
    /// ```
    /// assert_eq!(mcp_host::Ledger::default().over_budget(), None);
    /// ```
    #[must_use]
    pub fn over_budget(&self) -> Option<String> {
        let is_over = self.mode == CatalogMode::Full.word() && self.tokens > self.budget;
        is_over.then(|| over(&self.view, self.tokens, self.budget))
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
