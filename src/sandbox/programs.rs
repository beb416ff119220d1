//! Programs: finds the file that a command names, what that file needs to run, and the tree that it belongs to.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::places::Places;

/// Looks up commands, and collects what they need to read.
#[derive(Debug)]
pub(super) struct Programs<'a> {
    places: &'a Places,
    path: &'a OsStr,
    /// The folder from which relative paths start.
    base: &'a Path,
    found: BTreeSet<PathBuf>,
    /// Programs, by the paths at which they were found.
    named: BTreeSet<PathBuf>,
}

/// How long a chain of programs is followed: a script, its interpreter, and the interpreter of that.
const DEEPEST: usize = 4;
/// How many bytes of a file the system reads to find its interpreter.
const HEAD: u64 = 256;
/// Files that mark the top folder of a program's tree.
const TOPS: [&str; 4] = ["package.json", "pyproject.toml", "pyvenv.cfg", "deno.json"];
/// Folders of tools that install several versions of programs: everything below belongs to these programs.
const MANAGERS: [&str; 9] = [".asdf", ".bun", ".deno", ".fnm", ".nvm", ".pyenv", ".rbenv", ".sdkman", ".volta"];
/// Folders beside `bin` in the prefix of an installed program.
const OF_PREFIX: [&str; 5] = ["lib", "lib64", "libexec", "include", "share/nodejs"];
/// Extensions of files that an interpreter runs.
const SCRIPTS: [&str; 11] = ["cjs", "jar", "js", "mjs", "mts", "php", "pl", "py", "rb", "sh", "ts"];

impl<'a> Programs<'a> {
    pub(super) fn new(places: &'a Places, path: &'a OsStr, base: &'a Path) -> Self {
        Self { places, path, base, found: BTreeSet::new(), named: BTreeSet::new() }
    }

    /// Returns what has to be readable, and the programs among that by the paths at which they were found.
    pub(super) fn found(self) -> (BTreeSet<PathBuf>, BTreeSet<PathBuf>) {
        (self.found, self.named)
    }

    /// Returns the file of a command; `None` if there is none.
    pub(super) fn find(&self, command: &str) -> Option<PathBuf> {
        let runs = |file: &Path| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok();
        if command.contains('/') {
            return Some(self.base.join(command)).filter(|file| file.is_file());
        }
        std::env::split_paths(self.path).map(|folder| self.base.join(folder).join(command)).find(|file| runs(file))
    }

    /// Adds a program, and the interpreter that runs it.
    pub(super) fn add(&mut self, file: &Path) {
        self.add_at(file, 0);
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        // These run a Python that they find themselves.
        if matches!(name, "uv" | "uvx" | "pipx" | "poetry" | "hatch") {
            for python in ["uv", "python3", "python"] {
                if let Some(file) = self.find(python) {
                    self.add_at(&file, 1);
                }
            }
        }
    }

    /// Adds an argument of an interpreter, if it is a script.
    pub(super) fn add_script(&mut self, file: &Path) {
        let kind = file.extension().and_then(OsStr::to_str).unwrap_or_default();
        if SCRIPTS.contains(&kind) {
            self.tree(file);
        }
    }

    fn add_at(&mut self, file: &Path, depth: usize) {
        let Ok(whole) = file.canonicalize() else { return };
        self.named.insert(file.to_owned());
        self.grant(&whole);
        self.tree(file);
        self.tree(&whole);
        if depth < DEEPEST {
            for next in interpreters(&whole) {
                if let Some(next) = self.find(&next) {
                    self.add_at(&next, depth + 1);
                }
            }
        }
    }

    /// Adds the tree that a file belongs to.
    fn tree(&mut self, file: &Path) {
        let folders: Vec<&Path> = file.ancestors().skip(1).collect();
        let is_named = |folder: &&&Path, names: &[&str]| {
            folder.file_name().and_then(OsStr::to_str).is_some_and(|name| names.contains(&name))
        };
        if let Some(manager) = folders.iter().find(|folder| is_named(folder, &MANAGERS)) {
            self.grant(manager);
        }
        // Packages are beside those that they need, so the topmost folder of packages is added.
        if let Some(packages) = folders.iter().rev().find(|folder| is_named(folder, &["node_modules"])) {
            self.grant(packages);
        }
        let top = folders.iter().find(|folder| TOPS.iter().any(|top| folder.join(top).is_file()));
        if let Some(top) = top.filter(|top| self.places.may_grant(top)) {
            self.grant(top);
            self.base_of(top);
            for above in top.ancestors().skip(1) {
                self.grant(&above.join("node_modules"));
            }
        }
        if let Some(bin) = folders.first().filter(|folder| is_named(folder, &["bin"])) {
            self.grant(bin);
            if let Some(prefix) = bin.parent() {
                OF_PREFIX.iter().for_each(|name| self.grant(&prefix.join(name)));
            }
        }
    }

    /// Adds the Python from which a virtual environment was created.
    fn base_of(&mut self, top: &Path) {
        let Ok(text) = std::fs::read_to_string(top.join("pyvenv.cfg")) else { return };
        let home = text.lines().find_map(|line| line.split_once('=').filter(|(key, _)| key.trim() == "home"));
        let Some((_, bin)) = home else { return };
        let bin = Path::new(bin.trim());
        if bin.is_absolute() && bin != Path::new("/") {
            self.grant(bin);
            if let Some(prefix) = bin.parent() {
                OF_PREFIX.iter().for_each(|name| self.grant(&prefix.join(name)));
            }
        }
    }

    fn grant(&mut self, path: &Path) {
        if let Ok(whole) = path.canonicalize()
            && self.places.may_grant(&whole)
        {
            self.found.insert(whole);
        }
    }
}

/// Returns what runs a script, by its first line: the program named there, and the one that `env` looks up.
fn interpreters(file: &Path) -> Vec<String> {
    let mut head = Vec::new();
    let read = File::open(file).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    let Some(first) = head.strip_prefix(b"#!").filter(|_| read.is_ok()) else { return Vec::new() };
    let first = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    let mut words = first.split([' ', '\t', '\r']).filter(|word| !word.is_empty());
    let Some(program) = words.next() else { return Vec::new() };
    let mut found = vec![program.to_owned()];
    if program.ends_with("/env") {
        found.extend(words.find(|word| !word.starts_with('-') && !word.contains('=')).map(str::to_owned));
    }
    found
}
