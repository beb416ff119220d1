//! The shape of the code: module docs, sizes, floors, and papers that match the files.

mod circles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::hazards;

/// Modules by floor, and the modules of the same floor that each may use. Lower floors are free, higher ones forbidden.
const FLOORS: &[(&str, u8, &[&str])] = &[
    ("hex", 0, &[]),
    ("boot", 0, &["hex"]),
    ("lock", 0, &[]),
    ("threads", 0, &[]),
    ("pieces", 0, &[]),
    ("name", 0, &["hex"]),
    ("exposed", 0, &["name", "hex"]),
    ("seal", 0, &[]),
    ("queues", 0, &["lock"]),
    ("protocol", 0, &[]),
    ("adapt", 0, &["protocol"]),
    ("answered", 0, &["protocol"]),
    ("redact", 0, &[]),
    ("counts", 0, &["protocol", "answered", "glob", "lock"]),
    ("traced", 0, &["protocol", "lock", "hex"]),
    ("observe", 0, &["protocol", "answered", "counts", "traced", "redact", "lock"]),
    ("plain", 0, &["protocol"]),
    ("record", 0, &["observe", "answered", "protocol", "redact", "lock", "plain", "counts"]),
    ("glob", 0, &[]),
    ("nearest", 0, &[]),
    ("loopback", 0, &[]),
    ("expression", 0, &["protocol"]),
    (
        "config",
        0,
        &["name", "exposed", "redact", "glob", "loopback", "protocol", "hex", "threads", "expression", "seal"],
    ),
    ("select", 0, &["name", "glob", "config"]),
    ("doubled", 0, &["protocol", "answered"]),
    ("keep", 1, &[]),
    ("oversized", 1, &[]),
    ("lineage", 1, &["keep"]),
    ("sessions", 1, &["keep"]),
    ("approvals", 1, &["keep"]),
    ("edits", 1, &["keep"]),
    ("dial", 1, &["keep"]),
    ("auth", 1, &["keep", "dial"]),
    ("trees", 1, &[]),
    ("install", 1, &["keep", "dial", "trees"]),
    ("sandbox", 1, &["dial"]),
    ("script", 1, &["sandbox"]),
    ("transport", 1, &["lineage", "dial", "auth", "trees", "sandbox", "script"]),
    ("peers", 1, &[]),
    ("policy", 1, &[]),
    ("registry", 1, &["policy"]),
    ("pins", 1, &["keep", "lineage", "registry"]),
    ("audit", 1, &["keep"]),
    ("upstream", 2, &[]),
    ("manager", 2, &["upstream"]),
    ("router", 3, &[]),
    ("export", 4, &[]),
    ("downstream", 4, &["export"]),
    ("error", 5, &[]),
    ("in_process", 5, &[]),
    ("host", 5, &["error", "in_process"]),
    ("demo", 5, &["in_process"]),
    ("cookbook", 5, &[]),
    ("fuzzing", 5, &["in_process", "demo"]),
];

/// Modules that must not know the time, the disk, the network, or the runtime.
const PURE: &[&str] = &[
    "src/name.rs",
    "src/exposed.rs",
    "src/glob.rs",
    "src/nearest.rs",
    "src/select.rs",
    "src/doubled.rs",
    "src/protocol/",
    "src/adapt/",
    "src/expression/",
    "src/policy/",
    "src/registry/",
    "src/downstream/classify.rs",
    "src/auth/challenge.rs",
];

/// The most lines of one file, without its tests.
const CAP: usize = 600;

/// The papers that explain keys, one line each: `- **H12** …`.
const PAPERS: [&str; 3] = ["docs/hazards.md", "docs/bridging.md", "docs/first-hour.md"];
/// The paper with numbered sections.
const SECTIONS: &str = "docs/bridging.md";

/// Returns the text files of the checkout by path from its root, without what tools put there.
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

/// Returns the names in a folder (`""` or `"a/b/"`), sorted; folders end with a slash.
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

/// Returns the lines before the tests.
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
        // `super`s beyond the own module lead to the crate.
        let depth = path.matches('/').count() - usize::from(path.ends_with("/mod.rs"));
        let out = "super::".repeat(depth);
        if let Some(line) = code(body(text)).find(|(_, line)| line.contains(&out)) {
            wrong.push(format!("{path}:{}: say `crate::`, not `{out}`", line.0));
        }
    }
    assert_none(&wrong, "an edge that goes up, or beside where there is none");
}

/// Returns lines of code with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    numbered(text).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Returns all lines with their numbers.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(number, line)| (number + 1, line))
}

