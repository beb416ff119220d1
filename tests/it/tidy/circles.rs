//! Which file of `src` and `benches` stands on which: no circles, and an inner order in three modules.
//!
//! A file stands on another one if its code names what that one defines, in a `use` or in a path. What a `pub use` passes
//! on belongs to the file that defines it, so to pass on is not to stand on. Calls of methods name no file and are not
//! seen; code that only tests have does not count.
//!
//! Seen from a folder, each file and each folder in it is one thing, and none of these may stand on itself by way of
//! others. The `mod.rs` of a folder (`lib.rs`, `main.rs`) is the face of it all: what the other files of the folder take
//! from it, and what it takes from them, stays inside one thing and is no edge.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{assert_none, files, is_test};

/// Edges that still close a circle, from the file that names something to the file that defines it. This list only gets
/// shorter.
const KNOWN: &[(&str, &str)] = &[];

/// The inner order of modules, from the ground up: a file may stand on files of its own floor and of those below.
const INNER: &[(&str, &[&[&str]])] = &[
    (
        "src/upstream/",
        &[
            // What is said, and what is decided without a connection.
            &[
                "ask.rs",
                "backoff.rs",
                "era.rs",
                "gate.rs",
                "handshake.rs",
                "inbox.rs",
                "modern.rs",
                "nature.rs",
                "state.rs",
                "terms.rs",
            ],
            &["connection/"],
            // What is asked over a connection.
            &["listing.rs", "resume.rs", "world.rs"],
            &["renew.rs", "tell.rs", "work.rs"],
            &["drive.rs"],
            &["exchange.rs", "infer.rs", "open.rs"],
            &["listen.rs", "probe.rs"],
            &["watching.rs"],
            // The lease.
            &["alone.rs", "life.rs", "whose.rs"],
        ],
    ),
    (
        "src/router/",
        &[
            &[
                "asks.rs",
                "answer.rs",
                "background.rs",
                "clocks.rs",
                "heard.rs",
                "heart.rs",
                "joined.rs",
                "level.rs",
                "plan.rs",
                "presence.rs",
                "rising.rs",
                "state.rs",
                "through.rs",
            ],
            &["mailbox.rs", "verdict.rs"],
            // One client, and all of them.
            &["client.rs"],
            &["handshake.rs", "question.rs", "questions.rs", "roster/", "route.rs", "standing.rs", "view.rs"],
            &["clients.rs", "missed.rs", "rewatch.rs", "roots.rs", "search.rs"],
            &["merged.rs", "oversized.rs"],
            // Calls that wait for answers to questions.
            &["parked.rs", "put.rs"],
            &["toward.rs"],
            &["ask_roots.rs", "driver.rs", "running.rs"],
            // Calls on their way, and as tasks.
            &["beating.rs", "forward.rs", "reach.rs"],
            &[
                "changed.rs",
                "find.rs",
                "finish.rs",
                "judge.rs",
                "limit.rs",
                "own.rs",
                "relay.rs",
                "spread.rs",
                "tasks/",
                "trail.rs",
                "valid.rs",
            ],
            &["asking.rs"],
            &["invite.rs", "park.rs", "permission.rs"],
            &["call.rs"],
            &["cache.rs", "shared.rs"],
            // What else is dispatched to, what is measured, and what is told.
            &["extensions.rs", "fallback.rs", "gauges.rs", "home.rs", "list.rs", "observed.rs", "resource.rs"],
            &["greeting.rs", "modern.rs", "subscribe.rs"],
            &["news.rs", "scripts/"],
            &["start.rs"],
        ],
    ),
    (
        "src/downstream/",
        &[
            &["approvals.rs", "call.rs", "classify.rs", "guard.rs", "outbox.rs", "peer.rs"],
            &["admin/", "authentication/", "calls.rs"],
            &["stdio/"],
            // The page, whatever carries it.
            &["console/access.rs", "console/answer.rs", "console/assets.rs"],
            &["console/call.rs", "console/deeds.rs", "console/fuzzing.rs", "console/mod.rs", "console/reads.rs"],
            // The HTTP door: what connections share, streams, what is served, and the door.
            &[
                "http/event_id.rs",
                "http/handle.rs",
                "http/headers.rs",
                "http/rarely.rs",
                "http/rules.rs",
                "http/threads.rs",
                "http/tls.rs",
                "http/wires.rs",
            ],
            &["http/halved.rs", "http/outlet.rs", "http/receipt.rs", "http/replay.rs"],
            &["http/answer.rs", "http/body.rs", "http/session.rs", "http/stream.rs"],
            &["http/chosen.rs", "http/metrics.rs", "http/origin.rs", "http/revival.rs"],
            &["http/console.rs", "http/get.rs", "http/post.rs", "http/sse.rs", "http/stateless.rs"],
            &["http/cluster/"],
            &["http/routes.rs"],
            &["http/connection.rs"],
            &["http/relayed.rs"],
            &["http/fuzzing.rs", "http/mod.rs"],
        ],
    ),
];

