//! Trees and locks that nothing refers to any longer: removed by `remove` and `update`, unless an entry, a lock, or an edit that
//! can be taken back needs them; what cannot be told is named by `doctor`.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::Home;
use super::tree::{CONNECT, INSTALL, copy, registry};

const TREES: &str = ".local/share/mcp-host/store/npm";
const LOCKS: &str = "mcp-host/mcp-host.packages";

impl Home {
    fn count(&self, folder: &str) -> usize {
        fs::read_dir(self.file(folder)).map_or(0, Iterator::count)
    }

    /// Makes all that is in the store and beside the config two days old: what is younger is left alone.
    fn age(&self) {
        for folder in [".local/share/mcp-host/store", LOCKS] {
            aged(&self.file(folder));
        }
    }

    /// Removes what `undo` needs, as the hundred edits after it would.
    fn forget_edits(&self) {
        fs::remove_dir_all(self.file("mcp-host/backups")).unwrap();
    }

    /// Returns what `doctor` says about the state folder.
    fn state_of_doctor(&self) -> Vec<(String, String)> {
        let said = self.run(&["doctor", "--json"]);
        let line = said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{said}"));
        let told: Value = serde_json::from_str(line).unwrap();
        let check = told["checks"].as_array().unwrap().iter().find(|check| check["check"] == "D13").unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let findings = check["findings"].as_array().unwrap().iter();
        findings.map(|finding| (text(&finding["what"]), text(&finding["help"]))).collect()
    }
}

fn aged(folder: &Path) {
    let old = SystemTime::now() - Duration::from_secs(2 * 24 * 60 * 60);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => aged(&path),
            path => File::options().append(true).open(path).unwrap().set_modified(old).unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_of_an_older_version_goes_when_no_edit_needs_it() {
    let (first, second) = (registry("1.0.0").await, registry("2.0.0").await);
    let home = Home::with_npm(&first.url);
    tokio::task::block_in_place(|| {
        assert!(home.run(&INSTALL).starts_with("exit 0\n"));
        home.write("mcp-host/config.json", &home.text().replace(&first.url, &second.url));
        home.age();
        let said = home.run(&["update", "notes", "--set", "NOTES_TEAM=blue", "--yes"]);
        assert!(said.starts_with("exit 0\n") && !said.contains("removed"), "{said}");
        assert_eq!((home.count(TREES), home.count(LOCKS)), (2, 2), "`undo` needs the older ones");
        home.age();
        assert!(!home.run(&["remove", "mine"]).contains("nothing refers"));
        assert!(home.run(&["undo"]).starts_with("exit 0\n"));
        home.forget_edits();
        let said = home.run(&["remove", "mine"]);
        assert!(said.ends_with("removed 1 locked tree and 1 lock: nothing refers to that any longer"), "{said}");
        assert_eq!((home.count(TREES), home.count(LOCKS)), (1, 1));
        assert!(home.run(&CONNECT).starts_with("exit 0\n"), "the newer one is there");
        assert_eq!(home.state_of_doctor(), []);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_server_comes_back_with_its_tree() {
    let site = registry("1.0.0").await;
    let home = Home::with_npm(&site.url);
    tokio::task::block_in_place(|| {
        assert!(home.run(&INSTALL).starts_with("exit 0\n"));
        home.age();
        let said = home.run(&["remove", "notes"]);
        assert!(said.starts_with("exit 0\n") && !said.contains("nothing refers"), "{said}");
        assert!(home.run(&["undo"]).starts_with("exit 0\n"));
        assert!(home.run(&CONNECT).starts_with("exit 0\n"));
        // Its edit is forgotten, but it may be another program that has just made these.
        home.run(&["remove", "notes"]);
        home.forget_edits();
        let lock = home.only(LOCKS).join("package-lock.json");
        let notes = home.only(TREES).join("configs.json");
        for young in [&lock, &notes] {
            File::options().append(true).open(young).unwrap().set_modified(SystemTime::now()).unwrap();
        }
        home.run(&["remove", "mine"]);
        assert_eq!((home.count(TREES), home.count(LOCKS)), (1, 1));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_stays_for_another_config_and_for_one_that_is_gone() {
    let site = registry("1.0.0").await;
    let home = Home::with_npm(&site.url);
    tokio::task::block_in_place(|| {
        assert!(home.run(&INSTALL).starts_with("exit 0\n"));
        copy(&home.file("mcp-host"), &home.file("other"));
        assert!(home.run(&["install", "--locked", "--config", "other/config.json"]).contains(" is installed already"));
        home.run(&["remove", "notes"]);
        home.forget_edits();
        home.age();
        let said = home.run(&["remove", "mine"]);
        assert!(said.ends_with("removed 1 lock: nothing refers to that any longer"), "{said}");
        assert_eq!((home.count(TREES), home.count(LOCKS)), (1, 0), "the other config needs the tree");
        assert!(home.run(&[&CONNECT[..], &["--config", "other/config.json"]].concat()).starts_with("exit 0\n"));
        assert_eq!(home.state_of_doctor(), []);

        // A config that is not there may be on a disk that comes back.
        fs::rename(home.file("other"), home.file("away")).unwrap();
        assert!(home.run(&["add", "more", "--no-check", "--", "true"]).starts_with("exit 0\n"));
        assert!(home.run(&["remove", "more"]).starts_with("exit 0\n"));
        assert_eq!(home.count(TREES), 1);
        let tree = home.only(TREES).display().to_string().replace(home.file("").to_str().unwrap(), "~/");
        let what = "no known config uses 1 locked tree in ~/.local/share/mcp-host/store".to_owned();
        assert_eq!(home.state_of_doctor(), [(what, format!("rm -r {tree}"))]);
    });
}