/// Returns the modules named after `crate::`, with their lines.
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

/// A value that is missing there fails at run time at best; an argument cannot be missing.
#[test]
fn nothing_travels_in_a_map_of_types() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let found =
            code(&text).filter(|(_, line)| ["extensions_mut(", "::Extensions"].iter().any(|way| line.contains(way)));
        wrong.extend(found.map(|(number, line)| format!("{path}:{number}: {}", line.trim())));
    }
    assert_none(&wrong, "handed over by its type");
}

/// The router dispatches. What has data of its own has its methods, too.
#[test]
fn the_router_is_no_namespace() {
    const METHODS: usize = 25;
    let found: Vec<String> = sources()
        .iter()
        .filter(|(path, _)| path.starts_with("src/router/") && !is_test(path))
        .flat_map(|(path, text)| {
            methods(body(text), "Router").map(move |name| format!("{path}: {name}")).collect::<Vec<_>>()
        })
        .collect();
    assert!(found.iter().any(|method| method == "src/router/mod.rs: request"), "it looks where the methods are");
    assert!(
        found.len() <= METHODS,
        "{} methods of the router, {METHODS} at most:\n  {}\n",
        found.len(),
        found.join("\n  ")
    );
}

#[test]
fn methods_are_found_in_every_block_of_a_type() {
    let text = "impl Router {\n    fn a(&self) {\n        fn inner() {}\n    }\n\n    #[must_use]\n    pub(crate) async fn b<T>() {}\n\n    \
        #[cfg(test)]\n    fn test() {}\n\n    /// fn said()\n    fn c(\n        &self,\n    ) {}\n}\n\n\
        impl Other {\n    fn other() {}\n}\n\nimpl<'a> Clone for Router {\n    fn clone() {}\n}\n\n\
        impl Router { // again\n    const fn d() {}\n}\n";
    assert_eq!(methods(text, "Router").collect::<Vec<_>>(), ["a", "b", "c", "d"]);
}

/// The methods of the inherent blocks of a type, without those that only tests have.
fn methods<'a>(text: &'a str, of: &str) -> impl Iterator<Item = &'a str> {
    let opens = format!("impl {of} {{");
    let (mut inside, mut for_tests) = (false, false);
    text.lines().filter_map(move |line| {
        inside = line.starts_with(&opens) || inside && line != "}";
        let head = line.strip_prefix("    ").filter(|head| inside && !head.starts_with([' ', '/', '}', ')']))?;
        let is_counted = !head.starts_with('#') && !for_tests;
        for_tests = head == "#[cfg(test)]" || for_tests && head.starts_with('#');
        let (_, name) = head.split_once("fn ").filter(|_| is_counted)?;
        name.split(['(', '<']).next()
    })
}

/// A call that reads the limits twice may see two configs. Its leg has those that apply to it.
#[test]
fn a_call_reads_the_limits_once() {
    // They make legs and clients, and tell what is taken of each limit.
    let may = ["mod.rs", "clients.rs", "modern.rs", "gauges.rs"].map(|name| format!("src/router/{name}"));
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if path.starts_with("src/router/") && !is_test(&path) && !may.contains(&path) {
            let reads = ["self.limits()", "router.limits()", "manager().limits()", "manager.limits()"];
            let found = code(&text).filter(|(_, line)| reads.iter().any(|read| line.contains(read)));
            wrong.extend(found.map(|(number, line)| format!("{path}:{number}: {}", line.trim())));
        }
    }
    assert_none(&wrong, "the limits are read once more");
}

/// ARCHITECTURE.md names the files that carry one call, and says how many they are.
#[test]
fn the_way_of_a_call_is_short() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let way = text.split("## The way of one call").nth(1).and_then(|text| text.split("**Where it differs**").next());
    let way = way.expect("ARCHITECTURE.md has the way of one call");
    let files: BTreeSet<&str> = way.split('`').filter(|name| name.ends_with(".rs")).collect();
    let sources = sources();
    let missing: Vec<String> = files
        .iter()
        .filter(|name| !sources.keys().any(|path| path.ends_with(&format!("/{name}"))))
        .map(|name| (*name).to_owned())
        .collect();
    assert_none(&missing, "a file on the way of a call that does not exist");
    let said = way.split(" files carry the call").next().and_then(|text| text.split_whitespace().last());
    assert_eq!(said, Some(&*files.len().to_string()), "{files:?}");
    assert!(files.len() <= 30, "{files:?}");
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
    let papers = fs::read_to_string(root().join("docs/tree.md")).unwrap();
    let block = papers.split("```text tree\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it has a tree");
    // Folder by folder, the names that the paper lists.
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
    // Test folders may be listed without their files.
    for path in sources().keys().filter(|path| !is_test(path)) {
        let folder = &path[..=path.rfind('/').unwrap_or_default()];
        if !told.contains_key(folder) {
            wrong.push(format!("not in the tree: {folder}"));
        }
    }
    wrong.dedup();
    assert_none(&wrong, "docs/tree.md and the disk differ");
}

