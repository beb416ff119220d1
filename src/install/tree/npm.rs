//! Packages of npm: checks what their locks contain, and finds which script a package starts.

use std::fs;
use std::io::Read as _;
use std::path::{Component, Path};

use serde_json::{Map, Value, json};

use super::tool::Task;
use super::{MOST, Scripts};
use crate::config::Package;
use crate::install::Error;
use crate::keep;
use crate::protocol::Theirs;
use crate::trees::Start;

const LOCK: &str = "package-lock.json";
const MANIFEST: &str = "package.json";
/// The options of every npm command.
const QUIET: [&str; 5] = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--global=false"];

/// Asks npm what a package needs.
pub(super) async fn lock(folder: &Path, package: &Package) -> Result<String, Error> {
    write(folder, MANIFEST, manifest(package), package).await?;
    let mut args = vec!["install", "--package-lock-only", "--package-lock=true", "--ignore-scripts"];
    args.extend(QUIET);
    let what = format!("lock {}", package.spec());
    Task { program: "npm", args: &args, folder, tool: "npm", what }.run().await?;
    read(folder.join(LOCK)).await.map_err(|why| Error::Lock { spec: package.spec(), why })
}

/// Installs what a lock states.
pub(super) async fn install(tree: &Path, package: &Package, lock: &str, scripts: Scripts) -> Result<Start, Error> {
    write(tree, MANIFEST, manifest(package), package).await?;
    write(tree, LOCK, lock.to_owned(), package).await?;
    let mut args = vec!["ci"];
    args.extend((scripts == Scripts::Refused).then_some("--ignore-scripts"));
    args.extend(QUIET);
    let what = format!("install {}", package.spec());
    Task { program: "npm", args: &args, folder: tree, tool: "npm", what }.run().await?;
    let (tree, name) = (tree.to_owned(), package.name.clone());
    let found = keep::done(move || start(&tree, &name)).await;
    found.map_err(|why| Error::Store { spec: package.spec(), why })
}

async fn write(folder: &Path, name: &str, text: String, package: &Package) -> Result<(), Error> {
    let (file, spec) = (folder.join(name), package.spec());
    keep::done(move || fs::write(file, text)).await.map_err(|error| Error::Store { spec, why: error.to_string() })
}

async fn read(file: std::path::PathBuf) -> Result<String, String> {
    keep::done(move || text(&file)).await
}

fn text(file: &Path) -> Result<String, String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let wrong = |error: std::io::Error| format!("{name} cannot be read: {error}");
    let mut text = String::new();
    fs::File::open(file).map_err(wrong)?.take(MOST).read_to_string(&mut text).map_err(wrong)?;
    Ok(text)
}

/// Returns a project that needs the package, and nothing else.
fn manifest(package: &Package) -> String {
    let project = json!({
        "name": "mcp-host-tree", "version": "0.0.0", "private": true,
        "dependencies": { &package.name: package.version },
    });
    format!("{project:#}\n")
}

/// Refuses a lock that contains something without a hash, or that belongs to another project.
pub(super) fn check(lock: &str, package: &Package) -> Result<(), String> {
    let lock: Value = serde_json::from_str(lock).map_err(|error| format!("package-lock.json is no JSON: {error}"))?;
    if !matches!(lock["lockfileVersion"].as_u64(), Some(2 | 3)) {
        return Err("package-lock.json has not version 2 or 3".to_owned());
    }
    let packages = lock["packages"].as_object().ok_or("package-lock.json has no `packages`")?;
    let needs = packages.get("").and_then(|root| root["dependencies"].as_object());
    if needs != Some(&Map::from_iter([(package.name.clone(), json!(package.version))])) {
        return Err(format!("package-lock.json is not one of {} alone", package.spec()));
    }
    let own = packages.get(&format!("node_modules/{}", package.name));
    if own.is_none_or(|own| own["version"].as_str() != Some(&package.version)) {
        return Err(format!("package-lock.json has not version {} of {}", package.version, package.name));
    }
    for (place, entry) in packages.iter().filter(|(place, _)| !place.is_empty()) {
        hashed(entry).and_then(|()| inside(place)).map_err(|why| format!("{}: {why}", Theirs(place)))?;
    }
    Ok(())
}

/// Refuses an entry that npm would install without checking a hash.
fn hashed(entry: &Value) -> Result<(), &'static str> {
    if entry["link"] == true {
        return Err("it is a link to a folder of this machine");
    }
    let is_web = |url: &str| url.starts_with("https://") || url.starts_with("http://");
    if entry["resolved"].as_str().is_some_and(|from| !is_web(from)) {
        return Err("it comes from a repository or a folder, which no hash can pin");
    }
    let is_hash = |text: &str| ["sha512-", "sha384-", "sha256-"].iter().any(|kind| text.starts_with(kind));
    // A package bundled in another package's archive is covered by the hash of that archive.
    if entry["inBundle"] == true || entry["integrity"].as_str().is_some_and(is_hash) {
        return Ok(());
    }
    Err("it has no hash")
}

fn inside(place: &str) -> Result<(), &'static str> {
    let is_plain = Path::new(place).components().all(|part| matches!(part, Component::Normal(_)));
    if place.starts_with("node_modules/") && is_plain { Ok(()) } else { Err("it stands outside of node_modules") }
}

