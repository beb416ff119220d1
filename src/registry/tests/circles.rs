//! Lists that a server got from us: they are shown once and do not grow.

use super::*;

/// Returns the list of a proxy of our endpoint: everything that we show.
fn echoed(catalog: &Catalog) -> Arc<Offer> {
    let list = |kind: Kind| {
        let shown: Vec<String> = catalog.entries(kind).iter().map(|entry| entry.definition().to_string()).collect();
        shown.join(",")
    };
    offer(&Kind::ALL.map(|kind| (kind, list(kind))).iter().map(|(kind, list)| (*kind, &**list)).collect::<Vec<_>>())
}

fn plain() -> Arc<Offer> {
    let long = "a_name_that_is_much_too_long_to_be_shown_as_it_is";
    let tools = [tool("read"), tool(long)].join(",");
    let resource = r#"{"uri":"file:///a","name":"a"},{"uri":"https://h/b","name":"b"}"#;
    offer(&[
        (Kind::Tools, &tools),
        (Kind::Prompts, r#"{"name":"ask","description":"Asks."}"#),
        (Kind::Resources, resource),
        (Kind::ResourceTemplates, r#"{"uriTemplate":"file:///{path}","name":"t"}"#),
    ])
}

/// Returns how many definitions are shown after each of several rounds, in which the proxies list what was shown before.
fn rounds(prefix: Prefix, proxies: &[&str]) -> Vec<usize> {
    let mut offers = vec![offer(&[]); proxies.len()];
    let mut counts = Vec::new();
    for _ in 0..8 {
        let mut all = vec![server(0, "files", prefix, &plain())];
        all.extend(
            proxies.iter().zip(&offers).enumerate().map(|(at, (name, offer))| server(at + 1, name, prefix, offer)),
        );
        let catalog = build(&all);
        counts.push(Kind::ALL.iter().map(|kind| catalog.entries(*kind).len()).sum());
        offers.fill(echoed(&catalog));
    }
    counts
}

#[test]
fn what_a_proxy_has_from_us_is_shown_once() {
    for prefix in [Prefix::Always, Prefix::Auto] {
        let counts = rounds(prefix, &["proxy"]);
        assert_eq!(counts[0], 6, "{counts:?}");
        assert!(counts[2..].iter().all(|count| *count == counts[1] && *count <= 12), "{prefix:?}: {counts:?}");
    }
}

#[test]
fn two_proxies_do_not_lift_each_other() {
    let counts = rounds(Prefix::Always, &["proxy", "other"]);
    assert!(counts[3..].iter().all(|count| *count == counts[3]), "{counts:?}");
    assert!(counts[3] <= 6 * 5, "{counts:?}");
}

#[test]
fn a_tool_that_only_looks_like_one_of_ours_is_shown() {
    let other = r#"{"name":"gh__read","description":"Another one.","inputSchema":{"type":"object"}}"#;
    let own = offer(&[(Kind::Tools, &[tool("read"), other.to_owned(), tool("gh__write")].join(","))]);
    let catalog = build(&[server(0, "gh", Prefix::Always, &own)]);
    assert_eq!(names(&catalog, Kind::Tools), ["gh__read", "gh__gh__read", "gh__gh__write"]);
    let back = offer(&[(Kind::Tools, &[tool("read"), tool("gh__read")].join(","))]);
    let catalog = build(&[server(7, "gh", Prefix::Always, &back)]);
    assert_eq!(names(&catalog, Kind::Tools), ["gh__read"]);
    let problems = problems(&catalog, 7).join(" ");
    assert!(problems.contains("it comes from this host"), "{problems}");
}
