//! Decides how a client's tools are listed: all of them, with shortened definitions, or only the host's tools that find
//! and call them.
//!
//! In: a client, and what it may see. Out: the catalog that its list requests show. `sight.rs` alone decides what a
//! client may see and call; this file only changes the list. **Invariant:** the way that a session's tools are listed
//! never changes, because its client was told at the beginning how to find them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::budget::is_over;
use super::lease::{Chosen, Lists, Who};
use super::{Manager, Principal, Server, lock};
use crate::config::clients::tools_of;
use crate::config::{CatalogMode, CatalogSettings, Compact, HostSettings, Layer as _, ToolSettings};
use crate::name::ServerName;
use crate::protocol::Era;
use crate::registry::own::{Form, Shown, hidden, is_always};
use crate::registry::{Catalog, Entry, Kind, Ranker, hints};
use crate::select::{Facts, matches};
#[cfg(all(unix, feature = "script"))]
use crate::transport::ScriptProgram;

/// Whether a client is listed only the search tools, and when that last changed.
type Decided = (bool, Option<Instant>);

/// The state that decides and caches how tools are listed.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// What `auto` decided for clients without a session, and when the decision last changed.
    autos: Mutex<HashMap<(Principal, Chosen), Decided>>,
    made: Mutex<VecDeque<Made>>,
    /// The servers' tools that the log has reported as hidden, because tools of the host have their names: server and
    /// tool.
    told: Mutex<BTreeSet<(ServerName, Box<str>)>>,
    ranker: OnceLock<Arc<dyn Ranker>>,
    pub(super) found: super::twins::Found,
    pub(super) weighed: super::ledger::Weighed,
}

/// A catalog whose list was changed, and what it was made from.
#[derive(Debug)]
struct Made {
    of: Weak<Catalog>,
    settings: CatalogSettings,
    form: Form,
    catalog: Arc<Catalog>,
}

/// How many catalogs with changed lists are cached (`MADE`), and how many decisions (`AUTOS`).
const MADE: usize = 8;
const AUTOS: usize = 1024;
/// How long a changed decision of `auto` for clients without a session stays.
const STAYS: Duration = Duration::from_secs(600);
/// How many characters of a server's description go into the instructions: some 40 tokens.
const ABOUT: usize = 160;

impl Manager {
    /// Decides how the tools of a new client are listed. `client` is the name that the client gives itself.
    pub(crate) fn lists_for(&self, who: &Who, client: &str) -> Lists {
        let settings = self.settings();
        // Another mcp-host, or one of our own commands, needs all tools.
        if !settings.has_catalogs() || client == env!("CARGO_PKG_NAME") {
            return Lists::Full;
        }
        if who.era == Era::Modern {
            return Lists::ByView;
        }
        let catalog = settings.catalog_of(who.view.name.name(&settings));
        let searches = match catalog.mode {
            CatalogMode::Full => false,
            CatalogMode::Search | CatalogMode::Code => true,
            CatalogMode::Auto if catalog.is_native(client) => false,
            CatalogMode::Auto => {
                let all = self.once_callable(who);
                let count = all.tools().len();
                count == 0 || tools_of(client).is_some_and(|most| count > most) || is_over(catalog, &all, 100)
            }
        };
        if searches { Lists::Search } else { Lists::Full }
    }

    /// Reports whether this client is listed only the tools that find and call the others.
    pub(crate) fn is_searching(&self, who: &Who) -> bool {
        match who.lists {
            Lists::Full => false,
            Lists::Search => true,
            Lists::ByView => {
                let settings = self.settings();
                let catalog = settings.catalog_of(who.view.name.name(&settings));
                match catalog.mode {
                    CatalogMode::Full => false,
                    CatalogMode::Search | CatalogMode::Code => true,
                    CatalogMode::Auto => self.decided(who, catalog),
                }
            }
        }
    }

    /// Reports whether any client may be listed something else than all tools with the servers' own definitions.
    pub(crate) fn may_search(&self) -> bool {
        self.settings().has_catalogs()
    }

