//! The record of one server: which definitions the user approved, and what the server lists now (`docs/hazards.md`
//! H85).
//!
//! In: whole listings, approvals. Out: what has changed, and what may be shown. Pure: the time is passed in.
//! **Invariant:** a form of a definition that is not approved is withheld until an approval names exactly this form. No
//! approved form is ever forgotten because of a form that is not approved.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Allowed, Waiting, What, differing, is_suspicious, pointers, suspicions};
use crate::config::{Approval, Server};
use crate::protocol::{Pointer, Raw};
use crate::registry::{Class, DefinitionChange, Neighbours, Pin, Shingles, is_mild};

/// How many approved forms of one name are kept.
const FORMS: usize = 4;
/// A name with more than this many forms within [`UNSTABLE_FOR`] is unstable: each form needs its own approval.
const STABLE: usize = 2;
/// For how long a form counts toward [`STABLE`], in seconds.
const UNSTABLE_FOR: u64 = 3600;
/// An added definition that is at least this similar to a removed one counts as that one with a new name.
const RENAMED: f64 = 0.8;

/// The record of one server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Book {
    /// The server's name in the config, for people who look at the file.
    #[serde(default)]
    pub(super) server: String,
    /// Whether a whole listing was ever recorded.
    #[serde(default)]
    pub(super) is_begun: bool,
    #[serde(default)]
    pub(super) records: BTreeMap<What, BTreeMap<String, Record>>,
}

/// What is known about one name that a server lists.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    /// The approved forms, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) approved: Vec<Form>,
    /// The form that the server lists now, if that is not approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) now: Option<Form>,
    /// The forms listed within the last hour, and when, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    seen: Vec<(Pin, u64)>,
    /// Whether the server has stopped listing it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gone: bool,
    /// Whether the form that the server lists now is one of too many.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unstable: bool,
    /// The former name of a definition that was added, if it looks renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former: Option<String>,
    /// Set if the definition changed together with the server's config entry, until a person approves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moved: Option<Moved>,
}

/// The earlier form of a definition whose server is now reached in another way.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Moved {
    /// The form that was approved before; `None` if that record had no such name.
    before: Option<Form>,
}

/// One form of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Form {
    pub(crate) pin: Pin,
    /// The definition as the server sent it.
    pub(crate) text: String,
    /// Whether a person approved it. False if it was only approved because it was listed first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_person: bool,
}

/// One definition of a listing.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) what: What,
    pub(crate) name: String,
    pub(crate) form: Form,
}

/// What one server lists now.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) said: Vec<Said>,
    /// Whether a name that is missing here is gone. The list of a single client says nothing about others.
    pub(crate) is_everything: bool,
    /// The members that pins leave out.
    pub(crate) ignore: Box<[Pointer]>,
    /// What a lock file approves. If there is one, nothing else is approved.
    pub(crate) allowed: Option<Arc<Allowed>>,
}

/// A change of one definition, compared with what was approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) what: What,
    pub(crate) name: String,
    pub(crate) classes: Vec<Class>,
    /// The former name of an added definition that looks renamed.
    pub(crate) renamed: Option<String>,
    /// Whether clients see the changed definition nevertheless.
    pub(crate) passes: bool,
    /// Whether it is withheld because it is suspicious.
    pub(crate) is_suspicious: bool,
    /// Whether the name had too many forms within the last hour.
    pub(crate) unstable: bool,
}

/// One definition that waits for approval.
#[derive(Clone, Debug)]
pub(crate) struct Open<'a> {
    pub(crate) what: What,
    pub(crate) name: &'a str,
    pub(crate) form: &'a Form,
    /// How it differs from the last approved form, or from the locked one.
    pub(crate) changes: Vec<DefinitionChange>,
    /// The former name of an added definition that looks renamed.
    pub(crate) renamed: Option<&'a str>,
    /// Whether the name had too many forms within the last hour.
    pub(crate) unstable: bool,
    /// Whether it has a hard finding, and suspicious definitions are withheld.
    pub(crate) is_suspicious: bool,
    /// Whether clients see it, though no person has approved it: only the entry of its server changed.
    pub(crate) passes: bool,
}

