//! Bundles: what a bundle may start, and malicious archives.

use std::io::Write as _;

use serde_json::json;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use crate::install::{Answers, Choice};

fn manifest() -> Value {
    json!({
        "manifest_version": "0.3", "name": "notes", "version": "1.0.0", "description": "Notes.", "author": { "name": "Ada" },
        "server": {
            "type": "node", "entry_point": "server/index.js",
            "mcp_config": {
                "command": "node",
                "args": ["${__dirname}/server/index.js", "--level=${user_config.level}", "${user_config.folders}"],
                "env": { "NOTES_KEY": "${user_config.key}" },
            },
        },
        "user_config": {
            "level": { "type": "string", "title": "Level", "default": "info" },
            "folders": { "type": "directory", "multiple": true, "required": true },
            "key": { "type": "string", "sensitive": true, "required": true },
        },
    })
}

fn store(folder: &Path) -> Store {
    Store::at(folder.to_owned())
}

fn opened() -> Opened {
    let digest = format!("sha256:{}", "ab".repeat(32));
    Opened { file: "notes.mcpb".into(), digest, is_signed: false, size: (1, 1) }
}

fn plan(manifest: &Value) -> Result<NewServer, String> {
    let bundle = read(manifest, opened(), &store(Path::new("/store")))?;
    let mut answers = Answers::default();
    for (key, value) in [("folders", "/a"), ("folders", "/b c"), ("key", "${keyring:notes/key}")] {
        answers.add(key, value);
    }
    Choice::Bundle(&bundle).plan(&answers).map(|plan| plan.server).map_err(|error| error.to_string())
}

#[test]
fn a_bundle_starts_its_own_files_with_what_was_said() {
    let server = plan(&manifest()).unwrap();
    let tree = "/store/mcpb/notes-1.0.0-abababababababab/tree";
    assert_eq!(server.command, ["node", &format!("{tree}/server/index.js"), "--level=info", "/a", "/b c"]);
    assert_eq!(server.env, [("NOTES_KEY".to_owned(), "${keyring:notes/key}".to_owned())]);
    let bundle = read(&manifest(), opened(), &store(Path::new("/store"))).unwrap();
    let wanted = Choice::Bundle(&bundle).wanted().unwrap();
    let shown: Vec<_> =
        wanted.iter().map(|one| (one.key.as_str(), one.is_required, one.is_secret, one.is_repeated)).collect();
    assert_eq!(shown, [("level", false, false, false), ("folders", true, false, true), ("key", true, true, false)]);
}

#[test]
fn a_bundle_starts_no_other_program() {
    type Change = fn(&mut Value);
    let changes: [Change; 10] = [
        |it| it["server"]["mcp_config"]["command"] = json!("sh"),
        |it| it["server"]["mcp_config"]["command"] = json!("/usr/bin/node"),
        |it| it["server"]["type"] = json!("uv"),
        |it| it["server"]["type"] = json!("binary"),
        |it| {
            it["server"]["type"] = json!("binary");
            it["server"]["mcp_config"]["command"] = json!("${__dirname}/../../bin/sh");
        },
        |it| it["server"]["mcp_config"]["env"]["NODE_OPTIONS"] = json!("--require x"),
        |it| it["server"]["mcp_config"]["args"] = json!(["${env:SECRET}"]),
        |it| it["server"]["mcp_config"]["args"] = json!(["${user_config.other}"]),
        |it| it["server"]["mcp_config"]["args"] = json!("a b"),
        |it| it["manifest_version"] = json!("9"),
    ];
    for change in changes {
        let mut manifest = manifest();
        change(&mut manifest);
        let refused = plan(&manifest);
        assert!(refused.as_ref().is_err_and(|why| !why.contains('\n')), "{manifest}: {refused:?}");
    }
    let mut own = manifest();
    own["server"]["type"] = json!("binary");
    own["server"]["mcp_config"]["command"] = json!("${__dirname}/bin/notes");
    assert!(plan(&own).unwrap().command[0].ends_with("/tree/bin/notes"));
}

/// Writes an archive of these files.
fn archive(file: &Path, entries: &[(&str, &[u8])]) {
    let mut zip = ZipWriter::new(std::fs::File::create(file).unwrap());
    for (name, content) in entries {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap();
}

#[test]
fn an_archive_writes_nothing_outside_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.mcpb");
    let refused = |entries: &[(&str, &[u8])]| {
        archive(&file, entries);
        match Archive::open(&file) {
            Ok(mut archive) => archive.unpack(&folder.path().join("out")).err(),
            Err(why) => Some(why),
        }
    };
    for name in ["../x", "a/../../x", "/x", "C:x", "a\\x", "a//x", "./x", "a./x", "x ", "a\u{1b}"] {
        let why = refused(&[(name, b"x")]);
        assert!(why.as_ref().is_some_and(|why| !why.contains('\n')), "{name:?}: {why:?}");
    }
    assert!(refused(&[("a/Server.js", b"x"), ("a/server.js", b"y")]).is_some(), "names that differ in case alone");
    assert!(refused(&[("a", b"x"), ("a/b", b"y")]).is_some(), "a file that is a folder, too");
    let large = vec![0; 4 * 1024 * 1024];
    assert!(refused(&[("zeros", &large)]).is_some_and(|why| why.contains("100 times")), "a bomb");
    let many: Vec<String> = (0..20_001).map(|number| format!("{number}")).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|name| (name.as_str(), &b""[..])).collect();
    assert!(refused(&many).is_some_and(|why| why.contains("20000 at most")));
    std::fs::write(&file, "no archive").unwrap();
    assert!(Archive::open(&file).is_err());
}

#[test]
fn links_and_lying_lengths_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.mcpb");
    let mut zip = ZipWriter::new(std::fs::File::create(&file).unwrap());
    zip.add_symlink("link", "/etc/passwd", SimpleFileOptions::default()).unwrap();
    zip.finish().unwrap();
    assert!(Archive::open(&file).err().is_some_and(|why| why.contains("is a link")));

    // The archive states that its only file is empty, in both places where it states the length.
    let text = vec![b'x'; 64];
    archive(&file, &[("a", &text)]);
    let mut bytes = std::fs::read(&file).unwrap();
    let length = 64_u32.to_le_bytes();
    for at in 0..bytes.len() - 4 {
        if bytes[at..at + 4] == length {
            bytes[at..at + 4].copy_from_slice(&1_u32.to_le_bytes());
        }
    }
    std::fs::write(&file, &bytes).unwrap();
    let out = folder.path().join("out");
    let unpacked = Archive::open(&file).and_then(|mut archive| archive.unpack(&out));
    let is_there = std::fs::read(out.join("a")).is_ok_and(|read| read.len() > 64);
    assert!(unpacked.is_err() || !is_there, "{unpacked:?}");
}

#[test]
fn an_archive_is_unpacked_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("x.mcpb"), folder.path().join("out"));
    archive(&file, &[("manifest.json", b"{}"), ("server/index.js", b"run()")]);
    let mut archive = Archive::open(&file).unwrap();
    assert_eq!((archive.manifest().as_deref(), archive.size, archive.is_signed), (Ok("{}"), (2, 7), false));
    archive.unpack(&out).unwrap();
    assert_eq!(std::fs::read_to_string(out.join("server/index.js")).unwrap(), "run()");
}
