//! Decides what a client may see and call, here and nowhere else: by its principal, by the view that it uses, and by the
//! rules that match it.
//!
//! In: a client. Out: its [`Sight`], from which `view.rs` builds catalogs. **Invariant:** a server outside a scope shows
//! nothing there, not its lists, its instructions, or its extensions, and gets no request from there. A view that the
//! config does not have shows nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwapOption;

use super::lease::{Chosen, Who};
use super::listed::Listed;
use super::{Claims, Manager, Principal, Server, lock};
use crate::config::{ALL_VIEW, HostSettings, Policy, View};
use crate::exposed::Naming;
use crate::policy::{Action, Caller, Decision, Facts, InForce, Subject};
use crate::protocol::Profile;
use crate::registry::{Catalog, Lens};

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
    /// The view; `None` if it shows everything unchanged.
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

/// The views of the config, built for its servers.
#[derive(Debug, Default)]
pub(super) struct Views {
    /// The view `all`; `None` if it shows everything unchanged.
    all: Option<Arc<Lens>>,
    named: BTreeMap<String, Arc<Lens>>,
    /// The view of clients that choose none.
    default: Chosen,
    /// What a client of an unknown view sees: nothing.
    nothing: Option<Arc<Lens>>,
    /// The rules; `None` if there are none.
    rules: Option<Arc<RulesInUse>>,
    /// Whether any view or rule decides by the hints of tools.
    read_hints: bool,
    /// The state of changed lists (`listed.rs`), which is passed on when views are rebuilt.
    listed: Arc<Listed>,
}

/// The rules of the config and of the embedding program, and the views narrowed by them.
#[derive(Debug)]
pub(super) struct RulesInUse {
    policy: Arc<Policy>,
    /// The policy of the embedding program.
    program: Option<Program>,
    /// The view of clients that choose none.
    default: Chosen,
    /// A view that shows everything: rules narrow it for clients whose own view is `None`.
    plain: Arc<Lens>,
    /// For each kind of client so far, its view, narrowed by the rules that can match the client.
    made: Mutex<HashMap<Asker, Option<Arc<Lens>>>>,
    /// The questions that each server may not ask each kind of client.
    refused: Mutex<HashMap<(Asker, usize), Profile>>,
}

/// The rules about what a server may ask clients.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Whether there are any. Checking this flag costs each call next to nothing.
    are_ruled: AtomicBool,
    rules: ArcSwapOption<RulesInUse>,
}

impl Questions {
    fn follow(&self, rules: Option<&Arc<RulesInUse>>) {
        self.rules.store(rules.cloned());
        self.are_ruled.store(rules.is_some(), Ordering::Release);
    }
}

/// The policy of the embedding program.
pub(crate) type Program = Arc<dyn crate::policy::Policy>;

/// A kind of client. The same rules match all clients of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asker {
    principal: Principal,
    claims: Claims,
    view: Chosen,
}

impl Asker {
    fn of(who: &Who) -> Self {
        Self { principal: who.principal.clone(), claims: who.claims.clone(), view: who.view.name.clone() }
    }
}

/// How many kinds of clients are remembered.
const ASKERS: usize = 1024;

