//! Framing, envelopes, and edits of raw JSON.

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use super::pieces;
use crate::protocol::lines::{Line, Lines};
use crate::protocol::sse::{Event, Events, TooLarge};
use crate::protocol::{DEPTH, Edits, Message, Raw};

/// Checks that the lines equal those of a plain split, wherever the bytes are cut.
pub fn lines(data: &[u8]) {
    let (cuts, pieces) = pieces(data);
    // At least 4, which leaves room for the byte order mark.
    let cap = cuts.first().map_or(4, |first| usize::from(*first) * 4 + 4);
    let text: Vec<u8> = pieces.concat();
    let (expected, open) = plain_lines(&text, cap);
    let mut expected = expected.into_iter();
    let mut lines = Lines::new(cap);
    for piece in pieces {
        lines.space().extend_from_slice(piece);
        while let Some(line) = lines.next() {
            let Some(wanted) = expected.next().or(Some(open).filter(|open| open.len() > cap)) else {
                panic!("one line too many: {line:?}");
            };
            match line {
                Line::Whole(line) => assert_eq!(line, wanted),
                Line::TooLong(head) => {
                    assert!(wanted.len() > cap, "{wanted:?} fits in {cap}");
                    // The head has at most the first byte of the line's end.
                    let head = head.strip_suffix(b"\r").unwrap_or(&head);
                    assert!(wanted.starts_with(head), "{wanted:?} does not begin with {head:?}");
                }
                // Nothing is read after an error.
                Line::Endless => return,
            }
            // The next read may report this line as too long, since the first byte of its end counts, too.
            if wanted.len() >= 4 * cap {
                return;
            }
        }
    }
    assert_eq!(expected.next(), None, "a line is lost");
}

/// Splits by the simplest possible rule. Returns the lines, and the rest after the last line.
fn plain_lines(text: &[u8], cap: usize) -> (Vec<&[u8]>, &[u8]) {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let (whole, open) = match text.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => text.split_at(end + 1),
        None => (&[][..], text),
    };
    let lines = whole.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    });
    (lines.filter(|line| line.len() > cap || !line.iter().all(u8::is_ascii_whitespace)).collect(), open)
}

/// Checks that events are the same wherever the bytes are cut, and that none exceeds the cap.
pub fn sse(data: &[u8]) {
    let (cuts, pieces) = pieces(data);
    let cap = cuts.first().map_or(1, |first| usize::from(*first) * 4 + 1);
    let whole = events(cap, &[&pieces.concat()]);
    assert_eq!(events(cap, &pieces), whole);
    let bytes: Vec<u8> = pieces.concat();
    assert_eq!(events(cap, &bytes.chunks(1).collect::<Vec<_>>()), whole);
    for event in whole.0 {
        // A byte that is not UTF-8 becomes a character of three bytes, so characters are counted.
        assert!(event.data.len() + event.kind.chars().count() <= cap);
        assert!(!event.kind.contains(['\r', '\n']) && !event.id.unwrap_or_default().contains(['\r', '\n', '\0']));
    }
}

fn events(cap: usize, pieces: &[&[u8]]) -> (Vec<Event>, Result<(), TooLarge>) {
    let (mut events, mut found) = (Events::new(cap), Vec::new());
    for piece in pieces {
        events.push(piece);
        loop {
            match events.next() {
                Ok(Some(event)) => found.push(event),
                Ok(None) => break,
                Err(error) => return (found, Err(error)),
            }
        }
    }
    (found, Ok(()))
}

/// Checks that an accepted message is JSON to another parser, means the same to it, and survives writing and reading.
pub fn envelope(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let _ = Message::answered_by(data);
    let Ok(message) = Message::parse(&bytes) else { return };
    assert!(serde_json::from_slice::<&RawValue>(data).is_ok(), "taken, but no JSON");
    assert_eq!(Message::passing(&bytes, DEPTH).as_ref(), Ok(&message), "read in two ways");
    let body = match &message {
        Message::Request(request) => request.params.as_ref(),
        Message::Notification(notice) => notice.params.as_ref(),
        Message::Response(response) => response.outcome.as_ref().ok(),
    };
    if let Some(body) = body {
        // Notes that the scan made about a large body must not make a difference.
        let (names, plain) = (["a", "name", "_meta"], body.detached());
        assert_eq!(body.members(names), plain.members(names));
        for name in names {
            assert_eq!(body.with_member(name, b"7"), plain.with_member(name, b"7"), "with {name}");
            assert_eq!(body.without_member(name), plain.without_member(name), "without {name}");
        }
    }
    let written = message.frame().into_bytes();
    assert_eq!(message.frame().len(), written.len());
    assert_eq!(Message::parse(&written).as_ref(), Ok(&message), "another one once it is written");
    assert!(!message.frame().on_one_line().into_bytes().contains(&b'\n'));
    // The other parser cannot handle deep nesting, or numbers that no double holds.
    let (Ok(theirs), Ok(again)) = (serde_json::from_slice::<Value>(data), serde_json::from_slice::<Value>(&written))
    else {
        return;
    };
    // A response may have members of a request and the reverse; those are ignored.
    let own: &[&str] = if matches!(message, Message::Response(_)) {
        &["jsonrpc", "id", "result"]
    } else {
        &["jsonrpc", "id", "method", "params"]
    };
    for member in own {
        // No answer is `null`, and absent params count as none.
        let [given, again] = [&theirs, &again].map(|tree| tree.get(*member).filter(|value| !value.is_null()));
        // The id `-0.0` equals `0`.
        let number = |value: Option<&Value>| (*member == "id").then(|| value?.as_f64()).flatten();
        assert!(given == again || (number(given).is_some() && number(given) == number(again)), "{member}");
    }
}

/// Checks that members are found and edited as in a parsed tree, and that every other byte stays.
pub fn raw(data: &[u8]) {
    let Ok(raw) = Raw::parse(&Bytes::copy_from_slice(data)) else {
        assert!(serde_json::from_slice::<Value>(data).is_err(), "JSON, and not taken");
        return;
    };
    let Ok(Value::Object(tree)) = serde_json::from_slice::<Value>(data) else { return };
    let plain = |raw: &Raw| serde_json::from_slice::<Value>(raw.as_bytes());
    let twice = has_a_key_twice(&raw);
    for name in ["a", "name", "_meta"] {
        if twice {
            let _ = (raw.member(name), raw.with_member(name, b"1"), raw.without_member(name));
            continue;
        }
        let found = raw.member(name);
        assert_eq!(found.as_ref().and_then(|found| plain(found).ok()), tree.get(name).cloned(), "{name}");
        let mut with = tree.clone();
        with.insert(name.to_owned(), Value::from(7));
        assert_eq!(plain(&raw.with_member(name, b"7")).ok(), Some(Value::Object(with)), "with {name}");
        let mut without = tree.clone();
        without.remove(name);
        assert_eq!(plain(&raw.without_member(name)).ok(), Some(Value::Object(without)), "without {name}");
        if let Some(found) = found {
            let mut edits = Edits::new(&raw);
            edits.replace_part(&found, found.as_bytes().to_vec());
            assert_eq!(edits.apply(), raw);
        }
    }
}

/// Reports whether the outermost object has a duplicate key: parsers differ in which one wins.
fn has_a_key_twice(raw: &Raw) -> bool {
    let Some(mut members) = crate::protocol::object(raw.as_value()) else { return false };
    let all = members.len();
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    members.dedup_by(|(a, _), (b, _)| a == b);
    members.len() < all
}
