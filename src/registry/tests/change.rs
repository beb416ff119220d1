//! Changes: each member changed alone is found at its path, and a reordered definition has no changes.

use proptest::prelude::*;
use serde_json::json;

use super::super::change::{Change, Class, changes, is_mild};
use super::super::pin::Pin;
use super::super::shingles::Shingles;
use super::pin::some_json;
use super::*;
use crate::protocol::Pointer;

fn diff(before: &Value, after: &Value) -> Vec<Change> {
    let (before, after) = (Raw::from_value(before), Raw::from_value(after));
    changes(Some(&before), Some(&after), &[])
}

/// Returns the classes and paths of the changes.
fn told(before: &Value, after: &Value) -> Vec<String> {
    diff(before, after).iter().map(|change| format!("{} {}", change.class, change.path)).collect()
}

/// Returns the reported changes of an input schema, without the path of the schema.
fn schema(before: &Value, after: &Value) -> Vec<String> {
    let tool = |schema: &Value| json!({ "name": "t", "inputSchema": schema });
    told(&tool(before), &tool(after)).iter().map(|told| told.replace("/inputSchema", "")).collect()
}

fn tool() -> Value {
    json!({
        "name": "create_issue", "title": "Create", "description": "Creates an issue.",
        "icons": [{ "src": "https://a.example/i.png", "sizes": ["48x48"] }],
        "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "title": "Input",
            "required": ["title"], "additionalProperties": false, "minProperties": 1, "$defs": { "d": { "type": "null" } },
            "properties": {
                "title": { "type": "string", "description": "The title.", "minLength": 1, "maxLength": 80, "pattern": "x" },
                "labels": { "type": "array", "items": { "type": "string", "enum": ["a", "b"] }, "uniqueItems": true },
                "way": { "anyOf": [{ "const": 1 }, { "type": "string", "format": "uri" }], "default": 1, "examples": [1] },
                "n": { "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2, "allOf": [{ "not": { "const": 4 } }] },
            },
        },
        "outputSchema": { "type": "object", "properties": { "id": { "type": "string", "description": "Its id." } } },
        "annotations": { "title": "C", "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true },
        "execution": { "taskSupport": "optional" },
        "_meta": { "a.example/x": { "deep": [1, { "er": null }] } },
        "vendor": "x",
    })
}

fn prompt() -> Value {
    json!({
        "name": "review", "title": "Review", "description": "Reviews.", "icons": [], "_meta": { "a": 1 },
        "arguments": [{ "name": "code", "title": "Code", "description": "The code.", "required": true }, { "name": "style" }],
    })
}

fn template() -> Value {
    json!({
        "name": "file", "uriTemplate": "file:///{path}", "title": "File", "description": "A file.", "mimeType": "text/plain",
        "annotations": { "audience": ["user"], "priority": 0.5 }, "_meta": {}, "icons": [{ "src": "x:y" }],
    })
}

/// Returns all values below `value` by their pointers.
fn pointers(value: &Value, path: &str, found: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.replace('/', "~1"), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        _ => return,
    };
    for (name, value) in inner {
        let path = format!("{path}/{name}");
        pointers(value, &path, found);
        found.push(path);
    }
}

fn without(value: &Value, pointer: &str) -> Value {
    let mut value = value.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Object(members) => drop(members.remove(&name.replace("~1", "/"))),
        Value::Array(items) => drop(items.remove(name.parse().unwrap())),
        _ => unreachable!("only these have something inside"),
    }
    value
}

