//! The program's own sentences are never taken for secrets: every sentence in the sources passes through whole.

use std::fs;
use std::path::Path;

use mcp_host::redact::Scrubber;

#[test]
fn no_sentence_of_ours_is_masked() {
    let scrubber = Scrubber::default();
    let mut seen = 0;
    let mut eaten = Vec::new();
    for (path, text) in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        // Help pages are written unfiltered.
        let said = |literal: &String| literal.contains(' ') && !literal.contains('\n');
        for sentence in literals(&text).into_iter().filter(said) {
            let shown = scrubber.scrub(&sentence);
            seen += 1;
            if shown != sentence {
                eaten.push(format!("{path}: {sentence:?} becomes {shown:?}"));
            }
        }
    }
    assert!(seen > 500, "the sources are read: {seen}");
    assert!(eaten.is_empty(), "{}", eaten.join("\n"));
}

/// Returns the sources of the program, without the tests in them.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "tests" {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            let body = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            found.push((path.display().to_string(), body.to_owned()));
        }
    }
    found
}

/// Returns the string literals as they are at run time. The values of `{…}` are unknown.
fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (before, from) = rest.split_at(at);
        let hashes = before.len() - before.trim_end_matches('#').len();
        rest = if from.starts_with("//") {
            from.split_once('\n').map_or("", |(_, after)| after)
        } else if from.starts_with('"') && before[..before.len() - hashes].ends_with('r') {
            let end = format!("\"{}", "#".repeat(hashes));
            let (literal, after) = from[1..].split_once(&end).unwrap_or((&from[1..], ""));
            found.push(literal.to_owned());
            after
        } else if let Some(text) = from.strip_prefix('"') {
            let (literal, after) = quoted(text);
            found.push(literal);
            after
        } else if let Some(after) = ["'\"'", "'\\''", "'\\\"'"].iter().find_map(|quote| from.strip_prefix(quote)) {
            after
        } else {
            &from[1..]
        };
    }
    found
}

/// Returns the text up to the closing quote, and the rest.
fn quoted(text: &str) -> (String, &str) {
    let mut literal = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => break,
            '\\' => match rest.next() {
                Some('n') => literal.push('\n'),
                Some('\n') => rest = rest.as_str().trim_start().chars(),
                Some(c) => literal.push(c),
                None => break,
            },
            c => literal.push(c),
        }
    }
    (literal.replace("{{", "{").replace("}}", "}"), rest.as_str())
}
