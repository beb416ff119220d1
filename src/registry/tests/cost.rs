//! Input from servers and clients costs work linear in its length: H38, H41, H42, H87. One thread serves all.
//!
//! The inputs are so large that quadratic work takes minutes.

use std::fmt::Write as _;

use super::*;

/// More than a definition may have, so that a few tests suffice.
const LARGE: Caps = Caps {
    tools: 1000,
    definitions: 64 << 20,
    definition: 16 << 20,
    depth: 64,
    pages: 100,
    annotations: Annotations::Strip,
};

fn read(rule: ParamHeaders, tool: &str) -> Offer {
    let mut builder = OfferBuilder::new(LARGE, rule);
    builder.page(Kind::Tools, &page(Kind::Tools, tool, None)).unwrap();
    builder.finish()
}

/// Joins the output of `each` for every number with commas.
fn many(count: usize, each: impl Fn(usize, &mut String)) -> String {
    let mut text = String::new();
    for number in 0..count {
        if number > 0 {
            text.push(',');
        }
        each(number, &mut text);
    }
    text
}

fn members(count: usize) -> String {
    many(count, |number, text| write!(text, r#""k{number}":0"#).unwrap())
}

#[test]
fn h87_a_name_of_separators_is_looked_at_once() {
    let odd = "_".repeat(2 << 20);
    let empty = Arc::new(Offer::default());
    let catalog = build(&[server(0, "bare", Prefix::Never, &empty), server(1, "gh", Prefix::Always, &empty)]);
    assert_eq!(leads(catalog.tool(&odd)), to(0, &odd));
    let named = Arc::new(read(ParamHeaders::Ignore, &tool(&odd)));
    for prefix in [Prefix::Never, Prefix::Always, Prefix::Auto] {
        let catalog = build(&[server(0, "bare", prefix, &named), server(1, "gh", Prefix::Always, &empty)]);
        assert_eq!(leads(catalog.tool(&odd)), to(0, &odd));
    }
}

#[test]
fn h87_the_longest_alias_is_still_seen_in_front_of_a_name() {
    let longest = "abcdefghijklmnopqrstuvwx";
    let empty = Arc::new(Offer::default());
    let catalog = build(&[server(0, "bare", Prefix::Never, &empty), server(1, longest, Prefix::Always, &empty)]);
    let name = format!("{longest}__x");
    assert_eq!(catalog.bearer(&name).map(ServerName::as_str), Some(longest));
    assert_eq!(leads(catalog.tool(&name)), None);
}

#[test]
fn h38_a_definition_of_many_members_is_gone_through_once() {
    let wide = members(100_000);
    for (tool, count) in [
        (format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},{wide}}}"#), 1),
        (format!(r#"{{"name":"t","inputSchema":{{"type":"object",{wide}}}}}"#), 1),
        (format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},{wide},"k99999":0}}"#), 0),
        (format!(r#"{{"name":"t","inputSchema":{{"type":"object",{wide},"k99999":0}}}}"#), 0),
    ] {
        assert_eq!(read(ParamHeaders::Ignore, &tool).count(Kind::Tools), count);
    }
}

#[test]
fn h41_of_two_members_the_second_one_is_named() {
    let offer = read(ParamHeaders::Ignore, r#"{"name":"t","a":0,"b":1,"b":2,"a":3,"inputSchema":{"type":"object"}}"#);
    assert!(offer.problems().next().unwrap().ends_with(r#"has two members "b""#));
}

#[test]
fn h41_a_bad_member_that_stands_many_times_is_taken_out_once() {
    let bad = many(25_000, |_, text| text.push_str(r#""title":null"#));
    let annotations = format!(r#"{{{},{bad},"readOnlyHint":0 , "x": 1}}"#, members(25_000));
    let tool = format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},"annotations":{annotations}}}"#);
    let offer = read(ParamHeaders::Ignore, &tool);
    let shown = offer.list(Kind::Tools).definitions[0].json.member("annotations").unwrap();
    assert_eq!(shown.to_string(), format!(r#"{{{} , "x": 1}}"#, members(25_000)));
}

#[test]
fn h41_annotations_for_headers_are_gone_through_once() {
    let schema =
        |inside: &str| format!(r#"{{"name":"t","inputSchema":{{"type":"object","properties":{{{inside}}}}}}}"#);
    // In one object, alone and among many members.
    let same = many(25_000, |number, text| write!(text, r#""x-mcp-header":"H{number}""#).unwrap());
    let repeated = schema(&format!(r#""a":{{"type":"string",{},{same}}}"#, members(25_000)));
    assert_eq!(read(ParamHeaders::Mirror, &repeated).param_headers("t").len(), 25_000);
    // In many objects.
    let each = |number, text: &mut String| {
        write!(text, r#""p{number}":{{"type":"string","x-mcp-header":"H{number:06}"}}"#).unwrap();
    };
    let apart = schema(&many(25_000, each));
    assert_eq!(read(ParamHeaders::Mirror, &apart).param_headers("t").len(), 25_000);
    let shown = read(ParamHeaders::Ignore, &apart);
    assert!(!shown.list(Kind::Tools).definitions[0].json.as_str().contains("x-mcp-header"));
}

#[test]
fn h41_the_way_to_an_annotated_argument_is_kept_once() {
    let long = "x".repeat(256 << 10);
    let each = |number, text: &mut String| {
        write!(text, r#""p{number}":{{"type":"string","x-mcp-header":"H{number}"}}"#).unwrap();
    };
    let tool = |count| {
        let inside = many(count, each);
        format!(
            r#"{{"name":"t","inputSchema":{{"type":"object","properties":{{"{long}":{{"properties":{{{inside}}}}}}}}}}}"#
        )
    };
    let offer = read(ParamHeaders::Mirror, &tool(15_000));
    let [first, .., last] = offer.param_headers("t") else { panic!("no headers") };
    assert!(Arc::ptr_eq(&first.path[0], &last.path[0]));
    assert_ne!(offer.hash(), read(ParamHeaders::Mirror, &tool(14_999)).hash());
}

#[test]
fn h42_references_are_followed_without_reading_the_schema_for_each() {
    let each = |number, text: &mut String| write!(text, r##""d{number}":{{"$ref":"#/$defs/d0"}}"##).unwrap();
    let tool = |inside: &str| {
        let schema = format!(r#"{{"type":"object","$defs":{{{inside}}}}}"#);
        format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},"outputSchema":{schema}}}"#)
    };
    let old = ProtocolVersion::V2025_06_18;
    for (list, taken) in
        [(many(20_000, each), true), (format!(r##"{},"e":{{"$ref":"#/no"}}"##, many(20_000, each)), false)]
    {
        let offer = Arc::new(read(ParamHeaders::Ignore, &tool(&list)));
        let page = build(&[server(0, "gh", Prefix::Always, &offer)]).page(Kind::Tools, None, old).unwrap();
        assert_eq!(page.as_str().contains("outputSchema"), taken);
    }
}

#[test]
fn h40_a_page_is_taken_go_by_go() {
    let small =
        many(2000, |number, text| write!(text, r#"{{"name":"t{number}","inputSchema":{{"type":"object"}}}}"#).unwrap());
    let filler = "x".repeat(200 << 10);
    let large = many(10, |number, text| write!(text, r#"{{"name":"t{number}","description":"{filler}"}}"#).unwrap());
    let nothing = many(2000, |_, text| text.push_str("{}"));
    for (items, least) in [(small, 30), (large, 10), (nothing, 30)] {
        let page = page(Kind::Tools, &items, Some("x"));
        let mut builder = OfferBuilder::new(LARGE, ParamHeaders::Ignore);
        let mut reading = builder.open(Kind::Tools, &page).unwrap();
        let mut goes = 1;
        while builder.read_on(&mut reading).unwrap() {
            goes += 1;
        }
        assert!(goes >= least, "{goes}");
        assert_eq!(reading.next().as_deref(), Some("x"));
        let mut whole = OfferBuilder::new(LARGE, ParamHeaders::Ignore);
        whole.page(Kind::Tools, &page).unwrap();
        assert_eq!(builder.finish().hash(), whole.finish().hash());
    }
}

#[test]
fn h40_a_list_that_breaks_in_the_middle_fails() {
    for broken in [r#"{"name":"\x"}"#, r#"{"name":"b"} 3"#] {
        let mut builder = OfferBuilder::new(Caps::default(), ParamHeaders::Ignore);
        let page = Raw::trusted(format!(r#"{{"tools":[{},{broken}]}}"#, tool("a")).into());
        assert_eq!(builder.page(Kind::Tools, &page), Err(PageError::NoList(Kind::Tools)), "{broken}");
        let offer = builder.finish();
        assert_eq!((offer.count(Kind::Tools), offer.failed(Kind::Tools)), (0, true));
    }
}
