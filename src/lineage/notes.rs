//! The note that a host leaves for hosts below it that start with a cleaned environment, and how those find it.
//!
//! A note is `hosts/PID` in the state directory: when that process began, and the marks of the chain that ends with it.
//! The host holds a lock on its note for life, so notes of ended hosts are recognized and removed. The locks also count
//! the hosts of one config. Only Linux says which processes are above; elsewhere the notes serve the count alone.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::{Host, LONGEST, hosts};
use crate::keep;

/// A note of a host that runs. It goes with the host.
#[derive(Debug)]
pub(super) struct Note {
    path: PathBuf,
    /// The lock goes when the file is closed, however the process ends.
    _lock: File,
}

/// Notes that are looked at.
const MOST: usize = 4096;
/// Hosts of one process that leave notes.
const OF_A_PROCESS: usize = 64;

impl Note {
    /// Leaves a note in that state directory. A directory that cannot be written costs the note and nothing else.
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

    /// How many hosts run that share a file with `own`, this one among them. Notes without a host are removed.
    pub(super) fn alike(&self, own: &Host) -> usize {
        let Some(entries) = self.path.parent().and_then(|folder| fs::read_dir(folder).ok()) else { return 0 };
        let mut alike = 1;
        for path in entries.flatten().take(MOST).map(|entry| entry.path()).filter(|path| *path != self.path) {
            let Ok(mut file) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
            if keep::try_lock(&file).unwrap_or(false) {
                // Its host is gone: nobody else can hold the lock.
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

/// The hosts above this process, by the notes of its ancestors; the outermost first.
#[cfg(target_os = "linux")]
pub(super) fn above() -> Vec<Host> {
    /// Nobody nests deeper.
    const GENERATIONS: usize = 64;

    let mut pid = std::process::id();
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
pub(super) fn above() -> Vec<Host> {
    Vec::new()
}

/// The chain that a process noted, if the note is this user's and of that very process.
#[cfg(target_os = "linux")]
fn note_of(folder: &Path, pid: u32) -> Option<Vec<Host>> {
    use std::os::unix::fs::MetadataExt as _;

    let mut file = File::open(folder.join(FOLDER).join(pid.to_string())).ok()?;
    let mine = file.metadata().is_ok_and(|metadata| metadata.uid() == rustix::process::geteuid().as_raw());
    let (began_then, chain) = read(&mut file);
    (mine && began(pid) == Some(began_then) && !chain.is_empty()).then_some(chain)
}

/// The variables that a process was started with, as far as this user may see them.
#[cfg(target_os = "linux")]
fn environment(process: &str) -> Vec<u8> {
    of_process(process, "environ").unwrap_or_default()
}

/// What the system tells of a process; read at once, since this is on the way to the first server.
#[cfg(target_os = "linux")]
fn of_process(process: &str, what: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(AT_ONCE);
    File::open(format!("/proc/{process}/{what}")).ok()?.take(ENVIRONMENT).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Where a process with these variables keeps its state.
#[cfg(target_os = "linux")]
fn state_of(environment: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;

    let variable = |name: &[u8]| {
        let mut all = environment.split(|byte| *byte == 0);
        let value = all.find_map(|pair| pair.strip_prefix(name)?.strip_prefix(b"="))?;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(value))).filter(|path| path.is_absolute())
    };
    let state = variable(b"XDG_STATE_HOME").or_else(|| variable(b"HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("mcp-host"))
}

/// When a process began, in ticks since the start of the machine.
#[cfg(target_os = "linux")]
fn began(pid: u32) -> Option<u64> {
    stat(pid).map(|(_, began)| began)
}

#[cfg(not(target_os = "linux"))]
fn began(_: u32) -> Option<u64> {
    None
}

/// The parent of a process, and when it began.
#[cfg(target_os = "linux")]
fn stat(pid: u32) -> Option<(u32, u64)> {
    let text = of_process(&pid.to_string(), "stat")?;
    let text = String::from_utf8_lossy(&text);
    // The name of the program stands in parentheses and may hold any.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
}

/// The folder of notes in a state directory.
const FOLDER: &str = "hosts";
/// Bytes of an environment that are read.
#[cfg(target_os = "linux")]
const ENVIRONMENT: u64 = 256 * 1024;
/// Room for most of them.
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
        // A host that was killed leaves its file, and no lock.
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
        // As if the number were another process's by now.
        fs::write(&note.path, format!("1\n{}\n", "a".repeat(32))).unwrap();
        assert_eq!(note_of(state.path(), pid), None);
        let (parent, began) = stat(pid).unwrap();
        assert!(parent > 0 && began > 0);
    }
}
