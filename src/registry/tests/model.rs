//! A plain catalog, as a model: the merged list made from nothing, definition by definition, out of plain texts.

use std::collections::BTreeMap;

use super::*;
use crate::exposed::{SCHEME_HEADS, UriMode, bare_name, exposed_name, exposed_uri, raw_uri};

/// The names without a prefix and who showed them first, for tools and for prompts.
#[derive(Clone, Debug, Default)]
pub(super) struct Known([BTreeMap<String, String>; 4]);

/// What a client sees.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// For each list: the server, the name, the server's own name, and the definition.
    pub(super) lists: [Vec<(String, String, String, String)>; 4],
    /// What each server left out, and why.
    pub(super) problems: Vec<Vec<String>>,
}

struct Model<'a> {
    servers: &'a [Contribution],
    naming: &'a Naming,
    kind: Kind,
}

/// Merges the lists of these servers.
pub(super) fn model(servers: &[Contribution], naming: &Naming, known: &mut Known) -> Seen {
    let mut seen = Seen::default();
    seen.problems.resize(servers.len(), Vec::new());
    for kind in Kind::ALL {
        let model = Model { servers, naming, kind };
        let before = seen.lists[kind as usize].len();
        assert_eq!(before, 0);
        for (position, from) in servers.iter().enumerate() {
            for definition in &from.offer.list(kind).definitions {
                let raw = &*definition.name;
                if kind == Kind::Tools && !from.settings.admits(raw) {
                    continue;
                }
                let name = model.name(from, raw, &seen, known);
                match name {
                    Ok(name) => {
                        let json = definition.json.to_string();
                        let key = format!("\"{}\":\"{raw}\"", kind.key());
                        let shown = json.replacen(&key, &format!("\"{}\":\"{name}\"", kind.key()), 1);
                        assert!(json.contains(&key));
                        seen.lists[kind as usize].push((from.alias.to_string(), name, raw.to_owned(), shown));
                    }
                    Err(reason) => seen.problems[position].push(reason),
                }
            }
        }
        model.twins(&mut seen);
    }
    seen
}

/// Returns the text at the start of a URI where the alias of a server may be.
fn of_uri(uri: &str) -> Option<&str> {
    raw_uri(uri).map(|(head, _)| head).filter(|head| !SCHEME_HEADS.contains(head))
}

