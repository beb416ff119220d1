//! Watches a server without a sandbox, to learn what it would need in one (`sandbox learn`).
//!
//! In: its command. Out: that command under strace, with a proxy that admits and counts every connection, and with the
//! caches that the server would have in a sandbox. What each level grants for this command is recorded before the
//! start; [`learned`] compares the server's accesses with it. **Invariant:** it never lists HOME, folders above it, or
//! keys.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{Door, Machine, namespaces, trace};
use crate::config::{Sandbox, Secret, Stdio};
use crate::sandbox::grants::{Grants, program};
use crate::sandbox::places::{Own, Places};
use crate::sandbox::withheld::proxies;
use crate::sandbox::{Error, Learned, Needed, Ready, Touched};

/// How many files of one folder are replaced by that folder.
const SIBLINGS: usize = 3;
/// Folders below HOME that all programs share.
const SHARED: [&str; 6] = [".cache", ".config", ".local", ".local/bin", ".local/share", ".local/state"];
/// The kernel's files about processes, which cannot be listed.
const PROC: &str = "/proc";
/// Where every program creates temporary files. Under `strict` the server has its own.
const TMP: &str = "/tmp";

/// What is recorded before the start.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// mcp-host's state directory.
    state: PathBuf,
    default: Level,
    strict: Level,
}

/// What a level without lists grants.
#[derive(Debug, Serialize, Deserialize)]
struct Level {
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
}

impl Level {
    fn of(grants: Grants) -> Self {
        Self { read: grants.read.into_iter().collect(), write: grants.write.into_iter().collect() }
    }

    fn grants(&self, path: &Path, writes: bool) -> bool {
        let covers = |granted: &PathBuf| path.starts_with(granted);
        self.write.iter().any(covers) || !writes && self.read.iter().any(covers)
    }
}

