//! The rules that calls of one entry are judged by, reduced to what cannot be decided before a call.

use crate::answered::FieldError;
use crate::config::Hints;
use crate::policy::{Action, Facts, Held, InForce, Kind, Subject, Verdict};

/// The rules that calls of one entry are judged by.
#[derive(Clone, Debug)]
pub(crate) struct Ruled {
    held: Held,
    kind: Kind,
    tags: Box<[String]>,
    hints: Hints,
}

impl Ruled {
    /// Returns the rules for requests of this kind; `None` if they all pass.
    pub(super) fn of(rules: &InForce, action: Action, subject: &Subject<'_>) -> Option<Self> {
        let held = rules.about(action, subject)?;
        Some(Self { held, kind: subject.kind, tags: subject.tags.into(), hints: *subject.hints })
    }

    /// Reports whether the rules hide the entry in all lists.
    pub(super) fn hides(&self) -> bool {
        self.held.hides()
    }

    /// Describes the entry for rules. The arguments are its names.
    pub(crate) fn subject<'a>(&'a self, exposed: &'a str, raw: &'a str, server: &'a str) -> Subject<'a> {
        Subject { kind: self.kind, exposed, raw, server, tags: &self.tags, hints: &self.hints }
    }

    /// Judges one request.
    ///
    /// # Errors
    /// When a rule reads arguments that JSON parsers may read differently.
    pub(crate) fn judge(&self, facts: &Facts<'_>) -> Result<Verdict, Vec<FieldError>> {
        self.held.judge(facts)
    }
}
