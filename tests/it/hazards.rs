//! Which tests cover which hazard of `docs/hazards.md`: `tests/hazards.md`, generated from the names of the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The folders with tests.
const FOLDERS: [&str; 2] = ["src", "tests/it"];

#[test]
fn the_list_is_that_of_the_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = BTreeMap::new();
    for folder in FOLDERS {
        collect(root, folder, &mut tests);
    }
    let explained = fs::read_to_string(root.join("docs/hazards.md")).expect("a checkout that can be read");
    let (made, file) = (list(&tests, &explained), root.join("tests/hazards.md"));
    if std::env::var_os("BLESS").is_some() {
        fs::write(&file, &made).expect("a checkout that can be written");
    }
    let there = fs::read_to_string(&file).unwrap_or_default();
    let differs = there.lines().zip(made.lines()).find(|(there, made)| there != made);
    assert!(
        there == made,
        "tests/hazards.md does not match the tests (first: {differs:?}); regenerate it: BLESS=1 cargo test --test it hazards"
    );
}

#[test]
fn numbers_are_read_from_the_front_of_a_name() {
    assert_eq!(numbers("h12_a_wrapper").collect::<Vec<_>>(), [12]);
    assert_eq!(numbers("h3_h4_the_id").collect::<Vec<_>>(), [3, 4]);
    assert_eq!(numbers("half_a_message_h10").count(), 0);
    assert_eq!(numbers("hold").count(), 0);
}

/// Returns the numbers that a test's name begins with.
pub(super) fn numbers(name: &str) -> impl Iterator<Item = u32> + '_ {
    name.split('_').map_while(|word| word.strip_prefix('h')?.parse().ok())
}

/// Finds the tests of a folder, by number: `path::name`.
fn collect(root: &Path, folder: &str, found: &mut BTreeMap<u32, BTreeSet<String>>) {
    for entry in fs::read_dir(root.join(folder)).expect("a checkout that can be read") {
        let entry = entry.expect("a checkout that can be read");
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(root, &path, found);
        } else if path.ends_with(".rs") {
            let text = fs::read_to_string(entry.path()).expect("a text");
            for name in text.lines().filter_map(name) {
                for number in numbers(name) {
                    found.entry(number).or_default().insert(format!("`{path}` {name}"));
                }
            }
        }
    }
}

/// Returns the name of the function that begins in a line.
pub(super) fn name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "))?;
    rest.split('(').next()
}

/// Returns the text of the file: each number with its tests, and the numbers that `explained` has but no test names.
fn list(tests: &BTreeMap<u32, BTreeSet<String>>, explained: &str) -> String {
    let mut text = String::from(
        "# Hazards and their tests\n\n\
         `BLESS=1 cargo test --test it hazards` writes this file from the names of the tests. A test checks it. The\n\
         numbers are those of `docs/hazards.md`. `tests/soak/run` repeats H12 to H16, H34, H35, H49, H57, H62, H91, H95,\n\
         H100, H101, H103, H104, H106 and H107 for as long as it takes.\n\n",
    );
    for (number, tests) in tests {
        let _ = writeln!(text, "* **H{number}**");
        for test in tests {
            let _ = writeln!(text, "  * {test}");
        }
    }
    let number = |line: &str| line.strip_prefix("- **H")?.split_once("** ")?.0.parse::<u32>().ok();
    let without = explained.lines().filter_map(number).filter(|number| !tests.contains_key(number));
    let without: Vec<String> = without.map(|number| format!("H{number}")).collect();
    if !without.is_empty() {
        let _ = writeln!(text, "\nWithout a test of that name: {}.", without.join(", "));
    }
    text
}