/// Reports whether a definition is suspicious, so that it is withheld until a person approves it.
pub(crate) type Wary<'a> = &'a dyn Fn(What, &str) -> bool;

/// The result of comparing a listing with the record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    /// The changes that were not reported before.
    pub(crate) notices: Vec<Notice>,
    /// Whether the record has changed.
    pub(crate) is_changed: bool,
}

/// Why a definition waits for a person.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// It is not approved.
    Differs,
    /// It has a hard finding.
    Suspicious,
    /// It is in use, but its server's config entry has changed, and it differs from what was approved before.
    Moved,
}

impl Record {
    fn knows(&self, pin: Pin) -> bool {
        self.approved.iter().any(|form| form.pin == pin)
    }

    /// Makes an approved form the newest one. Returns whether it was not the newest before.
    fn meet(&mut self, pin: Pin) -> bool {
        let at = self.approved.iter().position(|form| form.pin == pin);
        let Some(at) = at.filter(|at| at + 1 < self.approved.len()) else { return false };
        self.approved[at..].rotate_left(1);
        true
    }

    fn approve(&mut self, form: Form) {
        self.approved.retain(|other| other.pin != form.pin);
        self.approved.push(form);
        let over = self.approved.len().saturating_sub(FORMS);
        self.approved.drain(..over);
        self.now = None;
    }

    /// Records a form, and whether the name had too many of them lately. If so, forms that lately passed without a
    /// person's approval no longer count as approved.
    fn note(&mut self, pin: Pin, at: u64) {
        self.seen.retain(|(other, when)| *other != pin && at.saturating_sub(*when) < UNSTABLE_FOR);
        self.seen.push((pin, at));
        let is_new = |form: &Form| self.seen.iter().any(|(pin, _)| *pin == form.pin);
        // An approved form from before counts as one more.
        let older = self.approved.iter().any(|form| !is_new(form));
        self.unstable = self.seen.len() + usize::from(older) > STABLE;
        if self.unstable {
            self.approved.retain(|form| form.by_person || !is_new(form));
        }
    }

    fn last(&self) -> Option<&Form> {
        self.approved.last()
    }

    /// If a definition waits for approval, returns its form, why it waits, and the form with which it is compared.
    fn open(
        &self,
        what: What,
        name: &str,
        allowed: Option<&Allowed>,
        wary: Option<Wary<'_>>,
    ) -> Option<(&Form, Why, Option<&Form>)> {
        let is_locked = |form: &Form| allowed.is_some_and(|allowed| allowed.has(what, name, form.pin));
        let why = |form: &Form, else_: Why| match wary {
            Some(wary) if wary(what, &form.text) => Why::Suspicious,
            _ => else_,
        };
        let before = self.moved.as_ref().and_then(|moved| moved.before.as_ref());
        if let Some(now) = self.now.as_ref() {
            let standard = self.standard(what, name, allowed).or(before);
            return (!is_locked(now)).then(|| (now, why(now, Why::Differs), standard));
        }
        // No person has approved this form; it only passed by itself.
        let taken = self.last().filter(|last| !self.gone && !last.by_person && !is_locked(last))?;
        let seen = self.approved.iter().rev().find(|form| form.by_person).or(before);
        match why(taken, Why::Moved) {
            Why::Moved if self.moved.is_none() || allowed.is_some() => None,
            why => Some((taken, why, seen)),
        }
    }

    /// Returns the form with which later ones are compared: the locked one, if there is a lock.
    fn standard(&self, what: What, name: &str, allowed: Option<&Allowed>) -> Option<&Form> {
        match allowed {
            Some(allowed) => self.approved.iter().find(|form| allowed.has(what, name, form.pin)),
            None => self.last(),
        }
    }
}