/// Returns the command that starts a server under watch, without a sandbox.
pub(in crate::sandbox) fn unconfined(stdio: Stdio, sandbox: &Sandbox, state: Option<&Path>) -> Result<Ready, Error> {
    let (Some(state), Some(file)) = (state, sandbox.trace()) else { return Err(Error::Unwatched) };
    let own = Own::make(state, sandbox.whose())?;
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    let namespaces = namespaces::here().as_deref().ok();
    let machine = Machine { places: Places::here(&state), own, namespaces };
    note(&machine, &stdio, sandbox, state, file)?;
    // Its package is fetched as under `strict`, so that the hosts of the package registry do not count as the server's
    // own.
    let mut of_fetch = Sandbox::strict();
    (of_fetch.install, of_fetch.read) = (sandbox.install.clone(), sandbox.read.clone());
    let (offline, first) = machine.divided(&stdio, &of_fetch)?.unzip();
    let wrong =
        |error: std::io::Error| Error::Door { path: "this machine's loopback".to_owned(), why: error.to_string() };
    let (door, url) = Door::open().map_err(wrong)?;
    let mut stdio = stdio;
    let has = |stdio: &Stdio, name: &str| stdio.env.iter().any(|(own, _)| own == name);
    let caches = machine.own.variables().map(|(name, path)| (name, path.display().to_string()));
    let offline = offline.map(|(name, value)| (name, value.to_owned()));
    for (name, value) in caches.into_iter().chain(offline) {
        if !has(&stdio, name) {
            stdio.env.push((name.to_owned(), Secret::new(value)));
        }
    }
    // This overrides even the entry's own settings: connections that bypass this proxy would go unnoticed.
    let none = ["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), String::new()));
    stdio.env.extend(proxies(&url).chain(none).map(|(name, value)| (name, Secret::new(value))));
    let ready = Ready { stdio, door: Some(Arc::new(door)), first: first.flatten() };
    trace::watched(ready, sandbox)
}

fn note(machine: &Machine, stdio: &Stdio, sandbox: &Sandbox, state: PathBuf, file: &Path) -> Result<(), Error> {
    let program = program(stdio, &machine.places);
    let level = |level: Sandbox| {
        let level = level.of_project(sandbox.folder());
        Grants::of(stdio, &level, &machine.places, &machine.own, program.as_deref()).map(Level::of)
    };
    let note = Note { state, default: level(Sandbox::on())?, strict: level(Sandbox::strict())? };
    let path = beside(file);
    let wrong = |why: String| Error::Note { path: path.display().to_string(), why };
    let text = serde_json::to_string(&note).map_err(|error| wrong(error.to_string()))?;
    fs::write(&path, text).map_err(|error| wrong(error.to_string()))
}

fn beside(file: &Path) -> PathBuf {
    file.with_extension("levels")
}

/// Returns what the server of that sandbox needs beyond what a level grants, judged by what it did.
pub(in crate::sandbox) fn learned(
    sandbox: &Sandbox,
    touched: impl IntoIterator<Item = Touched>,
) -> Result<Learned, String> {
    let path = sandbox.trace().map(beside).ok_or("the server was not watched")?;
    let wrong = |error: String| format!("what was noted before the start cannot be read: {error}");
    let text = fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    let note: Note = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let begun = fs::metadata(&path).and_then(|file| file.modified()).map_err(|error| wrong(error.to_string()))?;
    let places = Places::here(&note.state);
    Ok(Learner { note, begun, places }.learned(touched))
}

/// Removes `.` from a path, and `..` by following it.
fn plain(path: &Path) -> PathBuf {
    if path.components().any(|part| part == Component::ParentDir) {
        return path.canonicalize().unwrap_or_else(|_| path.to_owned());
    }
    path.components().collect()
}

struct Learner {
    note: Note,
    /// When the server started. It created all files that are younger.
    begun: SystemTime,
    places: Places,
}

impl Learner {
    fn learned(&self, touched: impl IntoIterator<Item = Touched>) -> Learned {
        let touched: BTreeSet<Touched> = touched.into_iter().collect();
        let needs = touched.iter().filter_map(|touched| self.need(touched));
        let needs: BTreeSet<(PathBuf, bool)> =
            needs.filter(|(path, _)| !path.starts_with(PROC)).map(|(path, writes)| (plain(&path), writes)).collect();
        let (mut read, mut write) = (BTreeSet::new(), BTreeSet::new());
        let mut needed = Vec::new();
        for (path, writes) in needs {
            // A file that no longer exists was needed only in this run.
            let Ok(whole) = path.canonicalize() else { continue };
            let is_tmp = whole == Path::new(TMP);
            let default = !self.note.default.grants(&whole, writes);
            let strict = !self.note.strict.grants(&whole, writes) && !is_tmp;
            if !default && !strict {
                continue;
            }
            let listed = !is_tmp && self.places.may_grant(&whole);
            let path = if path.to_str().is_some() { path } else { continue };
            if listed {
                if writes { &mut write } else { &mut read }.insert(path.clone());
            }
            needed.push(Needed { path: self.told(&path), writes, default, strict, listed });
        }
        let (read, write) = (self.folded(read), self.folded(write));
        let read = read.iter().filter(|path| !path.ancestors().any(|above| write.contains(above)));
        let tell = |path: &PathBuf| self.told(path);
        Learned { read: read.map(tell).collect(), write: write.iter().map(tell).collect(), needed }
    }

    /// Returns the path that existed before and has to be granted, and whether for writing.
    fn need(&self, touched: &Touched) -> Option<(PathBuf, bool)> {
        match touched {
            Touched::Read(path) => (path.exists() && !self.is_new(path)).then(|| (path.clone(), false)),
            Touched::Write(path) if path.exists() && !self.is_new(path) => Some((path.clone(), true)),
            Touched::Write(path) | Touched::Name(path) => {
                let folder = path.ancestors().skip(1).find(|above| above.exists() && !self.is_new(above))?;
                // What a program creates for itself in the user's HOME, it can create in a HOME of its own as well.
                (!self.is_for_itself(path, folder)).then(|| (folder.to_owned(), true))
            }
        }
    }

    fn is_new(&self, path: &Path) -> bool {
        let made = path.symlink_metadata().and_then(|found| found.created());
        made.is_ok_and(|made| made >= self.begun)
    }

    /// Reports whether a new name in a folder is a hidden one in HOME, or is in a folder that all programs share.
    fn is_for_itself(&self, path: &Path, folder: &Path) -> bool {
        let Some(rest) = self.below_home(path) else { return false };
        let is_hidden = rest.as_os_str().as_encoded_bytes().starts_with(b".");
        self.below_home(folder).map_or(is_hidden, |rest| SHARED.iter().any(|shared| rest == Path::new(shared)))
    }

    fn below_home<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let homes = self.places.named_home.iter().chain(&self.places.home);
        homes.filter_map(|home| path.strip_prefix(home).ok()).find(|rest| rest.components().next().is_some())
    }

    /// Replaces three or more paths of one folder by the folder, but never by HOME or a folder that all programs share.
    fn folded(&self, mut paths: BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        loop {
            let full = paths.iter().filter_map(|path| path.parent()).find(|folder| {
                let count = paths.iter().filter(|path| path.parent() == Some(folder)).count();
                count >= SIBLINGS && self.may_fold(folder)
            });
            let Some(full) = full.map(Path::to_owned) else { break };
            paths.insert(full.clone());
            paths.retain(|path| !path.ancestors().skip(1).any(|above| above == full));
        }
        let all = paths.clone();
        paths.retain(|path| !path.ancestors().skip(1).any(|above| all.contains(above)));
        paths
    }

    fn may_fold(&self, folder: &Path) -> bool {
        let is_shared =
            self.below_home(folder).is_some_and(|rest| SHARED.iter().any(|shared| rest == Path::new(shared)));
        // Folders such as `/var` belong to all programs.
        let is_top = folder.components().count() < 3;
        !is_shared && !is_top && folder.canonicalize().is_ok_and(|whole| self.places.may_grant(&whole))
    }

    fn told(&self, path: &Path) -> PathBuf {
        self.below_home(path).map_or_else(|| path.to_owned(), |rest| Path::new("~").join(rest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILES: [&str; 14] = [
        "home/.ssh/id",
        "home/.gitconfig",
        "home/.config/app/a",
        "home/.config/app/b",
        "home/.config/app/c",
        "home/.config/other/a",
        "home/.config/third/a",
        "home/src/a",
        "home/src/b",
        "home/src/deep/a",
        "home/one",
        "home/two",
        "home/three",
        "srv/data/a",
    ];

    struct Account {
        root: tempfile::TempDir,
        learner: Learner,
    }

    impl Account {
        fn at(&self, path: &str) -> PathBuf {
            self.root.path().canonicalize().expect("it is there").join(path)
        }
    }

    /// An account whose watched server was granted `home/src` for writing, and under `strict` for reading.
    fn account() -> Account {
        let root = tempfile::tempdir().expect("a folder");
        let at = root.path().canonicalize().expect("it is there");
        for file in FILES {
            let file = at.join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(file, "").expect("a file");
        }
        let level = |read: &[&str], write: &[&str]| {
            let all = |paths: &[&str]| paths.iter().map(|path| at.join(path)).collect();
            Level { read: all(read), write: all(write) }
        };
        let state = at.join("state");
        let note = Note { state: state.clone(), default: level(&[], &["home/src"]), strict: level(&["home/src"], &[]) };
        let begun = SystemTime::now() + std::time::Duration::from_secs(3600);
        let places = Places::of(&state, Some(at.join("home")), None);
        Account { learner: Learner { note, begun, places }, root }
    }

    fn texts(paths: &[PathBuf]) -> Vec<String> {
        paths.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn h108_what_was_done_becomes_lists_without_home_and_keys() {
        let account = account();
        let read = |path: &str| Touched::Read(account.at(path));
        let learned = account.learner.learned([
            read("home/.gitconfig"),
            read("home/.ssh/id"),
            read("home"),
            read("home/src/a"),
            read("home/absent"),
            read("home/./src/../.gitconfig"),
            Touched::Write("/proc/self/comm".into()),
            read("home/.config/app/a"),
            read("home/.config/app/b"),
            read("home/.config/app/c"),
            Touched::Write(account.at("home/src/deep/a")),
            Touched::Name(account.at("home/src/new")),
            Touched::Name(account.at("home/.config/new/x")),
            Touched::Name(account.at("home/.app")),
            Touched::Name(account.at("home/.config/other/new")),
            Touched::Name(account.at("home/report")),
            Touched::Write(account.at("srv/data/a")),
        ]);
        assert_eq!(texts(&learned.read), ["~/.config/app", "~/.gitconfig"]);
        assert_eq!(
            texts(&learned.write),
            ["~/.config/other", "~/src", &account.at("srv/data/a").display().to_string()]
        );
        let of = |path: &str| {
            let found = learned.needed.iter().find(|needed| needed.path == Path::new(path));
            found.map(|needed| (needed.default, needed.strict, needed.listed))
        };
        assert_eq!(of("~/.gitconfig"), Some((true, true, true)));
        assert_eq!(of("~/.ssh/id"), Some((true, true, false)), "a key");
        assert_eq!(of("~/src"), Some((false, true, true)), "`strict` grants it to read");
        assert_eq!(of(&account.at("home").display().to_string()), Some((true, true, false)), "HOME");
        assert_eq!(of("~/src/a"), None, "it is granted");
    }

    #[test]
    fn h108_what_the_server_made_itself_is_not_listed() {
        let mut account = account();
        account.learner.begun = SystemTime::UNIX_EPOCH;
        let at = account.at("home/.gitconfig");
        if at.symlink_metadata().and_then(|found| found.created()).is_err() {
            // This file system does not record when a file was created; then all files count as old.
            return;
        }
        assert_eq!(account.learner.learned([Touched::Read(at)]), Learned::default());
    }

    #[test]
    fn h108_a_link_to_a_key_is_a_key() {
        let account = account();
        std::os::unix::fs::symlink(account.at("home/.ssh"), account.at("home/src/link")).expect("a link");
        let learned = account.learner.learned([Touched::Read(account.at("home/src/link/id"))]);
        assert!(learned.read.is_empty() && learned.write.is_empty());
        assert!(matches!(&learned.needed[..], [needed] if !needed.listed));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn h108_what_is_learned_covers_what_was_done_and_holds_no_keys(
            done in prop::collection::vec((prop::sample::select(&FILES[..]), 0_usize..3, 0_u8..3), 0..20),
        ) {
            let account = account();
            let touched = done.iter().map(|(file, levels, how)| {
                let path = account.at(file).ancestors().nth(*levels).expect("a folder").to_owned();
                match how { 0 => Touched::Read(path), 1 => Touched::Write(path), _ => Touched::Name(path) }
            });
            let learned = account.learner.learned(touched);
            let listed: Vec<PathBuf> = learned.read.iter().chain(&learned.write).map(|path| {
                path.strip_prefix("~").map_or_else(|_| path.clone(), |rest| account.at("home").join(rest))
            }).collect();
            for path in &listed {
                prop_assert!(account.learner.places.may_grant(path), "{}", path.display());
            }
            for needed in learned.needed.iter().filter(|needed| needed.listed) {
                let lists = if needed.writes { vec![&learned.write] } else { vec![&learned.read, &learned.write] };
                let is_covered = lists.into_iter().flatten().any(|path| needed.path.starts_with(path));
                prop_assert!(is_covered, "{needed:?}: {learned:?}");
            }
        }
    }
}
