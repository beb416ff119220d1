//! The shape of the code: heads, sizes, floors, and papers that say what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Modules by floor, and on its own floor what a module may use. All below is free, all above is forbidden.
const FLOORS: &[(&str, u8, &[&str])] = &[
    ("name", 0, &[]),
    ("exposed", 0, &["name"]),
    ("seal", 0, &[]),
    ("queues", 0, &[]),
    ("protocol", 0, &[]),
    ("adapt", 0, &["protocol"]),
    ("redact", 0, &[]),
    ("glob", 0, &[]),
    ("config", 0, &["name", "exposed", "redact", "glob", "protocol"]),
    ("keep", 1, &[]),
    ("lineage", 1, &["keep"]),
    ("approvals", 1, &["keep"]),
    ("dial", 1, &[]),
    ("auth", 1, &["keep", "dial"]),
    ("transport", 1, &["lineage", "dial", "auth"]),
    ("registry", 1, &[]),
    ("audit", 1, &[]),
    ("upstream", 2, &[]),
    ("manager", 2, &["upstream"]),
    ("router", 3, &[]),
    ("downstream", 4, &[]),
    ("error", 5, &[]),
    ("in_process", 5, &[]),
    ("host", 5, &["error", "in_process"]),
    ("demo", 5, &["in_process"]),
    ("fuzzing", 5, &["in_process", "demo"]),
];

/// What must not know the time, the disk, the network or the runtime.
const PURE: &[&str] = &[
    "src/name.rs",
    "src/exposed.rs",
    "src/glob.rs",
    "src/protocol/",
    "src/adapt/",
    "src/registry/",
    "src/downstream/classify.rs",
    "src/auth/challenge.rs",
];

/// Lines of one file, its tests aside.
const CAP: usize = 600;

/// The text files of the checkout by path from its root, without what tools have put there.
fn files() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    collect("", &mut found);
    found
}

fn collect(folder: &str, found: &mut BTreeMap<String, String>) {
    for name in names(folder) {
        match name.strip_suffix('/') {
            Some(_) => collect(&format!("{folder}{name}"), found),
            None => {
                let path = format!("{folder}{name}");
                if let Ok(text) = fs::read_to_string(root().join(&path)) {
                    found.insert(path, text);
                }
            }
        }
    }
}

/// What lies in a folder (`""` or `"a/b/"`), sorted; folders end with a slash.
fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).expect("a checkout that can be read");
    let names = entries.map(|entry| {
        let entry = entry.expect("a checkout that can be read");
        let name = entry.file_name().into_string().expect("a checkout that can be read");
        if entry.file_type().expect("a checkout that can be read").is_dir() { format!("{name}/") } else { name }
    });
    let made = [".git", ".git/", ".cache/", "target/", "node_modules/", "__pycache__/", ".venv/"];
    names.filter(|name| !made.contains(&name.as_str()) && !name.ends_with(".pending-snap")).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> BTreeMap<String, String> {
    files().into_iter().filter(|(path, _)| path.starts_with("src/") && path.ends_with(".rs")).collect()
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// The lines before the tests.
fn body(text: &str) -> &str {
    text.find("\n#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end])
}

fn assert_none(wrong: &[String], rule: &str) {
    assert!(wrong.is_empty(), "{rule}:\n  {}\n", wrong.join("\n  "));
}

#[test]
fn every_file_opens_with_its_head() {
    let headless = |(path, text): (String, String)| (!text.starts_with("//! ")).then_some(path);
    assert_none(&sources().into_iter().filter_map(headless).collect::<Vec<_>>(), "no `//!` at the top");
}

#[test]
fn no_file_is_over_the_cap() {
    let large = |(path, text): (String, String)| {
        let lines = body(&text).lines().count();
        (lines > CAP && !is_test(&path)).then(|| format!("{path}: {lines}"))
    };
    assert_none(&sources().into_iter().filter_map(large).collect::<Vec<_>>(), "more than 600 lines");
}

#[test]
fn the_floors_hold() {
    let mut wrong = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| !is_test(path) && *path != "src/lib.rs") {
        if path.starts_with("src/bin/") {
            continue;
        }
        let module = path["src/".len()..].split(['/', '.']).next().unwrap_or_default();
        let Some((_, floor, beside)) = FLOORS.iter().find(|(name, ..)| *name == module) else {
            wrong.push(format!("{path}: `{module}` stands on no floor"));
            continue;
        };
        for (line, used) in uses(body(text)) {
            let allowed = used == module
                || beside.contains(&used.as_str())
                || FLOORS.iter().any(|(name, below, _)| *name == used && below < floor);
            if !allowed {
                wrong.push(format!("{path}:{line}: `{module}` uses `{used}`"));
            }
        }
        // Above `super`s out of its own module stands the crate.
        let depth = path.matches('/').count() - usize::from(path.ends_with("/mod.rs"));
        let out = "super::".repeat(depth);
        if let Some(line) = code(body(text)).find(|(_, line)| line.contains(&out)) {
            wrong.push(format!("{path}:{}: say `crate::`, not `{out}`", line.0));
        }
    }
    assert_none(&wrong, "an edge that goes up, or beside where there is none");
}

/// Lines of code with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// The modules named after `crate::`, with the line where.
fn uses(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in code(text) {
        for (at, _) in line.match_indices("crate::") {
            let before = line[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
                continue;
            }
            let rest = &line[at + "crate::".len()..];
            if rest.starts_with('{') {
                found.push((number, "several at once: one `use` each".to_owned()));
            }
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            if end > 0 {
                found.push((number, rest[..end].to_owned()));
            }
        }
    }
    found
}

#[test]
fn what_is_pure_stays_pure() {
    let impure = ["tokio", "std::fs", "std::net", "std::env", "std::process", "Instant", "SystemTime"];
    let mut wrong = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| PURE.iter().any(|pure| path.starts_with(pure))) {
        if is_test(path) {
            continue;
        }
        for (number, line) in code(body(text)) {
            wrong.extend(
                impure.iter().filter(|word| line.contains(**word)).map(|word| format!("{path}:{number}: {word}")),
            );
        }
    }
    assert_none(&wrong, "not pure");
}