impl Book {
    /// Compares what the server lists now with the record, and updates the record. `before` is the record of the same
    /// server before its config entry changed. What `wary` finds suspicious does not pass.
    pub(crate) fn judge(
        &mut self,
        listing: &Listing,
        (approval, wary): (Approval, Option<Wary<'_>>),
        at: u64,
        before: Option<&Self>,
    ) -> Judged {
        let mut judged = Judged::default();
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        judged.is_changed = is_first;
        let old = self.clone();
        let listed: HashSet<(What, &str)> = listing.said.iter().map(|said| (said.what, &*said.name)).collect();
        for said in &listing.said {
            let record = self.records.entry(said.what).or_default().entry(said.name.clone()).or_default();
            let pin = said.form.pin;
            judged.is_changed |= std::mem::take(&mut record.gone);
            let allowed = listing.allowed.as_deref();
            let is_locked = allowed.is_some_and(|allowed| allowed.has(said.what, &said.name, pin));
            if is_locked && !record.knows(pin) {
                record.approve(said.form.clone());
                judged.is_changed = true;
            }
            if is_locked || (allowed.is_none() && record.knows(pin)) {
                judged.is_changed |= record.now.take().is_some();
                judged.is_changed |= record.meet(pin);
                continue;
            }
            if record.now.as_ref().is_some_and(|now| now.pin == pin) {
                continue;
            }
            judged.is_changed = true;
            let is_suspicious = wary.is_some_and(|wary| wary(said.what, &said.form.text));
            if is_first && approval != Approval::Ask && allowed.is_none() {
                record.approve(said.form.clone());
                let known = before.and_then(|before| before.record(said.what, &said.name)?.last());
                if let Some(before) = before.filter(|_| known.is_none_or(|known| known.pin != pin)) {
                    let differing = compare(said.what, known, &said.form, &listing.ignore);
                    let renamed = if known.is_none() { former(before, said, &listed) } else { None };
                    record.moved = Some(Moved { before: known.cloned() });
                    record.former.clone_from(&renamed);
                    judged.notices.push(notice(said, &differing, (!is_suspicious, is_suspicious), renamed));
                } else if is_suspicious {
                    let added = compare(said.what, None, &said.form, &listing.ignore);
                    judged.notices.push(notice(said, &added, (false, true), None));
                }
                continue;
            }
            record.note(pin, at);
            if let (true, Some(before)) = (is_first, before) {
                let known = before.record(said.what, &said.name).and_then(Record::last);
                record.moved = known.is_none_or(|known| known.pin != pin).then(|| Moved { before: known.cloned() });
            }
            let last = record.standard(said.what, &said.name, allowed).cloned();
            let basis = last.as_ref().or(record.moved.as_ref().and_then(|moved| moved.before.as_ref()));
            let differing = compare(said.what, basis, &said.form, &listing.ignore);
            let is_mild = approval == Approval::Tofu && last.is_some() && !record.unstable && is_mild(&differing);
            if is_mild && allowed.is_none() {
                record.approve(said.form.clone());
            } else {
                record.now = Some(said.form.clone());
            }
            let is_added = classes(&differing) == [Class::Added];
            let book = if is_first { before.unwrap_or(&old) } else { &old };
            let renamed = is_added.then(|| former(book, said, &listed).or(record.former.take())).flatten();
            record.former.clone_from(&renamed);
            let passes = !is_suspicious && (is_mild || approval == Approval::Warn);
            let unstable = record.unstable;
            judged.notices.push(Notice { unstable, ..notice(said, &differing, (passes, is_suspicious), renamed) });
        }
        if listing.is_everything {
            self.miss(&listed, &mut judged);
            if let Some(before) = before.filter(|_| is_first) {
                before.clone().miss(&listed, &mut judged);
            }
        }
        judged
    }

    /// Records which names the server no longer lists.
    fn miss(&mut self, listed: &HashSet<(What, &str)>, judged: &mut Judged) {
        for (what, records) in &mut self.records {
            for (name, record) in records {
                if record.gone || listed.contains(&(*what, name)) {
                    continue;
                }
                record.gone = true;
                judged.is_changed = true;
                let was_shown = !record.approved.is_empty();
                record.now = None;
                let moved = judged.notices.iter().any(|told| told.what == *what && told.renamed.as_ref() == Some(name));
                if was_shown && !moved {
                    let (what, name) = (*what, name.clone());
                    let classes = vec![Class::Removed];
                    let (renamed, passes, is_suspicious, unstable) = (None, true, false, false);
                    judged.notices.push(Notice { what, name, classes, renamed, passes, is_suspicious, unstable });
                }
            }
        }
    }

    /// Applies a person's approval of exactly these forms, if the server still lists them. Returns how many were
    /// approved.
    pub(crate) fn approve(&mut self, forms: &[(What, String, Pin)]) -> usize {
        let mut count = 0;
        for (what, name, pin) in forms {
            let record = self.records.get_mut(what).and_then(|records| records.get_mut(name));
            let Some(record) = record else { continue };
            let taken = record.now.is_none().then(|| record.approved.pop_if(|last| last.pin == *pin)).flatten();
            if let Some(form) = record.now.take_if(|now| now.pin == *pin).or(taken) {
                count += usize::from(!form.by_person);
                record.approve(Form { by_person: true, ..form });
                (record.moved, record.former, record.unstable) = (None, None, false);
            }
        }
        count
    }

    /// Revokes the approval of the definitions that `is_meant` selects. Returns how many wait for approval again.
    pub(crate) fn revoke(&mut self, is_meant: impl Fn(What, &str) -> bool) -> usize {
        let mut count = 0;
        for (what, records) in &mut self.records {
            for (_, record) in records.iter_mut().filter(|(name, _)| is_meant(*what, name)) {
                let Some(last) = record.approved.pop() else { continue };
                record.approved.clear();
                if !record.gone {
                    record.now.get_or_insert(Form { by_person: false, ..last });
                }
                count += 1;
            }
        }
        count
    }

    /// Returns what waits for approval. What `wary` finds suspicious waits until a person has approved it.
    pub(crate) fn waiting(
        &self,
        ignore: &[Pointer],
        allowed: Option<&Allowed>,
        wary: Option<Wary<'_>>,
    ) -> Vec<Open<'_>> {
        let all = self.records.iter().flat_map(|(what, records)| records.iter().map(|(name, one)| (*what, name, one)));
        let waiting = all.filter_map(|(what, name, record)| {
            let (form, why, before) = record.open(what, name, allowed, wary)?;
            let changes = compare(what, before, form, ignore);
            let (renamed, unstable) = (record.former.as_deref(), record.unstable && record.now.is_some());
            let (is_suspicious, passes) = (why == Why::Suspicious, why == Why::Moved);
            Some(Open { what, name, form, changes, renamed, unstable, is_suspicious, passes })
        });
        waiting.collect()
    }