#[test]
fn each_member_changed_alone_is_found() {
    for definition in [tool(), prompt(), template()] {
        let mut all = Vec::new();
        pointers(&definition, "", &mut all);
        assert!(all.len() > 10);
        for pointer in all {
            let mut others = vec![without(&definition, &pointer)];
            for new in [json!("new text"), json!(7), json!(true), json!(null), json!({ "new": 1 }), json!(["new"])] {
                let mut other = definition.clone();
                *other.pointer_mut(&pointer).unwrap() = new;
                others.push(other);
            }
            for other in others.iter().filter(|other| **other != definition) {
                for (before, after) in [(&definition, other), (other, &definition)] {
                    let found = diff(before, after);
                    assert!(!found.is_empty(), "{pointer}: {before} {after}");
                    for change in &found {
                        // The change is where the pointer leads, or around, or a part of what came or went.
                        let near = pointer.starts_with(&change.path) || change.path.starts_with(&pointer);
                        assert!(near, "{pointer}: {change:?}");
                        assert!(change.before != change.after, "{pointer}: {change:?}");
                    }
                    // Whatever adds a text to the definition is never mild.
                    if after.to_string().contains("new text") {
                        assert!(!is_mild(&found), "{pointer}: {found:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_new_member_is_found_at_every_place() {
    for definition in [tool(), prompt(), template()] {
        let mut all = vec![String::new()];
        pointers(&definition, "", &mut all);
        for pointer in all {
            let mut other = definition.clone();
            match other.pointer_mut(&pointer).unwrap() {
                Value::Object(members) => drop(members.insert("new".to_owned(), json!({ "text": "new text" }))),
                Value::Array(items) => items.push(json!("new text")),
                _ => continue,
            }
            let found = diff(&definition, &other);
            assert!(!found.is_empty() && !is_mild(&found), "{pointer}: {found:?}");
        }
    }
}

#[test]
fn a_reordered_definition_has_no_changes() {
    for definition in [tool(), prompt(), template()] {
        let text = definition.to_string();
        // From the last to the first member, spelled otherwise.
        fn reversed(value: &Value) -> String {
            match value {
                Value::Object(members) => {
                    let members: Vec<_> = members
                        .iter()
                        .rev()
                        .map(|(key, value)| format!("{}: {}", json!(key), reversed(value)))
                        .collect();
                    format!("{{ {} }}", members.join(" ,\n"))
                }
                Value::Array(items) => format!("[{}]", items.iter().map(reversed).collect::<Vec<_>>().join(", ")),
                other => other.to_string().replace('a', "\\u0061").replace("f\\u0061lse", "false"),
            }
        }
        let other = reversed(&definition);
        assert_ne!(text, other);
        assert_eq!(changes(Some(&raw(&text)), Some(&raw(&other)), &[]), []);
        assert_eq!(Pin::of(&raw(&text), &[]), Pin::of(&raw(&other), &[]));
    }
}

#[test]
fn what_comes_and_goes() {
    let one = raw(r#"{"name":"a","description":"x"}"#);
    let shown = Some(r#"{"description":"x","name":"a"}"#.to_owned());
    let added = Change { class: Class::Added, path: String::new(), before: None, after: shown.clone() };
    let removed = Change { class: Class::Removed, path: String::new(), before: shown, after: None };
    assert_eq!(changes(None, Some(&one), &[]), std::slice::from_ref(&added));
    assert_eq!(changes(Some(&one), None, &[]), std::slice::from_ref(&removed));
    assert_eq!(changes(None, None, &[]), []);
    assert!(is_mild(std::slice::from_ref(&removed)) && !is_mild(&[added, removed]) && is_mild(&[]));
}

#[test]
fn instructions_are_texts() {
    let (before, after) = (Raw::from_value("a\u{1b}"), Raw::from_value(&"é".repeat(300)));
    let expected = Change {
        class: Class::Text,
        path: String::new(),
        before: Some("a\u{1b}".to_owned()),
        after: Some("é".repeat(200) + "…"),
    };
    assert_eq!(changes(Some(&before), Some(&after), &[]), [expected]);
}

#[test]
fn what_pins_leave_out_is_no_change() {
    let (before, after) = (raw(r#"{"name":"a","_meta":{"t":1,"u":1}}"#), raw(r#"{"name":"a","_meta":{"t":2,"u":1}}"#));
    let ignore = [Pointer::parse("/_meta/t").unwrap()];
    assert_eq!(changes(Some(&before), Some(&after), &ignore), []);
    let found = changes(Some(&before), Some(&after), &[]);
    assert_eq!((found.len(), found[0].path.as_str(), found[0].class), (1, "/_meta/t", Class::Other));
}

#[test]
fn hints_that_ask_for_more_trust_are_laxer() {
    let cases = [
        ("readOnlyHint", ["true", "", "false"]),
        ("idempotentHint", ["true", "", "false"]),
        ("destructiveHint", ["false", "", "true"]),
        ("openWorldHint", ["false", "", "true"]),
    ];
    for (hint, order) in cases {
        let tool = |value: &str| match value {
            "" => raw(r#"{"name":"a","annotations":{}}"#),
            value => raw(&format!(r#"{{"name":"a","annotations":{{"{hint}":{value}}}}}"#)),
        };
        for (lax, strict) in [(0, 1), (1, 2), (0, 2)] {
            let (lax, strict) = (tool(order[lax]), tool(order[strict]));
            let path = format!("/annotations/{hint}");
            for (before, after, class) in [(&strict, &lax, Class::HintsLaxer), (&lax, &strict, Class::HintsStricter)] {
                let found = changes(Some(before), Some(after), &[]);
                assert_eq!(found.len(), 1);
                assert_eq!((found[0].class, found[0].path.as_str()), (class, path.as_str()));
                assert_eq!(is_mild(&found), class == Class::HintsStricter);
            }
        }
    }
    // All at once, with a title.
    let (none, all) =
        (json!({ "name": "a" }), json!({ "name": "a", "annotations": { "readOnlyHint": true, "title": "A" } }));
    assert_eq!(told(&none, &all), ["hints+ /annotations/readOnlyHint", "text /annotations/title"]);
    let (one, two) =
        (json!({ "annotations": { "readOnlyHint": "yes" } }), json!({ "annotations": { "readOnlyHint": 1 } }));
    assert_eq!(told(&one, &two), ["other /annotations/readOnlyHint"]);
}

#[test]
fn schemas_become_wider_and_narrower() {
    let text = json!({ "type": "string" });
    // The narrower one, the wider one, and where they differ.
    let cases = [
        (json!({}), json!({ "properties": { "a": text } }), "/properties/a"),
        (
            json!({ "properties": { "a": text }, "required": ["a"] }),
            json!({ "properties": { "a": text } }),
            "/required",
        ),
        (json!({ "enum": [1] }), json!({ "enum": [2, 1] }), "/enum"),
        (json!({ "enum": [1] }), json!({}), "/enum"),
        (json!({ "type": "string" }), json!({ "type": ["string", "null"] }), "/type"),
        (json!({ "type": "integer" }), json!({ "type": "number" }), "/type"),
        (json!({ "type": "integer" }), json!({}), "/type"),
        (json!({ "minLength": 2 }), json!({ "minLength": 1 }), "/minLength"),
        (json!({ "minimum": 2 }), json!({}), "/minimum"),
        (json!({ "maxItems": 2 }), json!({ "maxItems": 3.5 }), "/maxItems"),
        (json!({ "maximum": 2 }), json!({}), "/maximum"),
        (json!({ "uniqueItems": true }), json!({}), "/uniqueItems"),
        (json!({ "multipleOf": 2 }), json!({}), "/multipleOf"),
        (json!({ "const": 2 }), json!({}), "/const"),
        (json!({ "not": { "const": 2 } }), json!({}), "/not"),
        (json!({ "additionalProperties": false }), json!({}), "/additionalProperties"),
        (json!({ "additionalProperties": false }), json!({ "additionalProperties": text }), "/additionalProperties"),
        (
            json!({ "additionalProperties": text }),
            json!({ "additionalProperties": true }),
            "/additionalProperties/type",
        ),
        (json!({ "items": { "enum": [1] } }), json!({ "items": { "enum": [1, 2] } }), "/items/enum"),
        (json!({ "anyOf": [text] }), json!({ "anyOf": [{ "type": "null" }, text] }), "/anyOf"),
        (json!({ "allOf": [{ "minimum": 1 }, { "maximum": 2 }] }), json!({ "allOf": [{ "maximum": 2 }] }), "/allOf"),
        (
            json!({ "anyOf": [{ "minimum": 2 }, text] }),
            json!({ "anyOf": [{ "minimum": 1 }, text] }),
            "/anyOf/0/minimum",
        ),
        (
            json!({ "prefixItems": [{ "minimum": 2 }] }),
            json!({ "prefixItems": [{ "minimum": 1 }] }),
            "/prefixItems/0/minimum",
        ),
    ];
    for (narrow, wide, path) in cases {
        assert_eq!(schema(&narrow, &wide), [format!("arguments+ {path}")], "{narrow} {wide}");
        assert_eq!(schema(&wide, &narrow), [format!("arguments- {path}")], "{wide} {narrow}");
    }
    // Both at once.
    let both = [
        (json!({ "type": "string" }), json!({ "type": "integer" }), "/type"),
        (json!({ "enum": [1, 2] }), json!({ "enum": [2, 3] }), "/enum"),
        (json!({ "multipleOf": 2 }), json!({ "multipleOf": 3 }), "/multipleOf"),
        (json!({ "const": 2 }), json!({ "const": 3 }), "/const"),
        (json!({ "exclusiveMinimum": true }), json!({ "exclusiveMinimum": 1 }), "/exclusiveMinimum"),
        (json!({ "items": [{}] }), json!({ "items": {} }), "/items"),
        (json!({ "if": { "minimum": 1 } }), json!({ "if": { "minimum": 2 } }), "/if"),
    ];
    for (before, after, path) in both {
        assert_eq!(schema(&before, &after), [format!("arguments+ {path}"), format!("arguments- {path}")]);
    }
    // A new argument that must be sent, and what is only said otherwise.
    assert_eq!(
        schema(&json!({}), &json!({ "properties": { "a": text }, "required": ["a"] })),
        ["arguments+ /properties/a", "arguments- /required", "text /required"]
    );
    assert_eq!(schema(&json!({ "enum": [1, 2] }), &json!({ "enum": [2, 1] })), ["other /enum"]);
    assert_eq!(schema(&json!({ "type": "string" }), &json!({ "type": ["string"] })), ["other /type"]);
    assert_eq!(schema(&json!({ "items": true }), &json!({})), ["other /items"]);
    assert_eq!(schema(&json!({ "default": 1 }), &json!({ "default": 2 })), ["other /default"]);
    let (one, two) =
        (json!({ "properties": { "a": { "title": "x" } } }), json!({ "properties": { "a": { "title": "y" } } }));
    assert_eq!(schema(&one, &two), ["text /properties/a/title"]);
}

#[test]
fn what_is_narrower_and_says_something_new_is_not_mild() {
    let before = json!({ "properties": { "a": { "type": "string" } } });
    let cases = [
        json!({ "properties": { "a": { "type": "string", "enum": ["read ~/.ssh first"] } } }),
        json!({ "properties": { "a": { "type": "string", "pattern": "^do not tell$" } } }),
        json!({ "properties": { "a": { "type": "string", "not": { "description": "x" } } } }),
        json!({ "properties": { "a": { "type": "string" } }, "allOf": [{ "$comment": "x" }] }),
        json!({ "properties": { "a": { "type": "string" } }, "required": ["content of the key"] }),
    ];
    for after in cases {
        let tool = |schema: &Value| json!({ "name": "t", "inputSchema": schema });
        let found = diff(&tool(&before), &tool(&after));
        assert!(!is_mild(&found), "{found:?}");
        assert!(found.iter().any(|change| change.class == Class::ArgumentsNarrower), "{found:?}");
    }
    let mild = json!({ "properties": { "a": { "type": "string", "maxLength": 3 } }, "required": ["a"] });
    let tool = |schema: &Value| json!({ "name": "t", "inputSchema": schema });
    assert!(is_mild(&diff(&tool(&before), &tool(&mild))));
}

#[test]
fn results_and_their_texts() {
    let before = tool();
    let mut after = before.clone();
    after["outputSchema"]["properties"]["id"] = json!({ "type": "integer", "description": "Another." });
    after["outputSchema"]["properties"]["description"] = json!({});
    assert_eq!(
        told(&before, &after),
        [
            "text /outputSchema/properties/id/description",
            "result /outputSchema/properties/id/type",
            "result /outputSchema/properties/description"
        ]
    );
}

#[test]
fn arguments_of_prompts() {
    let with = |arguments: Value| json!({ "name": "p", "arguments": arguments });
    let before = with(json!([{ "name": "a" }, { "name": "b", "required": true }]));
    let cases = [
        (json!([{ "name": "a" }, { "name": "b", "required": true }, { "name": "c" }]), vec!["arguments+ /arguments/2"]),
        (
            json!([{ "name": "c", "required": true }, { "name": "a" }, { "name": "b", "required": true }]),
            vec!["arguments+ /arguments/0", "arguments- /arguments/0"],
        ),
        (json!([{ "name": "b", "required": true }]), vec!["arguments- /arguments/0"]),
        (json!([{ "name": "a" }, { "name": "b", "required": false }]), vec!["arguments+ /arguments/1/required"]),
        (
            json!([{ "name": "a", "required": true }, { "name": "b", "required": true }]),
            vec!["arguments- /arguments/0/required"],
        ),
        (json!([{ "name": "b", "required": true }, { "name": "a" }]), vec!["other /arguments"]),
        (
            json!([{ "name": "a", "description": "x" }, { "name": "b", "required": true }]),
            vec!["text /arguments/0/description"],
        ),
        (json!([{ "name": "a" }, { "name": "a" }]), vec!["other /arguments"]),
        (json!("x"), vec!["other /arguments"]),
    ];
    for (after, expected) in cases {
        assert_eq!(told(&before, &with(after)), expected);
    }
}

#[test]
fn members_with_equal_names_count() {
    let (before, after) = (raw(r#"{"name":"a","x":1,"x":2}"#), raw(r#"{"name":"a","x":2,"x":1}"#));
    assert_eq!(changes(Some(&before), Some(&after), &[]).len(), 1);
    let (before, after) =
        (raw(r#"{"inputSchema":{"type":"object","type":1}}"#), raw(r#"{"inputSchema":{"type":1,"type":"object"}}"#));
    let found = changes(Some(&before), Some(&after), &[]);
    assert_eq!(
        found.iter().map(|change| change.class).collect::<Vec<_>>(),
        [Class::ArgumentsWider, Class::ArgumentsNarrower]
    );
}

#[test]
fn what_is_deep_is_compared_as_a_whole() {
    let deep = |depth: usize, last: &str| {
        let text = format!(r#"{{"inputSchema":{}{last}{}}}"#, r#"{"items":"#.repeat(depth), "}".repeat(depth));
        Raw::trusted(text.into())
    };
    for depth in [60, 70, 20_000] {
        let found = changes(Some(&deep(depth, r#"{"minimum":1}"#)), Some(&deep(depth, r#"{"minimum":2}"#)), &[]);
        assert!(found.iter().any(|change| change.class == Class::ArgumentsNarrower), "{depth}: {found:?}");
        assert_eq!(found.len(), if depth == 60 { 1 } else { 2 });
    }
}

#[test]
fn a_renamed_tool_is_like_the_one_before() {
    let shingles = |value: &Value| Shingles::of(&Raw::from_value(value));
    let before = tool();
    let mut renamed = before.clone();
    renamed["name"] = json!("issue_create");
    assert_eq!(shingles(&before).likeness(&shingles(&renamed)), 1.0);
    renamed["description"] = json!("Creates an issue here.");
    let likeness = shingles(&before).likeness(&shingles(&renamed));
    assert!((0.8..1.0).contains(&likeness), "{likeness}");
    let other = json!({ "name": "list_issues", "description": "Lists the issues of a project.", "inputSchema": {} });
    assert!(shingles(&before).likeness(&shingles(&other)) < 0.2);
    // Nothing is said about them.
    let bare = shingles(&json!({ "name": "a" }));
    assert_eq!((bare.len(), bare.likeness(&bare)), (0, 0.0));
    assert!(shingles(&prompt()).likeness(&shingles(&prompt())) > 0.99);
}

proptest! {
    #[test]
    fn there_are_changes_if_and_only_if_the_pins_differ(
        one in [some_json(), some_json(), some_json()],
        other in [some_json(), some_json(), some_json()],
        same in 0_usize..8,
    ) {
        for place in ["inputSchema", "outputSchema", "annotations", "arguments", "_meta"] {
            let definition = |[a, b, c]: [&Value; 3]| {
                let inner = json!({ "properties": { "a": a }, "type": a, "enum": b, "anyOf": [c, a], "required": b, "items": c, "minimum": c });
                json!({ "name": "a", "title": c, (place): inner, "x": a })
            };
            let mixed: Vec<_> = (0..3).map(|at| if same >> at & 1 == 1 { &one[at] } else { &other[at] }).collect();
            let before = Raw::from_value(&definition([&one[0], &one[1], &one[2]]));
            let after = Raw::from_value(&definition([mixed[0], mixed[1], mixed[2]]));
            let found = changes(Some(&before), Some(&after), &[]);
            prop_assert_eq!(found.is_empty(), Pin::of(&before, &[]) == Pin::of(&after, &[]), "{} {}", before, after);
        }
    }
}
