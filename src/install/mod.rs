//! Servers of a registry: looks them up, reads their `server.json`, and says how they are started.
//!
//! In: the registry of the config, the name of a server, values for its inputs. Out: a [`Plan`]: a command and its
//! variables, or a URL and its headers. `index.rs` asks the registry, `manifest.rs` reads what it answers, `inputs.rs`
//! finds what a person has to say, `runner.rs` makes the command, and `tree/` locks and installs all that a package needs, and
//! `unused.rs` removes what nothing refers to any longer.
//!
//! **Invariant:** an entry of a registry is anybody's word. Which program starts is decided by the table of `runner.rs`
//! alone, no shell reads anything, and no text of an entry is read as a reference to a variable or a secret. Start with
//! [`Index`].

mod bundle;
mod index;
mod inputs;
mod manifest;
mod runner;
#[cfg(test)]
mod tests;
mod tree;
mod unused;
mod variables;

pub use self::bundle::Bundle;
pub use self::index::{Found, Freshness, Index};
pub use self::inputs::{Answers, Wanted};
pub use self::manifest::{Argument, Input, Manifest, Named, Package, Remote, Status};
pub use self::runner::{Choice, Plan};
pub use self::tree::{Installed, Lock, Maker, Scripts};
pub use self::unused::{Swept, note, sweep, unused};
pub use crate::config::PackageKind as Kind;

use crate::protocol::Theirs;

/// Why a server is not found, or cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The registry cannot be asked, and nothing is known from before.
    #[error("the registry at {registry} cannot be asked: {why}")]
    Unreachable {
        /// Its address.
        registry: String,
        /// What went wrong.
        why: String,
    },
    /// The registry answered with something else than its API says.
    #[error("the registry at {registry} gave a wrong answer: {why}")]
    Answer {
        /// Its address.
        registry: String,
        /// What is wrong.
        why: String,
    },
    /// The registry has no such server, or not in this version.
    #[error("the registry at {registry} has no {what}")]
    Unknown {
        /// Its address.
        registry: String,
        /// What was looked for.
        what: String,
    },
    /// The entry of a server is wrong.
    #[error("its entry is wrong: {field}: {why}")]
    Entry {
        /// The member of the entry.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// The server is there, but not in a form that can be started here.
    #[error("{0}")]
    Unsupported(String),
    /// A tool that locks or installs packages has failed.
    #[error("{tool} could not {what}: {why}")]
    Tool {
        /// The tool.
        tool: &'static str,
        /// What it was to do.
        what: String,
        /// What it said.
        why: String,
    },
    /// There is no lock of a package, or not one that is taken.
    #[error("the lock of {}: {why}", Theirs(spec))]
    Lock {
        /// The package.
        spec: String,
        /// What is wrong.
        why: String,
    },
    /// A file is no bundle, or not one that is taken.
    #[error("the bundle {}: {why}", Theirs(file))]
    Bundle {
        /// The file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// The tree of a package cannot be installed.
    #[error("the tree of {}: {why}", Theirs(spec))]
    Store {
        /// The package.
        spec: String,
        /// What is wrong.
        why: String,
    },
    /// A value of the user does not fit its input.
    #[error("{}: {why}", Theirs(input))]
    Value {
        /// The input.
        input: String,
        /// What is wrong.
        why: String,
    },
}
