//! The note that a host leaves for hosts below it whose environment was cleaned, and how they find it.
//!
//! A note is the file `hosts/PID` in the state directory: the start time of that process, and the marks of the hosts
//! above it and its own. The host holds a lock on its note for life, so notes of ended hosts are recognized and
//! removed. The locks also serve to count the hosts that run one config. Only Linux names the processes above;
//! elsewhere the notes only serve the count.

#[cfg(any(target_os = "linux", all(unix, feature = "server")))]
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::{Host, LONGEST, hosts};
use crate::keep;

/// The note of a running host, removed with the host.
#[derive(Debug)]
pub(super) struct Note {
    path: PathBuf,
    /// The lock is released when the file is closed, however the process ends.
    _lock: File,
}

/// How many notes are read.
const MOST: usize = 4096;
/// How many hosts in one process leave notes.
const OF_A_PROCESS: usize = 64;

impl Note {
    /// Leaves a note in that state directory. Returns `None` if the directory cannot be written; the host runs without
    /// a note.
    pub(super) fn leave(state: &Path, chain: &str) -> Option<Self> {
        let folder = state.join(FOLDER);
        keep::make_folder(&folder).ok()?;
        let own = std::process::id();
        let began = began(own).unwrap_or_default();
        (0..OF_A_PROCESS).find_map(|number| {
            let path = folder.join(if number == 0 { own.to_string() } else { format!("{own}-{number}") });
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            keep::private(&mut options);
            let mut file = options.open(&path).ok()?;
            if !keep::try_lock(&file).unwrap_or(false) {
                return None;
            }
            file.set_len(0).and_then(|()| file.rewind()).ok()?;
            file.write_all(format!("{began}\n{chain}\n").as_bytes()).ok()?;
            Some(Self { path, _lock: file })
        })
    }

