//! Prepares a view for use on catalogs: which entries of each server it shows, and how it edits them.
//!
//! In: the config of a view and of the servers. Out: a [`Lens`], through which `Catalog::through` shows a catalog. The
//! result for one server's piece is made once, and kept as long as that piece. **Invariant:** names are those of the
//! whole catalog: a view removes and edits entries, and never renames them.

use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::edit::{Edited, edited};
use super::entry::{Entry, Named};
use super::hints;
use super::offer::List;
use super::piece::Piece;
use super::ruled::Ruled;
use super::{Kind, quoted};
use crate::config::{self, Action, Layer as _, Prefix, ReadOnly, ToolRules, ToolSettings};
use crate::exposed::{Naming, is_set_apart};
use crate::glob::is_match;
use crate::lock::lock;
use crate::name::ServerName;
use crate::policy::{InForce, Subject};
use crate::select::{Facts, Range, match_all, matches, may_match, may_name};

/// A view that is prepared for these servers. Two lenses are equal only if they are one value.
#[derive(Debug)]
pub(crate) struct Lens {
    id: u64,
    /// Whether a name that is in no list leads to no server.
    closed: bool,
    view: Arc<config::View>,
    /// The rules that can match the clients it is for; `None` if none can.
    rules: Option<InForce>,
    /// The servers, by the caller's index for each. The view shows nothing of any other server.
    sides: Arc<BTreeMap<usize, Side>>,
    /// The results for pieces, by the addresses of the pieces. A piece is not freed while there is a weak reference to
    /// it, so no other piece gets its address.
    pieces: Mutex<HashMap<usize, Made>>,
}

/// The result for a piece; `None` if the view shows it unchanged. A strong reference from a piece to itself would keep
/// it in memory.
type Made = (Weak<Piece>, Option<Arc<Piece>>);

/// What a lens knows of one server.
#[derive(Debug, PartialEq)]
struct Side {
    rules: ToolRules,
    tags: Vec<String>,
    trusts_annotations: bool,
    /// Whether the view can show any of its tools.
    tools: bool,
    prompts: bool,
    resources: bool,
}

impl PartialEq for Lens {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Lens {}

impl Hash for Lens {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

/// What a lens does to one entry.
enum Seen {
    /// It is shown, and judged by these rules when it is called.
    Shown(Option<Edited>, Option<Arc<Ruled>>),
    Outside,
    /// Left out for this reason, which people are told.
    Unfit(String),
}

impl Lens {
    /// Prepares a view for these servers, each given by its index.
    pub(crate) fn new<'a>(
        view: &config::View,
        closed: bool,
        servers: impl Iterator<Item = (usize, &'a config::Server)>,
        naming: &Naming,
    ) -> Self {
        let sides = servers.map(|(id, server)| (id, Side::of(view, server, naming))).collect();
        Self::made_of(view.clone().into(), closed, Arc::new(sides), None)
    }

    fn made_of(
        view: Arc<config::View>,
        closed: bool,
        sides: Arc<BTreeMap<usize, Side>>,
        rules: Option<InForce>,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        Self { id: IDS.fetch_add(1, Ordering::Relaxed), closed, view, rules, sides, pieces: Mutex::default() }
    }

    /// Returns the same view, limited by these rules.
    pub(crate) fn within(&self, rules: InForce) -> Self {
        Self::made_of(self.view.clone(), self.closed, self.sides.clone(), Some(rules))
    }

    /// Reports whether both lenses show the same.
    pub(crate) fn shows_as(&self, other: &Self) -> bool {
        self.closed == other.closed && self.view == other.view && self.sides == other.sides && self.rules == other.rules
    }

    /// Reports whether the view can show anything of the server with this index.
    pub(crate) fn reaches(&self, server: usize) -> bool {
        self.sides.get(&server).is_some_and(|side| side.tools || side.prompts || side.resources)
    }

    /// Reports whether the view, or a rule, may show less than everything.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed || self.rules.is_some()
    }

    /// Returns the instructions that clients get first, in place of mcp-host's own.
    pub(crate) fn instructions(&self) -> Option<&str> {
        self.view.instructions.as_deref()
    }

