//! Header values, authentication challenges, sealed handles, definitions, searches, results in pages, conditions of rules, and
//! the scrubber.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde_json::Value;

use super::pieces;
use crate::downstream::http::fuzzing as door;
use crate::expression::{Arguments, Budget, Values};
use crate::oversized::{Part, matching, pointed};
use crate::protocol::Raw;
use crate::redact::Scrubber;
use crate::registry::fuzzing::{cursor, definitions, searched};
use crate::seal::{Purpose, Seal};
use crate::upstream::encode;

/// Checks that a value survives its encoding for a header, and that a door without a config admits only the loopback
/// names in `Host` and `Origin`.
pub fn headers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let encoded = encode(&text);
    assert!(encoded.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{encoded:?}");
    assert_eq!(encoded.trim_matches(' '), encoded);
    assert_eq!(door::decode(&encoded).as_deref(), Some(&*text));
    if let Some(decoded) = door::decode(&text) {
        assert_eq!(door::decode(&encode(&decoded)), Some(Cow::Borrowed(&*decoded)));
    }
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let (host, origin, target) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    if door::admits(host, origin.filter(|origin| !origin.is_empty()), target) {
        let host = String::from_utf8_lossy(host).to_ascii_lowercase();
        let own = ["localhost:8808", "127.0.0.1:8808", "[::1]:8808"];
        assert!(own.contains(&host.trim_matches([' ', '\t'])), "admitted: {host:?}");
        if let Some(origin) = origin.filter(|origin| !origin.is_empty()) {
            let origin = String::from_utf8_lossy(origin).to_ascii_lowercase();
            assert!(own.iter().any(|own| origin.trim_matches([' ', '\t']).ends_with(own)), "admitted: {origin:?}");
        }
    }
}

/// Checks that an authentication challenge is read in one way only, and within its bounds.
pub fn challenge(data: &[u8]) {
    let values: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let Ok(found) = crate::auth::challenges(values.iter().copied()) else { return };
    assert!(data.len() <= 8 * 1024 + values.len());
    assert!(found.len() <= 64 * values.len());
    for challenge in &found {
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        assert!(!challenge.scheme().is_empty() && challenge.scheme().chars().all(token), "{challenge:?}");
        assert_eq!(challenge.scheme(), challenge.scheme().to_ascii_lowercase());
        let _ = (challenge.parameter("realm"), challenge.parameter("resource_metadata"));
    }
    assert_eq!(crate::auth::challenges(values).as_ref(), Ok(&found));
}

/// Checks that only sealed texts open, only for their principal, and that only our own cursors are accepted.
pub fn sealed(data: &[u8]) {
    static SEAL: OnceLock<Seal> = OnceLock::new();
    let seal = SEAL.get_or_init(|| Seal::new().expect("there is randomness"));
    let text = String::from_utf8_lossy(data).into_owned();
    for purpose in [Purpose::RequestState, Purpose::Task] {
        assert!(seal.open::<Value>(purpose, "local", &text).is_err(), "it opened");
    }
    let handle = seal.seal(Purpose::Task, "local", &text).expect("there is randomness");
    assert_eq!(seal.open::<String>(Purpose::Task, "local", &handle).as_ref(), Ok(&text));
    assert!(seal.open::<String>(Purpose::RequestState, "local", &handle).is_err(), "for another purpose");
    assert!(seal.open::<String>(Purpose::Task, "other", &handle).is_err(), "for another one");
    let (places, _) = pieces(data);
    let mut changed = handle.into_bytes();
    for (index, change) in places.iter().enumerate() {
        let length = changed.len();
        if let Some(byte) = changed.get_mut((usize::from(*change) * 31 + index) % length) {
            *byte = if *byte == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8_lossy(&changed).into_owned();
            assert!(seal.open::<String>(Purpose::Task, "local", &changed).is_err(), "it was changed and opened");
            break;
        }
    }
    cursor(&text);
}