#[test]
fn guide_and_ci_agree() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let told = ["README.md", "docs/testing.md"].map(read).concat();
    let ci = read(".ci/run");
    let worlds =
        "MCP_HOST_SIM_SEEDS=10000 cargo test --features otel --lib simulation::every_world_holds -- --nocapture";
    let scripts = ["interop", "oauth", "conformance", "keyring", "hostile"].map(|name| format!("tests/{name}/run"));
    for command in
        ["cargo test --features otel", "fuzz/run", worlds].into_iter().chain(scripts.iter().map(String::as_str))
    {
        let alone = |line: &str| line.trim() == command || line.ends_with(&format!(" {command}"));
        assert!(told.lines().any(alone), "neither README.md nor docs/testing.md tells `{command}`");
        // There a suite gets the program, and the fuzzers get their time.
        let given = |line: &str| line.contains(&format!(" {command} ")) || alone(line);
        assert!(ci.lines().any(given), ".ci/run does not run `{command}`");
    }
    let example = read("examples/embed.rs");
    let shown =
        example.lines().skip_while(|line| line.starts_with("//!") || line.is_empty()).collect::<Vec<_>>().join("\n");
    assert!(read("docs/embedding.md").contains(&shown), "docs/embedding.md shows another examples/embed.rs");
}

