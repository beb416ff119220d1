//! Servers at wrong URLs, or that refuse us.

use std::net::TcpListener;

use super::Mistake;
use super::scene::Scene;
use super::servers::config;
use crate::auth::site::Told;

/// A config with one server `s` at this URL, and the commands a user tries.
fn tried(scene: &mut Scene, url: &str) {
    scene.file("mcp.json", &config("s", &format!(r#"{{ "url": "{url}" }}"#)));
    scene.types("mcp-host tools --config mcp.json");
    scene.types("mcp-host check --connect --config mcp.json");
}

/// Like `tried`, at a site that answers everything alike.
fn answered(scene: &mut Scene, path: &str, status: u16, headers: &'static [(&str, &str)], body: &'static str) {
    let site = scene.has_a_site(move |_| {
        Told::Answer(
            status,
            headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            body.to_owned(),
        )
    });
    tried(scene, &format!("{}{path}", site.url));
}

const HTML: &[(&str, &str)] = &[("content-type", "text/html; charset=utf-8")];

pub(super) const TABLE: &[Mistake] = &[
    Mistake {
        name: "refused",
        says: &["`s`", "127.0.0.1:PORT", "refused", "help: "],
        never: &["os error"],
        act: |scene| {
            // A port that was free a moment ago.
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
            scene.hide(&address, "127.0.0.1:PORT");
            tried(scene, &format!("http://{address}/mcp"));
        },
    },
    Mistake {
        name: "DNS",
        says: &["`s`", "mcp.exampel.invalid", "help: "],
        never: &["os error"],
        act: |scene| {
            // What a resolver says depends on whether it has a server to ask.
            scene.hide("Temporary failure in name resolution", "Name or service not known");
            tried(scene, "https://mcp.exampel.invalid/mcp");
        },
    },
    Mistake {
        name: "302",
        says: &["`s`", "redirects", "https://example.com/login", "help: put the final URL into the config"],
        never: &[],
        act: |scene| answered(scene, "/mcp", 302, &[("location", "https://example.com/login?next=/mcp")], ""),
    },
    Mistake {
        name: "HTML",
        says: &["`s`", "127.0.0.1:PORT/ answered with text/html", "help: the endpoint may be at /mcp or /sse"],
        never: &[],
        act: |scene| answered(scene, "/", 200, HTML, "<!doctype html><title>Welcome</title><h1>Our API</h1>"),
    },
    Mistake {
        name: "404",
        says: &["`s`", "404", "127.0.0.1:PORT/api", "help: the endpoint may be at /mcp or /sse"],
        never: &[],
        act: |scene| answered(scene, "/api", 404, HTML, "<!doctype html><title>Not Found</title>"),
    },
    Mistake {
        name: "405",
        says: &["`s`", "405", "127.0.0.1:PORT/", "help: the endpoint may be at /mcp or /sse"],
        never: &[],
        act: |scene| answered(scene, "/", 405, &[("allow", "GET")], "Method Not Allowed"),
    },
    Mistake {
        name: "500",
        says: &["`s`", "500", "database is down", "help: "],
        never: &["/sse"],
        act: |scene| answered(scene, "/mcp", 500, &[("content-type", "text/plain")], "database is down"),
    },
    Mistake {
        name: "API-key 401",
        says: &["`s`", "401", "wants a token", "`headers`", "`Authorization: Bearer TOKEN`"],
        never: &[],
        act: |scene| {
            let site = scene.has_a_site(|asked| match asked.path.as_str() {
                "/mcp" => {
                    Told::Answer(401, vec![("www-authenticate", "Bearer".to_owned())], "missing API key".to_owned())
                }
                _ => Told::Answer(404, Vec::new(), String::new()),
            });
            scene.file("mcp.json", &config("s", &format!(r#"{{ "url": "{}/mcp" }}"#, site.url)));
            let shown = scene.types("mcp-host tools --config mcp.json");
            let login = shown.err.find("mcp-host login").unwrap_or(usize::MAX);
            scene.expect(shown.err.find("headers").is_some_and(|at| at < login), "speaks of a login before of a token");
            scene.expect(shown.exit == Some(3), "ends with another code than 3");
            scene.types("mcp-host check --connect --config mcp.json");
        },
    },
    Mistake {
        name: "no http before the URL",
        says: &["mcp.json:3", "write the full URL, like \"https://example.com/mcp\""],
        never: &["mcp.json: ok"],
        act: |scene| {
            scene.file("mcp.json", &config("s", r#"{ "url": "mcp.example.com/mcp" }"#));
            scene.types("mcp-host check --config mcp.json");
        },
    },
];

#[test]
fn remote() {
    super::make("remote", TABLE);
}