    /// Reports whether a server may be asked for this name although nothing lists it.
    pub(super) fn admits_unlisted(&self, server: usize, raw: &str) -> bool {
        let Some(side) = self.sides.get(&server).filter(|_| !self.closed) else { return false };
        if self.rules.as_ref().is_some_and(InForce::may_refuse_unlisted) {
            return false;
        }
        // The tool's arguments would have to be edited, but its schema is not known.
        side.rules.of(raw).is_none_or(|settings| settings.arguments.is_empty())
    }

    /// Reports whether the view shows the resource or resource template.
    pub(super) fn admits_resource(&self, server: usize, exposed: &str, raw: &str) -> bool {
        let Some(side) = self.sides.get(&server) else { return false };
        match &self.view.resources {
            None => side.resources,
            Some(globs) => globs.iter().any(|glob| is_match(glob, exposed) || is_match(glob, raw)),
        }
    }

    /// Reports whether a rule hides the resource.
    pub(super) fn hides_resource(&self, alias: &ServerName, exposed: &str, raw: &str) -> bool {
        let subject = || Subject::resource(exposed, raw, alias.as_str());
        self.judged(Action::Read, &subject()).is_some_and(|ruled| ruled.hides())
    }

    /// Returns what the view shows of a server's piece.
    pub(super) fn piece(&self, kind: Kind, server: usize, piece: &Arc<Piece>) -> Arc<Piece> {
        if piece.entries.is_empty() {
            return Arc::clone(piece);
        }
        let address = Arc::as_ptr(piece) as usize;
        if let Some((_, made)) = lock(&self.pieces).get(&address) {
            return Arc::clone(made.as_ref().unwrap_or(piece));
        }
        let made = self.made(kind, server, piece);
        let other = (!Arc::ptr_eq(&made, piece)).then(|| Arc::clone(&made));
        let mut pieces = lock(&self.pieces);
        pieces.retain(|_, (of, _)| of.strong_count() > 0);
        pieces.insert(address, (Arc::downgrade(piece), other));
        made
    }

    fn made(&self, kind: Kind, server: usize, piece: &Arc<Piece>) -> Arc<Piece> {
        let (mut kept, mut problems) = (Vec::with_capacity(piece.entries.len()), piece.problems.clone());
        for entry in &piece.entries {
            match self.look(kind, server, entry) {
                Seen::Shown(edited, rules) => kept.push((entry, edited, rules)),
                Seen::Outside => {}
                Seen::Unfit(reason) => {
                    problems.add(|| format!("tool {} left out: {reason}", quoted(entry.raw_name())));
                }
            }
        }
        let is_edited = kept.iter().any(|(_, edited, _)| edited.is_some());
        let is_ruled = kept.iter().any(|(_, _, rules)| rules.is_some());
        if !is_edited && !is_ruled && kept.len() == piece.entries.len() {
            return Arc::clone(piece);
        }
        let heads = piece.heads.clone();
        let ruled =
            |(entry, _, rules): (&Entry, _, Option<_>)| rules.map_or_else(|| entry.clone(), |rules| entry.ruled(rules));
        let entries = if is_edited { rewritten(kept) } else { kept.into_iter().map(ruled).collect() };
        Arc::new(Piece::of(entries, heads, problems))
    }

    fn look(&self, kind: Kind, server: usize, entry: &Entry) -> Seen {
        let Some(side) = self.sides.get(&server) else { return Seen::Outside };
        let shows = match kind {
            Kind::Tools => return self.look_at_tool(side, entry),
            Kind::Prompts => match &self.view.prompts {
                None => side.prompts,
                Some(globs) => globs.iter().any(|glob| is_match(glob, entry.name())),
            },
            Kind::Resources | Kind::ResourceTemplates => self.admits_resource(server, entry.name(), entry.raw_name()),
        };
        if !shows {
            return Seen::Outside;
        }
        let (exposed, raw, server) = (entry.name(), entry.raw_name(), entry.server());
        match kind {
            Kind::Prompts => self.ruled(Action::Get, &Subject::prompt(exposed, raw, server.as_str()), None),
            _ => self.ruled(Action::Read, &Subject::resource(exposed, raw, server.as_str()), None),
        }
    }

    /// Applies the rules to what the view shows.
    fn ruled(&self, action: Action, subject: &Subject<'_>, edited: Option<Edited>) -> Seen {
        match self.judged(action, subject) {
            Some(ruled) if ruled.hides() => Seen::Outside,
            ruled => Seen::Shown(edited, ruled.map(Arc::new)),
        }
    }

