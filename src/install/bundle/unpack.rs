//! The archive of a bundle: hashes it, checks its names, and unpacks it within limits.
//!
//! **Invariant:** no file is written outside of the folder, over another file, or as a link. Sizes are counted while
//! bytes are read, whatever the archive states.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};
use zip::ZipArchive;

use crate::hex;
use crate::protocol::Theirs;

/// The largest size of a bundle, and of its unpacked files, in bytes.
pub(super) const LARGEST: u64 = 512 * 1024 * 1024;
/// The most entries.
const ENTRIES: usize = 20_000;
/// How much larger the contents may be than the file.
const RATIO: u64 = 100;
/// The largest `manifest.json`.
const MANIFEST: u64 = 1024 * 1024;
/// The longest name.
const NAME: usize = 1024;
/// What a signature at the end begins with.
const SIGNATURE: &[u8] = b"MCPB_SIG_V1";

/// An archive whose names were all checked.
pub(super) struct Archive {
    zip: ZipArchive<File>,
    /// The SHA-256 of the file.
    pub(super) digest: String,
    pub(super) is_signed: bool,
    /// The number of its files, and the total size that it states for them.
    pub(super) size: (usize, u64),
    length: u64,
}

impl Archive {
    /// Opens a file, hashes it, and checks each name. Blocks.
    pub(super) fn open(file: &Path) -> Result<Self, String> {
        let unread = |error: io::Error| format!("it cannot be read: {error}");
        let metadata = fs::metadata(file).map_err(unread)?;
        if !metadata.is_file() {
            return Err("it is no file".to_owned());
        }
        let length = metadata.len();
        if length > LARGEST {
            return Err(format!("it is larger than {} MiB", LARGEST / (1024 * 1024)));
        }
        let mut opened = File::open(file).map_err(unread)?;
        let digest = format!("sha256:{}", hex::encode(&hashed(&mut opened).map_err(unread)?));
        let mut end = Vec::new();
        opened.seek(SeekFrom::Start(length.saturating_sub(64 * 1024))).map_err(unread)?;
        (&opened).take(64 * 1024).read_to_end(&mut end).map_err(unread)?;
        let is_signed = end.windows(SIGNATURE.len()).any(|window| window == SIGNATURE);
        opened.rewind().map_err(unread)?;
        let zip = ZipArchive::new(opened).map_err(|error| format!("it is no bundle: {error}"))?;
        let mut archive = Self { zip, digest, is_signed, size: (0, 0), length };
        archive.look()?;
        Ok(archive)
    }

    fn look(&mut self) -> Result<(), String> {
        if self.zip.len() > ENTRIES {
            return Err(format!("it has {} entries; {ENTRIES} at most", self.zip.len()));
        }
        let mut names = BTreeSet::new();
        for at in 0..self.zip.len() {
            let entry = self.zip.by_index_raw(at).map_err(|error| format!("its entry {at} cannot be read: {error}"))?;
            let name = entry.name().map_err(|error| format!("its entry {at} has no name: {error}"))?.into_owned();
            let wrong = |why: &str| Err(format!("its entry {:?} {why}", Theirs(&name)));
            if entry.is_symlink() {
                return wrong("is a link");
            }
            if entry.encrypted() {
                return wrong("is encrypted");
            }
            if let Some(why) = unsafe_name(&name) {
                return wrong(why);
            }
            // Some file systems treat these names as equal.
            if !names.insert(name.trim_end_matches('/').to_lowercase()) {
                return wrong("comes twice, or differs from another one in case alone");
            }
            if !entry.is_dir() {
                self.size.0 += 1;
                self.size.1 = self.size.1.saturating_add(entry.size());
            }
        }
        self.is_modest(self.size.1)
    }

    fn is_modest(&self, bytes: u64) -> Result<(), String> {
        if bytes > LARGEST {
            return Err(format!("it unpacks to more than {} MiB", LARGEST / (1024 * 1024)));
        }
        if bytes > self.length.saturating_mul(RATIO) {
            return Err(format!("it unpacks to more than {RATIO} times its size"));
        }
        Ok(())
    }

    /// Reads `manifest.json`. Blocks.
    pub(super) fn manifest(&mut self) -> Result<String, String> {
        let unread = |error: String| format!("its manifest.json cannot be read: {error}");
        let entry = self.zip.by_name("manifest.json").map_err(|error| unread(error.to_string()))?;
        let mut text = Vec::new();
        entry.take(MANIFEST + 1).read_to_end(&mut text).map_err(|error| unread(error.to_string()))?;
        if text.len() as u64 > MANIFEST {
            return Err(unread("it is larger than 1 MiB".to_owned()));
        }
        String::from_utf8(text).map_err(|_| unread("it is no UTF-8".to_owned()))
    }

    /// Unpacks everything into an empty folder. Blocks.
    pub(super) fn unpack(&mut self, folder: &Path) -> Result<(), String> {
        let (mut bytes, mut buffer) = (0_u64, vec![0; 64 * 1024]);
        for at in 0..self.zip.len() {
            let broken = |error: String| format!("its entry {at} cannot be unpacked: {error}");
            let mut entry = self.zip.by_index(at).map_err(|error| broken(error.to_string()))?;
            let path = folder.join(&*entry.name().map_err(|error| broken(error.to_string()))?);
            if entry.is_dir() {
                fs::create_dir_all(&path).map_err(|error| broken(error.to_string()))?;
                continue;
            }
            fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(|error| broken(error.to_string()))?;
            let is_program = entry.unix_mode().is_some_and(|mode| mode & 0o111 != 0);
            let mut options = OpenOptions::new();
            options.write(true).create_new(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, if is_program { 0o700 } else { 0o600 });
            #[cfg(not(unix))]
            let _ = is_program;
            let mut file = options.open(&path).map_err(|error| broken(error.to_string()))?;
            loop {
                let count = entry.read(&mut buffer).map_err(|error| broken(error.to_string()))?;
                if count == 0 {
                    break;
                }
                bytes += count as u64;
                if bytes > LARGEST || bytes > self.length.saturating_mul(RATIO) {
                    break;
                }
                file.write_all(&buffer[..count]).map_err(|error| broken(error.to_string()))?;
            }
            drop(entry);
            self.is_modest(bytes)?;
        }
        Ok(())
    }
}

fn hashed(file: &mut File) -> io::Result<[u8; 32]> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finalize().into()),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// Returns why a name must not be unpacked; `None` if it may be.
fn unsafe_name(name: &str) -> Option<&'static str> {
    let parts: Vec<&str> = name.trim_end_matches('/').split('/').collect();
    if name.is_empty() || name.len() > NAME {
        return Some("has no name, or too long a name");
    }
    if name.contains(['\\', ':']) || name.chars().any(char::is_control) {
        return Some("has a character in its name that no file of a bundle has");
    }
    if name.starts_with('/') {
        return Some("has an absolute name");
    }
    if parts.iter().any(|part| part.is_empty() || *part == "." || *part == "..") {
        return Some("has a name that leads elsewhere");
    }
    // Windows would drop these characters.
    parts.iter().any(|part| part.ends_with([' ', '.'])).then_some("has a name that ends with a blank or a dot")
}
