//! `_meta` of requests.

use proptest::prelude::*;

use super::*;
use crate::protocol::object;

const TRACE: Trace = Trace { trace: 0xab, span: 0xcd };

fn meta(text: &str, token: Option<&str>, both_legacy: bool) -> Option<String> {
    request_meta(Some(&raw(text)), token, both_legacy, || TRACE).map(|meta| meta.to_string())
}

#[test]
fn the_protocols_own_keys_are_of_one_hop() {
    let text = r#"{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"x","a.b/c":1.50,"io.modelcontextprotocol/related-task":{"taskId":"t"},"baggage":"k=v"}"#;
    assert_eq!(meta(text, Some("7"), false).unwrap(), r#"{"progressToken":7,"a.b/c":1.50}"#);
    assert_eq!(
        meta(text, None, true).unwrap(),
        r#"{"a.b/c":1.50,"io.modelcontextprotocol/related-task":{"taskId":"t"}}"#
    );
    let only = r#"{"io.modelcontextprotocol/protocolVersion":"x"}"#;
    assert_eq!(meta(only, Some("7"), false).unwrap(), r#"{"progressToken":7}"#);
    assert_eq!(meta(only, None, true), None);
    assert_eq!(request_meta(None, Some("7"), true, || TRACE).unwrap().to_string(), r#"{"progressToken":7}"#);
    assert_eq!(request_meta(None, None, true, || TRACE), None);
    let vendor = r#"{"x" : 1e400, "y":{}}"#;
    assert_eq!(meta(vendor, None, false).unwrap(), vendor, "as it came");
}

#[test]
fn a_trace_goes_on_under_our_span() {
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let of = |parent: &str| meta(&format!(r#"{{"traceparent":"{parent}","tracestate":"k=v"}}"#), None, false).unwrap();
    for parent in [format!("00-{trace}-b7ad6b7169203331-01"), format!("cc-{trace}-b7ad6b7169203331-01-more")] {
        assert_eq!(of(&parent), format!(r#"{{"traceparent":"00-{trace}-00000000000000cd-01","tracestate":"k=v"}}"#));
    }
    let fresh = r#"{"traceparent":"00-000000000000000000000000000000ab-00000000000000cd-00"}"#;
    for bad in [
        String::new(),
        "x".to_owned(),
        format!("ff-{trace}-b7ad6b7169203331-01"),
        format!("00-{trace}-b7ad6b7169203331-01-more"),
        format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()),
        format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
        format!("00-{trace}-0000000000000000-01"),
        format!("00-{trace}-b7ad6b716920333-01"),
    ] {
        assert_eq!(of(&bad), fresh, "{bad}");
    }
    assert_eq!(meta(r#"{"traceparent":null}"#, None, false).unwrap(), fresh);
    assert_eq!(meta(r#"{"tracestate":"k=v"}"#, None, false), None, "a state of no trace");
    let never = || -> Trace { panic!("asked for ids without a trace") };
    assert!(request_meta(Some(&raw(r#"{"a":1}"#)), Some("1"), false, never).is_some());
}

#[test]
fn what_is_told_says_nothing_of_the_hop_it_came_on() {
    let told = |text: &str| notice(raw(text)).to_string();
    let updated = r#"{"uri":"x:y","_meta":{"io.modelcontextprotocol/subscriptionId":7,"a":1.0},"z":1e2}"#;
    assert_eq!(told(updated), r#"{"uri":"x:y","_meta":{"a":1.0},"z":1e2}"#);
    for same in [r#"{"uri" : "x"}"#, r#"{"_meta":null}"#, r#"{"_meta": {"a":1}}"#, "3"] {
        assert_eq!(told(same), same);
    }
}

#[test]
fn ids_are_never_zero() {
    assert_eq!(Trace::from_random([0; 24]), Trace { trace: 1, span: 1 });
    let mut bytes = [0; 24];
    (bytes[15], bytes[23]) = (0xab, 0xcd);
    assert_eq!(Trace::from_random(bytes), TRACE);
}

proptest! {
    #[test]
    fn no_meta_breaks_it(text in json(), both_legacy in any::<bool>(), token in proptest::option::of(0u32..9)) {
        let token = token.map(|token| token.to_string());
        if let Some(there) = meta(&text, token.as_deref(), both_legacy) {
            let there = raw(&there);
            prop_assert_eq!(there.member("progressToken").map(|token| token.to_string()), token);
            let members = object(there.as_value()).unwrap();
            prop_assert!(!members.iter().any(|(key, _)| key.starts_with("io.modelcontextprotocol/")));
            for (key, kept) in object(raw(&text).as_value()).into_iter().flatten().filter(|(key, _)| key.len() < 4) {
                prop_assert_eq!(there.member(&key).map(|value| value.to_string()), Some(kept.get().to_owned()));
            }
        }
    }
}
