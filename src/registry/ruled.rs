//! What the calls of one entry are judged by, after what could be said before any call.

use crate::answered::FieldError;
use crate::config::Hints;
use crate::policy::{Action, Facts, Held, InForce, Kind, Subject, Verdict};

/// What the calls of one entry are judged by.
#[derive(Clone, Debug)]
pub(crate) struct Ruled {
    held: Held,
    kind: Kind,
    tags: Box<[String]>,
    hints: Hints,
}

impl Ruled {
    /// Makes it for requests of this kind; `None` if they all pass.
    pub(super) fn of(rules: &InForce, action: Action, subject: &Subject<'_>) -> Option<Self> {
        let held = rules.about(action, subject)?;
        Some(Self { held, kind: subject.kind, tags: subject.tags.into(), hints: *subject.hints })
    }

    /// Reports whether the entry is in no list.
    pub(super) fn hides(&self) -> bool {
        self.held.hides()
    }

    /// Returns the entry as rules see it, by its names.
    pub(crate) fn subject<'a>(&'a self, exposed: &'a str, raw: &'a str, server: &'a str) -> Subject<'a> {
        Subject { kind: self.kind, exposed, raw, server, tags: &self.tags, hints: &self.hints }
    }

    /// Judges one request.
    ///
    /// # Errors
    /// When a rule reads arguments, and readers may differ in what these are.
    pub(crate) fn judge(&self, facts: &Facts<'_>) -> Result<Verdict, Vec<FieldError>> {
        self.held.judge(facts)
    }
}