    fn decided(&self, who: &Who, catalog: &CatalogSettings) -> bool {
        let (listed, key, now) = (self.listed_state(), (who.principal.clone(), who.view.name.clone()), Instant::now());
        let before = lock(&listed.autos).get(&key).copied();
        match before {
            Some((searches, Some(at))) if now.duration_since(at) < STAYS => return searches,
            _ => {}
        }
        let all = self.once_callable(who);
        let percent = if before.is_some_and(|(searches, _)| searches) { 80 } else { 100 };
        let searches = all.tools().is_empty() || is_over(catalog, &all, percent);
        let mut autos = lock(&listed.autos);
        if autos.len() >= AUTOS {
            autos.clear();
        }
        // A first decision, and one that was confirmed, may change at any time.
        match before {
            Some((same, _)) if same == searches => {}
            Some(_) => drop(autos.insert(key, (searches, Some(now)))),
            None => drop(autos.insert(key, (searches, None))),
        }
        searches
    }

    /// Returns until when a decision of `auto` for a client without a session cannot change; `None` if it may change
    /// any time.
    pub(crate) fn decided_until(&self, who: &Who) -> Option<Instant> {
        if who.lists != Lists::ByView {
            return None;
        }
        let key = (who.principal.clone(), who.view.name.clone());
        let (_, at) = lock(&self.listed_state().autos).get(&key).copied()?;
        at.map(|at| at + STAYS).filter(|until| *until > Instant::now())
    }

    /// Returns what the list requests of this client show.
    pub(super) fn as_listed(&self, who: &Who, shown: &Arc<Catalog>) -> Arc<Catalog> {
        let settings = self.settings();
        let shown = self.twinned(shown);
        let view = who.view.name.name(&settings);
        self.weigh(&settings, view, &shown);
        if who.lists == Lists::Full && !self.has_own_tools() {
            return shown;
        }
        match self.form(&settings, view, self.is_searching(who)) {
            Some(form) => self.relisted(&settings, view, form, &shown),
            None => shown,
        }
    }

    /// Returns how a list differs from the servers' own definitions; `None` if it does not.
    pub(super) fn form(&self, settings: &HostSettings, view: &str, searches: bool) -> Option<Form> {
        let reads_on = self.reads_on(settings, view);
        match settings.catalog_of(view).compact {
            _ if searches => {
                let (reads, runs) = (self.trusts_any(settings, view), self.runs_scripts(settings, view));
                Some(Form { shown: Shown::Search { reads, runs }, reads_on })
            }
            Compact::Off if !reads_on => None,
            compact => Some(Form { shown: Shown::Compact(compact), reads_on }),
        }
    }

    /// Returns a catalog with a changed list of tools. Equal ones are made once.
    pub(super) fn relisted(
        &self,
        settings: &HostSettings,
        view: &str,
        form: Form,
        shown: &Arc<Catalog>,
    ) -> Arc<Catalog> {
        let (listed, catalog) = (self.listed_state(), settings.catalog_of(view));
        let is_it = |made: &&Made| {
            std::ptr::eq(made.of.as_ptr(), Arc::as_ptr(shown)) && made.form == form && made.settings == *catalog
        };
        let mut made = lock(&listed.made);
        made.retain(|made| made.of.strong_count() > 0);
        if let Some(made) = made.iter().find(is_it) {
            return made.catalog.clone();
        }
        let is_kept = |entry: &Entry| is_always(entry) || self.selects(settings, view, entry);
        let relisted = Arc::new(shown.relisted(form, is_kept));
        let over = (made.len() + 1).saturating_sub(MADE);
        made.drain(..over);
        let (of, settings) = (Arc::downgrade(shown), catalog.clone());
        made.push_back(Made { of, settings, form, catalog: relisted.clone() });
        drop(made);
        if matches!(form.shown, Shown::Search { .. }) {
            shown.tools().iter().for_each(|tool| listed.tell_hidden(tool));
        }
        relisted
    }