#[test]
fn no_file_stands_on_itself() {
    assert_none(&faults(&edges(&code()), KNOWN), "a circle of files");
}

#[test]
fn the_inner_floors_hold() {
    let code = code();
    let edges = edges(&code);
    let mut wrong = Vec::new();
    for (module, floors) in INNER {
        let floors_of = |path: &str| -> Vec<usize> {
            let Some(inner) = path.strip_prefix(module) else { return Vec::new() };
            let is_at = |place: &&str| *place == inner || place.ends_with('/') && inner.starts_with(*place);
            let found = floors.iter().enumerate().filter(|(_, floor)| floor.iter().any(is_at));
            found.map(|(number, _)| number).collect()
        };
        let face = format!("{module}mod.rs");
        for path in code.keys().filter(|path| path.starts_with(module) && **path != face) {
            let count = floors_of(path).len();
            if count != 1 {
                wrong.push(format!("{path} stands on {count} floors"));
            }
        }
        for place in floors.iter().copied().flatten() {
            if !code.keys().any(|path| path.starts_with(&format!("{module}{place}"))) {
                wrong.push(format!("there is no {module}{place}"));
            }
        }
        for ((from, to), (line, name)) in &edges {
            let (low, high) = (floors_of(from), floors_of(to));
            if low.iter().any(|low| high.iter().any(|high| low < high)) && units(from, to).is_some() {
                wrong.push(format!("{from}:{line}: `{name}` of {to} is above"));
            }
        }
    }
    assert_none(&wrong, "an edge that goes up, or a file on no floor");
}

#[test]
fn circles_are_found_through_names_that_are_passed_on() {
    let crate_of = |files: &[(&str, &str)]| -> BTreeMap<String, String> {
        files.iter().map(|(path, text)| (format!("src/{path}"), (*text).to_owned())).collect()
    };
    let mut sources = crate_of(&[
        ("lib.rs", "mod a;\nmod b;\nmod deep;\npub use a::A;\n"),
        ("a.rs", "use crate::deep::{self, Passed as P};\npub struct A(P, deep::one::Two);\n"),
        ("b.rs", "// crate::a::A\nconst T: &str = r#\"crate::a::A\"#;\nfn f<'a>(c: &'a char) { *c == '\"'; }\n"),
        ("deep/mod.rs", "mod one;\npub use one::One as Passed;\npub struct Face;\n"),
        ("deep/one.rs", "use super::Face;\npub struct One(Face);\nmod inner { use super::One; }\n"),
    ]);
    let found = |sources: &BTreeMap<String, String>| circles(&edges(sources));
    let edge = |sources: &BTreeMap<String, String>, from: &str, to: &str| {
        edges(sources).get(&(format!("src/{from}"), format!("src/{to}"))).cloned()
    };
    assert_eq!(edge(&sources, "a.rs", "deep/one.rs"), Some((1, "One".to_owned())));
    assert_eq!(edge(&sources, "a.rs", "deep/mod.rs"), None, "it only passes on");
    assert_eq!(edges(&sources).len(), 2, "{:?}", edges(&sources));
    assert!(found(&sources).is_empty());
    // Only tests name it.
    let tests = "#[cfg(test)]\nfn t(a: crate::a::A, b: u8) {}\n#[cfg(test)]\nmod tests { use crate::a::A; }\n";
    sources.get_mut("src/b.rs").unwrap().push_str(tests);
    assert_eq!(edge(&sources, "b.rs", "a.rs"), None);
    // By the name that the crate passes on.
    sources.get_mut("src/deep/one.rs").unwrap().push_str("pub struct Two(crate::A);\n");
    let circle = "src/a.rs:1 -> src/deep/one.rs (One), src/deep/one.rs:4 -> src/a.rs (A)";
    assert_eq!(found(&sources), [circle]);
    let known = [("src/deep/one.rs", "src/a.rs")];
    assert!(faults(&edges(&sources), &known).is_empty(), "a circle that is known is none too many");
    let known = [known[0], ("src/b.rs", "src/a.rs"), ("src/deep/one.rs", "src/deep/mod.rs")];
    let faults = faults(&edges(&sources), &known);
    assert_eq!(faults.len(), 2, "one that is mended must go from the list: {faults:?}");
    // No two files stand on each other, and the folder stands on itself all the same.
    sources.insert("src/deep/one.rs".to_owned(), "pub struct One;\npub struct Two;\n".to_owned());
    sources.insert("src/deep/other.rs".to_owned(), "use crate::A;\n".to_owned());
    let circle = "src/a.rs:1 -> src/deep/one.rs (One), src/deep/other.rs:1 -> src/a.rs (A)";
    assert_eq!(found(&sources), [circle]);
}

