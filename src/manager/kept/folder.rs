//! The folder of kept listings: read at startup, written whole under one lock, and trimmed oldest first when full.
//!
//! Everything here blocks; call it only where blocking is fine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::name::Names;
use super::small::read;
use crate::keep;

/// The folder `STATE/offers`.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

const LISTING: &str = ".json";

impl Folder {
    pub(super) fn new(state: &Path) -> Self {
        Self(state.join("offers"))
    }

    /// Reports whether anything was ever kept here. This blocks for one `stat`, which a start can afford: to start a
    /// thread for it would take longer.
    pub(super) fn is_there(&self) -> bool {
        self.0.is_dir()
    }

    /// Returns the maker of the file names in this folder; `None` if no listing was ever kept here.
    pub(super) fn names(&self) -> Option<Names> {
        Names::read(&self.0)
    }

    /// Returns the file names of all listings, grouped by their first part, which stands for the server.
    pub(super) fn listings(&self) -> BTreeMap<String, Vec<String>> {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, _) in self.files() {
            if let Some((server, _)) = name.split_once('-') {
                all.entry(server.to_owned()).or_default().push(name.clone());
            }
        }
        all
    }

    /// Reads the text of a listing.
    pub(super) fn read(&self, name: &str, cap: usize) -> io::Result<Vec<u8>> {
        read(&self.0.join(name), cap)
    }

    /// Writes listings, each whole or not at all, then makes room: all files together have `room` bytes at most. `make`
    /// returns the file names and texts.
    pub(super) fn write(&self, room: usize, make: impl FnOnce(&Names) -> Vec<(String, Vec<u8>)>) -> io::Result<()> {
        keep::make_folder(&self.0)?;
        for_its_user_alone(&self.0)?;
        let _lock = keep::lock(&self.0.join("lock"), keep::PATIENCE)?;
        let names = Names::of(&self.0)?;
        for (name, text) in make(&names) {
            let path = self.0.join(&name);
            match read(&path, text.len()) {
                // The text is unchanged: only its age is renewed.
                Ok(old) if old == text => File::options().write(true).open(&path)?.set_modified(SystemTime::now())?,
                _ => keep::replace(&path, &text)?,
            }
        }
        self.make_room(u64::try_from(room).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Removes all listings of a login.
    pub(super) fn forget(&self, login: &str) -> io::Result<()> {
        if !self.is_there() {
            return Ok(());
        }
        let _lock = keep::lock(&self.0.join("lock"), keep::PATIENCE)?;
        let Some(names) = self.names() else { return Ok(()) };
        let login = names.login(login);
        for (name, _) in self.files().into_iter().filter(|(name, _)| name.split('-').nth(1) == Some(login.as_str())) {
            fs::remove_file(self.0.join(name))?;
        }
        Ok(())
    }

    /// Removes the oldest files until the rest fits, and what killed writers left behind: the caller holds the lock, so
    /// no one else is writing.
    fn make_room(&self, room: u64) {
        let mut files = self.files();
        files.sort_by_key(|(_, file)| file.modified().unwrap_or(SystemTime::UNIX_EPOCH));
        let mut bytes: u64 = files.iter().map(|(_, file)| file.len()).sum();
        for (name, file) in files {
            if bytes <= room {
                break;
            }
            if fs::remove_file(self.0.join(name)).is_ok() {
                bytes = bytes.saturating_sub(file.len());
            }
        }
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(".new")) {
                // A leftover that cannot be removed stays.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn files(&self) -> Vec<(String, fs::Metadata)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let listing = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok().filter(|name| name.ends_with(LISTING))?;
            // This is the metadata of the folder entry itself: links are not followed.
            Some((name, entry.metadata().ok().filter(fs::Metadata::is_file)?))
        };
        entries.filter_map(listing).collect()
    }
}

/// Closes the folder to other users.
#[cfg(unix)]
fn for_its_user_alone(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    let mut permissions = fs::metadata(folder)?.permissions();
    if permissions.mode() & 0o077 != 0 {
        permissions.set_mode(0o700);
        fs::set_permissions(folder, permissions)?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn for_its_user_alone(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 32 << 10;

    fn put(folder: &Folder, name: &str, bytes: usize) {
        folder.write(ROOM, |_| vec![(format!("{name}-key.json"), vec![b'x'; bytes])]).unwrap();
    }

    fn there(folder: &Folder) -> Vec<String> {
        folder.listings().into_keys().collect()
    }

    #[test]
    fn limit_offers_the_oldest_listing_makes_room() {
        let state = tempfile::tempdir().unwrap();
        let folder = Folder::new(state.path());
        for (age, name) in ["a", "b", "c"].into_iter().enumerate() {
            put(&folder, name, 10 << 10);
            let file = File::options().write(true).open(folder.0.join(format!("{name}-key.json"))).unwrap();
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + age as u64);
            file.set_modified(at).unwrap();
        }
        // Writing the same text again makes it the youngest.
        put(&folder, "a", 10 << 10);
        fs::write(folder.0.join(".d.json.new"), "half of i").unwrap();
        put(&folder, "d", 2 << 10);
        assert_eq!(there(&folder), ["a", "b", "c", "d"], "as much as there is room for");
        assert!(!folder.0.join(".d.json.new").exists());
        put(&folder, "e", 1);
        assert_eq!(there(&folder), ["a", "c", "d", "e"]);
    }

    #[cfg(unix)]
    #[test]
    fn it_is_for_its_user_alone() {
        use std::os::unix::fs::PermissionsExt as _;

        let state = tempfile::tempdir().unwrap();
        let folder = Folder::new(state.path());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        put(&folder, "a", 1);
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
        put(&folder, "b", 1);
        let modes = [&folder.0, &folder.0.join("a-key.json"), &folder.0.join("key")].map(|path| mode(path));
        assert_eq!(modes, [0o700, 0o600, 0o600]);
    }
}
