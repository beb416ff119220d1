//! The scanner against a slow reader and against `serde_json`: what is taken, and where values stand.

use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::super::scan::{DEPTH, Scanner, Trust};

fn is_json(text: &str) -> bool {
    takes(text.as_bytes(), Trust::None)
}

/// Whether one pass accepts the text; panics if the slow readers disagree.
fn takes(bytes: &[u8], trust: Trust) -> bool {
    let mut scanner = Scanner::once(bytes);
    let quickly = scanner.value().is_ok() && scanner.end().is_ok() && scanner.is_fine(trust);
    let slowly = match trust {
        Trust::None => Scanner::checked(bytes),
        Trust::Escapes => Scanner::passing(bytes),
    };
    let slowly = slowly.is_ok_and(|mut scanner| scanner.value().is_ok() && scanner.end().is_ok());
    assert_eq!(quickly, slowly, "{trust:?}: {}", String::from_utf8_lossy(bytes));
    quickly
}

/// Pieces of texts that are JSON, or nearly.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        "[\\[\\]{}:,\n\t ]".prop_map(String::into_bytes),
        "\"(a|é|\\\\n|\\\\\"|\\\\\\\\|\\\\u00e9|\\\\ud83d\\\\ude00|\\\\ud800|/){0,30}\"".prop_map(String::into_bytes),
        "(true|null|-1\\.5e3|0)".prop_map(String::into_bytes),
        "(\"|\\\\|\\\\x|\\\\u12|\u{1}|tru|01)".prop_map(String::into_bytes),
        Just(b"\xff".to_vec()),
        Just(b"\"\xc3\"".to_vec()),
        "[a-z]{60,70}".prop_map(|text| format!("\"{text}").into_bytes()),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// JSON with members that one pass has to find.
fn object() -> impl Strategy<Value = Vec<u8>> {
    let member =
        ("[a-c]", prop_oneof![9 => "\"(a|é|\\\\\"|\\\\u00e9| ){0,40}\"".prop_map(String::into_bytes), 1 => pieces()]);
    let text = |(name, value): (String, Vec<u8>)| [format!("\"{name}\": ").into_bytes(), value].concat();
    let members = prop::collection::vec(member.prop_map(text), 0..5);
    members.prop_map(|members| [b"{".to_vec(), members.join(&b","[..]), b"}".to_vec()].concat())
}

#[test]
fn h38_nesting_has_an_end() {
    for (depth, fine) in [(127, true), (128, true), (129, false), (100_000, false)] {
        assert_eq!(is_json(&format!("{}{}", "[".repeat(depth), "]".repeat(depth))), fine, "{depth}");
        assert_eq!(is_json(&format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))), fine, "{depth}");
    }
}

proptest! {
    /// `serde_json` is the oracle.
    #[test]
    fn one_pass_takes_what_the_oracle_takes(text in prop_oneof![pieces(), object()], depth in 1..140usize) {
        let is_taken = takes(&text, Trust::None);
        // `serde_json` does not check UTF-8 in values that it ignores.
        let theirs = std::str::from_utf8(&text).is_ok() && serde_json::from_slice::<IgnoredAny>(&text).is_ok();
        prop_assert_eq!(is_taken, theirs, "{}", String::from_utf8_lossy(&text));
        prop_assert!(takes(&text, Trust::Escapes) || !is_taken);
        let deep = [b"[".repeat(depth), text, b"]".repeat(depth)].concat();
        let theirs = std::str::from_utf8(&deep).is_ok() && serde_json::from_slice::<IgnoredAny>(&deep).is_ok();
        prop_assert!(!takes(&deep, Trust::None) || theirs);
        prop_assert!(takes(&deep, Trust::None) || !theirs || depth > DEPTH - 8);
    }

    #[test]
    fn one_pass_finds_the_same_members(text in object()) {
        let members = |mut scanner: Scanner<'_>| {
            let mut found = Vec::new();
            let read = scanner.entries(|key, range| {
                found.push((key, range));
                Ok(())
            });
            read.and_then(|()| scanner.end()).is_ok().then_some((found, scanner.is_fine(Trust::None)))
        };
        let slowly = Scanner::checked(&text).ok().and_then(members);
        let quickly = members(Scanner::once(&text)).filter(|(_, is_fine)| *is_fine);
        prop_assert_eq!(quickly.map(|(found, _)| found), slowly.map(|(found, _)| found));
    }

    /// Values that are passed on end where the oracle says they end.
    #[test]
    fn passing_finds_the_same_members(
        object in prop::collection::btree_map("[a-d\\\\\"é]{1,3}", "[a\\\\\"\n]{0,6}", 0..5),
    ) {
        for text in [serde_json::to_string(&object).unwrap(), serde_json::to_string_pretty(&object).unwrap()] {
            let ranges = |mut scanner: Scanner<'_>| {
                let mut found = Vec::new();
                scanner.object(|key, range| {
                    found.push((key.into_owned(), range));
                    Ok(())
                }).unwrap();
                scanner.end().unwrap();
                found
            };
            prop_assert_eq!(ranges(Scanner::passing(text.as_bytes()).unwrap()), ranges(Scanner::new(text.as_bytes())));
        }
    }

    /// `serde_json` is the oracle.
    #[test]
    fn it_takes_what_the_oracle_takes(
        text in "(\\{|\\}|\\[|\\]|,|:|\"a\"|\"\\\\u00e9\"|\"\\\\x\"|\"\u{1}\"|1|-0|01|1e5|1\\.|2\\.50| |true|nul|null|\n|\"|é){0,14}",
    ) {
        prop_assert_eq!(is_json(&text), serde_json::from_str::<IgnoredAny>(&text).is_ok(), "{}", text);
    }

    #[test]
    fn members_stand_where_they_are_said_to(
        object in prop::collection::btree_map("[a-d\\\\\"é]{1,3}", "[a\\\\\"\n]{0,6}", 0..5),
    ) {
        for text in [serde_json::to_string(&object).unwrap(), serde_json::to_string_pretty(&object).unwrap()] {
            let mut found = std::collections::BTreeMap::new();
            Scanner::new(text.as_bytes()).object(|key, range| {
                found.insert(key.into_owned(), serde_json::from_str::<String>(&text[range]).unwrap());
                Ok(())
            }).unwrap();
            prop_assert_eq!(&found, &object);
        }
    }
}