/// Checks that only sealed texts are session ids, that no content of such an id breaks the host, and that event ids are
/// read as they were written.
pub fn session(data: &[u8]) {
    static SEAL: OnceLock<Seal> = OnceLock::new();
    let seal = SEAL.get_or_init(|| Seal::new().expect("there is randomness"));
    let text = String::from_utf8_lossy(data);
    assert!(seal.open_bytes(Purpose::Session, "local", &text).is_err(), "it opened");
    let id = seal.seal_bytes(Purpose::Session, "local", data).expect("there is randomness");
    assert_eq!(seal.open_bytes(Purpose::Session, "local", &id).as_deref(), Ok(data));
    assert!(seal.open_bytes(Purpose::Session, "other", &id).is_err(), "for another one");
    assert!(seal.open_bytes(Purpose::Task, "local", &id).is_err(), "for another purpose");
    // With the key, any content can be sealed.
    door::session(data);
    door::event(&text);
}

/// Checks that no condition of a rule (the first line) panics or hangs, whatever the arguments (the rest), and that it means
/// the same each time.
pub fn expression(data: &[u8]) {
    let (text, arguments) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let Ok(when) = crate::config::Expression::parse(&String::from_utf8_lossy(text)) else { return };
    let arguments = Raw::parse(&arguments.to_vec().into()).unwrap_or_else(|_| Raw::empty_object());
    let evaluate = || {
        let args = Arguments::new(Some(&arguments));
        let values = Values {
            principal: "local",
            claims: None,
            client: ("client", Some("1")),
            view: "all",
            server: "server",
            tool: "server__tool",
            name: "tool",
            tags: &[],
            hints: [None, Some(true), Some(false), None],
            args: &args,
        };
        when.evaluate(&values, &mut Budget::default())
    };
    assert_eq!(evaluate(), evaluate());
}

/// Checks that no known value gets through, whatever surrounds it.
pub fn redact(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (value, around) = text.split_once('\n').unwrap_or(("a planted value", &text));
    let mut scrubber = Scrubber::default();
    scrubber.know(value);
    let said = format!("{around}{value}{around}");
    let shown = scrubber.scrub(&said);
    let value = value.trim();
    if value.len() >= 6 && !value.contains('*') && !value.contains('…') {
        assert!(!shown.contains(value), "{shown}");
    }
    // No text makes the scrubber panic.
    let _ = Scrubber::default().scrub(&text);
}

/// Checks that two definitions, one on each line, have changes if and only if their pins differ, and that findings in
/// them can be printed.
pub fn definition(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n').map(|line| Raw::parse(&line.to_vec().into()));
    if let Some(Ok(before)) = lines.next() {
        let after = lines.next().and_then(Result::ok).unwrap_or_else(|| before.clone());
        definitions(&before, &after);
    }
}

/// Checks that a search for the first line finds each tool at most once, whatever the tool's definition (the second
/// line).
pub fn search(data: &[u8]) {
    let (query, tool) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let tool = Raw::parse(&tool.to_vec().into()).unwrap_or_else(|_| Raw::empty_object());
    searched(&String::from_utf8_lossy(query), &tool);
}

/// Checks that the pages of a text (all lines but the first), joined, are the text, and that no search and no pointer
/// (the first line) breaks the host.
pub fn pages(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (wanted, text) = text.split_once('\n').unwrap_or((&text, &text));
    let most = 256 + wanted.len();
    let part = Part::new(text.to_owned(), most);
    let pages: Vec<&str> = (1..=part.pages()).filter_map(|number| part.page(number)).collect();
    assert_eq!(pages.concat(), text);
    assert!(pages.iter().all(|page| page.len() <= most) && part.page(0).is_none());
    let (found, count) = matching(text, wanted);
    assert_eq!(count == 0, found.is_empty(), "{found:?}");
    if let Ok(whole) = Raw::parse(&text.to_owned().into())
        && let Ok(inner) = pointed(&whole, wanted)
    {
        assert!(text.contains(&inner));
    }
}