impl Views {
    /// Builds the views for these servers. A view that would show the same as before is reused.
    pub(super) fn new(
        (settings, program): (&HostSettings, Option<&Program>),
        servers: &[&Arc<Server>],
        naming: &Naming,
        before: &Self,
    ) -> Self {
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
        let is_ruled = program.is_some() || !settings.policy.is_empty();
        let default = Chosen::named(&settings.default_view);
        let rules = is_ruled.then(|| {
            Arc::new(RulesInUse {
                policy: settings.policy.clone().into(),
                program: program.cloned(),
                default: default.clone(),
                plain: make(&plain, false, None),
                made: Mutex::default(),
                refused: Mutex::default(),
            })
        });
        let questions = rules.as_ref().filter(|_| settings.policy.judges_servers());
        servers.iter().for_each(|server| server.questions.follow(questions));
        Self {
            all: needs_lens.then(|| make(all, !all.is_empty(), before.all.as_ref())),
            named: named.collect(),
            default,
            read_hints: settings.views.values().any(View::reads_hints)
                || settings.policy.reads_hints()
                || program.is_some(),
            nothing: nothing.or_else(|| Some(Arc::new(Lens::new(&plain, true, std::iter::empty(), naming)))),
            rules,
            listed: before.listed.clone(),
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

    /// Returns the view of a client, narrowed by the rules that can match the client.
    fn of(&self, who: &Who) -> Option<Arc<Lens>> {
        let lens = self.lens(&who.view.name);
        match &self.rules {
            None => lens,
            Some(rules) => rules.within(lens, who),
        }
    }
}

impl RulesInUse {
    /// Returns a client as rules see it.
    fn caller<'a>(&'a self, who: &'a Who) -> Caller<'a> {
        let name = |view: &'a Chosen| match view {
            Chosen::Named(name) => &**name,
            Chosen::All | Chosen::Default => ALL_VIEW,
        };
        let view = if who.view.name == Chosen::Default { name(&self.default) } else { name(&who.view.name) };
        Caller {
            principal: who.principal.as_str(),
            client: who.principal.client_name(),
            subject: who.claims.subject(),
            claims: who.claims.all(),
            scopes: who.claims.scopes(),
            view,
        }
    }

    /// Returns the kinds of questions that a server may not ask a client.
    fn refused(&self, server: &Server, who: &Who) -> Profile {
        let key = (Asker::of(who), server.id);
        if let Some(refused) = lock(&self.refused).get(&key) {
            return *refused;
        }
        let caller = self.caller(who);
        let subject = Subject::of_server(server.config.alias.as_str());
        let force = InForce::of(&self.policy, None, &caller);
        // No person can be asked whether a server may ask a question, so a rule that wants permission denies it.
        let denies = |action| {
            let held = force.as_ref()?.about(action, &subject)?;
            let facts = Facts { subject, action, caller, client: ("", None), arguments: None };
            let verdict = held.judge(&facts).ok()?;
            Some(verdict.enforced && verdict.decision != Decision::Allow)
        };
        let kinds = [
            (Action::Sample, Profile::SAMPLING),
            (Action::Elicit, Profile::ELICITATION_FORM.with(Profile::ELICITATION_URL)),
            (Action::Roots, Profile::ROOTS.with(Profile::ROOTS_CHANGED)),
        ];
        let refused = kinds.into_iter().filter(|(action, _)| denies(*action) == Some(true));
        let refused = refused.fold(Profile::EMPTY, |all, (_, kind)| all.with(kind));
        let mut kept = lock(&self.refused);
        if kept.len() >= ASKERS {
            kept.clear();
        }
        kept.insert(key, refused);
        refused
    }

    fn within(&self, lens: Option<Arc<Lens>>, who: &Who) -> Option<Arc<Lens>> {
        let asker = Asker::of(who);
        let mut made = lock(&self.made);
        if let Some(lens) = made.get(&asker) {
            return lens.clone();
        }
        let within = match InForce::of(&self.policy, self.program.as_ref(), &self.caller(who)) {
            None => lens,
            Some(rules) => {
                let lens = lens.as_ref().unwrap_or(&self.plain).within(rules);
                // Clients whom the same rules match in the same view share its catalogs.
                let same = made.values().flatten().find(|other| other.shows_as(&lens));
                Some(same.cloned().unwrap_or_else(|| Arc::new(lens)))
            }
        };
        if made.len() >= ASKERS {
            made.clear();
        }
        made.insert(asker, within.clone());
        within
    }
}

impl Manager {
    /// Returns what a client may see and call.
    pub(super) fn sight(&self, who: &Who) -> Sight {
        let mut sight = lock(&self.0.limited.0).get(&who.principal).cloned().unwrap_or_default();
        if let Some(lens) = self.0.views.load().of(who) {
            (sight.shown.lens, sight.callable.lens) = (Some(lens.clone()), Some(lens));
        }
        sight
    }

