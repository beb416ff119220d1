//! The audit file: any number of hosts append whole lines to it, and a full file is rotated to a numbered one.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config;
use crate::keep;

/// The open file.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    max: u64,
    keep: usize,
    file: fs::File,
}

/// How many times to reopen a file that other hosts keep rotating.
const ROUNDS: usize = 100;
/// How long to wait for another host that holds the lock of the file.
const HELD: Duration = Duration::from_secs(5);

impl File {
    pub(super) fn open(settings: &config::Audit) -> io::Result<Self> {
        let max = u64::try_from(settings.max_size).unwrap_or(u64::MAX);
        Ok(Self { path: settings.file.clone(), max, keep: settings.keep, file: open(&settings.file)? })
    }

    /// Appends all of the lines, or none.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        for _ in 0..ROUNDS {
            let held = keep::hold(self.file.try_clone()?, HELD)?;
            if !is_at(&self.file, &self.path) {
                // Another host has rotated the file, or something has removed it.
                drop(held);
                self.file = open(&self.path)?;
                continue;
            }
            let length = self.file.metadata()?.len();
            if length > 0 && length.saturating_add(lines.len() as u64) > self.max {
                keep::settle(&self.file)?;
                put_aside(&self.path, self.keep)?;
                drop(held);
                self.file = open(&self.path)?;
                continue;
            }
            return self.add(lines, length);
        }
        Err(io::Error::other("other hosts rotated it again and again"))
    }

    fn add(&mut self, lines: &[u8], length: u64) -> io::Result<()> {
        // The last writer may have been killed in the middle of a line.
        let whole = if ends_with_a_line(&mut self.file, length)? { Ok(()) } else { self.file.write_all(b"\n") };
        whole.and_then(|()| self.file.write_all(lines)).inspect_err(|_| {
            // No partial line stays behind.
            let _ = self.file.set_len(length);
        })
    }

    /// Waits until everything is on the disk.
    pub(super) fn settle(&self) {
        let _ = keep::settle(&self.file);
    }
}

fn open(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.append(true).read(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn ends_with_a_line(file: &mut fs::File, length: u64) -> io::Result<bool> {
    let Some(last) = length.checked_sub(1) else { return Ok(true) };
    let mut byte = [0];
    file.seek(SeekFrom::Start(last))?;
    file.read_exact(&mut byte)?;
    Ok(byte == *b"\n")
}

/// Renames `audit.jsonl` to `audit.jsonl.1`, the former `audit.jsonl.1` to `audit.jsonl.2`, and so on. At most `keep`
/// numbered files remain: the oldest is replaced.
fn put_aside(path: &Path, keep: usize) -> io::Result<()> {
    let numbered = |number: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let there = (1..keep).take_while(|number| numbered(*number).exists()).count();
    for number in (1..=there).rev() {
        fs::rename(numbered(number), numbered(number + 1))?;
    }
    fs::rename(path, numbered(1))
}

/// Reports whether the open file is still the one at that path.
#[cfg(unix)]
fn is_at(file: &fs::File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let same = |(ours, there): (fs::Metadata, fs::Metadata)| ours.ino() == there.ino() && ours.dev() == there.dev();
    file.metadata().ok().zip(fs::metadata(path).ok()).is_some_and(same)
}

#[cfg(not(unix))]
fn is_at(_: &fs::File, path: &Path) -> bool {
    path.exists()
}
