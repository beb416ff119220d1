//! Pins: equal for every spelling of one definition, different for every other definition.

use proptest::prelude::*;
use serde_json::json;

use super::super::canonical;
use super::super::pin::{Pin, Pointer};
use super::super::tree::Tree;
use super::*;

fn canonical(text: &str) -> String {
    String::from_utf8(canonical::of_tree(&Tree::read(text).unwrap(), &[])).unwrap()
}

fn pin(text: &str) -> Pin {
    Pin::of(&raw(text), &[])
}

fn pin_without(text: &str, pointers: &[&str]) -> Pin {
    let pointers: Vec<_> = pointers.iter().map(|text| Pointer::parse(text).unwrap()).collect();
    Pin::of(&raw(text), &pointers)
}

#[test]
fn the_canonical_form_is_that_of_rfc_8785() {
    let cases = [
        // The samples of RFC 8785, 3.2.2 and 3.2.3.
        (
            r#"{
                "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
                "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
                "literals": [null, true, false]
            }"#,
            r#"{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#,
        ),
        (
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew","1":"One","\ud83d\ude00":"Emoji","\u0080":"Control","\u00f6":"O"}"#,
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"O\",\"€\":\"Euro Sign\",\"😀\":\"Emoji\",\"\u{fb33}\":\"Hebrew\"}",
        ),
        // Equal names keep their order, and halves of pairs stay.
        (r#"{"b":1,"a":2,"b":0,"\u0061":1}"#, r#"{"a":2,"a":1,"b":1,"b":0}"#),
        (r#"["\uD83D","\uDE00\uD83D"]"#, r#"["\ud83d","\ude00\ud83d"]"#),
        (r#"{"b":{},"a":[ ]}"#, r#"{"a":[],"b":{}}"#),
    ];
    for (text, expected) in cases {
        // The RFC makes 333333333.3333333 of the first number, which is another value.
        assert_eq!(canonical(text), expected);
    }
}

#[test]
fn numbers_lose_their_spelling_and_keep_their_value() {
    let cases = [
        ("0", &["0", "-0", "0.0", "0e5", "-0.00E-7"][..]),
        ("1", &["1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000"]),
        ("-100", &["-100", "-1e2", "-100.0"]),
        ("0.1", &["0.1", "0.10", "1e-1"]),
        ("1e-7", &["1e-7", "0.0000001"]),
        ("0.000001", &["1e-6", "0.000001"]),
        ("1e+21", &["1e21", "1000000000000000000000"]),
        ("100000000000000000000", &["1e20", "100000000000000000000"]),
        ("1.5e+300", &["1.5e300", "15E299"]),
        ("123.456", &["123.456", "1.23456e2"]),
        ("5e-324", &["5e-324"]),
    ];
    for (expected, spellings) in cases {
        for spelling in spellings {
            assert_eq!(canonical(spelling), expected, "{spelling}");
        }
    }
    // No double has these values.
    for kept in ["9007199254740993", "1e400", "-1E400", "1e-400", "0.1000000000000000055", "1e99999999999"] {
        assert_eq!(canonical(kept), kept);
    }
    assert_ne!(pin("9007199254740993"), pin("9007199254740992"));
}

#[test]
fn a_pin_is_a_text() {
    let pin = pin("{}");
    let text = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    assert_eq!((pin.to_string().as_str(), text.parse()), (text, Ok(pin)));
    assert_eq!(serde_json::to_value(pin).unwrap(), json!(text));
    assert_eq!(serde_json::from_value::<Pin>(json!(text)).unwrap(), pin);
    for wrong in ["", "sha256:", &text[7..], &text[..70], &format!("{text}0"), &text.replace('4', "g")] {
        assert!(wrong.parse::<Pin>().is_err(), "{wrong}");
    }
}

#[test]
fn instructions_are_pinned_as_a_string() {
    assert_eq!(Pin::of_text("a\n\"b\""), pin(r#""\u0061\n\"b\"""#));
    assert_ne!(Pin::of_text("{}"), pin("{}"));
}

#[test]
fn pointers_leave_out_what_they_name() {
    let text = r#"{"name":"a","_meta":{"updatedAt":3,"a/b":{"~":1}},"icons":[{"src":"x"},{"src":"y"}]}"#;
    let cases = [
        ("/_meta/updatedAt", r#"{"name":"a","_meta":{"a/b":{"~":1}},"icons":[{"src":"x"},{"src":"y"}]}"#),
        ("/_meta/a~1b/~0", r#"{"name":"a","_meta":{"updatedAt":3,"a/b":{}},"icons":[{"src":"x"},{"src":"y"}]}"#),
        ("/icons/0", r#"{"name":"a","_meta":{"updatedAt":3,"a/b":{"~":1}},"icons":[{"src":"y"}]}"#),
        ("/icons", r#"{"name":"a","_meta":{"updatedAt":3,"a/b":{"~":1}}}"#),
    ];
    for (pointer, rest) in cases {
        assert_eq!(pin_without(text, &[pointer]), pin(rest), "{pointer}");
        assert_ne!(pin_without(text, &[pointer]), pin(text), "{pointer}");
    }
    assert_eq!(pin_without(text, &["/_meta", "/icons"]), pin(r#"{"name":"a"}"#));
    for nothing in ["/x", "/icons/2", "/icons/00", "/icons/-", "/icons/+0", "/_meta/updatedAt/x", "/Name"] {
        assert_eq!(pin_without(text, &[nothing]), pin(text), "{nothing}");
    }
    // All members of a name are left out, however they spell it.
    assert_eq!(pin_without(r#"{"a":1,"\u0061":2,"b":3}"#, &["/a"]), pin(r#"{"b":3}"#));
}

#[test]
fn pointers_to_what_a_pin_always_covers_are_refused() {
    let cases = [
        ("", "names the whole definition; name a member, as in \"/_meta/updatedAt\""),
        ("a", "\"a\" is no JSON pointer: it begins with `/`, as in \"/_meta/updatedAt\""),
        ("/a~2", "\"/a~2\" is no JSON pointer: `~` is written as `~0`, and `/` in a name as `~1`"),
        ("/a~", "\"/a~\" is no JSON pointer: `~` is written as `~0`, and `/` in a name as `~1`"),
        ("/name", "\"/name\" names `name`, which a pin always covers; leave it out"),
        ("/uriTemplate", "\"/uriTemplate\" names `uriTemplate`, which a pin always covers; leave it out"),
        ("/inputSchema", "\"/inputSchema\" names `inputSchema`, which a pin always covers; leave it out"),
        (
            "/inputSchema/properties/a",
            "\"/inputSchema/properties/a\" names `inputSchema`, which a pin always covers; leave it out",
        ),
    ];
    for (pointer, why) in cases {
        assert_eq!(Pointer::parse(pointer), Err(why.to_owned()));
    }
}

#[test]
fn any_depth_has_a_pin() {
    let deep = |spaces: &str| format!("{}1{}", format!("{{\"b\":0,{spaces}\"a\":").repeat(50_000), "}".repeat(50_000));
    let pin = |text: String| Pin::of(&Raw::trusted(text.into()), &[]);
    assert_eq!(pin(deep("")), pin(deep(" ")));
    // What is no JSON never gets here; it has a pin all the same.
    assert_ne!(pin("{".to_owned()), pin("[".to_owned()));
}

/// Decides how a text is spelled.
struct Dice<'a>(std::iter::Cycle<std::slice::Iter<'a, u8>>);

impl Dice<'_> {
    fn roll(&mut self, sides: usize) -> usize {
        usize::from(*self.0.next().unwrap()) % sides
    }

    fn space(&mut self) -> &'static str {
        ["", "", " ", "\n\t", "\r\n  "][self.roll(5)]
    }
}

fn spell(value: &Value, dice: &mut Dice<'_>, out: &mut String) {
    out.push_str(dice.space());
    match value {
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
        Value::Number(number) => {
            let text = number.to_string();
            let is_plain = !text.contains(['.', 'e', 'E']);
            match dice.roll(4) {
                1 if is_plain => out.push_str(&format!("{text}.0")),
                2 if is_plain && text != "0" => out.push_str(&format!("{text}0e-1")),
                3 if is_plain => out.push_str(&format!("{text}E+00")),
                _ => out.push_str(&text),
            }
        }
        Value::String(text) => spell_text(text, dice, out),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                spell(item, dice, out);
            }
            out.push_str(dice.space());
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            for at in (1..members.len()).rev() {
                members.swap(at, dice.roll(at + 1));
            }
            out.push('{');
            for (at, (key, value)) in members.into_iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                out.push_str(dice.space());
                spell_text(key, dice, out);
                out.push_str(dice.space());
                out.push(':');
                spell(value, dice, out);
            }
            out.push_str(dice.space());
            out.push('}');
        }
    }
    out.push_str(dice.space());
}

fn spell_text(text: &str, dice: &mut Dice<'_>, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        if dice.roll(4) == 0 {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&if dice.roll(2) == 0 { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") });
            }
        } else {
            let quoted = Value::from(character.to_string()).to_string();
            out.push_str(&quoted[1..quoted.len() - 1]);
        }
    }
    out.push('"');
}

fn spelled(value: &Value, dice: &[u8]) -> String {
    let mut out = String::new();
    spell(value, &mut Dice(dice.iter().cycle()), &mut out);
    out
}

pub(super) fn some_text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{0,2}", "[ -~]{0,6}", "[\\x00-\\x1f\"\\\\/é€\u{e000}\u{ffff}😀]{0,4}", any::<String>()]
}

pub(super) fn some_json() -> impl Strategy<Value = Value> {
    let number = any::<f64>().prop_filter("JSON has no such number", |value| value.is_finite());
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-(1_i64 << 53)..1 << 53).prop_map(Value::from),
        (-20_i64..20).prop_map(Value::from),
        number.prop_map(Value::from),
        some_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(some_text(), inner, 0..6)
                .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

/// Changes the value with that number, counted in the order of the text.
fn change(value: &mut Value, count: &mut usize) {
    if *count == 0 {
        *value = if *value == json!("changed") { json!("once more") } else { json!("changed") };
    }
    *count = count.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| change(item, count)),
        Value::Object(members) => members.values_mut().for_each(|member| change(member, count)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn every_spelling_has_the_same_pin(value in some_json(), dice in prop::collection::vec(any::<u8>(), 1..80)) {
        let plain = value.to_string();
        let other = spelled(&value, &dice);
        prop_assert_eq!(canonical(&plain), canonical(&other), "{}", other);
        prop_assert_eq!(pin(&plain), pin(&other));
    }

    #[test]
    fn the_canonical_form_is_that_of_another_implementation(value in some_json(), dice in prop::collection::vec(any::<u8>(), 1..80)) {
        let expected = serde_json_canonicalizer::to_string(&value).unwrap();
        prop_assert_eq!(canonical(&spelled(&value, &dice)), expected);
    }

    #[test]
    fn any_change_gives_another_pin(value in some_json(), at in any::<prop::sample::Index>(), dice in prop::collection::vec(any::<u8>(), 1..40)) {
        let before = value.to_string();
        let count = Tree::read(&before).unwrap().len();
        let mut other = value;
        change(&mut other, &mut at.index(count));
        prop_assert_ne!(pin(&before), pin(&spelled(&other, &dice)));
    }

    #[test]
    fn no_text_stops_the_reader(text in "[\\[\\]{}:,\"\\\\u0-9dDa é-]{0,40}") {
        if let Some(tree) = Tree::read(&text) {
            tree.items().for_each(|item| drop((item.path(), item.text(), item.key())));
            canonical::of_tree(&tree, &[]);
        }
        Pin::of(&Raw::trusted(text.into()), &[Pointer::parse("/a/0").unwrap()]);
    }
}