#[test]
fn every_area_of_the_tests_is_run() {
    let main = fs::read_to_string(root().join("tests/it/main.rs")).unwrap();
    let missing = |name: String| {
        let module = name.trim_end_matches(".rs").trim_end_matches('/').to_owned();
        (module != "main" && !main.lines().any(|line| line == format!("mod {module};"))).then_some(name)
    };
    assert_none(&names("tests/it/").into_iter().filter_map(missing).collect::<Vec<_>>(), "not in tests/it/main.rs");
}

#[test]
fn the_tree_in_the_papers_is_the_tree_on_disk() {
    let papers = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let block = papers.split("```text tree\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it has a tree");
    // Folder by folder, the names that stand in it.
    let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::from([(String::new(), BTreeSet::new())]);
    let mut open: Vec<&str> = Vec::new();
    for line in block.lines() {
        let name = line.split_whitespace().next().expect("a name on each line");
        open.truncate((line.len() - line.trim_start().len()) / 2);
        told.entry(open.concat()).or_default().insert(name.to_owned());
        if name.ends_with('/') {
            open.push(name);
        }
    }
    let mut wrong = Vec::new();
    for (folder, told) in &told {
        // Settings of tools are dot files.
        let there: BTreeSet<_> = names(folder).into_iter().filter(|name| !name.starts_with('.')).collect();
        wrong.extend(there.difference(told).map(|name| format!("not in the tree: {folder}{name}")));
        wrong.extend(told.difference(&there).map(|name| format!("not on disk: {folder}{name}")));
    }
    // Folders of tests may stay closed.
    for path in sources().keys().filter(|path| !is_test(path)) {
        let folder = &path[..=path.rfind('/').unwrap_or_default()];
        if !told.contains_key(folder) {
            wrong.push(format!("not in the tree: {folder}"));
        }
    }
    wrong.dedup();
    assert_none(&wrong, "ARCHITECTURE.md and the disk differ");
}

#[test]
fn guide_and_ci_agree() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let told = ["README.md", "docs/testing.md"].map(read).concat();
    let ci = read(".ci/run");
    let worlds = "MCP_HOST_SIM_SEEDS=10000 cargo test --lib simulation::every_world_holds -- --nocapture";
    let scripts = ["interop", "oauth", "conformance", "keyring", "hostile"].map(|name| format!("tests/{name}/run"));
    for command in ["cargo test", "fuzz/run", worlds].into_iter().chain(scripts.iter().map(String::as_str)) {
        let alone =
            |text: &str| text.lines().any(|line| line.trim() == command || line.ends_with(&format!(" {command}")));
        assert!(alone(&told), "neither README.md nor docs/testing.md tells `{command}`");
        assert!(alone(&ci), ".ci/run does not run `{command}`");
    }
    let example = read("examples/embed.rs");
    let shown =
        example.lines().skip_while(|line| line.starts_with("//!") || line.is_empty()).collect::<Vec<_>>().join("\n");
    assert!(read("docs/embedding.md").contains(&shown), "docs/embedding.md shows another examples/embed.rs");
}

#[test]
fn nothing_committed_names_this_machine() {
    // In parts, so that this file is not the one that does.
    let registries = [concat!("registry.", "npmjs"), concat!("pypi", ".org"), concat!("index.", "crates.io")];
    let places = [concat!("/root", "/"), concat!("/work", "/")];
    let mut wrong = Vec::new();
    for (path, text) in files().into_iter().filter(|(path, _)| path != "Cargo.lock") {
        for (number, line) in text.lines().enumerate() {
            let registry = registries.iter().any(|registry| line.contains(registry));
            // A path from the root on, not the middle of another one.
            let inside = |at: usize| line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.})~*".contains(c));
            let place = places.iter().any(|place| line.match_indices(place).any(|(at, _)| !inside(at)));
            let homes = ["/home/", "/Users/"].into_iter().flat_map(|home| line.match_indices(home));
            let home = homes.into_iter().any(|(at, home)| {
                let name = line[at + home.len()..].split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                !["", "ada", "user", "you"].contains(&name)
            });
            if registry || place || home {
                wrong.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_none(&wrong, "a registry or a path of one machine");
}
