//! Bundles: from a file and from an entry of the registry; shown, unpacked, started from the store.

use std::io::Write as _;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{Home, entry};
use crate::auth::site::{Asked, Site, Told};

const MODE: &str = "${user_config.mode}";

/// The bytes of a bundle.
fn bundle() -> Vec<u8> {
    let manifest = json!({
        "manifest_version": "0.3", "name": "notes", "version": "1.0.0", "description": "Notes\u{1b}[2J.",
        "author": { "name": "Ada" },
        "server": {
            "type": "node", "entry_point": "server/index.js",
            "mcp_config": { "command": "node", "args": ["${__dirname}/server/index.js", MODE] },
        },
        "user_config": { "mode": { "type": "string", "title": "Mode", "required": true } },
    });
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, text) in [("manifest.json", manifest.to_string()), ("server/index.js", "// a server".to_owned())] {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A registry with the bundle in two entries, of which one has another hash.
async fn registry() -> Site {
    Site::start(|url| move |asked: &Asked| answer(asked, &url)).await
}

fn answer(asked: &Asked, url: &str) -> Told {
    let hash: String = Sha256::digest(bundle()).iter().map(|byte| format!("{byte:02x}")).collect();
    let of = |name: &str, hash: &str| {
        let package = json!({ "registryType": "mcpb", "identifier": format!("{url}/{name}.mcpb"), "fileSha256": hash });
        let server = json!({ "name": format!("com.example/{name}"), "description": "Notes.", "version": "1.0.0", "packages": [package] });
        Told::json(200, &entry(&server, "active"))
    };
    match asked.path.as_str() {
        "/v0.1/servers/com.example%2Fnotes/versions/latest" => of("notes", &hash),
        "/v0.1/servers/com.example%2Fother/versions/latest" => of("other", &"0".repeat(64)),
        // The site of the test sends texts, and an archive is none.
        _ => Told::json(404, &json!({})),
    }
}

fn node(home: &Home) -> String {
    home.log("node.log")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_is_shown_unpacked_and_started_from_the_store() {
    let site = registry().await;
    let home = Home::with_npm(&site.url);
    tokio::task::block_in_place(|| {
        std::fs::write(home.file("notes.mcpb"), bundle()).unwrap();
        let (before, install) = (home.text(), ["install", "notes.mcpb", "--set", "mode=plain"]);
        assert!(home.run(&["install", "notes.mcpb"]).starts_with("exit 2\nerror: mode has no value: Mode\n"));
        let said = home.run(&install);
        assert!(
            said.starts_with("exit 6\nnotes 1.0.0\nNotes\\u{1b}[2J.\nauthor Ada (nobody has checked that)\n"),
            "{said}"
        );
        assert!(
            said.contains(
                "\ncommand node TREE/server/index.js plain\nit runs as you; it is unpacked, and started from there\n"
            ),
            "{said}"
        );
        assert!(home.text() == before && node(&home).is_empty());
        assert!(!home.file(".local/share/mcp-host/store/mcpb").exists(), "nothing is unpacked before the yes");
        let said = home.run(&[&install[..], &["--yes"]].concat());
        assert!(said.contains("\ninstalled notes: 3 tools, TIME, "), "{said}");
        let script = home.only(".local/share/mcp-host/store/mcpb").join("tree/server/index.js");
        assert_eq!(node(&home), format!("{}|plain|", script.display()));
        assert_eq!(home.config()["mcpServers"]["notes"]["package"]["type"], "mcpb");
        std::fs::write(&script, "// another").unwrap();
        let started = node(&home);
        let said = home.run(&["check", "notes", "--connect"]);
        assert!(said.contains("the installed tree of notes@1.0.0 differs from its lock"), "{said}");
        assert_eq!(node(&home), started, "nothing is started");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_bundle_is_refused_in_one_line() {
    let site = registry().await;
    let home = Home::with_npm(&site.url);
    tokio::task::block_in_place(|| {
        let before = home.text();
        home.write("broken.mcpb", "no archive");
        for (name, why) in [("broken.mcpb", "it is no bundle"), ("missing.mcpb", "it cannot be read")] {
            let said = home.run(&["install", name, "--yes"]);
            assert!(said.starts_with(&format!("exit 1\nerror: the bundle {name}: {why}: ")), "{said}");
            assert!(said.ends_with("\nhelp: nothing was unpacked or written"), "{said}");
        }
        for name in ["com.example/notes", "com.example/other"] {
            let said = home.run(&["install", name]);
            assert!(said.starts_with("exit 6\n") && said.contains("bundle http://127.0.0.1:"), "{said}");
            let said = home.run(&["install", name, "--yes"]);
            assert!(said.starts_with("exit 1\n") && said.contains(": HTTP status 404\n"), "{said}");
        }
        assert_eq!(home.text(), before);
    });
    assert_eq!(site.asked().iter().filter(|asked| asked.path.ends_with(".mcpb")).count(), 2, "not before the yes");
}