    /// Reports whether a form differs from the locked one only by removals, and is not one of too many forms.
    pub(crate) fn is_mild(&self, what: What, name: &str, changes: &[DefinitionChange], allowed: &Allowed) -> bool {
        let record = self.record(what, name);
        record.is_some_and(|record| {
            record.standard(what, name, Some(allowed)).is_some() && !record.unstable && is_mild(changes)
        })
    }

    /// Returns the approved text with this pin.
    pub(super) fn text(&self, what: What, name: &str, pin: Pin) -> Option<String> {
        let forms = &self.record(what, name)?.approved;
        forms.iter().find(|form| form.pin == pin).map(|form| form.text.clone())
    }

    /// Reports whether a whole listing was ever recorded.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Returns what waits for approval, for people.
    pub(crate) fn shown(&self, server: &Server, neighbours: &Neighbours, is_wary: bool) -> Vec<Waiting> {
        let allowed = server.locked.as_ref().map(Allowed::of);
        let alias = server.alias.as_str();
        let hard = |what: What, text: &str| is_suspicious(what, alias, text, neighbours);
        let wary: Option<Wary<'_>> = if is_wary { Some(&hard) } else { None };
        let waiting = self.waiting(&pointers(server), allowed.as_ref(), wary).into_iter().map(|open| Waiting {
            server: server.name.clone(),
            what: open.what,
            name: open.name.to_owned(),
            pin: open.form.pin,
            renamed: open.renamed.map(str::to_owned),
            unstable: open.unstable,
            passes: open.passes,
            changes: open.changes,
            findings: suspicions(open.what, alias, &open.form.text, neighbours),
            text: open.form.text.clone(),
        });
        waiting.collect()
    }

