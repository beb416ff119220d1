//! Cuts of results, against a validator; pages, lines, pointers; what is kept, for whom, and for how long.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::boot::Boot;
use crate::config::{ResultLimits, Results, ToolResults};
use crate::protocol::Raw;

const KEEP: Duration = Duration::from_secs(60);
const TELL: Tell<'static> = Tell { tool: "read_result", keep: KEEP, takes_links: true };

fn results(limit: usize, preview: usize) -> ResultLimits {
    let mut results = Results::default();
    (results.limit, results.preview) = (limit, preview);
    results.of_tool(ToolResults::default())
}

fn definition(schema: &Value) -> Raw {
    Raw::from_value(&json!({ "name": "t", "inputSchema": { "type": "object" }, "outputSchema": schema }))
}

/// Cuts a result, and returns what the client gets, and what is kept.
fn head(result: &Value, definition: Option<&Raw>, results: &ResultLimits) -> Option<(Value, Option<Held>)> {
    let raw = Raw::from_value(result);
    let mut cut = cut(&raw, definition, results)?;
    let media = cut.take_media();
    let ids: Vec<String> = (0..media.len()).map(|number| format!("m{number}")).collect();
    let text = cut.take_text();
    let answer = cut.answer(&raw, text.as_ref().map(|_| "t1"), &ids, &TELL);
    Some((answer.read().unwrap(), text))
}

