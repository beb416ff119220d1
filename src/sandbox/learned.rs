//! What a server did while it was watched without a sandbox, and which of these accesses each level would refuse.

use std::path::PathBuf;

/// What a server did with a path while it was watched without a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Touched {
    /// It opened the file or folder for reading, or ran the program.
    Read(PathBuf),
    /// It opened the file for writing, or changed it in place.
    Write(PathBuf),
    /// It created, moved, or removed a file or folder with this name.
    Name(PathBuf),
}

/// A path that one of the levels would have refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Needed {
    /// The path; `~/…` below HOME.
    pub path: PathBuf,
    /// Whether the server wrote there.
    pub writes: bool,
    /// Whether the level `default` refuses it, unless it is listed.
    pub default: bool,
    /// Whether the level `strict` refuses it, unless it is listed.
    pub strict: bool,
    /// Whether [`Learned::read`] or [`Learned::write`] lists it. Keys, HOME, and folders above HOME are only listed by
    /// hand.
    pub listed: bool,
}

/// What the entry of a server has to list so that a level lets it do what it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Learned {
    /// The paths that `read` has to list: absolute, or `~/…`. Three or more files of one folder become that folder.
    pub read: Vec<PathBuf>,
    /// The paths that `write` has to list.
    pub write: Vec<PathBuf>,
    /// Each path that a level would have refused.
    pub needed: Vec<Needed>,
}