impl Model<'_> {
    fn name(&self, from: &Contribution, raw: &str, seen: &Seen, known: &mut Known) -> Result<String, String> {
        let (alias, word) = (&from.alias, self.kind.word());
        let shown = &seen.lists[self.kind as usize];
        let holder = |name: &str| shown.iter().find(|(_, shown, ..)| shown == name);
        let known = &mut known.0[self.kind as usize];
        let left_out = |reason: String| Err(format!("{word} {raw:?} left out: {reason}"));
        if self.closes(from, raw) {
            return left_out("it comes from this host".to_owned());
        }
        if !self.kind.has_names() {
            let uri = exposed_uri(alias, raw, self.mode(from)).into_owned();
            let other = of_uri(raw).and_then(|head| self.servers.iter().find(|server| server.alias.as_str() == head));
            if let Some(other) = other.filter(|other| from.settings.prefix == Prefix::Inner && other.alias != *alias) {
                return Err(format!("{word} {raw:?} left out: it belongs to {}", other.alias));
            }
            return match holder(&uri) {
                Some((owner, ..)) => Err(format!("{word} {uri:?} left out: {owner} lists it, too")),
                None => Ok(uri),
            };
        }
        let rest = if self.kind == Kind::Tools { from.settings.renamed(raw) } else { raw };
        if from.settings.prefix.may_stay() {
            let bare = bare_name(alias, rest, self.naming);
            let bearer = self.bearer(&bare).map(|bearer| bearer.alias.to_string());
            let of_host = || self.reserver(&bare).map(|host| host.alias.to_string());
            let owner = bearer.or_else(|| known.get(&bare).cloned()).or_else(of_host);
            let owner = owner.filter(|owner| *owner != alias.as_str());
            let owner = owner.or_else(|| Some(holder(&bare)?.0.clone()));
            match (owner, from.settings.prefix) {
                (None, _) => {
                    known.entry(bare.clone()).or_insert_with(|| alias.to_string());
                    return Ok(bare);
                }
                (Some(owner), Prefix::Never | Prefix::Inner) => {
                    return left_out(format!("the name {bare} belongs to {owner}"));
                }
                (Some(_), _) => {}
            }
        }
        let full = exposed_name(alias, rest, self.naming);
        match holder(&full) {
            Some((owner, _, raw, _)) => left_out(format!("{raw:?} of {owner} has the name {full}")),
            None => Ok(full),
        }
    }

    fn mode(&self, from: &Contribution) -> UriMode {
        match from.settings.prefix {
            Prefix::Never | Prefix::Inner => UriMode::Passthrough,
            Prefix::Always | Prefix::Auto => self.naming.resources,
        }
    }

    /// Returns the host whose own servers include the one whose alias a name starts with.
    fn reserver(&self, name: &str) -> Option<&Contribution> {
        let heads = name.match_indices(&*self.naming.separator).map(|(at, _)| &name[..at]);
        heads.into_iter().find_map(|head| self.servers.iter().find(|server| self.reserves(server, head)))
    }

    fn reserves(&self, host: &Contribution, alias: &str) -> bool {
        let is_alias = alias.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let of_name = |name: &str| Some(name.split_once(&*self.naming.separator)?.0.to_owned());
        let is_its = |kind: Kind, name: &str| {
            let head = if kind.has_names() { of_name(name) } else { of_uri(name).map(str::to_owned) };
            head.as_deref() == Some(alias)
        };
        let mut names =
            Kind::ALL.into_iter().flat_map(|kind| host.offer.list(kind).definitions.iter().map(move |it| (kind, it)));
        host.settings.prefix == Prefix::Inner
            && (1..=24).contains(&alias.len())
            && is_alias
            && names.any(|(kind, definition)| is_its(kind, &definition.name))
    }

    fn bearer(&self, name: &str) -> Option<&Contribution> {
        let heads = name.match_indices(&*self.naming.separator).map(|(at, _)| &name[..at]);
        heads.into_iter().find_map(|head| self.servers.iter().find(|server| server.alias.as_str() == head))
    }

    /// Reports whether a name leads back to a definition of the same server. All definitions here are alike.
    fn closes(&self, from: &Contribution, raw: &str) -> bool {
        let mut name = raw.to_owned();
        for _ in 0..8 {
            let head = name.split_once('+').map(|(head, _)| head);
            let bearer = if self.kind.has_names() {
                self.bearer(&name)
            } else {
                self.servers.iter().find(|server| Some(server.alias.as_str()) == head)
            };
            let Some(bearer) = bearer else { return false };
            let prefixed = |raw: &str| match self.kind {
                Kind::Tools => exposed_name(&bearer.alias, bearer.settings.renamed(raw), self.naming),
                Kind::Prompts => exposed_name(&bearer.alias, raw, self.naming),
                _ => exposed_uri(&bearer.alias, raw, self.mode(bearer)).into_owned(),
            };
            let mut all = bearer.offer.list(self.kind).definitions.iter().rev();
            let Some(inner) = all.find(|inner| prefixed(&inner.name) == name && name != *inner.name) else {
                return false;
            };
            if bearer.server == from.server {
                return true;
            }
            name = inner.name.to_string();
        }
        false
    }

    fn twins(&self, seen: &mut Seen) {
        if !self.kind.has_names() {
            return;
        }
        let list = &seen.lists[self.kind as usize];
        for (at, (alias, later, ..)) in list.iter().enumerate() {
            let first = list[..at].iter().find(|(_, first, ..)| first.eq_ignore_ascii_case(later));
            if let Some((_, first, ..)) = first {
                let position = self.servers.iter().position(|server| server.alias.as_str() == alias).unwrap();
                let text = format!("{} {later} differs from {first} only in case", self.kind.word());
                seen.problems[position].push(text);
            }
        }
    }
}
