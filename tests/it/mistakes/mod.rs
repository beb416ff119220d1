//! The mistakes of the first hour: what a new user types, and everything that the program says about it.
//!
//! Each group is a table. A row is a mistake: what the user has and does, the words that fix it and must appear, and
//! the words that would lead astray. The whole output of a group is one file in `snapshots/`, to be read in one
//! sitting; blessing a snapshot by mistake does not bless a missing fix.
//!
//! `tools` runs the real node, npm, python, pip, and uv against registries of this test. If they are not installed, it
//! says so and continues, unless `MCP_HOST_TEST_TOOLS` is set, as `.ci/run` does.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod closed_terminal;
mod daemons;
mod files;
mod plain;
mod remote;
mod scene;
mod servers;
mod starts;
mod tools;
mod words;

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use scene::Scene;

/// A row of a table.
struct Mistake {
    name: &'static str,
    /// Words of the fix, all of which must be shown.
    says: &'static [&'static str],
    /// Words that must not be shown, in any case.
    never: &'static [&'static str],
    act: fn(&mut Scene),
}

/// The outcome of a mistake.
struct Happened {
    transcript: String,
    wrong: Vec<String>,
    /// The tool whose absence prevented it.
    lacks: Option<&'static str>,
}

impl Mistake {
    fn happens(&self) -> Happened {
        let mut scene = Scene::new();
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.act)(&mut scene)));
        let lacks = scene.lacks;
        let (text, mut wrong) = scene.judged(self.says, self.never);
        if let Err(panic) = outcome {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            wrong.push(format!("cannot go on: {}", said.or(panic.downcast_ref().copied()).unwrap_or("a panic")));
        }
        let wrong = wrong.iter().map(|wrong| format!("{}: {wrong}", self.name)).collect();
        Happened { transcript: format!("=== {}\n{text}", self.name), wrong, lacks }
    }
}

/// Makes all mistakes of a group at once, and compares the output.
fn make(group: &str, mistakes: &[Mistake]) {
    let all: Vec<Happened> = std::thread::scope(|scope| {
        let under_way: Vec<_> = mistakes.iter().map(|mistake| scope.spawn(|| mistake.happens())).collect();
        under_way.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let text = all.iter().map(|happened| happened.transcript.as_str()).collect::<Vec<_>>().join("\n");
    let wrong: Vec<&str> = all.iter().flat_map(|happened| &happened.wrong).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{}\n\n{text}", wrong.join("\n"));
    let mut lacking: Vec<&str> = all.iter().filter_map(|happened| happened.lacks).collect();
    lacking.sort_unstable();
    lacking.dedup();
    if lacking.is_empty() {
        return shows(group, &text);
    }
    let lacking = format!("not tested for want of {}", lacking.join(", "));
    assert!(std::env::var_os("MCP_HOST_TEST_TOOLS").is_none(), "{lacking}");
    // The test harness does not capture this.
    let _ = writeln!(std::io::stderr().lock(), "\nmistakes::{group}: {lacking}");
}

/// Compares with `snapshots/NAME.snap`.
fn shows(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// The mistakes that new users made.
const MADE: &[&str] = &[
    "unknown path",
    "missing variable",
    "smart quotes",
    "trailing comma",
    "duplicate key",
    "alias clash",
    "unknown key",
    "args as text",
    "bare duration",
    "seconds for milliseconds",
    "htps",
    "not executable",
    "not found",
    "cwd missing",
    "traceback at start",
    "port taken by us",
    "port taken by another",
    "refused",
    "DNS",
    "302",
    "HTML",
    "405",
    "500",
    "server misspelt",
    "tool misspelt",
    "command misspelt",
    "flag misspelt",
    "wrong types of arguments",
    "not approved",
    "wide bind",
    "broken live edit",
    "huge result",
    "question without a terminal",
    "no browser",
    "Ctrl-C",
    "npx package missing",
    "uvx package missing",
    "hang at start",
    "file as positional",
    "TOML in .json",
    "no #!",
    "one-string command",
    "~",
    "missing argument",
    "s.big",
    "API-key 401",
    "--port",
    "itself",
    "login without keyring",
    "logs",
    "relative ${workspaceFolder}",
    "LAN http",
    "closed terminal",
];

#[test]
fn every_mistake_of_the_first_hour_is_in_a_table() {
    let tables = [files::TABLE, starts::TABLE, tools::TABLE, remote::TABLE, words::TABLE, daemons::TABLE];
    let mut names: Vec<&str> = tables.iter().copied().flatten().map(|mistake| mistake.name).collect();
    for made in MADE {
        assert_eq!(names.iter().filter(|name| *name == made).count(), 1, "{made}");
    }
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "one name each");
    let unjudged = |mistake: &&&Mistake| mistake.says.is_empty();
    assert_eq!(tables.iter().copied().flatten().find(|mistake| unjudged(&mistake)).map(|mistake| mistake.name), None);
}
