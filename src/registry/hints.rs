//! Reads the annotations of a tool, and decides which apply: those of the config, of the server, or what was approved.

use crate::config::{Hints, Layer as _};
use crate::protocol::Raw;

/// Reads the annotations of a tool's definition.
pub(crate) fn said(definition: &Raw) -> Hints {
    let mut hints = Hints::default();
    let Some(annotations) = definition.member("annotations") else { return hints };
    let names = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];
    let [read_only, destructive, idempotent, open_world] = annotations.members(names).map(|hint| flag(hint.as_ref()));
    hints.read_only_hint = read_only;
    hints.destructive_hint = destructive;
    hints.idempotent_hint = idempotent;
    hints.open_world_hint = open_world;
    hints
}

fn flag(value: Option<&Raw>) -> Option<bool> {
    match value?.as_bytes() {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// Returns, for each annotation, the stricter of what was approved and what the server says now: the one that asks for
/// less trust. An annotation that is absent asks for less trust than one that claims something.
pub(crate) fn stricter(approved: &Hints, said: &Hints) -> Hints {
    let strict = |pick: fn(&Hints) -> Option<bool>, claim: bool| match (pick(approved), pick(said)) {
        (Some(one), Some(other)) if one == claim && other == claim => Some(claim),
        (Some(one), _) | (_, Some(one)) if one != claim => Some(one),
        (_, Some(other)) if other != claim => Some(other),
        _ => None,
    };
    let mut hints = Hints::default();
    hints.read_only_hint = strict(|hints| hints.read_only_hint, true);
    hints.destructive_hint = strict(|hints| hints.destructive_hint, false);
    hints.idempotent_hint = strict(|hints| hints.idempotent_hint, true);
    hints.open_world_hint = strict(|hints| hints.open_world_hint, false);
    hints
}

/// Returns the annotations that apply: those of the config, and where it has none, the server's. If the server changed
/// its annotations since they were approved, `said` is the stricter of both ([`Entry::hints`](super::Entry::hints)).
pub(crate) fn effective(config: &Hints, said: &Hints) -> Hints {
    let mut hints = *config;
    hints.lay_over(said);
    hints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Hint;
    use crate::select::has;

    fn of(annotations: &str) -> Hints {
        said(&Raw::parse(&format!(r#"{{"name":"t","annotations":{annotations}}}"#).into()).unwrap())
    }

    #[test]
    fn a_hint_selects_only_what_is_said() {
        let (silent, reads) = (of("{}"), of(r#"{"readOnlyHint":true,"destructiveHint":"x","openWorldHint":false}"#));
        for hint in [Hint::ReadOnly, Hint::Destructive, Hint::Idempotent, Hint::ClosedWorld] {
            assert!(!has(&silent, hint), "{hint:?}");
        }
        assert!(has(&silent, Hint::NotReadOnly) && !has(&reads, Hint::NotReadOnly));
        assert!(has(&reads, Hint::ReadOnly) && has(&reads, Hint::ClosedWorld) && !has(&reads, Hint::Destructive));
        assert!(has(&of(r#"{"idempotentHint":true,"destructiveHint":true}"#), Hint::Idempotent));
    }

    #[test]
    fn a_claim_counts_only_if_it_was_approved_too() {
        let (loose, strict, silent) = (
            r#"{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}"#,
            r#"{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}"#,
            "{}",
        );
        for (approved, now, counts) in [
            (loose, loose, loose),
            (loose, strict, strict),
            (strict, loose, strict),
            (silent, loose, silent),
            (loose, silent, silent),
            (silent, strict, strict),
            (strict, silent, strict),
        ] {
            assert_eq!(stricter(&of(approved), &of(now)), of(counts), "{approved} {now}");
        }
    }

    #[test]
    fn the_word_of_the_config_counts_and_the_servers_where_it_is_silent() {
        let config = Hints { read_only_hint: Some(false), ..Hints::default() };
        let hints = effective(&config, &of(r#"{"readOnlyHint":true,"idempotentHint":true}"#));
        assert_eq!((hints.read_only_hint, hints.idempotent_hint), (Some(false), Some(true)));
    }
}
