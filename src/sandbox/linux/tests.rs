//! What is granted, by table and by property tests; plans and filters. `tests/it/sandbox` starts real processes.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::filter;
use super::plan::Plan;
use crate::config::{Sandbox, Stdio};
use crate::sandbox::Error;
use crate::sandbox::grants::Grants;
use crate::sandbox::places::{Own, Places};

/// A HOME with keys, projects, and programs.
struct Account {
    root: tempfile::TempDir,
}

const FILES: [&str; 16] = [
    "home/.ssh/id",
    "home/.aws/credentials",
    "home/.config/mcp-host/config.json",
    "home/.config/gh/hosts.yml",
    "home/.local/state/mcp-host/pins.json",
    "home/.local/bin/tool",
    "home/.local/lib/tool.so",
    "home/.local/share/keyrings/login",
    "home/app/package.json",
    "home/app/dist/index.js",
    "home/app/node_modules/dep/index.js",
    "home/py/pyproject.toml",
    "home/py/src/server.py",
    "home/data/notes.db",
    "bob/.ssh/id",
    "srv/tree/node_modules/@a/server/dist/index.js",
];

impl Account {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        for file in FILES {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().expect("it is in a folder")).expect("a folder");
            std::fs::write(file, "").expect("a file");
        }
        Self { root }
    }

    /// Returns a path below the account's root, without links.
    fn at(&self, path: &str) -> PathBuf {
        self.root.path().canonicalize().expect("it is there").join(path)
    }

    fn text(&self, path: &str) -> String {
        self.at(path).display().to_string()
    }

    fn places(&self) -> Places {
        Places::of(&self.at("home/.local/state/mcp-host"), Some(self.at("home")), None)
    }

    fn grants(&self, stdio: &Stdio, sandbox: &Sandbox) -> Result<Grants, Error> {
        let own = Own::make(&self.at("home/.local/state/mcp-host"), "a-0").expect("folders");
        Grants::of(stdio, sandbox, &self.places(), &own, None)
    }

    /// Returns what is granted below the account's root, apart from the server's own folders: for reading, and for
    /// writing.
    fn granted(&self, stdio: &Stdio, sandbox: &Sandbox) -> (Vec<String>, Vec<String>) {
        let grants = self.grants(stdio, sandbox).expect("grants");
        let own = self.at("home/.local/state/mcp-host/sandbox");
        let below = |path: &PathBuf| {
            let rest = path.strip_prefix(self.at("")).ok().filter(|_| !path.starts_with(&own))?;
            Some(rest.display().to_string())
        };
        (grants.read.iter().filter_map(below).collect(), grants.write.iter().filter_map(below).collect())
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn h108_arguments_grant_what_they_name_and_no_keys() {
    let account = Account::new();
    for (argument, read, write) in [
        ("home/app/dist/index.js", &["home/app"][..], &[][..]),
        ("home/py/src/server.py", &["home/py"], &[]),
        ("srv/tree/node_modules/@a/server/dist/index.js", &["srv/tree/node_modules"], &[]),
        ("home/data", &[], &["home/data"]),
        ("home/data/notes.db", &["home/data/notes.db"], &[]),
        ("home", &[], &[]),
        ("home/.ssh", &[], &[]),
        ("home/.ssh/id", &[], &[]),
        ("home/.aws/credentials", &[], &[]),
        ("home/.config", &[], &[]),
        ("home/.config/mcp-host/config.json", &[], &[]),
        ("home/.local", &[], &[]),
        ("home/.local/state/mcp-host/pins.json", &[], &[]),
        ("home/app/../.ssh/id", &[], &[]),
        ("bob", &[], &[]),
        ("", &[], &[]),
        ("nowhere", &[], &[]),
    ] {
        let granted = account.granted(&Stdio::new("x").args([account.text(argument)]), &Sandbox::on());
        assert_eq!(granted, (texts(read), texts(write)), "{argument}");
        let option = format!("--path={}", account.text(argument));
        assert_eq!(
            account.granted(&Stdio::new("x").args([option]), &Sandbox::on()).1,
            texts(write),
            "--path={argument}"
        );
    }
    let link = account.at("home/data/link");
    std::os::unix::fs::symlink(account.at("home/.ssh"), &link).expect("a link");
    let granted = account.granted(&Stdio::new("x").args([link.display().to_string()]), &Sandbox::on());
    assert_eq!(granted, (texts(&[]), texts(&[])), "a link to keys");
    let granted = account.granted(&Stdio::new("x").cwd(account.at("home/data")), &Sandbox::on());
    assert_eq!(granted, (texts(&[]), texts(&["home/data"])), "`cwd`");
    let project = account.at("home/data");
    let granted = account.granted(&Stdio::new("x"), &Sandbox::on().of_project(Some(&project)));
    assert_eq!(granted, (texts(&[]), texts(&["home/data"])), "the folder of a project");
    let granted = account.granted(&Stdio::new("x"), &Sandbox::on().of_project(Some(&account.at("home"))));
    assert_eq!(granted, (texts(&[]), texts(&[])), "HOME as a project");
    let granted = account.granted(&Stdio::new("x").cwd(account.at("home")), &Sandbox::on());
    assert_eq!(granted, (texts(&[]), texts(&[])), "HOME as `cwd`");
}

#[test]
fn h108_what_is_listed_is_granted_as_it_is() {
    let account = Account::new();
    let sandbox = Sandbox::on().read("~/.ssh/id").write(account.at("home/data"));
    let grants = account.grants(&Stdio::new("x"), &sandbox).expect("grants");
    assert!(grants.read.contains(&account.at("home/.ssh/id")) && grants.write.contains(&account.at("home/data")));
    let own = account.at("home/.local/state/mcp-host/sandbox/a-0/home");
    let links = [(".ssh/id", "home/.ssh/id"), ("data", "home/data")];
    assert_eq!(grants.links, links.map(|(from, to)| (own.join(from), account.at(to))));
    let missing = account.grants(&Stdio::new("x"), &Sandbox::on().read("~/nowhere")).expect_err("it is not there");
    let path = account.text("home/nowhere");
    assert_eq!(
        missing.to_string(),
        format!("sandbox.read: {path} does not exist, or cannot be reached; create it, or take it out of the list")
    );
}

#[test]
fn h108_the_tree_of_a_program_is_granted_but_not_what_lies_beside_it() {
    use crate::sandbox::programs::Programs;
    let account = Account::new();
    let places = account.places();
    let found = |file: &str| {
        let base = account.at("");
        let mut programs = Programs::new(&places, "/usr/bin:/bin".as_ref(), &base);
        programs.add(&account.at(file));
        let found: Vec<PathBuf> = programs.found().0.into_iter().filter(|path| path.starts_with(&base)).collect();
        found.iter().map(|path| path.strip_prefix(&base).unwrap_or(path).display().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found("home/.local/bin/tool"), ["home/.local/bin", "home/.local/bin/tool", "home/.local/lib"]);
    assert_eq!(found("home/app/dist/index.js"), ["home/app", "home/app/dist/index.js"]);
    assert_eq!(found("home/data/notes.db"), ["home/data/notes.db"]);
}

#[test]
fn h108_a_plan_holds_names_and_no_values() {
    let account = Account::new();
    let stdio = Stdio::new("x").env("TOKEN", "correct-horse").env("XDG_DATA_HOME", "/data");
    let own = Own::make(&account.at("home/.local/state/mcp-host"), "a-0").expect("folders");
    let grants = account.grants(&stdio, &Sandbox::on()).expect("grants");
    let plan = super::plan(&stdio, &Sandbox::on(), &own, grants, false);
    let text = serde_json::to_string(&plan).expect("JSON");
    assert!(text.contains("TOKEN") && !text.contains("correct-horse"), "{text}");
    assert_eq!(serde_json::from_str::<Plan>(&text).expect("a plan"), plan);
    let withheld =
        ["XDG_RUNTIME_DIR", "XDG_DATA_HOME", "SSH_AUTH_SOCK", "PATH", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST"];
    let withheld: Vec<&str> = withheld.into_iter().filter(|name| plan.withholds(&(*name).into())).collect();
    assert_eq!(withheld, ["XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST"]);
}

#[test]
fn h108_every_plan_has_a_filter() {
    for (network, unix) in [(false, false), (false, true), (true, false), (true, true)] {
        let plan = Plan { network, unix, ..Plan::default() };
        assert!(filter::programs(&plan).is_ok_and(|programs| programs.iter().all(|program| program.len() > 5)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn h108_no_argument_grants_home_or_keys(
        arguments in prop::collection::vec((prop::sample::select(&FILES[..]), 0_usize..5, any::<bool>()), 0..6),
    ) {
        let account = Account::new();
        let above = |(file, levels, dotted): &(&str, usize, bool)| {
            let path = account.at(file);
            let path = path.ancestors().nth(*levels).unwrap_or(Path::new("/")).to_owned();
            let path = if *dotted { path.join("..").join(path.file_name().unwrap_or_default()) } else { path };
            path.display().to_string()
        };
        let stdio = Stdio::new("x").args(arguments.iter().map(above));
        let grants = account.grants(&stdio, &Sandbox::on()).expect("grants");
        let own = account.at("home/.local/state/mcp-host/sandbox");
        for path in grants.read.iter().chain(&grants.write).filter(|path| !path.starts_with(&own)) {
            for key in ["home/.ssh/id", "home/.aws", "home/.config/mcp-host", "home/.local/state/mcp-host", "bob/.ssh"] {
                let key = account.at(key);
                prop_assert!(!key.starts_with(path) && !path.starts_with(&key), "{} by {:?}", path.display(), stdio.args);
            }
        }
    }
}