/// Finds the program of a package, as npx would. Blocks.
fn start(tree: &Path, name: &str) -> Result<Start, String> {
    let folder = format!("node_modules/{name}");
    let manifest = text(&tree.join(&folder).join(MANIFEST))?;
    let manifest: Value =
        serde_json::from_str(&manifest).map_err(|error| format!("package.json is no JSON: {error}"))?;
    let short = name.rsplit('/').next().unwrap_or(name);
    let script = match &manifest["bin"] {
        Value::String(script) => Some(script.as_str()),
        Value::Object(scripts) => match scripts.get(short) {
            Some(script) => script.as_str(),
            None if scripts.len() == 1 => scripts.values().next().and_then(Value::as_str),
            None => None,
        },
        _ => None,
    };
    let script = script.ok_or_else(|| format!("{} has no program of its own name", Theirs(name)))?;
    let script = script.strip_prefix("./").unwrap_or(script);
    if !Path::new(script).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(format!("its program {} lies outside of the package", Theirs(script)));
    }
    let path = format!("{folder}/{script}");
    let mut first = [0; 128];
    let count = fs::File::open(tree.join(&path)).and_then(|mut file| file.read(&mut first));
    let count = count.map_err(|error| format!("its program {} cannot be read: {error}", Theirs(script)))?;
    let head = String::from_utf8_lossy(&first[..count]).into_owned();
    let line = head.strip_prefix("#!").and_then(|rest| rest.lines().next());
    let is_node = match line {
        Some(line) => line.split(['/', ' ', '\t']).any(|word| word.trim_end() == "node"),
        None => ["js", "mjs", "cjs"].iter().any(|end| script.ends_with(&format!(".{end}"))),
    };
    Ok(if is_node { Start::Node { script: path } } else { Start::File { file: path } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PackageKind;

    fn lock(change: impl FnOnce(&mut Value)) -> Result<(), String> {
        let mut lock = json!({
            "lockfileVersion": 3,
            "packages": {
                "": { "dependencies": { "@ada/files": "1.2.3" } },
                "node_modules/@ada/files": { "version": "1.2.3", "integrity": "sha512-AA==" },
                "node_modules/zod": { "version": "3.0.0", "integrity": "sha512-AA==", "resolved": "https://npm.example/zod.tgz" },
                "node_modules/zod/node_modules/a": { "version": "1.0.0", "inBundle": true },
            },
        });
        change(&mut lock);
        check(&lock.to_string(), &Package::new(PackageKind::Npm, "@ada/files", "1.2.3"))
    }

    #[test]
    fn a_lock_holds_nothing_without_a_hash() {
        assert_eq!(lock(|_| {}), Ok(()));
        let zod = |key: &'static str, value: Value| lock(move |lock| lock["packages"]["node_modules/zod"][key] = value);
        for refused in [
            zod("integrity", Value::Null),
            zod("integrity", json!("sha1-AA==")),
            zod("resolved", json!("git+ssh://git@example.com/zod.git#main")),
            zod("resolved", json!("file:../zod")),
            zod("link", json!(true)),
            lock(|lock| lock["packages"][""]["dependencies"]["more"] = json!("1.0.0")),
            lock(|lock| lock["packages"][""]["dependencies"]["@ada/files"] = json!("^1.0.0")),
            lock(|lock| lock["packages"]["node_modules/@ada/files"]["version"] = json!("1.2.4")),
            lock(|lock| lock["packages"]["../elsewhere"] = json!({ "integrity": "sha512-AA==" })),
            lock(|lock| lock["packages"]["node_modules/../../a"] = json!({ "integrity": "sha512-AA==" })),
            lock(|lock| lock["lockfileVersion"] = json!(1)),
            lock(|lock| lock["packages"] = json!([])),
        ] {
            assert!(refused.is_err_and(|why| !why.contains('\n')));
        }
    }

    #[test]
    fn the_program_of_a_package_is_that_of_npx() {
        let found = |bin: Value, text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let package = folder.path().join("node_modules/@ada/files");
            fs::create_dir_all(&package).unwrap();
            fs::write(package.join("package.json"), json!({ "bin": bin }).to_string()).unwrap();
            fs::write(package.join("cli.js"), text).unwrap();
            start(folder.path(), "@ada/files")
        };
        let node = Ok(Start::Node { script: "node_modules/@ada/files/cli.js".to_owned() });
        assert_eq!(found(json!("./cli.js"), "run()"), node);
        assert_eq!(found(json!({ "other": "cli.js" }), "#!/usr/bin/env node\n"), node);
        assert_eq!(found(json!({ "files": "cli.js", "other": "x.js" }), "#!/usr/bin/env -S node --x\n"), node);
        let file = Ok(Start::File { file: "node_modules/@ada/files/cli.js".to_owned() });
        assert_eq!(found(json!("cli.js"), "#!/bin/sh\n"), file);
        for bin in
            [json!({ "a": "cli.js", "b": "cli.js" }), json!("../../x.js"), json!("/bin/sh"), json!(7), Value::Null]
        {
            assert!(found(bin.clone(), "").is_err(), "{bin}");
        }
    }
}
