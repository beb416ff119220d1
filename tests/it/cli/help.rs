//! The texts of `--help`: README names every command, each text fits a screen, and every place for a server or a tool completes
//! its names.

use std::collections::BTreeSet;
use std::path::Path;

use super::mcp_host;

/// A terminal window as it opens nearly everywhere.
const COLUMNS: usize = 80;
const ROWS: usize = 24;

fn help(command: &[String]) -> String {
    let home = tempfile::tempdir().unwrap();
    let words: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    let output = mcp_host(home.path(), &words).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the commands that a help text lists.
fn listed(text: &str) -> Vec<String> {
    let section = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = section.take_while(|line| line.starts_with("  ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Returns every command and command of a command, with its help.
fn all() -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    for name in listed(&help(&[])) {
        let command = vec![name];
        let text = help(&command);
        for inner in listed(&text) {
            let command = [command.clone(), vec![inner]].concat();
            found.push((command.clone(), help(&command)));
        }
        found.push((command, text));
    }
    assert!(found.len() > 50, "{} commands", found.len());
    found
}

#[test]
fn readme_names_every_command() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let table = readme.split("## Commands").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    // A word in code: `mcp-host NAME …`, or `NAME` beside it.
    let words = |row: &str| -> Vec<String> {
        let code =
            row.split('`').skip(1).step_by(2).map(|code| code.strip_prefix("mcp-host ").unwrap_or(code).to_owned());
        code.filter_map(|code| code.split_whitespace().next().map(|word| word.trim_end_matches(',').to_owned()))
            .collect()
    };
    let told: BTreeSet<String> = rows.flat_map(words).collect();
    let known: BTreeSet<String> = listed(&help(&[])).into_iter().collect();
    let missing: Vec<_> = known.difference(&told).collect();
    assert!(missing.is_empty(), "README does not name {missing:?}");
    let (options, inner) = (|word: &&String| word.starts_with(['-', '[', '(', '<']), ["uninstall", "status"]);
    let unknown: Vec<_> =
        told.difference(&known).filter(|word| !options(word) && !inner.contains(&word.as_str())).collect();
    assert!(unknown.iter().all(|word| *word == "help"), "README names {unknown:?}");
}

#[test]
fn the_help_of_each_command_fits_a_screen() {
    let rows = |text: &str| -> usize { text.lines().map(|line| line.chars().count().div_ceil(COLUMNS).max(1)).sum() };
    let large: Vec<String> = all()
        .iter()
        .map(|(command, text)| (rows(text), command.join(" ")))
        .filter(|(rows, _)| *rows > ROWS)
        .map(|(rows, command)| format!("{rows} {command}"))
        .collect();
    assert!(large.is_empty(), "{large:#?}");
}