    /// Reports whether any request is judged by rules.
    pub(crate) fn has_rules(&self) -> bool {
        self.0.views.load().rules.is_some()
    }

    /// Runs `judge` with a client as rules see it; `None` if there are no rules.
    pub(crate) fn as_caller<T>(&self, who: &Who, judge: impl FnOnce(Caller<'_>) -> T) -> Option<T> {
        self.0.views.load().rules.as_ref().map(|rules| judge(rules.caller(who)))
    }

    /// Builds the views of the current settings for these servers.
    pub(super) fn see<'a>(&self, servers: impl Iterator<Item = &'a Arc<Server>>) {
        let servers: Vec<_> = servers.collect();
        let before = self.0.views.load_full();
        let settings = self.settings();
        let policy = (&*settings, self.0.program.get());
        self.0.views.store(Arc::new(Views::new(policy, &servers, &self.0.naming, &before)));
    }

    /// Returns what a client without limits sees in a view, of everything that servers listed last.
    pub(super) fn seen_in(&self, view: &Chosen) -> Arc<Catalog> {
        let scope = Scope { lens: self.0.views.load().lens(view), ..Scope::default() };
        self.0.look(&scope, &self.all_parts())
    }

    /// Returns the state of changed lists (`listed.rs`).
    pub(super) fn listed_state(&self) -> Arc<Listed> {
        self.0.views.load().listed.clone()
    }

    /// Lets the embedding program judge requests, too. Only the first call has an effect.
    pub(crate) fn judge_by(&self, program: Program) {
        if self.0.program.set(program).is_ok() {
            self.see(self.servers().iter());
            self.touch();
        }
    }

    /// Reports whether the embedding program judges requests.
    #[cfg(feature = "server")]
    pub(crate) fn is_judged_by_program(&self) -> bool {
        self.0.program.get().is_some()
    }

    /// Returns the view of clients that choose none.
    pub(crate) fn default_view(&self) -> Chosen {
        self.0.views.load().default.clone()
    }

    /// Reports whether any view or rule decides by the hints of tools.
    pub(super) fn views_read_hints(&self) -> bool {
        self.0.views.load().read_hints
    }

    /// Returns what a client without limits sees in the view of this name; without a name, in that of clients that
    /// choose none.
    #[cfg(feature = "server")]
    pub(super) fn scope_of(&self, view: Option<&str>) -> Scope {
        let chosen = view.map_or(Chosen::Default, Chosen::named);
        Scope { lens: self.0.views.load().lens(&chosen), ..Scope::default() }
    }

    /// Returns what the local user sees in that view; `None` if no rule can match that user.
    #[cfg(feature = "server")]
    pub(super) fn scope_within_rules(&self, view: Option<&str>) -> Option<Scope> {
        let views = self.0.views.load();
        let (rules, local) = (views.rules.as_ref()?, Principal::local());
        let chosen = view.map_or_else(|| views.default.clone(), Chosen::named);
        let name = if let Chosen::Named(name) = &chosen { name } else { ALL_VIEW };
        let (principal, scopes) = (local.as_str(), &[][..]);
        let caller = Caller { principal, client: None, subject: None, claims: None, scopes, view: name };
        let within = InForce::of(&rules.policy, rules.program.as_ref(), &caller)?;
        let lens = views.lens(&chosen).unwrap_or_else(|| rules.plain.clone()).within(within);
        Some(Scope { lens: Some(Arc::new(lens)), ..Scope::default() })
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

impl Server {
    /// Returns the kinds of questions that the server may not ask a client.
    pub(super) fn refused(&self, who: &Who) -> Profile {
        // Nearly every call ends here.
        if !self.questions.are_ruled.load(Ordering::Acquire) {
            return Profile::EMPTY;
        }
        self.questions.rules.load().as_ref().map_or(Profile::EMPTY, |rules| rules.refused(self, who))
    }
}