/// The files that count.
fn code() -> BTreeMap<String, String> {
    let is_code = |path: &str| path.starts_with("src/") || path.starts_with("benches/");
    files().into_iter().filter(|(path, _)| is_code(path) && path.ends_with(".rs") && !is_test(path)).collect()
}

/// From the file that names something to the file that defines it: a line, and the name.
type Edges = BTreeMap<(String, String), (usize, String)>;

/// Where a path of modules leads.
type Path = Vec<String>;

/// What one file says of names.
#[derive(Debug, Default)]
struct Source {
    path: String,
    /// What is named in it, by line.
    named: Vec<(usize, Path)>,
    /// What is called otherwise here, or by its last name.
    aliases: BTreeMap<String, Path>,
}

fn edges(sources: &BTreeMap<String, String>) -> Edges {
    let mut edges = Edges::new();
    let is_root = |path: &&String| path.ends_with("/lib.rs") || path.ends_with("/main.rs");
    let mut roots: Vec<&str> = sources.keys().filter(is_root).filter_map(|path| folder(path)).collect();
    // A crate inside the folder of another one is a crate of its own.
    roots.sort_by_key(|root| std::cmp::Reverse(root.len()));
    for root in &roots {
        let of_root = |path: &&String| roots.iter().find(|root| path.starts_with(**root)) == Some(root);
        let modules =
            sources.keys().filter(of_root).map(|path| (module(&path[root.len()..]), read(path, &sources[path])));
        let modules: BTreeMap<Path, Source> = modules.collect();
        for (module, source) in &modules {
            for (line, path) in &source.named {
                let Some((at, Some(name))) = leads(&modules, module, path, 0) else { continue };
                let Some(to) = modules.get(&at).filter(|_| at != *module) else { continue };
                edges.entry((source.path.clone(), to.path.clone())).or_insert((*line, name));
            }
        }
    }
    edges
}

/// The folder of a path, with its slash.
fn folder(path: &str) -> Option<&str> {
    Some(&path[..=path.rfind('/')?])
}

