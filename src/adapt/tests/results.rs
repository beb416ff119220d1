//! Results, errors, and definitions.

use proptest::prelude::*;

use super::*;
use crate::protocol::{ErrorObject, code};

const OURS: &str = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mcp-host","version":"1"}}"#;

fn result(text: &str, method: &Method, from: V, to: V) -> String {
    crate::adapt::result(raw(text), method, from, to, &info()).to_string()
}

#[test]
fn a_modern_client_is_told_what_a_result_must_say() {
    let call = |text, from| result(text, &Method::ToolsCall, from, V26);
    assert_eq!(call(r#"{"content":[]}"#, V25B), format!(r#"{{"content":[],"resultType":"complete",{OURS}}}"#));
    assert_eq!(call("{}", V24), format!(r#"{{"resultType":"complete",{OURS}}}"#));
    assert_eq!(call(r#"{"_meta":null}"#, V25C), format!(r#"{{{OURS},"resultType":"complete"}}"#));
    let theirs = r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"},"a/b":1.50}}"#;
    let both = r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mcp-host","version":"1"},"a/b":1.50,"mcp-host/serverInfo":{"name":"x"}}}"#;
    assert_eq!(call(theirs, V26), both);
    assert_eq!(call(both, V26), both, "once is enough");
    let asked = format!(r#"{{"resultType":"input_required","requestState":"s",{OURS}}}"#);
    assert_eq!(call(&asked, V26), asked);
}

#[test]
fn a_modern_client_is_told_how_long_a_result_keeps() {
    let read = |text: &str, from| result(text, &Method::ResourcesRead, from, V26);
    let with = |hints: &str| format!(r#"{{"contents":[],{hints},{OURS}}}"#);
    let none = r#""resultType":"complete","ttlMs":0,"cacheScope":"private""#;
    assert_eq!(read(r#"{"contents":[]}"#, V25C), with(none));
    let own = r#""ttlMs":5000,"cacheScope":"public","resultType":"complete""#;
    assert_eq!(read(&format!(r#"{{"contents":[],{own}}}"#), V26), with(own));
    for bad in [r#""ttlMs":-1,"cacheScope":1"#, r#""ttlMs":null,"cacheScope":"x""#, r#""ttlMs":0.5,"cacheScope":null"#]
    {
        let mended = r#""ttlMs":0,"cacheScope":"private","resultType":"complete""#;
        assert_eq!(read(&format!(r#"{{"contents":[],{bad}}}"#), V26), with(mended), "{bad}");
    }
    let asked = format!(r#"{{"resultType":"input_required","requestState":"s",{OURS}}}"#);
    assert_eq!(read(&asked, V26), asked, "what asks is not kept");
    let call = format!(r#"{{"ttlMs":"mine","resultType":"complete",{OURS}}}"#);
    assert_eq!(result(&call, &Method::ToolsCall, V26, V26), call, "only six methods have hints");
}

#[test]
fn a_legacy_client_is_not_told_what_it_does_not_know() {
    let meta = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"}}"#;
    let text = format!(r#"{{"resultType":"complete","contents":[],"ttlMs":1,"cacheScope":"public",{meta}}}"#);
    let want = r#"{"contents":[],"_meta":{"mcp-host/serverInfo":{"name":"x"}}}"#;
    assert_eq!(result(&text, &Method::ResourcesRead, V26, V25C), want);
    assert_eq!(result(r#"{"resultType":"complete"}"#, &Method::PromptsGet, V26, V24), "{}");
    let own = r#"{"ttlMs":1,"cacheScope":"mine"}"#;
    assert_eq!(result(own, &Method::ToolsCall, V26, V25B), own);
}

#[test]
fn structured_results_by_revision() {
    let call = |text: &str, from, to| result(text, &Method::ToolsCall, from, to);
    let object = r#"{"content":[{"type":"text","text":"{\"a\": 1.50}"}],"structuredContent":{"a":1.50}}"#;
    for to in [V25B, V25C] {
        assert_eq!(call(object, V26, to), object);
    }
    let text = r#"{"content":[{"type":"text","text":"{\"a\": 1.50}"}]}"#;
    for (from, to) in [(V25B, V24), (V25C, V25A), (V26, V24)] {
        assert_eq!(call(object, from, to), text, "the text says it already");
    }
    let list = r#"{"content":[{"type":"image","data":"","mimeType":"i"}],"structuredContent":[1,2.50]}"#;
    let told = r#"{"content":[{"type":"image","data":"","mimeType":"i"},{"text":"[1,2.50]","type":"text"}]}"#;
    for to in [V24, V25A, V25B, V25C] {
        assert_eq!(call(list, V26, to), told);
    }
    assert_eq!(call(r#"{"structuredContent":null}"#, V26, V25C), r#"{"content":[{"text":"null","type":"text"}]}"#);
    assert_eq!(
        call(r#"{"content":[ ],"structuredContent":7}"#, V26, V25B),
        r#"{"content":[{"text":"7","type":"text"}]}"#
    );
    assert_eq!(value(&raw(&call(list, V26, V26)))["structuredContent"][1], 2.5);
}

#[test]
fn content_by_revision() {
    let link = r#"{"type":"resource_link","uri":"gh+file:///a","name":"A","annotations":{"priority":1.0},"size":5}"#;
    let as_text = r#"{"text":"A: gh+file:///a","type":"text","annotations":{"priority":1.0}}"#;
    let sound = r#"{"type":"audio","data":"QUJD","mimeType":"audio/wav"}"#;
    let embedded = r#"{"resource":{"blob":"QUJD","mimeType":"audio/wav","uri":"mcp-host:audio/0"},"type":"resource"}"#;
    let text = r#"{"type":"text","text":"x","z":1}"#;
    let odd = r#"{"type":"smell","z":1}"#;
    let odd_as_text = r#"{"text":"{\"type\":\"smell\",\"z\":1}","type":"text"}"#;
    let of = |blocks: [&str; 4]| format!(r#"{{"content":[{}]}}"#, blocks.join(","));
    let all = of([text, link, sound, odd]);
    assert_eq!(result(&all, &Method::ToolsCall, V26, V25B), all);
    assert_eq!(result(&all, &Method::ToolsCall, V25B, V25A), of([text, as_text, sound, odd_as_text]));
    assert_eq!(result(&all, &Method::ToolsCall, V25C, V24), of([text, as_text, sound, odd_as_text]));
    assert_eq!(result(&all, &Method::ToolsCall, V24, V25C), all);
    let message = |block: &str| format!(r#"{{"messages":[{{"role":"user","content":{block}}}]}}"#);
    assert_eq!(result(&message(link), &Method::PromptsGet, V25C, V24), message(as_text));
    assert_eq!(result(&message(sound), &Method::PromptsGet, V25C, V24), message(embedded));
    assert_eq!(result(&message(link), &Method::PromptsGet, V25C, V25B), message(link));
    let bare = message(r#"{"type":"resource_link","uri":"x:y"}"#);
    assert_eq!(result(&bare, &Method::PromptsGet, V25B, V24), message(r#"{"text":"x:y","type":"text"}"#));
}

fn error(code: i64, data: Option<&str>, method: &Method, from: V, to: V) -> Outcome {
    let object = ErrorObject { code, message: "m".to_owned(), data: data.map(raw) };
    crate::adapt::error(object, method, from, to, "gh")
}

/// Returns the code of an error, or `None` for a result with `isError`.
fn coded(outcome: &Outcome) -> Option<i64> {
    match outcome {
        Ok(result) => {
            assert_eq!(value(result)["isError"], true, "{result}");
            None
        }
        Err(error) => Some(error.code),
    }
}

#[test]
fn codes_by_revision() {
    const LEGACY: [V; 4] = V::HANDSHAKE;
    let read = Method::ResourcesRead;
    let uri = Some(r#"{"uri":"gh+file:///a"}"#);
    for from in LEGACY {
        let missing = error(-32002, uri, &read, from, V26);
        let want = ErrorObject { code: -32602, message: "m".to_owned(), data: uri.map(raw) };
        assert_eq!(missing, Err(want), "the URI stays");
        assert_eq!(coded(&error(-32002, uri, &read, from, V25C)), Some(-32002));
        assert_eq!(coded(&error(-32602, uri, &read, from, V24)), Some(-32602));
    }
    assert_eq!(coded(&error(-32602, uri, &read, V26, V26)), Some(-32602));
    for to in LEGACY {
        assert_eq!(coded(&error(-32602, uri, &read, V26, to)), Some(-32002));
        assert_eq!(coded(&error(-32602, None, &read, V26, to)), Some(-32602));
        assert_eq!(coded(&error(-32602, uri, &Method::ToolsCall, V26, to)), Some(-32602));
    }
    let call = Method::ToolsCall;
    for (from, to) in pairs() {
        for relayed in [-32602, -32601, -32603, -32600, -32700, -1, 0, 1, 42, -31999, -32769, i64::MIN, i64::MAX] {
            assert_eq!(coded(&error(relayed, None, &call, from, to)), Some(relayed), "{relayed}");
        }
        for hidden in [-32020, -32022, -32023, -32041, -32043, -32099, -32100, -32599, -32604, -32699, -32701, -32768] {
            assert_eq!(coded(&error(hidden, None, &call, from, to)), Some(-32603), "{hidden}");
        }
        for legacy in [-32000, -32001, -32010, -32019] {
            let want = if to.is_modern() { -32603 } else { legacy };
            assert_eq!(coded(&error(legacy, None, &call, from, to)), Some(want), "{legacy}");
        }
    }
    let Err(told) = error(-32001, Some("1.50"), &call, V25C, V26) else { panic!() };
    assert_eq!(told.message, "m");
    assert_eq!(told.data.unwrap().to_string(), r#"{"upstream":{"code":-32001,"message":"m","data":1.50}}"#);
}

#[test]
fn a_capability_that_is_missing() {
    let data = |wanted: &str| format!(r#"{{"requiredCapabilities":{wanted}}}"#);
    let told = |wanted: &str, method: &Method, to| error(-32021, Some(&data(wanted)), method, V26, to);
    let can = r#"{"elicitation":{"url":{}},"roots":{}}"#;
    assert_eq!(coded(&told(can, &Method::ToolsCall, V26)), Some(code::MISSING_CAPABILITY));
    assert_eq!(
        coded(&told(r#"{"extensions":{"io.modelcontextprotocol/ui":{}}}"#, &Method::PromptsGet, V26)),
        Some(-32021)
    );
    for cannot in [r#"{"extensions":{"x/y":{}}}"#, r#"{"experimental":{"z":{}}}"#, "3", r#"{"newer":{}}"#] {
        assert_eq!(coded(&told(cannot, &Method::ToolsCall, V26)), None, "{cannot}");
        assert_eq!(coded(&told(cannot, &Method::PromptsGet, V26)), Some(-32603), "{cannot}");
    }
    let Ok(result) = told(can, &Method::ToolsCall, V25C) else { panic!() };
    let text = value(&result)["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(text, r#"server "gh" needs a client that can be asked for: elicitation.url, roots"#);
    assert_eq!(coded(&told(can, &Method::ResourcesRead, V25C)), Some(-32603));
    // If neither side knows the code, it is the server's own.
    for to in [V25C, V::V2024_11_05] {
        assert_eq!(coded(&error(-32021, Some(&data(can)), &Method::ToolsCall, V25C, to)), Some(-32021));
    }
}

#[test]
fn pages_to_visit_are_told_to_who_cannot_be_asked() {
    let data = r#"{"elicitations":[{"mode":"url","elicitationId":"7","url":"https://e.com/x","message":"Sign in"}]}"#;
    for to in V::ALL {
        let Ok(result) = error(-32042, Some(data), &Method::ToolsCall, V25C, to) else { panic!() };
        let text = value(&result)["content"][0]["text"].as_str().unwrap().to_owned();
        assert!(text.contains("Sign in: https://e.com/x"), "{text}");
        assert_eq!(coded(&error(-32042, Some(data), &Method::PromptsGet, V25C, to)), Some(-32603));
    }
}

#[test]
fn an_outcome_for_a_modern_client_is_whole() {
    let gap = |from, to, info| Gap { from, to, server: "gh", info };
    let ours = info();
    let missing = ErrorObject::new(-32021, "m").with_data(raw(r#"{"requiredCapabilities":{"extensions":{"x/y":{}}}}"#));
    let Ok(told) = outcome(Err(missing), &Method::ToolsCall, &gap(V26, V26, &ours)) else { panic!() };
    assert_eq!(value(&told)["resultType"], "complete");
}

#[test]
fn tools_by_revision() {
    let of = |schema: &str| {
        format!(r#"{{"name":"t","title":"T","outputSchema":{schema},"inputSchema":{{"type":"object"}},"z":1.50}}"#)
    };
    let without = r#"{"name":"t","title":"T","inputSchema":{"type":"object"},"z":1.50}"#;
    let shown = |schema: &str, to| tool(&raw(&of(schema)), to).map_or_else(|| of(schema), |tool| tool.to_string());
    let fine = [
        r#"{"type":"object"}"#,
        r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/x~1y"},"$ref":{"type":"string"}},"$defs":{"x/y":{}}}"##,
        r##"{"type":"object","properties":{"a":{"$ref":"#"}},"anyOf":[{"$ref":"#/properties/a"},{"$ref":"#/anyOf/0"}]}"##,
        r#"{"type":"object","properties":{"a":{"const":{"$ref":"http://e.com"}},"ref":{}}}"#,
    ];
    for schema in fine {
        for to in [V25B, V25C, V26] {
            assert_eq!(tool(&raw(&of(schema)), to), None, "{schema} {to}");
        }
        assert_eq!(shown(schema, V25A), without);
        assert_eq!(shown(schema, V24), without);
    }
    let odd = [
        r#"{"type":"array"}"#,
        r#"{"type":["object"]}"#,
        r#"{"anyOf":[{"type":"object"}]}"#,
        r#"{"type":"object","properties":{"a":{"$ref":"https://e.com/s"}}}"#,
        r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}"##,
        r##"{"type":"object","allOf":[{"$ref":"#anchor"}]}"##,
        r##"{"type":"object","allOf":[{"\u0024\u0072e\u0066":"#anchor"}]}"##,
        r##"{"type":"object","$defs":{"a":{"items":[{"$dynamicRef":"#a"}]}}}"##,
    ];
    for schema in odd {
        for to in V::HANDSHAKE {
            assert_eq!(shown(schema, to), without, "{schema} {to}");
        }
        assert_eq!(tool(&raw(&of(schema)), V26), None, "{schema}");
    }
    let deep = format!(r##"{{"type":"object","x":{}{{"$ref":"#"}}{}}}"##, r#"{"a":"#.repeat(80), "}".repeat(80));
    assert_eq!(shown(&deep, V25C), without);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn within_the_legacy_era_nothing_changes_on_the_way_up(text in json()) {
        for (from, to) in pairs().filter(|(from, to)| from <= to && !to.is_modern()) {
            for method in [Method::ToolsCall, Method::PromptsGet, Method::ResourcesRead, Method::Complete] {
                prop_assert_eq!(result(&text, &method, from, to), text.trim());
            }
        }
    }

    #[test]
    fn no_json_breaks_it_and_twice_is_once(text in json()) {
        for (from, to) in pairs() {
            for method in [Method::ToolsCall, Method::PromptsGet, Method::ResourcesRead, Method::Complete] {
                let once = result(&text, &method, from, to);
                prop_assert_eq!(&raw(&once).to_string(), &once, "it is JSON");
                prop_assert_eq!(&result(&once, &method, to, to), &once);
            }
            for code in [-32602, -32042, -32021, -32001, -32050] {
                let _ = error(code, Some(&text), &Method::ToolsCall, from, to);
                let _ = error(code, Some(&format!(r#"{{"elicitations":{text},"requiredCapabilities":{text}}}"#)), &Method::ResourcesRead, from, to);
            }
            for definition in [text.clone(), format!(r#"{{"name":"t","outputSchema":{text},"execution":{text}}}"#)] {
                if let Some(shown) = tool(&raw(&definition), to) {
                    prop_assert_eq!(tool(&raw(&shown.to_string()), to), None);
                }
            }
        }
    }

    #[test]
    fn unknown_members_pass(key in "x[a-z]{1,4}", text in json()) {
        for (from, to) in pairs() {
            let body = format!(r#"{{"{key}":{text},"content":[{{"type":"text","text":"","{key}":{text}}}],"structuredContent":{{"{key}":{text}}}}}"#);
            let there = raw(&result(&body, &Method::ToolsCall, from, to));
            prop_assert_eq!(there.member(&key).unwrap().to_string(), text.trim());
            let block = there.value_of("content").and_then(crate::protocol::value::array).unwrap()[0].get().to_owned();
            prop_assert_eq!(raw(&block).member(&key).unwrap().to_string(), text.trim());
        }
    }
}

#[test]
fn h105_what_servers_say_of_pages_and_capabilities_is_cut_and_escaped() {
    let long = format!("a\n\u{202e}{}", "x".repeat(1 << 20));
    let page = serde_json::json!({ "mode": "url", "url": format!("https://e.com/{long}"), "message": long });
    let error =
        ErrorObject::new(-32042, &*long).with_data(Raw::from_value(&serde_json::json!({ "elicitations": [page] })));
    let text = |outcome: Outcome| value(&outcome.unwrap())["content"][0]["text"].as_str().unwrap().to_owned();
    let gap = |from, to, info| Gap { from, to, server: "gh", info };
    let ours = info();
    let told = text(outcome(Err(error), &Method::ToolsCall, &gap(V25C, V24, &ours)));
    assert!(told.len() < 10 << 10 && !told.contains('\u{202e}'), "{} bytes: {told:.300}", told.len());
    assert_eq!(told.matches('\n').count(), 1, "a line for the page: {told:.300}");

    let pages: Vec<_> =
        (0..9).map(|n| serde_json::json!({ "url": format!("https://e.com/{n}"), "message": "" })).collect();
    let error = ErrorObject::new(-32042, "m").with_data(Raw::from_value(&serde_json::json!({ "elicitations": pages })));
    let told = text(outcome(Err(error), &Method::ToolsCall, &gap(V25C, V24, &ours)));
    assert!(told.contains("e.com/7") && !told.contains("e.com/8"), "{told}");

    let data = serde_json::json!({ "requiredCapabilities": { long: {} } });
    let error = ErrorObject::new(-32021, "m").with_data(Raw::from_value(&data));
    let told = text(outcome(Err(error), &Method::ToolsCall, &gap(V26, V25C, &ours)));
    assert!(told.len() < 1024 && !told.contains(['\n', '\u{202e}']), "{} bytes: {told:.300}", told.len());
}