    /// Counts the running hosts that share a file with `own`, including this one. Removes notes of ended hosts.
    pub(super) fn alike(&self, own: &Host) -> usize {
        let Some(entries) = self.path.parent().and_then(|folder| fs::read_dir(folder).ok()) else { return 0 };
        let mut alike = 1;
        for path in entries.flatten().take(MOST).map(|entry| entry.path()).filter(|path| *path != self.path) {
            let Ok(mut file) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
            if keep::try_lock(&file).unwrap_or(false) {
                // The host of this note has ended; otherwise it would hold the lock.
                let _ = fs::remove_file(&path);
                continue;
            }
            let (_, chain) = read(&mut file);
            alike += usize::from(chain.last().is_some_and(|host| host.shares(own)));
        }
        alike
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn read(file: &mut File) -> (u64, Vec<Host>) {
    let mut text = String::new();
    let _ = file.take(LONGEST as u64).read_to_string(&mut text);
    let (began, chain) = text.split_once('\n').unwrap_or_default();
    (began.parse().unwrap_or_default(), hosts(chain.trim_end().as_ref()))
}

/// Returns the hosts above this process, the outermost first, from the notes of its ancestors.
pub(super) fn above() -> Vec<Host> {
    above_process(std::process::id())
}

/// Returns the hosts above another process of this user, the outermost first, from the notes of its ancestors.
#[cfg(target_os = "linux")]
pub(super) fn above_process(process: u32) -> Vec<Host> {
    /// Nothing nests deeper in practice.
    const GENERATIONS: usize = 64;

    let mut pid = process;
    let own = state_of(&environment("self"));
    for _ in 0..GENERATIONS {
        let Some(parent) = stat(pid).map(|(parent, _)| parent).filter(|parent| *parent > 1) else { break };
        pid = parent;
        let theirs = state_of(&environment(&pid.to_string()));
        let own = own.as_ref().filter(|own| Some(*own) != theirs.as_ref());
        if let Some(chain) = theirs.iter().chain(own).find_map(|folder| note_of(folder, pid)) {
            return chain;
        }
    }
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn above_process(_: u32) -> Vec<Host> {
    Vec::new()
}

/// Reads the hosts in the note of a process, if the note belongs to this user and to that very process.
#[cfg(target_os = "linux")]
fn note_of(folder: &Path, pid: u32) -> Option<Vec<Host>> {
    use std::os::unix::fs::MetadataExt as _;

    let mut file = File::open(folder.join(FOLDER).join(pid.to_string())).ok()?;
    let mine = file.metadata().is_ok_and(|metadata| metadata.uid() == rustix::process::geteuid().as_raw());
    let (began_then, chain) = read(&mut file);
    (mine && began(pid) == Some(began_then) && !chain.is_empty()).then_some(chain)
}

/// Reads the variables that a process was started with, if this user may see them.
#[cfg(target_os = "linux")]
fn environment(process: &str) -> Vec<u8> {
    of_process(process, "environ").unwrap_or_default()
}

/// Reads a file about a process in one go, because the first server waits for this.
#[cfg(target_os = "linux")]
fn of_process(process: &str, what: &str) -> Option<Vec<u8>> {
    let mut file = File::open(format!("/proc/{process}/{what}")).ok()?;
    let mut bytes = vec![0; AT_ONCE];
    let read = file.read(&mut bytes).ok()?;
    bytes.truncate(read);
    if read == AT_ONCE {
        file.take(ENVIRONMENT).read_to_end(&mut bytes).ok()?;
    }
    Some(bytes)
}

/// Returns a variable of the environment with which another process of this user was started.
#[cfg(all(target_os = "linux", feature = "server"))]
pub(super) fn variable_of(pid: u32, name: &str) -> Option<OsString> {
    value_in(&environment(&pid.to_string()), name)
}

#[cfg(all(unix, not(target_os = "linux"), feature = "server"))]
pub(super) fn variable_of(_: u32, _: &str) -> Option<OsString> {
    None
}

#[cfg(target_os = "linux")]
fn value_in(environment: &[u8], name: &str) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt as _;

    let mut all = environment.split(|byte| *byte == 0);
    let value = all.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(OsString::from_vec(value.to_vec()))
}

/// Returns the state directory of a process with these variables.
#[cfg(target_os = "linux")]
fn state_of(environment: &[u8]) -> Option<PathBuf> {
    let variable = |name: &str| value_in(environment, name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("mcp-host"))
}

/// Returns when a process began, in ticks since boot; `None` if the process does not exist.
#[cfg(target_os = "linux")]
fn began(pid: u32) -> Option<u64> {
    stat(pid).map(|(_, began)| began)
}

#[cfg(not(target_os = "linux"))]
fn began(_: u32) -> Option<u64> {
    None
}

/// Returns the parent of a process, and when the process began.
#[cfg(target_os = "linux")]
fn stat(pid: u32) -> Option<(u32, u64)> {
    let text = of_process(&pid.to_string(), "stat")?;
    let text = String::from_utf8_lossy(&text);
    // The program name is in parentheses and may contain parentheses.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
}

/// The folder for notes in a state directory.
const FOLDER: &str = "hosts";
/// How many bytes of an environment are read at most.
#[cfg(target_os = "linux")]
const ENVIRONMENT: u64 = 256 * 1024;
/// How many bytes are read first, which is enough for most environments: procfs gives them in one read.
#[cfg(target_os = "linux")]
const AT_ONCE: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_lives_as_long_as_its_host() {
        let state = tempfile::tempdir().unwrap();
        let own = Host(vec!["a".repeat(32)]);
        let chain = super::super::chain(&[], &own);
        let first = Note::leave(state.path(), &chain).unwrap();
        let second = Note::leave(state.path(), &chain).unwrap();
        let other = Note::leave(state.path(), &"b".repeat(32)).unwrap();
        assert_eq!([first.alike(&own), second.alike(&own)], [2, 2]);
        drop(first);
        assert_eq!(second.alike(&own), 1);
        // A killed host leaves the file of its note, but no lock.
        let left = state.path().join("hosts/1");
        fs::write(&left, format!("0\n{chain}\n")).unwrap();
        assert_eq!(second.alike(&own), 1);
        assert!(!left.exists());
        drop((second, other));
        assert_eq!(fs::read_dir(state.path().join("hosts")).unwrap().count(), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_note_counts_for_the_very_process_that_left_it() {
        let state = tempfile::tempdir().unwrap();
        let own = Host(vec!["a".repeat(32)]);
        let note = Note::leave(state.path(), &super::super::chain(&[], &own)).unwrap();
        let pid = std::process::id();
        assert_eq!(note_of(state.path(), pid), Some(vec![own]));
        // The note looks as if the pid now belonged to another process.
        fs::write(&note.path, format!("1\n{}\n", "a".repeat(32))).unwrap();
        assert_eq!(note_of(state.path(), pid), None);
        let (parent, began) = stat(pid).unwrap();
        assert!(parent > 0 && began > 0);
    }
}