/// The module that a file of a crate is.
fn module(file: &str) -> Path {
    let mut module: Path = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// The module that defines what a path means in a module, and the name there; no name if it is the module itself.
fn leads(
    modules: &BTreeMap<Path, Source>,
    from: &[String],
    path: &[String],
    depth: usize,
) -> Option<(Path, Option<String>)> {
    // A name that is passed on so often is passed on in a circle: `use url;`.
    if depth > 16 {
        return None;
    }
    let inside = |module: &[String], name: &str| [module, &[name.to_owned()]].concat();
    let (first, rest) = path.split_first()?;
    let (mut at, mut rest) = match first.as_str() {
        "crate" => (Path::new(), rest),
        "self" => (from.to_vec(), rest),
        "super" => (from.split_last()?.1.to_vec(), rest),
        name if modules.contains_key(&inside(from, name)) => (from.to_vec(), path),
        name => match leads(modules, from, modules.get(from)?.aliases.get(name)?, depth + 1)? {
            (module, None) => (module, rest),
            defined => return Some(defined),
        },
    };
    while let Some((name, after)) = rest.split_first() {
        if name == "super" {
            at.pop();
        } else if modules.contains_key(&inside(&at, name)) {
            at.push(name.clone());
        } else if let Some(passed) = modules.get(&at)?.aliases.get(name) {
            match leads(modules, &at, passed, depth + 1)? {
                (module, None) => at = module,
                defined => return Some(defined),
            }
        } else {
            return Some((at, Some(name.clone())));
        }
        rest = after;
    }
    Some((at, None))
}

fn read(path: &str, text: &str) -> Source {
    let tokens = without_tests(&tokens(text));
    let mut source = Source { path: path.to_owned(), ..Source::default() };
    let mut passed = Vec::new();
    let mut words = BTreeSet::new();
    // Where modules inside the file end.
    let mut inner: Vec<usize> = Vec::new();
    let mut at = 0;
    while let Some((line, word)) = tokens.get(at).copied() {
        inner.retain(|end| at < *end);
        let next = |ahead: usize| tokens.get(at + ahead).map_or("", |(_, word)| *word);
        if word == "use" && next(1) != "<" {
            let end = at + tokens[at..].iter().position(|(_, word)| *word == ";").unwrap_or(tokens.len() - at);
            let mut names = Vec::new();
            tree(&mut tokens[at + 1..end].iter().map(|(_, word)| *word), &[], &mut names);
            let is_public = at > 0 && matches!(tokens[at - 1].1, "pub" | ")");
            for (mut path, alias) in names {
                out_of(&inner, &mut path);
                if is_public {
                    passed.push((line, alias.clone(), path.clone()))
                } else {
                    source.named.push((line, path.clone()))
                }
                // A module inside that takes what its file defines gives that no other name.
                if path != ["self", alias.as_str()] {
                    source.aliases.insert(alias, path);
                }
            }
            at = end;
        } else if word == "mod" && next(2) == "{" {
            inner.push(closed(&tokens, at + 2));
            at += 2;
        } else if is_word(word) {
            let mut path = vec![word.to_owned()];
            let mut length = 1;
            while next(length) == "::" && is_word(next(length + 1)) {
                path.push(next(length + 1).to_owned());
                length += 2;
            }
            words.insert(word);
            let is_rest = at > 0 && tokens[at - 1].1 == "::";
            if length > 1 && !is_rest {
                out_of(&inner, &mut path);
                source.named.push((line, path));
            }
            at += length - 1;
        }
        at += 1;
    }
    source.named.extend(
        passed.into_iter().filter(|(_, alias, _)| words.contains(&**alias)).map(|(line, _, path)| (line, path)),
    );
    source
}

/// In a module inside of a file, `super` is the file.
fn out_of(inner: &[usize], path: &mut [String]) {
    if let Some(first) = path.first_mut().filter(|first| !inner.is_empty() && *first == "super") {
        *first = "self".to_owned();
    }
}

/// The names of a tree of `use`, each with what it is called here.
fn tree<'a>(words: &mut impl Iterator<Item = &'a str>, before: &[String], names: &mut Vec<(Path, String)>) {
    let (mut path, mut alias, mut is_alias) = (before.to_vec(), None, false);
    let mut put = |path: &mut Path, alias: &mut Option<String>| {
        let path = std::mem::replace(path, before.to_vec());
        if path.len() > before.len() || alias.is_some() {
            let alias = alias.take().or_else(|| path.last().cloned()).unwrap_or_default();
            names.push((path, alias));
        }
    };
    while let Some(word) = words.next() {
        match word {
            "::" => {}
            "as" => is_alias = true,
            "," => put(&mut path, &mut alias),
            "}" => break,
            "{" => {
                let inside = std::mem::replace(&mut path, before.to_vec());
                let mut inner = Vec::new();
                tree(words, &inside, &mut inner);
                for (mut path, alias) in inner {
                    put(&mut path, &mut Some(alias));
                }
            }
            word if is_alias => (alias, is_alias) = (Some(word.to_owned()), false),
            "self" if !path.is_empty() => alias = path.last().cloned(),
            word => path.push(word.to_owned()),
        }
    }
    put(&mut path, &mut alias);
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Behind the bracket that closes the one there.
fn closed(tokens: &[(usize, &str)], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, (_, word)) in tokens.iter().enumerate().skip(open) {
        match *word {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Without the items that only tests have.
fn without_tests<'a>(tokens: &[(usize, &'a str)]) -> Vec<(usize, &'a str)> {
    let begins = |at: usize, words: &[&str]| {
        tokens[at..].iter().map(|(_, word)| *word).take(words.len()).eq(words.iter().copied())
    };
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let all = begins(at, &["#", "[", "cfg", "(", "all", "(", "test"]);
        if !all && !begins(at, &["#", "[", "cfg", "(", "test", ")"]) {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        // A field ends at its comma; what has a body, behind it.
        let mut has_body = false;
        at = closed(tokens, at + 1);
        while let Some((_, word)) = tokens.get(at).copied() {
            has_body |= matches!(word, "fn" | "impl" | "mod" | "struct" | "enum" | "trait");
            let end = if matches!(word, "{" | "(" | "[") { closed(tokens, at) } else { at + 1 };
            // Whatever it stands in ends.
            if matches!(word, "}" | ")" | "]") {
                break;
            }
            at = end;
            if matches!(word, ";" | "{") || word == "," && !has_body {
                break;
            }
        }
    }
    kept
}

