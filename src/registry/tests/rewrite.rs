//! URIs inside results.

use proptest::prelude::*;

use super::*;
use crate::exposed::UriMode;
use crate::protocol::{Message, Response};

fn expose(body: &str) -> String {
    expose_content(&raw(body), &ServerName::from_config("gh").unwrap(), UriMode::Prefix).to_string()
}

#[test]
fn every_place_and_no_other() {
    let table = [
        (
            r#"{"contents":[{"uri":"file:///a","text":"\"uri\":\"x:y\""},{"uri" : "https://e.com"}]}"#,
            r#"{"contents":[{"uri":"gh+file:///a","text":"\"uri\":\"x:y\""},{"uri" : "https://e.com"}]}"#,
        ),
        (
            r#"{"content":[{"type":"resource_link","uri":"a:b","name":"n"},{"uri":"a:b","type":"text","text":""}]}"#,
            r#"{"content":[{"type":"resource_link","uri":"gh+a:b","name":"n"},{"uri":"a:b","type":"text","text":""}]}"#,
        ),
        (
            r#"{"content":[{"type":"resource","resource":{"uri":"ui://a","blob":""}}],"structuredContent":{"uri":"a:b"}}"#,
            r#"{"content":[{"type":"resource","resource":{"uri":"ui://gh--a","blob":""}}],"structuredContent":{"uri":"a:b"}}"#,
        ),
        (
            r#"{"messages":[{"role":"user","content":{"type":"resource_link","uri":"a:b"}},{"content":[{"type":"tool_result","content":[{"type":"resource_link","uri":"a:b"}]}]}]}"#,
            r#"{"messages":[{"role":"user","content":{"type":"resource_link","uri":"gh+a:b"}},{"content":[{"type":"tool_result","content":[{"type":"resource_link","uri":"gh+a:b"}]}]}]}"#,
        ),
        (
            r#"{"content":[],"_meta":{"ui":{"resourceUri":"ui://x/y"},"ui/resourceUri":"ui://x/y","uri":"a:b"}}"#,
            r#"{"content":[],"_meta":{"ui":{"resourceUri":"ui://gh--x/y"},"ui/resourceUri":"ui://gh--x/y","uri":"a:b"}}"#,
        ),
        (
            r#"{"content":[{"type":"resource_link","\u0075ri":"a:b"}]}"#,
            r#"{"content":[{"type":"resource_link","\u0075ri":"gh+a:b"}]}"#,
        ),
        (
            r#"{"content":[{"type":"resource_link","uri":7}],"contents":{"uri":3},"messages":5}"#,
            r#"{"content":[{"type":"resource_link","uri":7}],"contents":{"uri":3},"messages":5}"#,
        ),
    ];
    for (before, after) in table {
        assert_eq!(expose(before), after);
        // In a large answer, of which the scan has noted what it holds.
        let padded = |body: &str| format!(r#"{{"pad":"{}",{}"#, "\\\"x".repeat(2000), &body[1..]);
        let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}}}"#, padded(before));
        let Ok(Message::Response(Response { outcome: Ok(body), .. })) = Message::passing(&answer.into(), 128) else {
            panic!("{before}");
        };
        let shown = expose_content(&body, &ServerName::from_config("gh").unwrap(), UriMode::Prefix);
        assert_eq!(shown.as_str(), padded(after));
        let alias = ServerName::from_config("gh").unwrap();
        assert_eq!(expose_content(&raw(before), &alias, UriMode::Passthrough).to_string(), before);
    }
}

#[test]
fn a_body_without_uris_is_the_same_bytes() {
    let body = raw(r#"{"content":[{"type":"text","text":"a uri \u003c \\u0075"}]}"#);
    let shown = expose_content(&body, &ServerName::from_config("gh").unwrap(), UriMode::Prefix);
    assert_eq!(shown.as_bytes().as_ptr(), body.as_bytes().as_ptr());
}

#[test]
fn what_names_one_resource() {
    let alias = ServerName::from_config("gh").unwrap();
    let params = raw(r#"{"uri":"file:///a","_meta":{"x":1}}"#);
    assert_eq!(
        expose_target(&params, &alias, UriMode::Prefix).to_string(),
        r#"{"uri":"gh+file:///a","_meta":{"x":1}}"#
    );
    assert_eq!(expose_target(&params, &alias, UriMode::Passthrough), params);
    assert_eq!(expose_target(&raw("3"), &alias, UriMode::Prefix), raw("3"));
}

proptest! {
    #[test]
    fn what_is_shown_leads_back(uri in "[a-z]{2,8}:(//)?[a-z/+]{0,12}", text in "\\PC{0,20}") {
        let body = format!(r#"{{"contents":[{{"text":{0},"uri":"{uri}"}}],"x":{0}}}"#, Raw::from_value(&*text));
        let shown = value(&raw(&expose(&body)))["contents"][0]["uri"].as_str().unwrap().to_owned();
        let empty = Arc::new(Offer::default());
        let catalog = build(&[server(0, "gh", Prefix::Always, &empty), server(1, "b", Prefix::Always, &empty)]);
        let plain = ["http:", "https:", "data:"].iter().any(|scheme| uri.starts_with(scheme));
        prop_assert_eq!(leads(catalog.resource(&shown)), if plain { None } else { to(0, &uri) });
    }
}
