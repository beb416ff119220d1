//! The tree from which a server starts: describes it before the user agrees, and creates it afterwards.

use std::path::Path;

use mcp_host::config::Package;
use mcp_host::install::{self, Bundle, Kind, Lock, Maker, Scripts};

use super::failures::failed;
use crate::output::Output;
use crate::report::Failure;

/// How the tree of a server is created here.
pub(super) enum Tree {
    /// A tool locks and installs what the package needs.
    Locked(Maker, Scripts),
    /// The bundle contains everything.
    Bundle(Box<Bundle>),
    /// There is none: the package's runner fetches what it needs.
    Unlocked,
}

/// A tree that was created.
pub(super) struct Made {
    /// Its lock; `None` for a bundle, which is its own lock.
    pub(super) lock: Option<Lock>,
    /// The hash of the tree.
    pub(super) hash: String,
}

impl Tree {
    /// Finds the tool that creates the tree. `run_scripts` says whether the user lets packages run their own programs.
    pub(super) async fn of(package: Option<&Package>, run_scripts: bool) -> Self {
        let scripts = if run_scripts { Scripts::Run } else { Scripts::Refused };
        match package {
            Some(package) => {
                Maker::find(package.kind).await.map_or(Self::Unlocked, |maker| Self::Locked(maker, scripts))
            }
            None => Self::Unlocked,
        }
    }

    pub(super) fn is_locked(&self) -> bool {
        !matches!(self, Self::Unlocked)
    }

    /// Describes how a package's tree will be created.
    pub(super) fn told(&self, kind: Kind) -> String {
        match (self, kind) {
            (Self::Locked(maker, scripts), _) => {
                format!("it runs as you, from a locked copy of its packages: {}", maker.shown(*scripts))
            }
            (Self::Bundle(_), _) => "it runs as you; it is unpacked, and started from there".to_owned(),
            (Self::Unlocked, Kind::Npm) => unlocked("npm is not here; its runner fetches"),
            (Self::Unlocked, Kind::Pypi) => unlocked("neither uv nor pip is here; its runner fetches"),
            (Self::Unlocked, _) => unlocked("the runner fetches"),
        }
    }

    /// Creates the tree for a config, and puts the digest of its lock into the package. Returns `None` if nothing is
    /// locked.
    pub(super) async fn make(
        &self,
        package: Option<&mut Package>,
        config: &Path,
        output: &Output,
    ) -> Result<Option<Made>, Failure> {
        let note =
            async |package: Package| install::note(config.to_owned(), package).await.map_err(|error| failed(&error));
        match (self, package) {
            (Self::Locked(maker, scripts), Some(package)) => {
                let spec = package.spec();
                output.remark(&format!("locking and installing all that {} needs", crate::text::line(&spec)));
                let lock = maker.lock(package, *scripts).await.map_err(|error| failed(&error))?;
                package.digest = Some(lock.digest());
                let installed = maker.install(package, &lock, *scripts).await.map_err(|error| failed(&error))?;
                note(package.clone()).await?;
                Ok(Some(Made { lock: Some(lock), hash: installed.tree }))
            }
            (Self::Bundle(bundle), _) => {
                let installed = bundle.unpack().await.map_err(|error| failed(&error))?;
                note(bundle.package()).await?;
                Ok(Some(Made { lock: None, hash: installed.tree }))
            }
            (Self::Locked(..), None) | (Self::Unlocked, _) => Ok(None),
        }
    }
}

fn unlocked(why: &str) -> String {
    format!("it runs as you; its tree is not locked: {why} this version, and what that needs")
}
