//! What the tools cost that clients are listed, in tokens: of each server, and of a whole list.
//!
//! All numbers are estimates (`registry/tokens.rs`). Nothing is asked of a server.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::budget::is_over;
use super::lease::Chosen;
use super::{Manager, lock};
use crate::config::{ALL_VIEW, CatalogMode, CatalogSettings, HostSettings, Words as _};
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

/// What is remembered of what lists cost.
#[derive(Debug, Default)]
pub(super) struct Weighed {
    /// What was counted last of each view, and of what.
    ledgers: Mutex<HashMap<String, Counted>>,
    /// The views of which somebody has asked for the full list: when it was weighed last; `None` once it was told to be over
    /// its budget.
    told: Mutex<HashMap<String, Option<Instant>>>,
}

#[derive(Debug)]
struct Counted {
    of: Weak<Catalog>,
    settings: CatalogSettings,
    reads_on: bool,
    ledger: Ledger,
}

/// How often a full list is weighed at most, to say that it is over its budget.
const WEIGHED: Duration = Duration::from_secs(60);

impl Manager {
    /// Returns what the tools of each view cost, in the order of their names. What did not change is not counted anew. It may
    /// build the catalogs of views, so it runs on a thread that may block.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status and the metrics ask"))]
    pub(crate) fn ledgers(&self) -> Vec<Ledger> {
        let settings = self.settings();
        let mut names: BTreeSet<&str> = settings.views.keys().map(String::as_str).collect();
        names.insert(ALL_VIEW);
        names.into_iter().filter_map(|name| self.ledger(Some(name)).ok()).collect()
    }

    /// Says once in the log that the full list of a view is over its budget. A client has just asked for it.
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
        // Nobody waits for it.
        drop(runtime.spawn_blocking(move || {
            let tokens: usize = shown.tools().iter().map(|entry| estimate(entry.source_text())).sum();
            if tokens > budget {
                tracing::warn!("{}", over(&view, tokens, budget));
                lock(&listed.weighed.told).insert(view, None);
            }
        }));
    }

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
        let (listed, reads_on) = (self.listed_state(), settings.results.limit > 0);
        let is_it = |counted: &&Counted| {
            std::ptr::eq(counted.of.as_ptr(), Arc::as_ptr(&all))
                && counted.settings == *catalog
                && counted.reads_on == reads_on
        };
        if let Some(counted) = lock(&listed.weighed.ledgers).get(&name).filter(is_it) {
            return Ok(counted.ledger.clone());
        }
        let ledger = self.counted(&settings, name.clone(), &all);
        let (of, settings) = (Arc::downgrade(&all), catalog.clone());
        let counted = Counted { of, settings, reads_on, ledger: ledger.clone() };
        lock(&listed.weighed.ledgers).insert(name, counted);
        Ok(ledger)
    }

    fn counted(&self, settings: &HostSettings, name: String, all: &Arc<Catalog>) -> Ledger {
        let catalog = settings.catalog_of(&name);
        let searches = match catalog.mode {
            CatalogMode::Full => false,
            CatalogMode::Search | CatalogMode::Code => true,
            CatalogMode::Auto => is_over(catalog, all, 100),
        };
        let listed = self.form(settings, &name, searches).map(|form| self.relisted(settings, &name, form, all));
        let shown = listed.as_ref().unwrap_or(all);
        Ledger {
            view: name,
            mode: catalog.mode.word().to_owned(),
            tools: all.tools().len(),
            listed: shown.tools().len(),
            tokens: shown.tools().iter().map(|entry| estimate(entry.source_text())).sum(),
            budget: catalog.budget,
            servers: servers(all),
        }
    }
}

/// Says that a full list costs more than it may.
fn over(view: &str, tokens: usize, budget: usize) -> String {
    format!(
        "view {view}: each list of tools costs about {tokens} tokens, over the budget of {budget} (host.catalog.budget): \
         `mcp-host tokens` shows what each server costs, and `host.catalog.mode` \"search\" lists less"
    )
}

impl Ledger {
    /// Says that a list of all tools costs more than it may; `None` if it does not, or if less is listed.
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
