//! Large bodies, about which the scan has noted something: readers and edits find the same as without.

use bytes::Bytes;
use proptest::prelude::*;

use super::super::*;

/// A body of several members, some of them large enough to be noted.
fn large() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        "[a-z]{0,9}".prop_map(|text| format!("\"{text}\"")),
        "(\\\\n|\\\\\"|a|é){1,9}".prop_map(|text| format!("\"{}\"", text.repeat(400))),
        ("(uri|isError|mcp-host/x|io\\.modelcontextprotocol/x|\\\\u0075ri|n)", 0..2usize)
            .prop_map(|(name, large)| { format!("{{\"{name}\":[1, {{\"b\":\"{}\"}}]}}", "x".repeat(1200 * large)) }),
    ];
    let member = ("(a|name|_meta|content)", value, "(|\n| )");
    let members =
        prop::collection::vec(member.prop_map(|(name, value, space)| format!("\"{name}\":{space}{value}")), 1..6);
    members.prop_map(|members| format!("{{{}}}", members.join(",")))
}

/// The values in a body, with the names before them, as its parts are found.
fn parts(body: &Raw) -> Vec<String> {
    let (mut found, mut left) = (Vec::new(), vec![Part::whole(body).unwrap()]);
    while let Some(part) = left.pop() {
        for (name, member) in part.members() {
            found.push(format!("{name}={}", member.value().unwrap().get()));
            assert!(part.member(&name).is_some());
            left.push(member);
        }
        left.extend(part.items().unwrap_or_default());
        found.extend(part.string().map(String::from));
    }
    found
}

/// The same as [`parts`], by another parser.
fn values(value: &serde_json::value::RawValue) -> Vec<String> {
    let (mut found, mut left) = (Vec::new(), vec![value]);
    while let Some(value) = left.pop() {
        for (name, member) in object(value).unwrap_or_default() {
            found.push(format!("{name}={}", member.get()));
            left.push(member);
        }
        left.extend(value::array(value).unwrap_or_default());
        found.extend(string(value).map(String::from));
    }
    found
}

proptest! {
    /// What a scan has noted about a body changes nothing but the time that later readers take.
    #[test]
    fn a_body_with_notes_is_like_one_without(text in large(), passing in any::<bool>()) {
        let whole: Bytes = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{text}}}"#).into();
        let message = if passing { Message::passing(&whole, DEPTH) } else { Message::parse(&whole) };
        let Ok(Message::Response(Response { outcome: Ok(noted), .. })) = message else { panic!("{text}") };
        let plain = Raw::trusted(text.clone().into());
        prop_assert_eq!(&noted, &plain);
        prop_assert!(noted.has_names(Names::URI).is_some() || text.contains('\\'));
        for (kind, sign) in [(Names::URI, "ri\":"), (Names::OUTCOME, "\"isError\":"), (Names::OURS, "\"mcp-host"), (Names::PROTOCOL, "\"io.modelcontextprotocol")] {
            prop_assert!(noted.has_names(kind).is_none_or(|has| has == text.contains(sign)), "{}", sign);
        }
        prop_assert_eq!(parts(&noted), values(plain.as_value()));
        prop_assert_eq!(parts(&plain), values(plain.as_value()));
        // Edited twice, so that the notes move along with the values.
        let edits = |raw: &Raw| {
            let first = raw.with_member("a", b"{\"c\": 1}").with_member("z", b"[\n]");
            let second = first.without_member("name").with_member("_meta", br#"{"k":1}"#);
            [raw.without_member("content"), raw.without_member("z"), first, second]
        };
        for (noted, plain) in std::iter::zip(edits(&noted), edits(&plain)) {
            prop_assert_eq!(&noted, &plain);
            let names = ["a", "name", "_meta", "content", "z"];
            prop_assert_eq!(noted.members(names), plain.members(names));
            prop_assert_eq!(noted.distinct(names), plain.distinct(names));
            for name in names {
                let [noted, plain] = [&noted, &plain].map(|raw| raw.value_of(name).map(|value| value.get()));
                prop_assert_eq!(noted, plain);
            }
            let frame = |raw: &Raw| Response { id: None, outcome: Ok(raw.clone()) }.frame().on_one_line().into_bytes();
            prop_assert_eq!(frame(&noted), frame(&plain));
        }
    }
}
