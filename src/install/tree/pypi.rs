//! Packages of PyPI: checks what their locks contain, and finds which function a package starts.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::tool::{self, Task};
use super::{MOST, Maker, Scripts};
use crate::config::Package;
use crate::install::Error;
use crate::keep;
use crate::protocol::Theirs;
use crate::trees::Start;

const LOCK: &str = "requirements.txt";
/// The options of every pip command.
const PIP: [&str; 5] = ["-m", "pip", "--no-input", "--disable-pip-version-check", "--quiet"];

/// How a tree is installed.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub(super) is_uv: bool,
    pub(super) scripts: Scripts,
}

/// Finds uv, or a Python with pip.
pub(super) async fn maker() -> Option<Maker> {
    let mut python = None;
    for name in ["python3", "python"] {
        python = tool::answers(name, &["-c", "import sys; print(sys.executable)"]).await.filter(|path| is_whole(path));
        if python.is_some() {
            break;
        }
    }
    if tool::answers("uv", &["--version"]).await.is_some() {
        let python = match python {
            Some(python) => Some(python),
            None => tool::answers("uv", &["python", "find"]).await.filter(|path| is_whole(path)),
        };
        return python.map(|python| Maker::Uv { python });
    }
    let python = python?;
    tool::answers(&python, &["-m", "pip", "--version"]).await.map(|_| Maker::Pip { python })
}

fn is_whole(path: &str) -> bool {
    Path::new(path).is_absolute()
}

/// Asks uv what a package needs, on all systems.
pub(super) async fn lock_by_uv(
    folder: &Path,
    package: &Package,
    python: &str,
    scripts: Scripts,
) -> Result<String, Error> {
    let (file, spec) = (folder.join("requirements.in"), package.spec());
    keep::done(move || fs::write(file, format!("{spec}\n"))).await.map_err(|error| unlocked(package, &error))?;
    let mut args = vec!["pip", "compile", "--universal", "--python", python, "--generate-hashes", "--no-header"];
    args.extend(["--no-annotate", "--no-emit-index-url", "--quiet"]);
    args.extend(if scripts == Scripts::Refused { &["--only-binary", ":all:"][..] } else { &[] });
    args.push("requirements.in");
    Task { program: "uv", args: &args, folder, tool: "uv", what: format!("lock {}", package.spec()) }.run().await
}

/// Asks pip what a package needs on this system.
pub(super) async fn lock_by_pip(
    folder: &Path,
    package: &Package,
    python: &str,
    scripts: Scripts,
) -> Result<String, Error> {
    let spec = package.spec();
    let mut args = PIP.to_vec();
    args.extend(["install", "--dry-run", "--ignore-installed", "--report", "report.json"]);
    args.extend(if scripts == Scripts::Refused { &["--only-binary", ":all:"][..] } else { &[] });
    args.push(&spec);
    Task { program: python, args: &args, folder, tool: "pip", what: format!("lock {spec}") }.run().await?;
    let file = folder.join("report.json");
    let report = keep::done(move || fs::read_to_string(file)).await.map_err(|error| unlocked(package, &error))?;
    of_report(&report).map_err(|why| Error::Lock { spec: package.spec(), why })
}

fn unlocked(package: &Package, error: &std::io::Error) -> Error {
    Error::Lock { spec: package.spec(), why: error.to_string() }
}

/// Builds a lock from pip's report about what it would install.
fn of_report(report: &str) -> Result<String, String> {
    let report: Value = serde_json::from_str(report).map_err(|error| format!("pip's report is no JSON: {error}"))?;
    let mut lines = Vec::new();
    for item in report["install"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (name, version) = (text(&item["metadata"]["name"]), text(&item["metadata"]["version"]));
        let hash = text(&item["download_info"]["archive_info"]["hashes"]["sha256"]);
        let (Some(name), Some(version)) = (name, version) else {
            return Err("pip's report has a package without a name or a version".to_owned());
        };
        let hash = hash.ok_or_else(|| format!("{} has no hash", Theirs(&name)))?;
        lines.push(format!("{}=={version} \\\n    --hash=sha256:{hash}\n", normal(&name)));
    }
    lines.sort_unstable();
    Ok(lines.concat())
}