    /// Returns the tools as the server lists them now.
    pub(crate) fn tools(&self) -> impl Iterator<Item = Raw> {
        let records = self.records.get(&What::Tool).into_iter().flat_map(BTreeMap::values);
        let listed = records.filter(|record| !record.gone);
        listed.filter_map(|record| parsed(record.now.as_ref().or_else(|| record.last())?))
    }

    /// Returns all approved forms.
    pub(crate) fn approved(&self) -> impl Iterator<Item = (What, &str, &Form)> {
        let all = self.records.iter().flat_map(|(what, records)| records.iter().map(|(name, one)| (*what, name, one)));
        all.flat_map(|(what, name, record)| record.approved.iter().map(move |form| (what, name.as_str(), form)))
    }

    /// Returns the forms that the server lists now and that are not approved.
    pub(crate) fn open(&self) -> impl Iterator<Item = (What, &str, &Form)> {
        let all = self.records.iter().flat_map(|(what, records)| records.iter().map(|(name, one)| (*what, name, one)));
        all.filter_map(|(what, name, record)| Some((what, name.as_str(), record.now.as_ref()?)))
    }

    /// Returns the names of one kind that are known.
    pub(crate) fn names(&self, what: What) -> impl Iterator<Item = &String> {
        self.records.get(&what).into_iter().flat_map(BTreeMap::keys)
    }

    /// Returns the form of a tool with which later ones are compared.
    pub(crate) fn standard(&self, name: &str, allowed: Option<&Allowed>) -> Option<&Form> {
        self.record(What::Tool, name)?.standard(What::Tool, name, allowed)
    }

    fn record(&self, what: What, name: &str) -> Option<&Record> {
        self.records.get(&what)?.get(name)
    }
}

fn notice(
    said: &Said,
    differing: &[DefinitionChange],
    (passes, is_suspicious): (bool, bool),
    renamed: Option<String>,
) -> Notice {
    let (name, classes) = (said.name.clone(), classes(differing));
    Notice { what: said.what, name, classes, renamed, passes, is_suspicious, unstable: false }
}

/// Returns the classes of the changes, each once.
pub(crate) fn classes(changes: &[DefinitionChange]) -> Vec<Class> {
    let mut classes: Vec<Class> = changes.iter().map(|change| change.class).collect();
    classes.sort_unstable();
    classes.dedup();
    classes
}

/// Returns the former name of an added definition: a name that is no longer listed, with a very similar definition.
fn former(old: &Book, said: &Said, listed: &HashSet<(What, &str)>) -> Option<String> {
    let now = Shingles::of(&parsed(&said.form)?);
    let others = old.records.get(&said.what)?.iter();
    let others = others.filter(|(name, _)| !listed.contains(&(said.what, name)));
    let alike = others.filter_map(|(name, record)| Some((Shingles::of(&parsed(record.last()?)?).likeness(&now), name)));
    let (most, name) = alike.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (most > RENAMED).then(|| name.clone())
}

fn compare(what: What, before: Option<&Form>, now: &Form, ignore: &[Pointer]) -> Vec<DefinitionChange> {
    differing(what, before.map(|form| form.text.as_str()), Some(&now.text), ignore)
}

fn parsed(form: &Form) -> Option<Raw> {
    Raw::parse(&form.text.clone().into()).ok()
}
