//! Servers of a registry: looks them up, reads their `server.json`, and says how they are started.
//!
//! In: the registry of the config, the name of a server, values for its inputs. Out: a [`Plan`]: a command and its
//! variables, or a URL and its headers. `index.rs` asks the registry, `manifest.rs` reads its answers, `inputs.rs`
//! finds what the user has to provide, `runner.rs` builds the command, `tree/` locks and installs everything that a
//! package needs, and `unused.rs` removes what is no longer referred to.
//!
//! **Invariant:** nothing that an entry of a registry says is trusted. The table of `runner.rs` alone decides which
//! program starts, no shell reads anything, and no text of an entry is read as a reference to a variable or a secret.
//! Start with [`Index`].

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
    /// The registry cannot be reached, and no answer is cached.
    #[error("the registry at {registry} cannot be asked: {why}")]
    Unreachable {
        /// Its address.
        registry: String,
        /// What went wrong.
        why: String,
    },
    /// The registry's answer does not follow its API.
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
        /// What was requested.
        what: String,
    },
    /// The entry of a server is invalid.
    #[error("its entry is wrong: {field}: {why}")]
    Entry {
        /// The member of the entry.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// The server exists, but not in a form that can be started here.
    #[error("{0}")]
    Unsupported(String),
    /// A tool that locks or installs packages has failed.
    #[error("{tool} could not {what}: {why}")]
    Tool {
        /// The tool.
        tool: &'static str,
        /// What it was asked to do.
        what: String,
        /// Its error message.
        why: String,
    },
    /// A package has no lock, or one that is not acceptable.
    #[error("the lock of {}: {why}", Theirs(spec))]
    Lock {
        /// The package.
        spec: String,
        /// What is wrong.
        why: String,
    },
    /// A file is not a bundle, or not an acceptable one.
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