/// Refuses a lock that contains anything but packages with exact versions and hashes: an option could name another
/// index, and a URL other contents.
pub(super) fn check(lock: &str, package: &Package) -> Result<(), String> {
    let mut is_there = false;
    let whole = lock.replace("\\\r\n", " ").replace("\\\n", " ");
    for line in whole.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let wrong = |why: &str| Err(format!("requirements.txt: {}: {why}", Theirs(line)));
        let Some((named, hashes)) = line.split_once(" --hash=") else { return wrong("it has no hash") };
        let mut hashes = hashes.split(" --hash=").map(str::trim);
        if !hashes.all(|hash| hash.strip_prefix("sha256:").is_some_and(is_hex)) {
            return wrong("it has something else than hashes of SHA-256");
        }
        let requirement = named.split(';').next().unwrap_or_default().trim();
        let Some((name, version)) = requirement.split_once("==") else { return wrong("it has no exact version") };
        let name = name.split('[').next().unwrap_or_default().trim();
        let plain = |text: &str, more: &str| {
            !text.is_empty()
                && !text.starts_with('-')
                && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        if !plain(name, "-._") || !plain(version.trim(), "-._+!") {
            return wrong("it is no name with an exact version");
        }
        is_there |= normal(name) == normal(&package.name) && version.trim() == package.version;
    }
    if is_there { Ok(()) } else { Err(format!("requirements.txt has not {}", package.spec())) }
}

fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the normalized form of a package name, by which PyPI compares names.
fn normal(name: &str) -> String {
    let mut normal = String::new();
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if normal.ends_with('-') => {}
            '-' | '_' | '.' => normal.push('-'),
            c => normal.push(c.to_ascii_lowercase()),
        }
    }
    normal
}

/// Installs what a lock states.
pub(super) async fn install(
    tree: &Path,
    package: &Package,
    lock: &str,
    python: &str,
    how: How,
) -> Result<Start, Error> {
    let wrong = |why: String| Error::Store { spec: package.spec(), why };
    // The lock is written beside the tree, and is not part of it.
    let folder = tree.parent().unwrap_or(tree);
    let (file, text) = (folder.join(LOCK), lock.to_owned());
    keep::done(move || fs::write(file, text)).await.map_err(|error| wrong(error.to_string()))?;
    let mut args: Vec<&str> = if how.is_uv { vec!["pip", "--quiet"] } else { PIP.to_vec() };
    args.extend(["install", "--require-hashes", "--no-deps", "--target", "tree", "-r", LOCK]);
    // Otherwise uv's cache would share its files with the tree, and a change of one would change the other.
    match how.is_uv {
        true => args.extend(["--python", python, "--link-mode", "copy"]),
        false => args.push("--no-compile"),
    }
    args.extend(if how.scripts == Scripts::Refused { &["--only-binary", ":all:"][..] } else { &[] });
    let (program, tool) = if how.is_uv { ("uv", "uv") } else { (python, "pip") };
    Task { program, args: &args, folder, tool, what: format!("install {}", package.spec()) }.run().await?;
    // Files are compiled here because nothing is written into a tree later. Those for other Python versions fail to
    // compile.
    let compile = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "tree"];
    let what = format!("compile {}", package.spec());
    let _ = Task { program: python, args: &compile, folder, tool: "Python", what }.run().await;
    let (tree, package_name, python) = (tree.to_owned(), package.name.clone(), python.to_owned());
    let found = keep::done(move || start(&tree, &package_name, python)).await;
    found.map_err(wrong)
}

/// Finds the program of a package, as uvx would. Blocks.
fn start(tree: &Path, package: &str, interpreter: String) -> Result<Start, String> {
    let metadata = metadata(tree, package).ok_or("it was installed without its metadata")?;
    let points = fs::metadata(metadata.join("entry_points.txt")).ok().filter(|file| file.len() <= MOST);
    let points = points.and_then(|_| fs::read_to_string(metadata.join("entry_points.txt")).ok()).unwrap_or_default();
    let scripts = scripts(&points);
    let own = scripts.iter().find(|(name, _)| normal(name) == normal(package));
    let Some((name, target)) = own.or_else(|| scripts.first().filter(|_| scripts.len() == 1)) else {
        return Err(format!("{} has no program of its own name", Theirs(package)));
    };
    let target = target.split('[').next().unwrap_or_default().trim();
    let is_path = |text: &str| {
        text.split('.').all(|part| {
            part.chars().all(|c| c.is_alphanumeric() || c == '_') && part.starts_with(|c: char| !c.is_ascii_digit())
        })
    };
    match target.split_once(':') {
        Some((module, function)) if is_path(module.trim()) && is_path(function.trim()) => Ok(Start::Python {
            interpreter,
            module: module.trim().to_owned(),
            function: function.trim().to_owned(),
            name: name.clone(),
        }),
        _ => Err(format!("its program {} names no function", Theirs(name))),
    }
}