fn said(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

#[test]
fn a_long_text_begins_and_its_pages_are_the_text() {
    let text: String = (0..2000).map(|number| format!("line {number}\n")).collect();
    let (answer, held) = head(&said(&text), None, &results(4000, 100)).unwrap();
    let begun = answer["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with(begun) && begun.len() <= 100 && begun.ends_with('\n'), "{begun}");
    let Some(Held::Text { text: part, .. }) = held else { panic!("no text") };
    let pages: Vec<&str> = (1..=part.pages()).map(|page| part.page(page).unwrap()).collect();
    assert!(
        pages.len() > 4 && pages.concat() == text && pages[..pages.len() - 1].iter().all(|page| page.ends_with('\n'))
    );
    assert_eq!(answer["_meta"]["mcp-host/cut"], json!({ "id": "t1", "bytes": text.len(), "pages": pages.len() }));
    insta::assert_snapshot!(answer["content"][1]["text"].as_str().unwrap(), @r#"[mcp-host: this is the beginning of a result of 18890 bytes. read_result with id "t1" and a page from 1 to 5 gives the rest. With match, it gives the lines that have a text. It is kept for 60s.]"#);
    assert_eq!(answer["content"][2]["uri"], "mcp-host+result://t1");
}

#[test]
fn what_is_small_or_no_plain_result_stays() {
    let long = "x".repeat(5000);
    let mut error = said(&long);
    error["isError"] = json!(true);
    let question = json!({ "resultType": "input_required", "inputRequests": { "a": long } });
    let task = json!({ "task": { "taskId": "1" }, "content": [{ "type": "text", "text": long }] });
    for (result, limit) in [(said(&long), 5000), (error, 100), (question, 100), (task, 100), (said(&long), 0)] {
        assert!(head(&result, None, &results(limit, 100)).is_none(), "{result}");
    }
    let tool = json!({ "name": "t", "_meta": { "anthropic/maxResultSizeChars": 6000 } });
    assert!(head(&said(&long), Some(&Raw::from_value(&tool)), &results(100, 100)).is_none());
    // What the config says of the tool itself holds.
    let own = ToolResults { limit: Some(100), ..ToolResults::default() };
    let limits = Results::default().of_tool(own);
    assert!(head(&said(&long), Some(&Raw::from_value(&tool)), &limits).is_some());
}

#[test]
fn a_text_that_repeats_the_structured_content_goes_first() {
    let structured =
        json!({ "items": (0..300).map(|id| json!({ "id": id, "text": "word ".repeat(30) })).collect::<Vec<_>>() });
    let result = json!({ "content": [{ "type": "text", "text": structured.to_string() }, { "type": "image", "data": "AAAA", "mimeType": "image/png" }],
        "structuredContent": structured });
    let schema = json!({ "type": "object", "properties": { "items": { "type": "array", "items": { "type": "object" } } }, "required": ["items"] });
    let (answer, held) = head(&result, Some(&definition(&schema)), &results(2000, 1000)).unwrap();
    assert_eq!(answer["content"][0]["type"], "image", "{answer}");
    assert!(
        answer["structuredContent"].to_string().len() <= 1000 && answer["structuredContent"]["items"][0]["id"] == 0
    );
    assert!(jsonschema::is_valid(&schema, &answer["structuredContent"]));
    let Some(Held::Text { text, structured: Some(kept) }) = held else { panic!("nothing kept") };
    assert_eq!(serde_json::from_str::<Value>(text.text()).unwrap(), structured);
    assert_eq!(pointed(&kept, "/items/299/id").unwrap(), "299");
    insta::assert_snapshot!([pointed(&kept, "/items/300"), pointed(&kept, "items")].map(Result::unwrap_err).join("\n"), @r#"
    nothing is at "300"
    "items" is no JSON pointer: it begins with `/`, as in "/_meta/updatedAt"
    "#);
    insta::assert_snapshot!(answer["content"][1]["text"].as_str().unwrap(), @r#"[mcp-host: this is the beginning of a result of 51201 bytes. In structuredContent, arrays end early and long strings end with …. read_result with id "t1" and a page from 1 to 26 gives the rest. With match, it gives the lines that have a text, and with pointer one part of structuredContent, such as "/items/0". It is kept for 60s.]"#);
}

#[test]
fn images_over_their_limit_become_links_in_their_place() {
    let block = |kind: &str, size: usize| json!({ "type": kind, "data": "A".repeat(size), "mimeType": "x/y" });
    let blob = json!({ "type": "resource", "resource": { "uri": "file:///b", "blob": "A".repeat(50) } });
    let text = json!({ "type": "text", "text": "a" });
    let result = json!({ "content": [block("image", 50), text, block("audio", 50), block("image", 8), blob] });
    let mut limits = results(0, 100);
    limits.results.image = 8;
    let (answer, held) = head(&result, None, &limits).unwrap();
    let kinds: Vec<&str> =
        answer["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["resource_link", "text", "resource_link", "image", "resource_link"]);
    let first = json!({ "type": "resource_link", "uri": "mcp-host+result://m0", "name": "image", "size": 50, "mimeType": "x/y" });
    assert_eq!(answer["content"][0], first);
    assert_eq!(answer["content"][4]["name"], "file:///b");
    assert!(held.is_none() && answer.get("_meta").is_none());
}

#[test]
fn lines_are_found_and_long_ones_are_shown_around_each_place() {
    let long = format!("{}needle{}Needle{}", "a".repeat(2000), "ä".repeat(2000), "b".repeat(2000));
    let text = format!("one Needle\ntwo\n{long}\nneedles");
    let (found, count) = matching(&text, "NEEDLE");
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!((count, lines.len(), lines[0], lines[3]), (3, 4, "1: one Needle", "4: needles"));
    assert!(lines[1].starts_with("3: …aaa") && lines[1].len() < 600 && lines[2].contains("Needle"), "{found}");
    assert_eq!(matching(&text, "none"), (String::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_given_to_its_owner_alone_and_for_its_time() {
    let store: Store<&str, u8> = Store::default();
    let room = Room { of_one: 4096, of_all: 32 * 1024 };
    let put = |owner, size: usize| store.put(owner, Held::blob("x".repeat(size), None), KEEP, room);
    let id = put(("ann", 1), 1000).unwrap();
    assert!(store.get(&("ann", 1), &id).is_ok());
    for (owner, id) in [(("ann", 2), &*id), (("bob", 1), &*id), (("ann", 1), "0")] {
        assert_eq!(store.get(&owner, id).unwrap_err(), Lost::Unknown);
    }
    // The oldest of the same principal makes room, in whatever view it was.
    let others: Vec<_> = (0..3).map(|_| put(("ann", 2), 1000).unwrap()).collect();
    assert_eq!(store.get(&("ann", 1), &id).unwrap_err(), Lost::Expired);
    assert!(others.iter().all(|id| store.get(&("ann", 2), id).is_ok()) && put(("ann", 1), 5000).is_none());
    // One sweeps, until nothing is left.
    assert!(store.needs_sweeping() && !store.needs_sweeping());
    assert_eq!(store.sweep(), Some(tokio::time::Instant::now() + KEEP));
    tokio::time::advance(KEEP).await;
    assert_eq!((store.sweep(), store.count(), store.used()), (None, 0, 0));
    assert!(store.needs_sweeping());
    assert_eq!(store.get(&("ann", 2), &others[0]).unwrap_err(), Lost::Expired);
}

#[tokio::test(start_paused = true)]
async fn h110_an_id_says_which_replica_keeps_the_result() {
    let (here, there) = (Boot([1; 8]), Boot([2; 8]));
    let room = Room { of_one: 4096, of_all: 4096 };
    let put = |home| {
        let store: Store<&str, u8> = Store::of(home);
        let id = store.put(("ann", 1), Held::blob("x".to_owned(), None), KEEP, room).unwrap();
        (store, id)
    };
    let ((one, id), (other, foreign), (_, alone)) = (put(Some(here)), put(Some(there)), put(None));
    assert_eq!([&id, &foreign, &alone].map(|id| home_of(id)), [Some(here), Some(there), None]);
    assert!(one.get(&("ann", 1), &id).is_ok() && other.get(&("ann", 1), &foreign).is_ok());
    // Who comes here with the id of another replica comes because that one is gone.
    assert_eq!(one.get(&("ann", 1), &foreign).unwrap_err(), Lost::Expired);
    assert_eq!(one.get(&("bob", 1), &id).unwrap_err(), Lost::Unknown);
}

#[tokio::test(start_paused = true)]
async fn limit_results_of_all_principals_the_oldest_go() {
    const ENTRY: usize = 1256;
    let store: Store<String, u8> = Store::default();
    let room = Room { of_one: 2 * ENTRY, of_all: 3 * ENTRY };
    let put =
        |name: &str, size: usize, room| store.put((name.to_owned(), 0), Held::blob("x".repeat(size), None), KEEP, room);
    let ids: Vec<String> = ["a", "b", "c"].map(|name| put(name, 1000, room).unwrap()).to_vec();
    assert_eq!((store.count(), store.used()), (3, 3 * ENTRY), "at the limit all stay");
    put("d", 1000, room).unwrap();
    assert_eq!((store.count(), store.used()), (3, 3 * ENTRY));
    assert_eq!(store.get(&("a".to_owned(), 0), &ids[0]).unwrap_err(), Lost::Expired);
    assert!(store.get(&("b".to_owned(), 0), &ids[1]).is_ok());
    // One that is larger than all together may be is not kept, and nothing goes for it.
    assert!(put("e", 1001, Room { of_one: 9 * ENTRY, of_all: ENTRY }).is_none());
    assert_eq!(store.count(), 3);
}

/// A schema of any shape, with keywords that do and do not let values be shorter.
fn schemas() -> impl Strategy<Value = Value> {
    let string = prop_oneof![
        Just(json!({ "type": "string" })),
        (0usize..60).prop_map(|least| json!({ "type": "string", "minLength": least, "x-note": 1 })),
        Just(json!({ "type": "string", "maxLength": 5000, "title": "t" })),
        Just(json!({ "type": "string", "pattern": "e$" })),
        Just(json!({ "enum": ["a".repeat(300), "b".repeat(300)] })),
        Just(json!({ "$ref": "#/$defs/word" })),
        Just(json!({ "type": ["string", "null"], "format": "uri" })),
        Just(json!({ "not": { "maxLength": 200 } })),
        Just(json!(true)),
    ];
    string.prop_recursive(3, 12, 3, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            (inner.clone(), 0usize..6)
                .prop_map(|(of, least)| json!({ "type": "array", "items": of, "minItems": least })),
            inner.clone().prop_map(|of| json!({ "type": "array", "items": of, "uniqueItems": true })),
            inner.clone().prop_map(|of| json!({ "type": "array", "contains": of })),
            inner.clone().prop_map(|of| json!({ "anyOf": [of, { "type": "null" }] })),
            pair.clone().prop_map(|(a, b)| json!({ "oneOf": [a, b] })),
            inner.clone().prop_map(|of| json!({ "allOf": [of] })),
            pair.clone()
                .prop_map(|(a, b)| json!({ "type": "object", "properties": { "a": a, "b": b }, "required": ["a"] })),
            inner.prop_map(|of| json!({ "type": "object", "properties": { "a": of }, "additionalProperties": false })),
            pair.prop_map(
                |(a, b)| json!({ "type": "object", "patternProperties": { "^a": a }, "additionalProperties": b })
            ),
        ]
    })
}

/// A value of any shape, with long strings and arrays.
fn values() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        (0usize..400).prop_map(|length| json!("e".repeat(length))),
        Just(json!("a".repeat(300))),
        "\\PC{0,80}".prop_map(Value::from),
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
    ];
    word.prop_recursive(3, 40, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..40).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|all| all.into_iter().collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_was_valid_is_valid_once_it_is_cut(of in schemas(), value in values(), preview in 1usize..2000) {
        let schema = json!({ "type": "object", "properties": { "v": of }, "$defs": { "word": { "type": "string", "minLength": 2 } } });
        let structured = json!({ "v": value });
        let validator = jsonschema::validator_for(&schema).unwrap();
        let result = json!({ "content": [], "structuredContent": structured });
        if let Some((answer, _)) = head(&result, Some(&definition(&schema)), &results(50, preview)) {
            let shorter = &answer["structuredContent"];
            prop_assert!(!validator.is_valid(&structured) || validator.is_valid(shorter), "{schema}\n{structured}\n{shorter}");
            prop_assert!(shorter.to_string().len() <= structured.to_string().len());
        }
    }

    #[test]
    fn pages_joined_are_the_text(text in "(\\PC|\n){0,3000}", most in 0usize..700) {
        let part = Part::new(text.clone(), most);
        let pages: Vec<&str> = (1..=part.pages()).map(|page| part.page(page).unwrap()).collect();
        prop_assert_eq!(pages.concat(), text);
        prop_assert!(pages.iter().all(|page| page.len() <= most.max(256)));
        prop_assert!(part.page(0).is_none() && part.page(pages.len() + 1).is_none());
    }
}
