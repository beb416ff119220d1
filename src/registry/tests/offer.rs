//! From pages to offers: H40, H41, H42, H88.

use proptest::prelude::*;

use super::*;
use crate::protocol::value::array;

fn builder() -> OfferBuilder {
    OfferBuilder::new(Caps::default(), ParamHeaders::Ignore)
}

fn shown(offer: &Offer) -> Vec<String> {
    let list = offer.list(Kind::Tools);
    list.definitions.iter().map(|tool| tool.json.to_string()).collect()
}

#[test]
fn h40_pages_until_there_is_no_cursor() {
    let mut builder = builder();
    let one = |name: &str, next| page(Kind::Tools, &tool(name), next);
    assert_eq!(builder.page(Kind::Tools, &one("a", Some(""))), Ok(Some(String::new())));
    assert_eq!(builder.page(Kind::Tools, &one("b", Some("x"))), Ok(Some("x".to_owned())));
    assert_eq!(builder.page(Kind::Tools, &raw(r#"{"tools":[],"nextCursor":null}"#)), Ok(None));
    let offer = builder.finish();
    assert_eq!(offer.count(Kind::Tools), 2);
    assert!(offer.has(Kind::Tools) && !offer.failed(Kind::Tools) && !offer.has(Kind::Prompts));
    assert_eq!(offer.problems().count(), 0);
}

#[test]
fn h40_circles_and_endless_lists_fail() {
    let next = |cursor: &str| page(Kind::Tools, &tool("a"), Some(cursor));
    for cursors in [&["A", "B", "A"][..], &["A", "A"], &["", ""]] {
        let mut builder = builder();
        let (last, first) = cursors.split_last().unwrap();
        for cursor in first {
            assert_eq!(builder.page(Kind::Tools, &next(cursor)), Ok(Some((*cursor).to_owned())));
        }
        assert_eq!(builder.page(Kind::Tools, &next(last)), Err(PageError::Repeated(Kind::Tools)));
        let offer = builder.finish();
        assert_eq!((offer.count(Kind::Tools), offer.failed(Kind::Tools)), (0, true), "never a part as the whole");
    }
    let mut builder = builder();
    for cursor in 1..100 {
        assert!(builder.page(Kind::Tools, &next(&cursor.to_string())).is_ok());
    }
    let error = builder.page(Kind::Tools, &next("100")).unwrap_err();
    assert_eq!(error, PageError::TooManyPages { kind: Kind::Tools, pages: 100 });
}

#[test]
fn h40_what_is_no_page_fails_the_list_and_the_last_good_one_stays() {
    for bad in ["{}", "[]", "3", r#"{"tools":{}}"#, r#"{"tools":[],"nextCursor":3}"#, r#"{"prompts":[]}"#] {
        let mut builder = builder();
        assert!(builder.page(Kind::Tools, &raw(bad)).is_err(), "{bad}");
        builder.keep(Kind::Tools, &tools(&["good"]));
        let offer = builder.finish();
        assert_eq!((offer.count(Kind::Tools), offer.failed(Kind::Tools)), (1, true));
        assert!(offer.problems().any(|text| text.ends_with("the last good list is shown")));
    }
    let mut half = builder();
    half.page(Kind::Tools, &page(Kind::Tools, &tool("a"), Some("more"))).unwrap();
    let offer = half.finish();
    assert_eq!((offer.count(Kind::Tools), offer.failed(Kind::Tools), offer.has(Kind::Tools)), (0, true, true));
}

#[test]
fn equal_offers_have_equal_hashes() {
    assert_eq!(tools(&["a", "b"]).hash(), tools(&["a", "b"]).hash());
    assert_ne!(tools(&["a", "b"]).hash(), tools(&["b", "a"]).hash());
    assert_ne!(tools(&[]).hash(), Offer::default().hash());
    let mut kept = builder();
    kept.keep(Kind::Tools, &tools(&["a"]));
    assert_eq!(kept.finish().hash(), tools(&["a"]).hash());
}

#[test]
fn h41_what_has_one_meaning_is_mended() {
    let any = r#""inputSchema":{"type":"object"}"#;
    let table = [
        (r#"{"name":"t"}"#, format!(r#"{{"name":"t",{any}}}"#)),
        (r#"{"name":"t","inputSchema":null}"#, format!(r#"{{"name":"t",{any}}}"#)),
        (r#"{"inputSchema":{},"name":"t"}"#, format!(r#"{{{any},"name":"t"}}"#)),
        (r#"{"name":"t","inputSchema":{"type":["object"]}}"#, format!(r#"{{"name":"t",{any}}}"#)),
        (
            r#"{"name":"t","inputSchema":{"properties":[1],"required":{},"type":"object","x":1}}"#,
            r#"{"name":"t","inputSchema":{"type":"object","x":1}}"#.to_owned(),
        ),
        (r#"{"name":"t","inputSchema":{"properties":3}}"#, format!(r#"{{"name":"t",{any}}}"#)),
        (r#"{"name":"t","inputSchema":{"type":"object","required":["a",1]}}"#, format!(r#"{{"name":"t",{any}}}"#)),
        (
            r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":true,"b":false,"c":{"d":1}}}}"#,
            r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":{},"b":{"not":{}},"c":{"d":1}}}}"#
                .to_owned(),
        ),
        (
            &format!(r#"{{"title":null,"name":"t","description":null,{any},"_meta":null,"icons":null,"z":null}}"#),
            format!(r#"{{"name":"t",{any},"z":null}}"#),
        ),
        (
            &format!(r#"{{"name":"t",{any},"outputSchema":true,"annotations":{{"title":null,"readOnlyHint":true}}}}"#),
            format!(r#"{{"name":"t",{any},"annotations":{{"readOnlyHint":true}}}}"#),
        ),
        (&format!(r#"{{"name":"t",{any},"description":3,"icons":[{{}}]}}"#), format!(r#"{{"name":"t",{any}}}"#)),
        (
            &format!(r#"{{"name":"t","description":"a\u001b[0m\udb40\udc41b",{any}}}"#),
            format!(r#"{{"name":"t","description":"a[0mb",{any}}}"#),
        ),
    ];
    for (bad, mended) in table {
        let list = [tool("before"), bad.to_owned(), tool("after")].join(",");
        let offer = offer(&[(Kind::Tools, &list)]);
        assert_eq!(shown(&offer), [tool("before"), mended, tool("after")], "{bad}");
        assert!(
            offer.problems().all(|text| text.starts_with("tool \"t\": ")) && offer.problems().count() == 1,
            "{bad}"
        );
    }
}

#[test]
fn h41_what_cannot_be_mended_is_left_out_alone() {
    let deep =
        format!(r#"{{"name":"t","inputSchema":{}{}}}"#, r#"{"not":"#.repeat(64), "{}".to_owned() + &"}".repeat(64));
    let large = format!(r#"{{"name":"t","description":"{}"}}"#, "x".repeat(256 << 10));
    let table = [
        ("3", "is not an object"),
        ("null", "is not an object"),
        ("[]", "is not an object"),
        ("{}", "has no `name`"),
        (r#"{"name":null}"#, "has no `name`"),
        (r#"{"name":7}"#, "has no `name`"),
        (r#"{"name":""}"#, "has no `name`"),
        (r#"{"name":"\ud800"}"#, "has no `name`"),
        (r#"{"name":"t","inputSchema":"{}"}"#, "`inputSchema` is not an object"),
        (r#"{"name":"t","inputSchema":[]}"#, "`inputSchema` is not an object"),
        (r#"{"name":"t","inputSchema":true}"#, "`inputSchema` is not an object"),
        (r#"{"name":"t","name":"u","inputSchema":{}}"#, "two members \"name\""),
        (r#"{"name":"t","na\u202eme":"u","inputSchema":{}}"#, "two members \"name\""),
        (r#"{"name":"t","inputSchema":{"type":"object","type":3}}"#, "two members \"type\""),
        (&deep, "nests 66 deep"),
        (&large, "bytes long"),
        (r#"{"name":"before","inputSchema":{}}"#, "an earlier one has its name"),
    ];
    for (bad, reason) in table {
        let list = [tool("before"), bad.to_owned(), tool("after")].join(",");
        let offer = offer(&[(Kind::Tools, &list)]);
        assert_eq!(shown(&offer), [tool("before"), tool("after")], "{reason}");
        let problems: Vec<&str> = offer.problems().collect();
        assert!(problems.len() == 1 && problems[0].contains(reason), "{reason}: {problems:?}");
    }
}

#[test]
fn limits_at_their_edges() {
    let nested = |depth: usize| {
        let schema = format!("{}{}", r#"{"not":"#.repeat(depth - 2), "{}".to_owned() + &"}".repeat(depth - 2));
        format!(r#"{{"name":"t","inputSchema":{}}}"#, schema.replacen('{', r#"{"type":"object","#, 1))
    };
    let long = |length: usize| {
        let head = r#"{"name":"t","inputSchema":{"type":"object"},"description":""#;
        format!("{head}{}\"}}", "x".repeat(length - head.len() - 2))
    };
    for (definition, kept) in [(nested(63), 1), (nested(64), 1), (nested(65), 0)] {
        assert_eq!(offer(&[(Kind::Tools, &definition)]).count(Kind::Tools), kept);
    }
    for (length, kept) in [((256 << 10) - 1, 1), (256 << 10, 1), ((256 << 10) + 1, 0)] {
        assert_eq!(offer(&[(Kind::Tools, &long(length))]).count(Kind::Tools), kept);
    }
    for (count, kept) in [(999, 999), (1000, 1000), (1001, 1000)] {
        let names: Vec<String> = (0..count).map(|index| format!("t{index}")).collect();
        let offer = tools(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((offer.count(Kind::Tools), offer.problems().count()), (kept, usize::from(count > kept)));
    }
    let length = tool("a").len();
    for (bytes, kept) in [(2 * length - 1, 1), (2 * length, 2), (2 * length + 1, 2)] {
        let mut builder = OfferBuilder::new(Caps { definitions: bytes, ..Caps::default() }, ParamHeaders::Ignore);
        builder.page(Kind::Tools, &page(Kind::Tools, &[tool("a"), tool("b")].join(","), None)).unwrap();
        assert_eq!(builder.finish().count(Kind::Tools), kept);
    }
}

#[test]
fn problems_are_few_short_and_escaped() {
    let bad: Vec<String> = (0..50)
        .map(|index| format!("{{\"name\":\"\\u001b\u{202e}{index}{}\",\"inputSchema\":1}}", "x".repeat(500)))
        .collect();
    let offer = offer(&[(Kind::Tools, &bad.join(","))]);
    let problems: Vec<&str> = offer.problems().collect();
    assert_eq!((problems.len(), problems[20]), (21, "and 30 more like these"));
    assert!(
        problems
            .iter()
            .all(|text| text.len() < 200 && !text.chars().any(|char| char.is_control() || char == '\u{202e}'))
    );
}

#[test]
fn prompts_and_resources_are_mended_too() {
    let offer = offer(&[
        (
            Kind::Prompts,
            r#"{"name":"p","arguments":[{"name":"a","required":null},{},3,{"name":"b"}]},{"name":"q","arguments":null}"#,
        ),
        (
            Kind::Resources,
            r#"{"uri":"file:///a","mimeType":null,"size":"3","annotations":{"audience":null}},{"uri":"no uri","name":"x"},{"uri":"a:\u0007","name":"y"},{"name":"z"}"#,
        ),
        (Kind::ResourceTemplates, r#"{"uriTemplate":"file:///{x}","name":"t"},{"uriTemplate":3}"#),
    ]);
    let json = |kind: Kind| offer.list(kind).definitions.iter().map(|item| item.json.to_string()).collect::<Vec<_>>();
    assert_eq!(json(Kind::Prompts), [r#"{"name":"p","arguments":[{"name":"a"},{"name":"b"}]}"#, r#"{"name":"q"}"#]);
    assert_eq!(json(Kind::Resources), [r#"{"uri":"file:///a","annotations":{},"name":"file:///a"}"#]);
    assert_eq!(json(Kind::ResourceTemplates), [r#"{"uriTemplate":"file:///{x}","name":"t"}"#]);
}

#[test]
fn annotations_for_headers_stay_between_us_and_the_server() {
    let schema =
        |inside: &str| format!(r#"{{"name":"t","inputSchema":{{"type":"object","properties":{{{inside}}}}}}}"#);
    let good = schema(
        r#""a":{"type":"string","x-mcp-header":"A"},"o":{"type":"object","properties":{"b":{"x-mcp-header":"B","type":"integer"}}},"x-mcp-header":{"type":"string"}"#,
    );
    let clean = schema(
        r#""a":{"type":"string"},"o":{"type":"object","properties":{"b":{"type":"integer"}}},"x-mcp-header":{"type":"string"}"#,
    );
    let read = |tool: &str, rule| {
        let mut builder = OfferBuilder::new(Caps::default(), rule);
        builder.page(Kind::Tools, &page(Kind::Tools, tool, None)).unwrap();
        builder.finish()
    };
    let offer = read(&good, ParamHeaders::Mirror);
    assert_eq!(shown(&offer), std::slice::from_ref(&clean));
    let headers: Vec<String> =
        offer.param_headers("t").iter().map(|header| format!("{}={}", header.path.join("."), header.header)).collect();
    assert_eq!(headers, ["a=A", "o.b=B"]);
    assert_eq!(read(&good, ParamHeaders::Ignore).param_headers("t"), []);
    for bad in [
        r#""a":{"type":"string","x-mcp-header":""}"#,
        r#""a":{"type":"string","x-mcp-header":"a b"}"#,
        r#""a":{"type":"object","x-mcp-header":"A"}"#,
        r#""a":{"type":"number","x-mcp-header":"A"}"#,
        r#""a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}"#,
        r#""a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}"#,
        r#""a":{"anyOf":[{"type":"string","x-mcp-header":"A"}]}"#,
    ] {
        assert_eq!(read(&schema(bad), ParamHeaders::Mirror).count(Kind::Tools), 0, "{bad}");
        assert!(!shown(&read(&schema(bad), ParamHeaders::Ignore))[0].contains("x-mcp-header"), "{bad}");
    }
}

#[test]
fn h42_schemas_are_compiled_without_fetching_and_without_end() {
    const REFERENCE: Option<&str> = Some("has a `$ref` to something that is not in it");
    const PATTERN: Option<&str> = Some("has a `pattern` that is not a plain regular expression");
    let doubled: String = (0..40)
        .map(|n| format!(r##""d{n}":{{"allOf":[{{"$ref":"#/$defs/d{0}"}},{{"$ref":"#/$defs/d{0}"}}]}},"##, n + 1))
        .collect();
    let schemas = [
        ("plain", r#"{"type":"object","properties":{"a":{"type":"string","pattern":"^(a+)+$"}}}"#.to_owned(), None),
        ("itself", r##"{"type":"object","properties":{"a":{"$ref":"#"}}}"##.to_owned(), None),
        (
            "mutual",
            r##"{"type":"object","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##
                .to_owned(),
            None,
        ),
        ("network", r#"{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:9/x"}}}"#.to_owned(), REFERENCE),
        ("file", r#"{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}"#.to_owned(), REFERENCE),
        ("regex", r#"{"type":"object","properties":{"a":{"pattern":"("}}}"#.to_owned(), PATTERN),
        ("look", r#"{"type":"object","properties":{"a":{"pattern":"(?=a)b"}}}"#.to_owned(), PATTERN),
        ("bomb", format!(r##"{{"type":"object","$defs":{{{doubled}"d40":{{}}}},"$ref":"#/$defs/d0"}}"##), None),
        (
            "wide",
            format!(r#"{{"type":"object","allOf":[{}{{}}]}}"#, "{},".repeat(3000)),
            Some("has more than 2000 parts"),
        ),
        (
            "wrong",
            r#"{"type":"object","minProperties":"x"}"#.to_owned(),
            Some("is not a valid JSON Schema at \"/minProperties\""),
        ),
    ];
    let list: Vec<String> =
        schemas.iter().map(|(name, schema, _)| format!(r#"{{"name":"{name}","inputSchema":{schema}}}"#)).collect();
    let offer = offer(&[(Kind::Tools, &list.join(","))]);
    assert_eq!((offer.count(Kind::Tools), offer.problems().count()), (schemas.len(), 0));
    let start = std::time::Instant::now();
    let faults = offer.unvalidated();
    let expected: Vec<_> = schemas.iter().filter_map(|(name, _, why)| Some((*name, (*why)?))).collect();
    assert_eq!(faults.len(), expected.len(), "{faults:?}");
    for (fault, (name, why)) in faults.iter().zip(expected) {
        assert_eq!((&*fault.tool, fault.member), (name, "inputSchema"));
        assert!(fault.why.to_string().contains(why), "{fault:?}");
    }
    assert!(start.elapsed().as_secs() < 5);
}

/// Generates JSON with blanks, odd numbers, and any order of members.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just(" true ".to_owned()),
        "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3}0)?([eE][+-]?[0-9]{1,3})?",
        "[ -~é😀]{0,8}".prop_map(|text| Raw::from_value(&*text).to_string()),
        Just(r#""\u00e9\/\ud83d\ude00""#.to_owned()),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[ {}]", items.join(" ,\n"))),
            proptest::collection::btree_map("[a-z$_]{1,6}", inner, 0..4).prop_map(|members| {
                let members: Vec<String> =
                    members.into_iter().rev().map(|(key, value)| format!("\"{key}\" :{value}")).collect();
                format!("{{{}\t}}", members.join(", "))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn definitions_keep_every_byte(extra in json(), inner in json(), name in "[a-zA-Z_.é -]{1,20}") {
        let (head, tail) = ("{ \"$anchor\":\"x\", \"inputSchema\" : {\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"$defs\":{\"zz\":",
            ",\"aa\":{\"$anchor\":\"q\"}},\"type\":\"object\",\"additionalProperties\":false}, \"name\" :");
        let before = format!("{head}{inner}{tail}");
        let after = format!(" , \"x-extra\":{extra}}}");
        let definition = format!("{before}{}{after}", Raw::from_value(&*name));
        let offer = offer(&[(Kind::Tools, &definition)]);
        prop_assert_eq!(offer.problems().count(), 0);
        prop_assert_eq!(shown(&offer), [definition]);
        let catalog = build(&[server(0, "gh", Prefix::Always, &offer)]);
        let entry = &catalog.entries(Kind::Tools)[0];
        prop_assert_eq!(entry.definition().to_string(), format!("{before}\"{}\"{after}", entry.name()));
        prop_assert_eq!(entry.raw_name(), &*name);
    }

    #[test]
    fn whatever_a_server_lists_the_list_is_one(items in proptest::collection::vec(json(), 0..6), named in json(), schema in json()) {
        let odd = format!(r#"{{"name":"t","inputSchema":{schema},"_meta":{named},"icons":{named},"annotations":{named},"outputSchema":{schema}}}"#);
        let list = items.into_iter().chain([odd]).collect::<Vec<_>>().join(",");
        let lists = Kind::ALL.map(|kind| (kind, &*list));
        let catalog = build(&[server(0, "gh", Prefix::Always, &offer(&lists))]);
        for (kind, revision) in Kind::ALL.into_iter().flat_map(|kind| ProtocolVersion::ALL.map(|revision| (kind, revision))) {
            let page = catalog.page(kind, None, revision).unwrap();
            let list = Raw::parse(page.member(kind.member()).unwrap().bytes()).unwrap();
            prop_assert_eq!(array(list.as_value()).unwrap().len(), catalog.entries(kind).len());
        }
    }
}