    /// Reports whether the setting `always` selects a tool.
    fn selects(&self, settings: &HostSettings, view: &str, entry: &Entry) -> bool {
        let always = &settings.catalog_of(view).always;
        if always.is_empty() {
            return false;
        }
        let servers = self.servers();
        let Some(server) = servers.iter().find(|server| server.config.alias == *entry.server()) else { return false };
        let tool = said_of(settings, view, server, entry);
        let hints = hints::effective(&tool.annotations, &entry.hints());
        let tags: Vec<String> = tool.tags.iter().flatten().chain(&server.config.tags).cloned().collect();
        matches(always, &Facts { exposed: entry.name(), server: entry.server().as_str(), tags: &tags, hints: &hints })
    }

    /// Reports whether a tool only reads, according to the config, or to the tool's hints at a server with
    /// `trustAnnotations`.
    pub(crate) fn is_trusted_to_read(&self, who: &Who, server: &Server, entry: &Entry) -> bool {
        let settings = self.settings();
        let tool = said_of(&settings, who.view.name.name(&settings), server, entry);
        match tool.annotations.read_only_hint {
            Some(reads) => reads,
            None => server.config.trust_annotations && entry.hints().read_only_hint == Some(true),
        }
    }

    /// Reports whether the config may trust any tool to only read. The answer does not depend on what servers list.
    fn trusts_any(&self, settings: &HostSettings, view: &str) -> bool {
        let in_view = settings.tools_in(view).is_some_and(crate::config::ToolRules::trust_reads);
        let trusts = |server: &Arc<Server>| server.config.trust_annotations || server.config.tools.trust_reads();
        in_view || self.servers().iter().any(trusts)
    }

    /// Reports whether scripts are run for the clients of a view.
    pub(crate) fn runs_scripts(&self, settings: &HostSettings, view: &str) -> bool {
        settings.catalog_of(view).mode == CatalogMode::Code && self.0.scripts.is_there()
    }

    /// Returns the program that runs scripts.
    #[cfg(all(unix, feature = "script"))]
    pub(crate) fn scripts(&self) -> &ScriptProgram {
        &self.0.scripts
    }

    /// Lets the embedding program rank tools in searches, too. Only the first call has an effect.
    pub(crate) fn rank_by(&self, ranker: Arc<dyn Ranker>) {
        let _ = self.listed_state().ranker.set(ranker);
    }

    /// Returns the ranker of the embedding program.
    pub(crate) fn ranker(&self) -> Option<Arc<dyn Ranker>> {
        self.listed_state().ranker.get().cloned()
    }

    /// Returns the instructions of a client that searches: the servers, each in one line.
    pub(super) fn directory(&self, who: &Who) -> String {
        let all = self.once_callable(who);
        let mut text =
            "Several MCP servers behind one endpoint. find_tools finds their tools, and call_tool calls them."
                .to_owned();
        let settings = self.settings();
        if self.runs_scripts(&settings, who.view.name.name(&settings)) {
            text += " run_script runs scripts that make many calls.";
        }
        for server in self.shown_to(who).iter() {
            let count = all.count(Kind::Tools, &server.config.alias);
            let tools = if count == 1 { "tool" } else { "tools" };
            text += &format!("\n- {}: {count} {tools}", server.config.alias);
            if let Some(about) = &server.config.description {
                let first: String = about.lines().next().unwrap_or_default().chars().take(ABOUT).collect();
                let first = first.split_once(". ").map_or(first.as_str(), |(first, _)| first);
                text += &format!(". {}", first.trim_end_matches('.'));
            }
            if let Some(waiting) = server.with_withheld(None) {
                text += &format!(". {}", waiting.trim());
            }
        }
        text
    }
}

impl Listed {
    /// Logs once that clients who search do not get a tool, because a tool of the host has its name.
    fn tell_hidden(&self, tool: &Entry) {
        let Some(problem) = hidden(tool) else { return };
        if lock(&self.told).insert((tool.server().clone(), tool.raw_name().into())) {
            tracing::warn!(server = tool.server().as_str(), "{problem}");
        }
    }
}

fn said_of(settings: &HostSettings, view: &str, server: &Server, entry: &Entry) -> ToolSettings {
    let mut tool = settings.tools_in(view).and_then(|tools| tools.of(entry.name())).unwrap_or_default();
    if let Some(weaker) = server.config.tools.of(entry.raw_name()) {
        tool.lay_over(&weaker);
    }
    tool
}