/// Finds the folder that describes a package.
fn metadata(tree: &Path, package: &str) -> Option<PathBuf> {
    let is_its = |name: &str| {
        let name = name.strip_suffix(".dist-info").and_then(|name| name.rsplit_once('-'));
        name.is_some_and(|(name, _)| normal(name) == normal(package))
    };
    let entries = fs::read_dir(tree).ok()?.flatten();
    entries.map(|entry| entry.path()).find(|path| path.file_name().is_some_and(|name| is_its(&name.to_string_lossy())))
}

/// Returns the programs of a package, each with what it calls.
fn scripts(points: &str) -> Vec<(String, String)> {
    let mut section = "";
    let mut scripts = Vec::new();
    for line in points.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim();
        } else if let Some((name, target)) = line.split_once('=').filter(|_| section == "console_scripts") {
            scripts.push((name.trim().to_owned(), target.trim().to_owned()));
        }
    }
    scripts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PackageKind;

    fn package() -> Package {
        Package::new(PackageKind::Pypi, "Mcp.Notes", "1.2.3")
    }

    #[test]
    fn a_lock_holds_packages_with_hashes_alone() {
        let hash = format!("--hash=sha256:{}", "a1".repeat(32));
        let good = format!(
            "# a comment\nmcp-notes==1.2.3 \\\n    {hash} \\\n    {hash}\nother[all]==2.0 ; python_version >= '3.10' \\\n    {hash}\n"
        );
        assert_eq!(check(&good, &package()), Ok(()));
        for line in [
            "more==1".to_owned(),
            format!("more>=1 {hash}"),
            format!("more @ https://evil.example/more.whl {hash}"),
            format!("--index-url=https://evil.example/==1 {hash}"),
            "--index-url https://evil.example/".to_owned(),
            format!("-r==1 {hash}"),
            format!("more==1 {hash} --hash=md5:00"),
            format!("more==1 --extra-index-url x {hash}"),
            format!("./more==1 {hash}"),
        ] {
            let checked = check(&format!("{good}{line}\n"), &package());
            assert!(checked.as_ref().is_err_and(|why| !why.contains('\n')), "{line}: {checked:?}");
        }
        assert!(check(&good, &Package { version: "1.2.4".to_owned(), ..package() }).is_err());
    }

    #[test]
    fn a_lock_is_made_of_pips_report() {
        let item = |name: &str, hash: Value| {
            serde_json::json!({
                "metadata": { "name": name, "version": "1.2.3" },
                "download_info": { "url": "https://x.example/", "archive_info": { "hashes": { "sha256": hash } } },
            })
        };
        let hash = serde_json::json!("a1".repeat(32));
        let report = serde_json::json!({ "install": [item("Zed", hash.clone()), item("mcp_notes", hash)] });
        let lock = of_report(&report.to_string()).unwrap();
        assert!(lock.starts_with("mcp-notes==1.2.3 \\\n    --hash=sha256:a1a1") && lock.contains("\nzed==1.2.3"));
        assert_eq!(check(&lock, &package()), Ok(()));
        let report = serde_json::json!({ "install": [item("a", Value::Null)] });
        assert_eq!(of_report(&report.to_string()), Err("a has no hash".to_owned()));
    }

    #[test]
    fn the_program_of_a_package_is_that_of_uvx() {
        let found = |points: &str| {
            let folder = tempfile::tempdir().unwrap();
            let about = folder.path().join("mcp_notes-1.2.3.dist-info");
            fs::create_dir(&about).unwrap();
            fs::write(about.join("entry_points.txt"), points).unwrap();
            start(folder.path(), "Mcp.Notes", "/usr/bin/python3".to_owned())
        };
        let calls = |name: &str, function: &str| {
            Ok(Start::Python {
                interpreter: "/usr/bin/python3".to_owned(),
                module: "notes.cli".to_owned(),
                function: function.to_owned(),
                name: name.to_owned(),
            })
        };
        assert_eq!(found("[console_scripts]\nserve = notes.cli:main\n"), calls("serve", "main"));
        let several = "[gui_scripts]\nx = y:z\n[console_scripts]\nother = a:b\nmcp-notes=notes.cli : App.run [fast]\n";
        assert_eq!(found(several), calls("mcp-notes", "App.run"));
        for points in [
            "",
            "[console_scripts]\na = b:c\nd = e:f\n",
            "[console_scripts]\na = b\n",
            "[console_scripts]\na = b c:d\n",
        ] {
            assert!(found(points).is_err(), "{points}");
        }
    }
}
