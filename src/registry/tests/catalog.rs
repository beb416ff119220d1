//! Merged lists: names, pages, and routing of tools and prompts (H87).

use super::*;

const LATEST: ProtocolVersion = ProtocolVersion::LATEST_MODERN;

#[test]
fn lists_are_in_the_order_of_the_config_then_of_the_server() {
    let catalog = build(&[
        server(3, "zoo", Prefix::Always, &tools(&["b", "a"])),
        server(1, "gh", Prefix::Always, &tools(&["a", "x.y"])),
    ]);
    assert_eq!(names(&catalog, Kind::Tools)[..3], ["zoo__b", "zoo__a", "gh__a"]);
    let odd = catalog.entries(Kind::Tools)[3].name();
    assert!(odd.starts_with("gh__x_y_"));
    let page = catalog.page(Kind::Tools, None, LATEST).unwrap();
    let expected: Vec<String> = ["zoo__b", "zoo__a", "gh__a", odd].into_iter().map(tool).collect();
    assert_eq!(page.to_string(), format!(r#"{{"tools":[{}]}}"#, expected.join(",")));
    assert_eq!(leads(catalog.tool(odd)), to(1, "x.y"));
    assert_eq!(leads(catalog.tool("zoo__a")), to(3, "a"));
    assert_eq!(catalog.page(Kind::Prompts, None, LATEST).unwrap().to_string(), r#"{"prompts":[]}"#);
    assert_eq!(catalog.entry(Kind::Tools, "gh__a").map(|entry| entry.definition().to_string()), Some(tool("gh__a")));
}

#[test]
fn raw_names_lead_where_only_one_server_has_them() {
    let catalog = build(&[
        server(0, "a", Prefix::Always, &tools(&["one", "both", "x.y"])),
        server(1, "b", Prefix::Always, &tools(&["two", "both"])),
    ]);
    assert_eq!(leads(catalog.tool("one")), to(0, "one"));
    assert_eq!(leads(catalog.tool("x.y")), to(0, "x.y"));
    assert_eq!(catalog.tool("both"), Resolution::Ambiguous(vec!["a__both".into(), "b__both".into()]));
    assert_eq!(catalog.tool("none"), Resolution::Unknown);
    assert_eq!(catalog.tool("a__none"), Resolution::Unknown);
    assert_eq!(catalog.prompt("one"), Resolution::Unknown);
}

#[test]
fn include_exclude_rename() {
    let settings = ServerNaming {
        include: vec!["get_*".to_owned()],
        exclude: vec!["*_secret".to_owned()],
        rename: [("get_b".to_owned(), "bee".to_owned())].into(),
        ..ServerNaming::default()
    };
    let offer = tools(&["get_a", "get_secret", "put", "get_b"]);
    let catalog = build(&[Contribution { settings: Arc::new(settings), ..server(0, "s", Prefix::Always, &offer) }]);
    assert_eq!(names(&catalog, Kind::Tools), ["s__get_a", "s__bee"]);
    assert_eq!(leads(catalog.tool("s__bee")), to(0, "get_b"));
    assert_eq!(leads(catalog.tool("get_b")), to(0, "get_b"));
    for hidden in ["s__get_secret", "get_secret", "put", "s__get_b"] {
        assert_eq!(catalog.tool(hidden), Resolution::Unknown);
    }
}

#[test]
fn auto_prefixes_on_a_clash_and_never_leaves_out() {
    let offer = tools(&["echo", "own"]);
    let auto = |index, alias| server(index, alias, Prefix::Auto, &offer);
    let catalog = build(&[auto(0, "a"), auto(1, "b"), server(2, "c", Prefix::Never, &tools(&["echo", "c-own"]))]);
    assert_eq!(names(&catalog, Kind::Tools), ["echo", "own", "b__echo", "b__own", "c-own"]);
    assert_eq!(leads(catalog.tool("echo")), to(0, "echo"));
    assert_eq!(leads(catalog.tool("b__echo")), to(1, "echo"));
    assert_eq!(problems(&catalog, 2), [r#"tool "echo" left out: the name echo belongs to a"#]);
    assert!(problems(&catalog, 1).is_empty());
}

#[test]
fn h87_a_bare_name_stays_with_its_owner() {
    let (naming, mut owners) = (Naming::default(), Owners::default());
    let (echo, none) = (tools(&["echo"]), tools(&[]));
    let mut build = |first: &Arc<Offer>, second: &Arc<Offer>| {
        let servers = [server(0, "a", Prefix::Auto, first), server(1, "b", Prefix::Auto, second)];
        merged(&servers, &naming, &mut owners, 4 << 20)
    };
    assert_eq!(names(&build(&none, &echo), Kind::Tools), ["echo"]);
    let both = build(&echo, &echo);
    assert_eq!(names(&both, Kind::Tools), ["a__echo", "echo"]);
    assert_eq!(leads(both.tool("echo")), to(1, "echo"));
    let gone = build(&echo, &none);
    assert_eq!(names(&gone, Kind::Tools), ["a__echo"]);
    assert_eq!(gone.tool("echo"), Resolution::Unknown, "not even while its owner is away");
}

#[test]
fn h87_no_server_takes_a_name_that_carries_the_alias_of_another() {
    let evil = tools(&["other__echo", "other__more"]);
    let other = |names: &[&str]| server(1, "other", Prefix::Always, &tools(names));
    for (prefix, shown) in [
        (Prefix::Never, vec!["other__echo"]),
        (Prefix::Inner, vec!["other__echo"]),
        (Prefix::Auto, vec!["evil__other__echo", "evil__other__more", "other__echo"]),
        (Prefix::Always, vec!["evil__other__echo", "evil__other__more", "other__echo"]),
    ] {
        let catalog = build(&[server(0, "evil", prefix, &evil), other(&["echo"])]);
        assert_eq!(names(&catalog, Kind::Tools), shown);
        assert_eq!(leads(catalog.tool("other__echo")), to(1, "echo"));
        let away = build(&[server(0, "evil", prefix, &evil), other(&[])]);
        for name in ["other__echo", "other__more", "other__unlisted"] {
            assert_eq!(away.tool(name), Resolution::Unknown, "{prefix:?} {name}");
        }
    }
    assert_eq!(build(&[other(&[])]).bearer("other__x").map(ServerName::as_str), Some("other"));
}

#[test]
fn a_host_behind_this_one_keeps_its_names_and_the_aliases_in_front_of_them() {
    let resources = r#"{"uri":"gh+file:///a","name":"a"},{"uri":"own+file:///b","name":"b"}"#;
    let lists = [tool("gh__search"), tool("own__x"), tool("plain")].join(",");
    let inner = offer(&[(Kind::Tools, &lists), (Kind::Resources, resources)]);
    let inner = |index| server(index, "office", Prefix::Inner, &inner);
    let bare = |index| server(index, "bare", Prefix::Never, &tools(&["gh__other", "free__x"]));
    let auto = |index| server(index, "auto", Prefix::Auto, &tools(&["gh__third"]));
    let own = |index| server(index, "own", Prefix::Always, &tools(&["y"]));
    // Wherever it stands in the config.
    for catalog in [build(&[inner(0), bare(1), auto(2), own(3)]), build(&[own(3), auto(2), bare(1), inner(0)])] {
        let mut shown = names(&catalog, Kind::Tools);
        shown.sort_unstable();
        assert_eq!(shown, ["auto__gh__third", "free__x", "gh__search", "own__y", "plain"]);
        assert_eq!(leads(catalog.tool("gh__search")), to(0, "gh__search"));
        assert_eq!(problems(&catalog, 1), [r#"tool "gh__other" left out: the name gh__other belongs to office"#]);
        assert_eq!(
            problems(&catalog, 0),
            [
                r#"tool "own__x" left out: the name own__x belongs to own"#,
                r#"resource "own+file:///b" left out: it belongs to own"#
            ]
        );
        assert_eq!(leads(catalog.resource("gh+file:///unlisted")), to(0, "gh+file:///unlisted"));
        assert_eq!(leads(catalog.resource("own+file:///b")), to(3, "file:///b"));
        for name in ["gh__unlisted", "own__x", "office__plain"] {
            assert_eq!(catalog.tool(name), Resolution::Unknown, "{name}");
        }
        // The one server without any prefix gets what nobody lists.
        assert_eq!(leads(catalog.tool("unlisted")), to(1, "unlisted"));
    }
}

#[test]
fn a_name_that_was_shown_stays_when_a_host_comes_that_has_its_alias() {
    let (naming, mut owners) = (Naming::default(), Owners::default());
    let auto = server(0, "auto", Prefix::Auto, &tools(&["gh__x"]));
    let mut build = |office: &[&str]| {
        let servers = [auto.clone(), server(1, "office", Prefix::Inner, &tools(office))];
        merged(&servers, &naming, &mut owners, 4 << 20)
    };
    assert_eq!(names(&build(&[]), Kind::Tools), ["gh__x"]);
    let both = build(&["gh__x", "gh__y"]);
    assert_eq!(names(&both, Kind::Tools), ["gh__x", "gh__y"]);
    assert_eq!((leads(both.tool("gh__x")), leads(both.tool("gh__y"))), (to(0, "gh__x"), to(1, "gh__y")));
}

#[test]
fn what_nobody_lists_goes_to_the_one_server_without_prefix() {
    let settings =
        ServerNaming { prefix: Prefix::Never, exclude: vec!["secret".to_owned()], ..ServerNaming::default() };
    let bare = Contribution { settings: Arc::new(settings), ..server(0, "bare", Prefix::Never, &tools(&["a"])) };
    let other = server(1, "b", Prefix::Always, &tools(&["x"]));
    let catalog = build(&[bare.clone(), other.clone()]);
    assert_eq!(leads(catalog.tool("unlisted")), to(0, "unlisted"));
    assert_eq!(leads(catalog.prompt("unlisted")), to(0, "unlisted"));
    assert_eq!(leads(catalog.tool("x")), to(1, "x"));
    assert_eq!(catalog.tool("secret"), Resolution::Unknown);
    let second = server(2, "c", Prefix::Never, &tools(&[]));
    assert_eq!(build(&[bare, other, second]).tool("unlisted"), Resolution::Unknown);
}

#[test]
fn residual_twins_drop_the_later_one() {
    let marked = build(&[server(0, "a", Prefix::Always, &tools(&["x.y"]))]).entries(Kind::Tools)[0].name().to_owned();
    let twin = marked.strip_prefix("a__").unwrap().to_owned();
    let catalog = build(&[server(0, "a", Prefix::Always, &tools(&["x.y", &twin]))]);
    assert_eq!(names(&catalog, Kind::Tools), [&*marked]);
    assert_eq!(problems(&catalog, 0).len(), 1);
}

#[test]
fn pages_by_size_and_cursors_that_fit_one_list_only() {
    let offer = tools(&["a", "b", "c", "d", "e"]);
    let servers = [server(0, "s", Prefix::Always, &offer)];
    let catalog = merged(&servers, &Naming::default(), &mut Owners::default(), 2 * tool("s__a").len() + 1);
    let (mut cursor, mut seen, mut pages) = (None::<String>, Vec::new(), 0);
    loop {
        let page = catalog.page(Kind::Tools, cursor.as_deref(), LATEST).unwrap();
        seen.extend(
            value(&page)["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()),
        );
        pages += 1;
        let Some(next) = page.text("nextCursor") else { break };
        cursor = Some(next);
    }
    assert_eq!((seen.join(","), pages), ("s__a,s__b,s__c,s__d,s__e".to_owned(), 3));
    assert_eq!(catalog.entries(Kind::Tools)[3].definition().to_string(), tool("s__d"));
    let cursor = cursor.unwrap();
    assert_eq!(catalog.page(Kind::Prompts, Some(&cursor), LATEST), Err(BadCursor::Foreign));
    for foreign in ["", "x", "0-1", &format!("{cursor}0"), &cursor.replace("-2", "-02"), &cursor.replace("-2", "-+2")] {
        assert_eq!(catalog.page(Kind::Tools, Some(foreign), LATEST), Err(BadCursor::Foreign), "{foreign}");
    }
    assert_eq!(
        build(&servers).page(Kind::Tools, Some(&cursor), LATEST),
        Err(BadCursor::Foreign),
        "of a list in other pages"
    );
    let changed = build(&[server(0, "s", Prefix::Always, &tools(&["a"]))]);
    assert_eq!(changed.page(Kind::Tools, Some(&cursor), LATEST), Err(BadCursor::Stale));
}

#[test]
fn the_hash_changes_exactly_with_the_list() {
    let hash = |alias: &str, prefix, offer: &Arc<Offer>| build(&[server(0, alias, prefix, offer)]).hash(Kind::Tools);
    let first = hash("a", Prefix::Always, &tools(&["x"]));
    assert_eq!(first, hash("a", Prefix::Always, &tools(&["x"])));
    let described = offer(&[(Kind::Tools, r#"{"name":"x","description":"y","inputSchema":{"type":"object"}}"#)]);
    for other in [
        hash("b", Prefix::Always, &tools(&["x"])),
        hash("a", Prefix::Never, &tools(&["x"])),
        hash("a", Prefix::Always, &described),
    ] {
        assert_ne!(first, other);
    }
    let hidden = ServerNaming { exclude: vec!["y".to_owned()], ..ServerNaming::default() };
    let with_hidden =
        Contribution { settings: Arc::new(hidden), ..server(0, "a", Prefix::Always, &tools(&["x", "y"])) };
    assert_eq!(first, build(&[with_hidden]).hash(Kind::Tools));
    let both = offer(&[(Kind::Tools, &tool("x")), (Kind::Prompts, r#"{"name":"p"}"#)]);
    assert_eq!(first, hash("a", Prefix::Always, &both));
}

#[test]
fn problems_of_offer_and_catalog_come_together() {
    let offer = offer(&[(Kind::Tools, r#"{"name":"a"},{"name":"b","inputSchema":1}"#)]);
    let catalog = build(&[server(7, "s", Prefix::Always, &offer)]);
    assert_eq!(problems(&catalog, 7).len(), 2);
    assert!(problems(&catalog, 0).is_empty());
    assert_eq!((catalog.server("s"), catalog.server("t")), (Some(7), None));
}

#[test]
fn h87_twins_in_case_are_told() {
    let both = tools(&["getUser", "getuser", "other"]);
    let catalog = build(&[server(0, "a", Prefix::Always, &both), server(1, "b", Prefix::Auto, &tools(&["A__OTHER"]))]);
    assert_eq!(problems(&catalog, 0), ["tool a__getuser differs from a__getUser only in case"]);
    assert_eq!(problems(&catalog, 1), ["tool A__OTHER differs from a__other only in case"]);
}

#[test]
fn older_clients_are_shown_tools_as_they_take_them() {
    let plain = tool("plain");
    let list = r#"{"name":"list","inputSchema":{"type":"object"},"outputSchema":{"type":"array"},"x":1.50}"#;
    let rich = r#"{"name":"rich","execution":{"taskSupport":"optional"},"inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}"#;
    let offer = offer(&[(Kind::Tools, &[&*plain, list, rich].join(",")), (Kind::Prompts, r#"{"name":"p"}"#)]);
    let servers = [server(0, "bare", Prefix::Never, &offer)];
    // On one page, and on one page each.
    for size in [1 << 20, 1] {
        let catalog = merged(&servers, &Naming::default(), &mut Owners::default(), size);
        let shown = |revision| {
            let (mut cursor, mut shown) = (None::<String>, Vec::new());
            loop {
                let page = catalog.page(Kind::Tools, cursor.as_deref(), revision).unwrap();
                let all = page.member("tools").unwrap();
                shown.push(all.as_str()[1..all.as_str().len() - 1].to_owned());
                cursor = page.text("nextCursor");
                if cursor.is_none() {
                    return shown.join(",");
                }
            }
        };
        let without =
            |text: &str, parts: &[&str]| parts.iter().fold(text.to_owned(), |text, part| text.replace(part, ""));
        let (execution, array, object) = (
            r#""execution":{"taskSupport":"optional"},"#,
            r#","outputSchema":{"type":"array"}"#,
            r#","outputSchema":{"type":"object"}"#,
        );
        let want = |list_less: &[&str], rich_less: &[&str]| {
            [plain.clone(), without(list, list_less), without(rich, rich_less)].join(",")
        };
        assert_eq!(shown(ProtocolVersion::V2026_07_28), want(&[], &[execution]));
        assert_eq!(shown(ProtocolVersion::V2025_11_25), want(&[array], &[]));
        assert_eq!(shown(ProtocolVersion::V2025_06_18), want(&[array], &[execution]));
        assert_eq!(shown(ProtocolVersion::V2025_03_26), want(&[array], &[execution, object]));
        assert_eq!(shown(ProtocolVersion::V2024_11_05), shown(ProtocolVersion::V2025_03_26));
        assert_eq!(catalog.entries(Kind::Tools)[1].definition().to_string(), list, "the catalog itself is as it was");
    }
}

#[test]
fn a_list_that_fits_all_is_kept_once() {
    let catalog = build(&[server(0, "s", Prefix::Always, &tools(&["a", "b"]))]);
    let page = |revision| catalog.page(Kind::Tools, None, revision).unwrap();
    let first = page(ProtocolVersion::V2024_11_05).bytes().as_ptr();
    for revision in ProtocolVersion::ALL {
        assert_eq!(page(revision).bytes().as_ptr(), first, "{revision}");
    }
}

#[test]
fn kept_annotations_are_shown_where_they_are_good() {
    let tool = |name: &str, mark: &str| {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"a":{{"type":"string"{mark}}}}}}}}}"#
        )
    };
    let (good, bad) = (tool("good", r#","x-mcp-header":"A""#), tool("bad", r#","x-mcp-header":"""#));
    for rule in [ParamHeaders::Ignore, ParamHeaders::Mirror] {
        let caps = Caps { annotations: Annotations::Keep, ..Caps::default() };
        let mut builder = OfferBuilder::new(caps, rule);
        assert_eq!(builder.page(Kind::Tools, &page(Kind::Tools, &[&*good, &bad].join(","), None)), Ok(None));
        let catalog = build(&[server(0, "s", Prefix::Never, &Arc::new(builder.finish()))]);
        // Where headers have no effect, a bad annotation does not hide the tool.
        let others = if rule == ParamHeaders::Ignore { vec![tool("bad", "")] } else { vec![] };
        let with = |first: String| format!("[{}]", [&[first], &*others].concat().join(","));
        let shown = |revision| catalog.page(Kind::Tools, None, revision).unwrap().member("tools").unwrap().to_string();
        assert_eq!(shown(ProtocolVersion::V2026_07_28), with(good.clone()));
        assert_eq!(shown(ProtocolVersion::V2025_11_25), with(good.clone()));
        let headers: Vec<_> = catalog.tools().iter().map(|tool| tool.param_headers().len()).collect();
        assert_eq!(headers, if others.is_empty() { vec![1] } else { vec![1, 0] });
    }
}

#[test]
fn a_member_that_older_clients_do_not_take_is_found_however_it_is_written() {
    let hidden = r#"{"name":"t","inputSchema":{"type":"object"},"\u006futputSchema":{"type":"array"}}"#;
    let catalog = build(&[server(0, "a", Prefix::Always, &offer(&[(Kind::Tools, hidden)]))]);
    let shown = |revision| catalog.page(Kind::Tools, None, revision).unwrap().as_str().contains("utputSchema");
    assert_eq!([ProtocolVersion::V2025_03_26, LATEST].map(shown), [false, true]);
}