    /// Returns the rules that requests of this kind are judged by; `None` if they all pass.
    pub(super) fn judged(&self, action: Action, subject: &Subject<'_>) -> Option<Ruled> {
        Ruled::of(self.rules.as_ref()?, action, subject)
    }

    fn look_at_tool(&self, side: &Side, entry: &Entry) -> Seen {
        if !side.tools {
            return Seen::Outside;
        }
        let settings = self.settings(side, entry);
        let hints = hints::effective(&settings.annotations, &entry.hints());
        let tags: Vec<String> = settings.tags.iter().flatten().chain(&side.tags).cloned().collect();
        let facts = Facts { exposed: entry.name(), server: entry.server().as_str(), tags: &tags, hints: &hints };
        let reads = match self.view.read_only {
            ReadOnly::No => true,
            ReadOnly::Declared => hints.read_only_hint == Some(true),
            ReadOnly::Trusted => match settings.annotations.read_only_hint {
                Some(reads) => reads,
                None => side.trusts_annotations && hints.read_only_hint == Some(true),
            },
        };
        let is_included = self.view.include.as_ref().is_none_or(|include| matches(include, &facts));
        if !reads || !is_included || matches(&self.view.exclude, &facts) {
            return Seen::Outside;
        }
        let subject = Subject::tool((entry.name(), entry.raw_name()), entry.server().as_str(), (&tags, &hints));
        match edited(entry.own(), &settings) {
            Ok(edited) => self.ruled(Action::Call, &subject, edited),
            Err(reason) => Seen::Unfit(reason),
        }
    }

    /// Returns the settings of a tool: the view's, and where it sets nothing, the server's.
    fn settings(&self, side: &Side, entry: &Entry) -> ToolSettings {
        let mut settings = self.view.tools.of(entry.name()).unwrap_or_default();
        if let Some(weaker) = side.rules.of(entry.raw_name()) {
            settings.lay_over(&weaker);
        }
        settings
    }
}

/// An entry that is shown, its edited definition, and the rules that its calls are judged by.
pub(super) type Kept<'a> = (&'a Entry, Option<Edited>, Option<Arc<Ruled>>);

/// Makes entries of edited definitions, all in one list of their own.
pub(super) fn rewritten(kept: Vec<Kept<'_>>) -> Vec<Entry> {
    let mut edits = Vec::with_capacity(kept.len());
    let mut definitions = Vec::with_capacity(kept.len());
    let mut named = Vec::with_capacity(kept.len());
    let mut at = 0;
    for (entry, edited, rules) in kept {
        let (definition, edit) = match edited {
            None => (entry.source().clone(), entry.edit().cloned()),
            Some(Edited { json, arguments }) => match entry.source().edited(&json) {
                Some(definition) => (definition, arguments),
                // A definition that was valid before the edit stays valid.
                None => continue,
            },
        };
        definitions.push(definition);
        edits.push((edit, rules));
        named.push((entry, Named { at, exposed: Arc::clone(entry.exposed()), is_bare: entry.is_bare() }));
        at += 1;
    }
    let list = Arc::new(List::edited(definitions));
    named.into_iter().zip(edits).map(|((entry, named), edit)| entry.moved(&list, named, edit)).collect()
}

impl Side {
    fn of(view: &config::View, server: &config::Server, naming: &Naming) -> Self {
        let alias = &server.alias;
        let is_prefixed = server.prefix == Prefix::Always && is_set_apart(alias, naming);
        let prefix = is_prefixed.then(|| format!("{alias}{}", naming.separator));
        let of_tools = server.tools.tags().chain(view.tools.tags());
        let tags: Vec<&str> = server.tags.iter().map(String::as_str).chain(of_tools).collect();
        let range = Range { server: alias, prefix: prefix.as_deref(), tags: &tags };
        let tools =
            view.include.as_ref().is_none_or(|include| may_match(include, &range)) && !match_all(&view.exclude, alias);
        let named = |globs: &[String]| globs.iter().any(|glob| may_name(glob, prefix.as_deref()));
        Self {
            rules: server.tools.clone(),
            tags: server.tags.clone(),
            trusts_annotations: server.trust_annotations,
            tools,
            prompts: view.prompts.as_deref().map_or(tools, named),
            resources: view.resources.as_ref().map_or(tools, |globs| !globs.is_empty()),
        }
    }
}

/// The definition with the server's own names in it.
impl Entry {
    fn own(&self) -> &crate::protocol::Raw {
        &self.source().json
    }
}
