//! The wire format by table and property: framing at any cut, strict envelopes, edits that change nothing else.

mod notes;
mod scan;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::lines::{Line, Lines};
use super::sse::Events;
use super::*;

fn parse(text: &str) -> Result<Message, Malformed> {
    Message::parse(&Bytes::copy_from_slice(text.as_bytes()))
}

#[test]
fn ids_keep_their_type() {
    for text in [r#"{"jsonrpc":"2.0","id":92,"method":"ping"}"#, r#"{"jsonrpc":"2.0","id":"92","method":"ping"}"#] {
        assert_eq!(parse(text).unwrap().frame().into_bytes(), text.as_bytes());
    }
}

#[test]
fn h37_envelopes_are_strict() {
    let cases = [
        ("{", code::PARSE),
        ("", code::PARSE),
        ("nonsense", code::PARSE),
        ("[]", code::INVALID_REQUEST),
        ("3", code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"Result":{}}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#, code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#, code::PARSE),
    ];
    for (text, code) in cases {
        assert_eq!(parse(text).unwrap_err().code, code, "{text}");
    }
}

#[test]
fn an_error_may_lack_its_id() {
    let message =
        parse(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x","data":{"a":1.0}}}"#).unwrap();
    let Message::Response(Response { id: None, outcome: Err(error) }) = message else { panic!("{message:?}") };
    assert_eq!(error.data.unwrap().as_bytes(), br#"{"a":1.0}"#);
}

#[test]
fn raw_members_come_out_as_they_came_in() {
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"b" : 1e400,"a":-0, "z":2.50}}"#;
    let Ok(Message::Request(request)) = parse(text) else { panic!() };
    let params = request.params.unwrap();
    assert_eq!(params.as_bytes(), br#"{"b" : 1e400,"a":-0, "z":2.50}"#);
    assert_eq!(params.with_member("a", b"7").as_bytes(), br#"{"b" : 1e400,"a":7, "z":2.50}"#);
    assert_eq!(params.with_member("n", b"7").as_bytes(), br#"{"b" : 1e400,"a":-0, "z":2.50,"n":7}"#);
    assert_eq!(params.without_member("b").as_bytes(), br#"{"a":-0, "z":2.50}"#);
    assert_eq!(params.without_member("z").as_bytes(), br#"{"b" : 1e400,"a":-0}"#);
    assert_eq!(Raw::empty_object().with_member("n", b"7").as_bytes(), br#"{"n":7}"#);
}

#[test]
fn h31_profiles_round_trip() {
    let text =
        r#"{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"tasks":{}}"#;
    let raw = Raw::parse(&Bytes::from_static(text.as_bytes())).unwrap();
    let profile = Profile::from_capabilities(raw.as_value());
    assert_eq!(
        profile.to_capabilities(),
        r#"{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}"#
    );
    let old = Raw::parse(&Bytes::from_static(br#"{"elicitation":{},"sampling":3,"roots":null}"#)).unwrap();
    assert_eq!(Profile::from_capabilities(old.as_value()), Profile::ELICITATION_FORM);
    let apps = |settings: &str| {
        let text = format!(r#"{{"extensions":{{"io.modelcontextprotocol/ui":{settings},"x/y":{{}}}}}}"#);
        Profile::from_capabilities(Raw::parse(&text.into()).unwrap().as_value())
    };
    let known = r#"{"mimeTypes":["a/b","text/html;profile=mcp-app"]}"#;
    assert!([known, "{}"].into_iter().all(|settings| apps(settings) == Profile::APPS));
    assert!([r#"{"mimeTypes":["a/b"]}"#, "true"].into_iter().all(|settings| apps(settings).is_empty()));
    assert!(Profile::APPS.asks_nothing() && Profile::APPS.to_capabilities() == "{}");
}

#[test]
fn a_line_over_the_cap_is_skipped_alone() {
    let mut lines = Lines::new(8);
    lines.space().extend_from_slice(b"\xef\xbb\xbfone\r\n\r\n  \n0123456789abc");
    assert_eq!(lines.next(), Some(Line::Whole(Bytes::from_static(b"one"))));
    assert_eq!(lines.next(), Some(Line::TooLong(Bytes::from_static(b"0123456789abc"))));
    assert_eq!(lines.next(), None);
    assert_eq!(lines.rest(), 0);
    lines.space().extend_from_slice(b"more of it\ntwo\n");
    assert_eq!(lines.next(), Some(Line::Whole(Bytes::from_static(b"two"))));
    assert_eq!(lines.next(), None);
}

#[test]
fn h3_a_line_without_end_takes_no_room_and_is_given_up() {
    const CAP: usize = 64 * 1024;
    let mut lines = Lines::new(CAP);
    let (mut fed, mut heads, mut most) = (0, 0, 0);
    loop {
        lines.space().extend_from_slice(&[b'a'; 4096]);
        fed += 4096;
        most = most.max(lines.space().capacity());
        match lines.next() {
            Some(Line::TooLong(_)) => heads += 1,
            Some(Line::Endless) => break,
            Some(Line::Whole(line)) => panic!("no line: {line:?}"),
            None => {}
        }
    }
    assert_eq!(heads, 1);
    assert!(fed > 4 * CAP && fed <= 4 * CAP + 2 * 4096, "given up after {fed} bytes");
    assert!(most <= 3 * CAP, "{most} bytes of room");
}

#[test]
fn h3_lines_at_the_cap_and_beside_it() {
    for (length, whole) in [(7, true), (8, true), (9, false)] {
        let mut lines = Lines::new(8);
        lines.space().extend_from_slice(&[&vec![b'x'; length][..], b"\n"].concat());
        assert_eq!(matches!(lines.next(), Some(Line::Whole(_))), whole, "{length} bytes");
    }
}

#[test]
fn h3_h4_the_id_of_a_broken_answer() {
    let id = |text: &[u8]| Message::answered_by(text);
    assert_eq!(id(br#"{"jsonrpc":"2.0","id":7,"result":{"text":"aaa"#), Some(RequestId::Number(7)));
    assert_eq!(id(b"{\"id\":\"x\",\"result\":\"\xff\"}"), Some(RequestId::Text("x".into())));
    assert_eq!(id(br#"{"jsonrpc":"2.0","result":{"text":"aaa"#), None, "the id is not there yet");
    assert_eq!(id(br#"{"id":7,"method":"ping","params":{"text":"aaa"#), None, "it is no answer");
    assert_eq!(id(br#"{"id":7.5,"result":{"#), None);
    assert_eq!(id(br#"{"id":7,"id":8,"result":{"#), None, "it could be anybody's");
    assert_eq!(id(br#"{"id":7,"id":7,"result":{"#), Some(RequestId::Number(7)));
    assert_eq!(id(b"noise"), None);
    assert_eq!(id(b"{\"\xff\":1,\"id\":7}"), None);
}

#[test]
fn h4_characters_that_are_split() {
    let text = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"text\":\"h\u{e4}\u{1f980}\"}}\n";
    let mut lines = Lines::new(1024);
    for (at, byte) in text.bytes().enumerate() {
        assert_eq!(lines.next(), None, "before byte {at}");
        lines.space().extend_from_slice(&[byte]);
    }
    let Some(Line::Whole(line)) = lines.next() else { panic!("no line") };
    assert_eq!(line, text.trim_end());
    assert!(Message::passing(&line, DEPTH).is_ok());
}

#[test]
fn h4_bytes_that_are_no_text() {
    for bad in [&b"\xff"[..], b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\x80", b"\x00"] {
        let line = [&br#"{"jsonrpc":"2.0","id":1,"result":""#[..], bad, b"\"}"].concat();
        assert!(Message::passing(&line.into(), DEPTH).is_err(), "{bad:?}");
    }
    // Escapes are left to the reader of the string.
    let lone = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":"\ud800"}"#);
    assert!(Message::passing(&lone, DEPTH).is_ok());
}

#[test]
fn h10_half_a_message_is_none() {
    let whole = br#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}]}}"#;
    for cut in 0..=whole.len() {
        let mut lines = Lines::new(1024);
        lines.space().extend_from_slice(&whole[..cut]);
        assert_eq!(lines.next(), None, "cut at {cut}");
    }
}

#[test]
fn h27_events_by_the_book() {
    let mut events = Events::new(64);
    events.push(
        b"\xef\xbb\xbf: hello\nid: 1\ndata:\n\nevent: x\rdata:a\rdata: b\r\rid: no\0pe\ndata: c\r\n\r\nretry: 5\n\n",
    );
    let mut all = Vec::new();
    while let Some(event) = events.next().unwrap() {
        all.push((event.kind, String::from_utf8_lossy(&event.data).into_owned(), event.id, event.retry));
    }
    let want = [
        (String::new(), String::new(), Some("1".to_owned()), None),
        ("x".to_owned(), "a\nb".to_owned(), None, None),
        (String::new(), "c".to_owned(), None, None),
        (String::new(), String::new(), None, Some(5)),
    ];
    assert_eq!(all, want);
    events.push(&[b'x'; 65]);
    assert!(events.next().is_err());
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-d\\\\\"é]{1,2}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        ]
    })
}

proptest! {
    #[test]
    fn an_edit_changes_its_member_and_nothing_else(
        object in prop::collection::btree_map("[a-d\\\\\"é]{1,2}", value(), 0..5),
        name in "[a-d\\\\\"é]{1,2}",
        new in value(),
    ) {
        let mut want = json!(object);
        for pretty in [false, true] {
            let text = if pretty { serde_json::to_vec_pretty(&object) } else { serde_json::to_vec(&object) }.unwrap();
            let raw = Raw::parse(&text.into()).unwrap();
            let set: Value = raw.with_member(&name, &serde_json::to_vec(&new).unwrap()).read().unwrap();
            want[&name] = new.clone();
            prop_assert_eq!(&set, &want);
            let removed: Value = raw.without_member(&name).read().unwrap();
            let mut without = want.clone();
            without.as_object_mut().unwrap().remove(&name);
            prop_assert_eq!(&removed, &without);
        }
    }

    #[test]
    fn lines_do_not_depend_on_where_bytes_are_cut(text in "[a\\n\\r é]{0,60}", cuts in prop::collection::vec(1usize..7, 1..40)) {
        let whole: Vec<String> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line).to_owned()).collect();
        let (_, complete) = whole.split_last().unwrap();
        let want: Vec<&String> =
            complete.iter().filter(|line| !line.bytes().all(|byte| byte.is_ascii_whitespace())).collect();
        let mut lines = Lines::new(1000);
        let mut got = Vec::new();
        let mut rest = text.as_bytes();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break; }
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            lines.space().extend_from_slice(now);
            rest = later;
            while let Some(Line::Whole(line)) = lines.next() {
                got.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        prop_assert_eq!(got.iter().collect::<Vec<_>>(), want);
    }

    #[test]
    fn events_match_the_oracle(text in "(data|event|id|: c|\\n|\\r|\\r\\n|a|:| ){0,60}", cuts in prop::collection::vec(1usize..9, 1..40)) {
        use eventsource_stream::Eventsource as _;
        use futures_util::{FutureExt as _, StreamExt as _};
        // A carriage return counts as a line ending only once the next byte is known not to be `\n`; the oracle reads
        // it alike.
        let text = text + ":";
        let oracle = futures_util::stream::iter([Ok::<_, std::io::Error>(text.clone().into_bytes())]).eventsource();
        let want: Vec<(String, String)> = oracle
            .filter_map(|event| async { event.ok().map(|event| (event.event, event.data)) })
            .collect::<Vec<_>>()
            .now_or_never()
            .unwrap();
        let mut events = Events::new(10_000);
        let mut got = Vec::new();
        let mut rest = text.as_bytes();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break; }
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            events.push(now);
            rest = later;
            while let Some(event) = events.next().unwrap() {
                let kind = if event.kind.is_empty() { "message".to_owned() } else { event.kind };
                got.push((kind, String::from_utf8(event.data.to_vec()).unwrap()));
            }
        }
        // The oracle drops events without data; ours reports their ids.
        got.retain(|(_, data)| !data.is_empty());
        prop_assert_eq!(got, want.into_iter().filter(|(_, data)| !data.is_empty()).collect::<Vec<_>>());
    }

    #[test]
    fn no_bytes_panic_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = Message::parse(&Bytes::from(bytes));
    }
}

proptest! {
    #[test]
    fn edits_of_one_object_come_together(
        object in prop::collection::btree_map("[a-e]", value(), 0..5),
        steps in prop::collection::vec(("[a-g]", prop::option::of(value())), 0..6),
    ) {
        for pretty in [false, true] {
            let text = if pretty { serde_json::to_vec_pretty(&object) } else { serde_json::to_vec(&object) }.unwrap();
            let raw = Raw::parse(&text.into()).unwrap();
            let mut edits = Edits::new(&raw);
            // Each name occurs once, because the edits are independent of each other.
            let steps: std::collections::BTreeMap<_, _> = steps.iter().cloned().collect();
            let mut want = json!(object);
            for (name, new) in &steps {
                match new {
                    Some(new) => {
                        edits.set(raw.as_value(), name, &serde_json::to_vec(new).unwrap());
                        want[name] = new.clone();
                    }
                    None => {
                        edits.remove(raw.as_value(), name);
                        want.as_object_mut().unwrap().remove(name);
                    }
                }
            }
            let got: Value = edits.apply().read().unwrap();
            prop_assert_eq!(got, want);
        }
    }
}

#[test]
fn limit_depth() {
    let message = |depth: usize| {
        // The envelope is the first level, the params the second.
        let (open, close) = ("[".repeat(depth - 2), "]".repeat(depth - 2));
        Bytes::from(format!(r#"{{"jsonrpc":"2.0","method":"x","params":{{"a":{open}{close}}}}}"#))
    };
    for limit in [8, DEPTH] {
        for (depth, fine) in [(limit - 1, true), (limit, true), (limit + 1, false)] {
            assert_eq!(Message::parse_within(&message(depth), limit).is_ok(), fine, "{depth} of {limit}");
            assert_eq!(Message::passing(&message(depth), limit).is_ok(), fine, "{depth} of {limit}");
        }
    }
}

#[test]
fn h3_a_line_of_the_cap_may_be_cut_before_its_end() {
    let mut lines = Lines::new(5);
    lines.space().extend_from_slice(b"abcde\r");
    assert_eq!(lines.next(), None);
    lines.space().extend_from_slice(b"\nabcdef\r\n");
    assert_eq!(lines.next(), Some(Line::Whole(Bytes::from_static(b"abcde"))));
    assert_eq!(lines.next(), Some(Line::TooLong(Bytes::from_static(b"abcdef"))));
}

#[test]
fn h1_a_mark_may_come_in_pieces() {
    let mut lines = Lines::new(64);
    for piece in [&b"\xef"[..], b"\xbb", b"\xbf", b"{}", b"\n"] {
        assert_eq!(lines.next(), None);
        lines.space().extend_from_slice(piece);
    }
    assert_eq!(lines.next(), Some(Line::Whole(Bytes::from_static(b"{}"))));
}

#[test]
fn h38_edits_of_many_objects_are_found_without_a_search() {
    let objects = |inside: &str| format!("[{}1]", format!("{{{inside}}},").repeat(80_000));
    let whole = Raw::parse(&objects(r#""a":1,"b":2"#).into()).unwrap();
    let mut edits = Edits::new(&whole);
    for item in value::array(whole.as_value()).unwrap() {
        edits.remove(item, "a");
        edits.set(item, "a", b"0");
        edits.set(item, "c", b"3");
    }
    assert_eq!(edits.apply().as_str(), objects(r#""b":2,"a":0,"c":3"#));
}

#[test]
fn h47_members_that_are_asked_for_one_by_one_are_read_once() {
    let members: Vec<String> = (0..50_000).map(|number| format!(r#""k{number}":[{number},"x"]"#)).collect();
    let whole = Raw::parse(&format!(r#"{{"o":{{{0},"k7":0}},"k7":1}}"#, members.join(",")).into()).unwrap();
    let mut opened = Opened::default();
    let inner = opened.member(whole.as_value(), "o").unwrap();
    for number in 0..50_000 {
        let items = opened.member(inner, &format!("k{number}")).unwrap();
        assert_eq!(opened.item(items, 0).map(|item| item.get().to_owned()), Some(number.to_string()));
        assert!(opened.item(items, 2).is_none() && opened.member(items, "0").is_none());
    }
    assert!(opened.member(inner, "o").is_none() && opened.item(inner, 0).is_none());
}
