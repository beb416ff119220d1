//! The hash of a folder: of the names, kinds, and contents of all files in it.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::hex;

/// The hashes of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hashes {
    /// The hash of the files that are equal on all machines.
    pub(crate) tree: String,
    /// The hash of all files.
    pub(crate) whole: String,
}

/// The most files of one tree. No package has more.
const MOST: usize = 500_000;
/// How many levels of folders are read.
const DEPTH: usize = 100;
/// Files beside a Python package that name the installer, the machine, or the time.
const NOTES: [&str; 6] = ["RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"];

struct Walk {
    tree: Sha256,
    whole: Sha256,
    count: usize,
    buffer: Vec<u8>,
}

/// Hashes a folder. Links are not followed: their targets are hashed as text. Blocks.
pub(crate) fn of(folder: &Path) -> io::Result<Hashes> {
    let mut walk = Walk { tree: Sha256::new(), whole: Sha256::new(), count: 0, buffer: vec![0; 64 * 1024] };
    walk.folder(folder, "", true, 0)?;
    let text = |hash: Sha256| format!("sha256:{}", hex::encode(&hash.finalize()));
    Ok(Hashes { tree: text(walk.tree), whole: text(walk.whole) })
}

impl Walk {
    fn folder(&mut self, folder: &Path, path: &str, is_common: bool, depth: usize) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name().into_string().map_err(|_| io::Error::other("a name is not UTF-8"))?;
            names.push(name);
        }
        names.sort_unstable();
        self.count += names.len();
        if self.count > MOST || depth > DEPTH {
            return Err(io::Error::other("it has too many files"));
        }
        for name in names {
            let (at, inner) = (folder.join(&name), format!("{path}{name}"));
            let is_common = is_common && !is_of_machine(path, &name);
            let metadata = fs::symlink_metadata(&at)?;
            if metadata.is_dir() {
                self.add(is_common, "folder", &inner, &[]);
                self.folder(&at, &format!("{inner}/"), is_common, depth + 1)?;
            } else if metadata.is_symlink() {
                let to = fs::read_link(&at)?;
                self.add(is_common, "link", &inner, to.as_os_str().as_encoded_bytes());
            } else if metadata.is_file() {
                let kind = if is_executable(&metadata) { "program" } else { "file" };
                let content = self.content(&at)?;
                self.add(is_common, kind, &inner, &content);
            } else {
                return Err(io::Error::other(format!("{inner} is no file, no folder, and no link")));
            }
        }
        Ok(())
    }

    fn content(&mut self, file: &Path) -> io::Result<[u8; 32]> {
        let (mut file, mut hash) = (fs::File::open(file)?, Sha256::new());
        loop {
            match file.read(&mut self.buffer)? {
                0 => return Ok(hash.finalize().into()),
                count => hash.update(&self.buffer[..count]),
            }
        }
    }

    /// Adds one entry, with the lengths of its texts, so that different entries never hash the same bytes.
    fn add(&mut self, is_common: bool, kind: &str, path: &str, content: &[u8]) {
        let hash = |whole: &mut Sha256| {
            for part in [kind.as_bytes(), path.as_bytes(), content] {
                whole.update((part.len() as u64).to_be_bytes());
                whole.update(part);
            }
        };
        hash(&mut self.whole);
        if is_common {
            hash(&mut self.tree);
        }
    }
}

/// Reports whether a file differs from machine to machine even if the same lock was installed: compiled Python, scripts
/// that name the interpreter, and notes of the installer.
fn is_of_machine(path: &str, name: &str) -> bool {
    let is_note = path.ends_with(".dist-info/") && NOTES.contains(&name);
    name == "__pycache__" || is_note || path.is_empty() && matches!(name, "bin" | ".lock")
}

#[cfg(unix)]
fn is_executable(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &fs::Metadata) -> bool {
    false
}
