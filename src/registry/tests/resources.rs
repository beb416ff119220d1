//! Resolution of URIs, and links in definitions.

use super::*;
use crate::exposed::UriMode;

fn resources(uris: &[&str]) -> Arc<Offer> {
    let items: Vec<String> = uris.iter().map(|uri| format!(r#"{{"uri":"{uri}","name":"n"}}"#)).collect();
    offer(&[(Kind::Resources, &items.join(","))])
}

fn templates(uris: &[&str]) -> Arc<Offer> {
    let items: Vec<String> = uris.iter().map(|uri| format!(r#"{{"uriTemplate":"{uri}","name":"n"}}"#)).collect();
    offer(&[(Kind::ResourceTemplates, &items.join(","))])
}

#[test]
fn listed_uris_carry_the_alias() {
    let catalog = build(&[
        server(0, "a", Prefix::Always, &resources(&["file:///x", "https://e.com/x", "ui://w/v"])),
        server(1, "b", Prefix::Auto, &resources(&["file:///x", "https://e.com/x", "git+ssh://h/r"])),
    ]);
    let expected = ["a+file:///x", "https://e.com/x", "ui://a--w/v", "b+file:///x", "b+git+ssh://h/r"];
    assert_eq!(names(&catalog, Kind::Resources), expected);
    assert_eq!(problems(&catalog, 1), [r#"resource "https://e.com/x" left out: a lists it, too"#]);
    assert_eq!(leads(catalog.resource("b+file:///x")), to(1, "file:///x"));
    assert_eq!(leads(catalog.resource("b+file:///unlisted")), to(1, "file:///unlisted"));
    assert_eq!(leads(catalog.resource("https://e.com/x")), to(0, "https://e.com/x"));
    assert_eq!(leads(catalog.resource("ui://b--any/thing")), to(1, "ui://any/thing"));
    assert_eq!(leads(catalog.resource("git+ssh://h/r")), to(1, "git+ssh://h/r"));
    assert_eq!(catalog.resource("file:///x"), Resolution::Ambiguous(vec!["a+file:///x".into(), "b+file:///x".into()]));
    assert_eq!(catalog.resource("file:///y"), Resolution::Unknown, "two could have it: asking both would tell both");
    assert_eq!(catalog.resource("c+file:///y"), Resolution::Unknown);
}

#[test]
fn a_scheme_with_a_plus_is_no_prefix() {
    let lists = resources(&["git+ssh://h/r", "gh+file:///secret"]);
    let catalog = build(&[
        server(0, "git", Prefix::Always, &resources(&["file:///x"])),
        server(1, "b", Prefix::Always, &lists),
        server(2, "gh", Prefix::Always, &resources(&[])),
    ]);
    assert_eq!(leads(catalog.resource("git+ssh://h/r")), to(1, "git+ssh://h/r"));
    assert_eq!(leads(catalog.resource("git+ssh://other")), to(0, "ssh://other"));
    assert_eq!(
        leads(catalog.resource("gh+file:///secret")),
        to(2, "file:///secret"),
        "listing it does not take it over"
    );
    assert_eq!(leads(catalog.resource("b+gh+file:///secret")), to(1, "gh+file:///secret"));
}

#[test]
fn templates_and_then_the_one_that_has_resources() {
    let catalog = build(&[
        server(0, "a", Prefix::Always, &templates(&["db://{table}/{id}", "x://{+all}"])),
        server(1, "b", Prefix::Always, &templates(&["db://logs/{id}{?q}", "y://{v}.txt"])),
        server(2, "c", Prefix::Always, &tools(&["t"])),
    ]);
    assert_eq!(names(&catalog, Kind::ResourceTemplates)[0], "a+db://{table}/{id}");
    let table = [
        ("db://users/1", to(0, "db://users/1")),
        ("x://a/b", to(0, "x://a/b")),
        ("y://v.txt", to(1, "y://v.txt")),
        ("y://v.pdf", None),
        ("db://logs/1", None),
        ("db://", None),
        ("a+db://logs/1", to(0, "db://logs/1")),
    ];
    for (uri, expected) in table {
        assert_eq!(leads(catalog.resource(uri)), expected, "{uri}");
    }
    assert_eq!(leads(catalog.template("b+y://{v}.txt")), to(1, "y://{v}.txt"));
    assert_eq!(leads(catalog.template("y://{v}.txt")), to(1, "y://{v}.txt"));
    let alike = templates(&["t://{id}/data"]);
    let catalog = build(&[server(0, "a", Prefix::Never, &alike), server(1, "b", Prefix::Always, &alike)]);
    assert_eq!(leads(catalog.resource("t://1/data")), to(0, "t://1/data"), "only one shows it like that");
    assert_eq!(leads(catalog.resource("b+t://1/data")), to(1, "t://1/data"));
    let one = build(&[server(0, "a", Prefix::Always, &resources(&[])), server(1, "c", Prefix::Always, &tools(&["t"]))]);
    assert_eq!(leads(one.resource("any://thing")), to(0, "any://thing"));
}

#[test]
fn passthrough_and_servers_without_prefix_keep_their_uris() {
    let (first, second) = (resources(&["file:///x", "ui://w/v"]), resources(&["file:///x", "file:///y"]));
    let servers = [server(0, "a", Prefix::Always, &first), server(1, "b", Prefix::Always, &second)];
    let naming = Naming { resources: UriMode::Passthrough, ..Naming::default() };
    let catalog = merged(&servers, &naming, &mut Owners::default(), 4 << 20);
    assert_eq!(names(&catalog, Kind::Resources), ["file:///x", "ui://w/v", "file:///y"]);
    assert_eq!(problems(&catalog, 1).len(), 1);
    assert_eq!(leads(catalog.resource("file:///y")), to(1, "file:///y"));
    let bare = [server(0, "a", Prefix::Never, &first), server(1, "b", Prefix::Always, &second)];
    let catalog = build(&bare);
    assert_eq!(names(&catalog, Kind::Resources), ["file:///x", "ui://w/v", "b+file:///x", "b+file:///y"]);
    assert_eq!(leads(catalog.resource("file:///x")), to(0, "file:///x"));
    assert_eq!(catalog.resource("a+file:///x"), Resolution::Unknown, "a shows no alias");
    assert_eq!(catalog.resource("file:///x").found().map(|target| target.uris), Some(UriMode::Passthrough));
    assert_eq!(catalog.resource("b+file:///x").found().map(|target| target.uris), Some(UriMode::Prefix));
}

#[test]
fn a_user_interface_that_is_not_listed_is_found_by_its_link() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://w/v"}}}"#;
    let linked = offer(&[(Kind::Tools, tool), (Kind::Resources, r#"{"uri":"file:///a","name":"a"}"#)]);
    let servers = [server(0, "a", Prefix::Never, &linked), server(1, "b", Prefix::Always, &resources(&["file:///x"]))];
    let catalog = build(&servers);
    assert_eq!(leads(catalog.resource("ui://w/v")), to(0, "ui://w/v"));
    assert_eq!(leads(catalog.resource("ui://w/other")), None, "never to several");
    assert_eq!(leads(catalog.resource("ui://b--w/v")), to(1, "ui://w/v"), "by its alias, listed or not");
}

#[test]
fn links_in_definitions_are_exposed() {
    let tool = |name: &str, ui: &str| {
        format!(
            r#"{{ "_meta": {{"ui":{{"resourceUri":"{ui}","visibility":["app"]}},"x":1,"ui/resourceUri":"{ui}"}},"name":"{name}","inputSchema":{{"type":"object"}}, "z":1e5}}"#
        )
    };
    let offer = offer(&[(Kind::Tools, &tool("t", "ui://w/v"))]);
    let shown = |prefix| build(&[server(0, "gh", prefix, &offer)]).entries(Kind::Tools)[0].definition().to_string();
    assert_eq!(shown(Prefix::Always), tool("gh__t", "ui://gh--w/v"));
    assert_eq!(shown(Prefix::Auto), tool("t", "ui://gh--w/v"));
    assert_eq!(shown(Prefix::Never), tool("t", "ui://w/v"));
}