#[test]
fn nothing_committed_names_this_machine() {
    // In parts, so that this file does not match.
    let registries = [concat!("registry.", "npmjs"), concat!("pypi", ".org"), concat!("index.", "crates.io")];
    let places = [concat!("/root", "/"), concat!("/work", "/")];
    let mut wrong = Vec::new();
    for (path, text) in files().into_iter().filter(|(path, _)| path != "Cargo.lock") {
        for (number, line) in text.lines().enumerate() {
            let registry = registries.iter().any(|registry| line.contains(registry));
            // A path from the root, not the middle of another one.
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

#[test]
fn every_key_is_explained_once_and_every_explained_key_is_in_use() {
    let files = files();
    let mut wrong = Vec::new();
    let mut explained: BTreeMap<&str, String> = BTreeMap::new();
    for paper in PAPERS {
        for (number, line) in numbered(&files[paper]) {
            let Some(key) = explained_key(line) else { continue };
            let place = format!("{paper}:{number}");
            match explained.get(key) {
                Some(first) => wrong.push(format!("{place}: {first} explains {key} already")),
                None => {
                    explained.insert(key, place);
                }
            }
        }
    }
    let mut in_use = BTreeSet::new();
    for (path, text) in files.iter().filter(|(path, _)| is_written_here(path)) {
        // These explain or list keys, and do not use them.
        let uses = !PAPERS.contains(&path.as_str()) && path != "tests/hazards.md";
        for (number, line) in numbered(text) {
            for key in keys(path, line) {
                if !explained.contains_key(key.as_str()) {
                    wrong.push(format!("{path}:{number}: no line of docs/ explains {key}"));
                }
                if uses {
                    in_use.insert(key);
                }
            }
        }
    }
    let idle = explained.iter().filter(|(key, _)| !in_use.contains(**key));
    wrong.extend(idle.map(|(key, place)| format!("{place}: nothing uses {key}")));
    assert_none(&wrong, "keys and their explanations differ");
}

#[test]
fn every_paper_and_section_that_is_referred_to_exists() {
    let files = files();
    let sections: BTreeSet<&str> = files[SECTIONS].lines().filter_map(section).collect();
    let mut wrong = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| is_written_here(path)) {
        let folder = &path[..path.rfind('/').map_or(0, |at| at + 1)];
        for (number, line) in numbered(text) {
            let place = format!("{path}:{number}");
            for (name, rest) in papers(line) {
                let mut places = ["", "docs/", folder].into_iter().map(|base| resolved(base, name));
                match places.find(|paper| files.contains_key(paper)) {
                    None => wrong.push(format!("{place}: there is no {name}")),
                    Some(paper) if paper == SECTIONS => {
                        let missing = sections_after(rest).filter(|section| !sections.contains(section));
                        wrong.extend(missing.map(|section| format!("{place}: {paper} has no section {section}")));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    assert_none(&wrong, "a reference leads nowhere");
}

#[test]
fn keys_papers_and_sections_are_read_from_lines() {
    assert_eq!(explained_key("- **H12** A server is a wrapper."), Some("H12"));
    assert_eq!(explained_key("- **Two words** of a list"), None);
    assert_eq!(keys("README.md", "H1, H18 and no key: xH2, H3x, H"), ["H1", "H18"]);
    let name = |name: &str| format!("    async fn {name}() {{");
    assert_eq!(keys("a.rs", &name("h3_h27_what_grows")), ["H3", "H27"]);
    assert_eq!(keys("a.rs", &name("h6_race_10_both_pipes")), ["H6", "race_10"]);
    assert_eq!(keys("a.rs", &name("first_hour_r2_a_call")), ["r2"]);
    assert_eq!(keys("a.rs", &name("c1_an_entry")), ["c1"]);
    assert!(keys("a.rs", &name("a_race_of_two")).is_empty());
    let line = "[it](../tests/hazards.md), `docs/bridging.md` 5.5, 5.6.";
    let (first, second) = ("../tests/hazards.md", "docs/bridging.md");
    assert_eq!(papers(line), [(first, "), `docs/bridging.md` 5.5, 5.6."), (second, "` 5.5, 5.6.")]);
    assert_eq!(papers(&line.replace("../", "https://")).len(), 1, "a URL is not a path");
    assert_eq!(sections_after("` 5.5, 5.6.").collect::<Vec<_>>(), ["5.5", "5.6"]);
    assert_eq!(sections_after("` says").count(), 0);
    assert_eq!(section("### 5.2 Parked calls"), Some("5.2"));
    assert_eq!(resolved("docs/", "../tests/hazards.md"), "tests/hazards.md");
}

/// Reports whether people write the file: not a lock file, and not generated.
fn is_written_here(path: &str) -> bool {
    !path.ends_with("Cargo.lock") && !path.starts_with("tests/fixtures/")
}

/// Returns the key that a line of a paper explains.
fn explained_key(line: &str) -> Option<&str> {
    let (key, _) = line.strip_prefix("- **")?.split_once("** ")?;
    key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(key)
}

/// Returns the keys in a line: hazards by their number (H12), and what a test's name begins with or says about a race.
fn keys(path: &str, line: &str) -> Vec<String> {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut keys: Vec<String> = words.filter(|word| is_numbered(word, "H")).map(str::to_owned).collect();
    let Some(name) = hazards::name(line).filter(|_| path.ends_with(".rs")) else { return keys };
    keys.extend(hazards::numbers(name).map(|number| format!("H{number}")));
    let words: Vec<&str> = name.split('_').collect();
    match words.as_slice() {
        ["first", "hour", key, ..] => keys.push((*key).to_owned()),
        [key, ..] if is_numbered(key, "c") => keys.push((*key).to_owned()),
        _ => {}
    }
    let races = words.windows(2).filter(|pair| pair[0] == "race" && is_numbered(pair[1], ""));
    keys.extend(races.map(|pair| pair.join("_")));
    keys
}

/// Reports whether a word is the prefix and a number.
fn is_numbered(word: &str, prefix: &str) -> bool {
    word.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the papers that a line names by path, each with what follows it.
fn papers(line: &str) -> Vec<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    let mut found = Vec::new();
    for (at, end) in line.match_indices(".md") {
        let (before, rest) = line.split_at(at + end.len());
        let name = &before[before.trim_end_matches(is_part).len()..];
        let is_longer = rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let is_url = name.starts_with("//");
        if !is_longer && !is_url && name != end {
            found.push((name, rest));
        }
    }
    found
}

/// Resolves a name seen from a folder to a path from the root.
fn resolved(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(name.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the number of the section that a line begins.
fn section(line: &str) -> Option<&str> {
    let title = line.strip_prefix("### ").or_else(|| line.strip_prefix("## "))?;
    title.split(' ').next().filter(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the section numbers right behind the name of a paper.
fn sections_after(rest: &str) -> impl Iterator<Item = &str> {
    let rest = rest.trim_start_matches('`').trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && !"., ".contains(c)).unwrap_or(rest.len());
    let numbers = rest[..end].split(", ").map(|number| number.trim_matches([' ', '.', ',']));
    numbers.filter(|number| !number.is_empty())
}