/// The words and signs of a text by line, without comments, texts and characters.
fn tokens(text: &str) -> Vec<(usize, &str)> {
    let (mut at, mut line) = (0, 1);
    let mut found = Vec::new();
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let comment = match rest.get(..2) {
            Some("//") => Some(rest.find('\n').unwrap_or(rest.len())),
            Some("/*") => Some(rest.find("*/").map_or(rest.len(), |end| end + 2)),
            _ => None,
        };
        let length = comment.or_else(|| literal(rest)).unwrap_or_else(|| {
            let length = if is_word(rest) {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            if !first.is_whitespace() {
                found.push((line, &rest[..length]));
            }
            length
        });
        line += rest[..length].matches('\n').count();
        at += length;
    }
    found
}

/// The length of the text or character that begins here; a lifetime is none.
fn literal(text: &str) -> Option<usize> {
    let body = text.strip_prefix(['b', 'c']).unwrap_or(text);
    let before = text.len() - body.len();
    if let Some(raw) = body.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if let Some(inside) = raw[hashes..].strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            return Some(text.len() - inside.len() + inside.find(&end).map_or(inside.len(), |at| at + end.len()));
        }
    }
    if let Some(inside) = body.strip_prefix('"') {
        let mut escaped = false;
        let end = inside.find(|c: char| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        return Some(before + 1 + end.map_or(inside.len(), |at| at + 1));
    }
    let inside = body.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    // Behind a backslash comes at least one more.
    let least = if first == '\\' { 2 } else { first.len_utf8() };
    let length = inside.get(least..)?.find('\'')?;
    (first == '\\' || length == 0).then_some(before + least + length + 2)
}

/// The things in the innermost folder of both files that stand on each other where one file stands on the other: files,
/// or folders. None where one of them is the face of that folder.
fn units(from: &str, to: &str) -> Option<(String, String)> {
    let same = from.bytes().zip(to.bytes()).take_while(|(one, other)| one == other).count();
    let folder = folder(&from[..same])?;
    let unit = |path: &str| {
        let rest = &path[folder.len()..];
        let end = rest.find('/').map_or(rest.len(), |at| at + 1);
        (!matches!(rest, "mod.rs" | "lib.rs" | "main.rs")).then(|| format!("{folder}{}", &rest[..end]))
    };
    Some((unit(from)?, unit(to)?))
}

/// The ways from thing to thing, each with an edge of files that it is made of.
type Ways = BTreeMap<String, BTreeMap<String, String>>;

fn ways(edges: &Edges) -> Ways {
    let mut ways = Ways::new();
    for ((from, to), (line, name)) in edges {
        if let Some((above, below)) = units(from, to) {
            let edge = || format!("{from}:{line} -> {to} ({name})");
            ways.entry(above).or_default().entry(below).or_insert_with(edge);
        }
    }
    ways
}

/// The shortest way from one thing to another, or around to itself: the things after the first one, each with its edge.
fn way(ways: &Ways, from: &str, to: &str) -> Option<Vec<(String, String)>> {
    let mut before: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    let mut next = VecDeque::from([from]);
    while let Some(at) = next.pop_front() {
        for (below, edge) in ways.get(at).into_iter().flatten() {
            if before.contains_key(&**below) {
                continue;
            }
            before.insert(below, (at, edge.as_str()));
            if below == to {
                let mut back = vec![(to.to_owned(), edge.clone())];
                let mut at = at;
                while at != from {
                    let (above, edge) = before[at];
                    back.push((at.to_owned(), edge.to_owned()));
                    at = above;
                }
                back.reverse();
                return Some(back);
            }
            next.push_back(below);
        }
    }
    None
}

/// The circles but for those that are known, and what is known in vain.
fn faults(edges: &Edges, known: &[(&str, &str)]) -> Vec<String> {
    let mut rest = edges.clone();
    rest.retain(|(from, to), _| !known.contains(&(from.as_str(), to.as_str())));
    let mut faults = circles(&rest);
    let ways = ways(&rest);
    for (from, to) in known {
        let is_edge = edges.keys().any(|edge| (edge.0.as_str(), edge.1.as_str()) == (*from, *to));
        let closes = units(from, to).is_some_and(|(above, below)| way(&ways, &below, &above).is_some());
        if !is_edge || !closes {
            faults.push(format!("{from} -> {to} closes no circle: take it out of KNOWN"));
        }
    }
    faults
}

/// The circles as chains of files; of several through one file, the shortest.
fn circles(edges: &Edges) -> Vec<String> {
    let ways = ways(edges);
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    for thing in ways.keys() {
        let Some(circle) = way(&ways, thing, thing).filter(|_| !told.contains(thing)) else { continue };
        let chain: Vec<&str> = circle.iter().map(|(_, edge)| edge.as_str()).collect();
        found.push(chain.join(", "));
        told.extend(circle.into_iter().map(|(thing, _)| thing));
    }
    found
}
