//! Decides what a client may see and call, here and nowhere else: by its principal, and by the view that it uses.
//!
//! In: a client. Out: its [`Sight`], from which `view.rs` builds catalogs. **Invariant:** a server outside a scope shows
//! nothing there, not its lists, its instructions, or its extensions, and gets no request from there. A view that the
//! config does not have shows nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use super::lease::{Chosen, Who};
use super::{Manager, Principal, Server, lock};
use crate::config::{ALL_VIEW, HostSettings, View};
use crate::exposed::Naming;
use crate::registry::Lens;

/// What a client is shown, and what it may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) shown: Scope,
    pub(crate) callable: Scope,
}

/// What a client may see, or may call. The scope is part of the key of cached catalogs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// The ids of the servers outside it.
    pub(crate) without: BTreeSet<usize>,
    /// The view; `None` if it shows everything as it is.
    pub(super) lens: Option<Arc<Lens>>,
}

impl Scope {
    /// Reports whether the scope excludes nothing.
    pub(super) fn is_everything(&self) -> bool {
        self.without.is_empty() && self.lens.as_ref().is_none_or(|lens| !lens.is_closed())
    }

    pub(super) fn holds(&self, server: &Server) -> bool {
        !self.without.contains(&server.id) && self.lens.as_ref().is_none_or(|lens| lens.reaches(server.id))
    }

    /// Returns the same scope without the view.
    pub(super) fn whole(&self) -> Self {
        Self { without: self.without.clone(), lens: None }
    }
}

/// Principals that may not see or call everything. The config cannot express that yet, so there are none.
#[derive(Debug, Default)]
pub(super) struct Limited(Mutex<HashMap<Principal, Sight>>);

/// The views of the config, made ready for its servers.
#[derive(Debug, Default)]
pub(super) struct Views {
    /// The view `all`; `None` if it shows everything as it is.
    all: Option<Arc<Lens>>,
    named: BTreeMap<String, Arc<Lens>>,
    /// The view of clients that choose none.
    default: Chosen,
    /// What a client of an unknown view sees: nothing.
    nothing: Option<Arc<Lens>>,
    /// Whether a view shows tools by what is said of them.
    read_hints: bool,
}

impl Views {
    /// Makes the views ready for these servers. A view that shows the same as before stays the same.
    pub(super) fn new(settings: &HostSettings, servers: &[&Arc<Server>], naming: &Naming, before: &Self) -> Self {
        let make = |view: &View, is_closed: bool, before: Option<&Arc<Lens>>| {
            let servers = servers.iter().map(|server| (server.id, &server.config));
            let lens = Lens::new(view, is_closed, servers, naming);
            before.filter(|before| before.shows_as(&lens)).cloned().unwrap_or_else(|| Arc::new(lens))
        };
        let plain = View::default();
        let all = settings.views.get(ALL_VIEW).unwrap_or(&plain);
        let edits = servers.iter().any(|server| !server.config.tools.is_empty());
        let needs_lens = edits || !all.is_empty() || all.instructions.is_some();
        let named = settings.views.iter().filter(|(name, _)| *name != ALL_VIEW);
        let named = named.map(|(name, view)| (name.clone(), make(view, true, before.named.get(name))));
        let nothing = before.nothing.clone();
        Self {
            all: needs_lens.then(|| make(all, !all.is_empty(), before.all.as_ref())),
            named: named.collect(),
            default: Chosen::named(&settings.default_view),
            read_hints: settings.views.values().any(View::reads_hints),
            nothing: nothing.or_else(|| Some(Arc::new(Lens::new(&plain, true, std::iter::empty(), naming)))),
        }
    }

    fn lens(&self, view: &Chosen) -> Option<Arc<Lens>> {
        match view {
            Chosen::All => self.all.clone(),
            Chosen::Named(name) => self.named.get(&**name).or(self.nothing.as_ref()).cloned(),
            Chosen::Default => match &self.default {
                Chosen::Default => self.all.clone(),
                chosen => self.lens(chosen),
            },
        }
    }
}

impl Manager {
    /// Returns what a client may see and call.
    pub(super) fn sight(&self, who: &Who) -> Sight {
        let mut sight = lock(&self.0.limited.0).get(&who.principal).cloned().unwrap_or_default();
        if let Some(lens) = self.0.views.load().lens(&who.view.name) {
            (sight.shown.lens, sight.callable.lens) = (Some(lens.clone()), Some(lens));
        }
        sight
    }

    /// Returns the view of clients that choose none.
    pub(crate) fn default_view(&self) -> Chosen {
        self.0.views.load().default.clone()
    }

    /// Reports whether a view shows tools by what is said of them.
    pub(super) fn views_read_hints(&self) -> bool {
        self.0.views.load().read_hints
    }

    /// Returns what a client without limits sees in the view of this name, or in that of clients that choose none.
    #[cfg(feature = "server")]
    pub(super) fn scope_of(&self, view: Option<&str>) -> Scope {
        let chosen = view.map_or(Chosen::Default, Chosen::named);
        Scope { lens: self.0.views.load().lens(&chosen), ..Scope::default() }
    }

    /// Returns each view that the config defines, with the scope that shows it.
    pub(super) fn view_scopes(&self) -> Vec<(String, Scope)> {
        let views = self.0.views.load();
        let scope = |lens: &Arc<Lens>| Scope { lens: Some(lens.clone()), ..Scope::default() };
        let named = views.named.iter().map(|(name, lens)| (name.clone(), scope(lens)));
        views.all.iter().map(|lens| (ALL_VIEW.to_owned(), scope(lens))).chain(named).collect()
    }

    /// Limits what a principal may see and call.
    #[cfg(test)]
    pub(crate) fn limit(&self, principal: Principal, sight: Sight) {
        lock(&self.0.limited.0).insert(principal, sight);
        self.touch();
    }

    /// Returns the servers of which a client may see anything, in config order.
    pub(crate) fn shown_to(&self, who: &Who) -> Arc<Vec<Arc<Server>>> {
        self.within(&self.sight(who).shown)
    }

    /// Returns the servers that a client may call, in config order.
    pub(crate) fn callable_by(&self, who: &Who) -> Arc<Vec<Arc<Server>>> {
        self.within(&self.sight(who).callable)
    }

    /// Reports whether a client may call everything.
    pub(crate) fn may_call_all(&self, who: &Who) -> bool {
        self.sight(who).callable.is_everything()
    }

    fn within(&self, scope: &Scope) -> Arc<Vec<Arc<Server>>> {
        let servers = self.servers();
        if scope.without.is_empty() && scope.lens.is_none() {
            return servers;
        }
        Arc::new(servers.iter().filter(|server| scope.holds(server)).cloned().collect())
    }
}
