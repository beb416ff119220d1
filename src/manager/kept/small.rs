//! Reads small files, blocking: nothing that lies in the folder can keep a reader waiting or fill its memory.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

/// Reads a small file. A pipe, a device, a link, or a file of more than `cap` bytes is an error.
pub(super) fn read(path: &Path, cap: usize) -> io::Result<Vec<u8>> {
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "not a file of ours");
    let length =
        fs::symlink_metadata(path).and_then(|file| if file.is_file() { Ok(file.len()) } else { Err(strange()) })?;
    if length > cap as u64 {
        return Err(strange());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    // The file may grow while it is read.
    File::open(path)?.take(cap as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > cap { Err(strange()) } else { Ok(bytes) }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "12345").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(read(&at("file"), 5).unwrap(), b"12345");
        for (name, cap) in [("file", 4), ("link", 5), ("pipe", 5), ("none", 5)] {
            assert!(read(&at(name), cap).is_err(), "{name}");
        }
    }
}
