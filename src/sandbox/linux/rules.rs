//! Files and signals: the accesses that Landlock refuses to a confined process.
//!
//! A rule applies to a file or folder as it was opened, not to its name, so links, renames, and `..` make no
//! difference. What no rule names is refused.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, RulesetError, Scope,
};

use super::plan::{Plan, Seen};

/// The oldest version that restricts reads, writes, moves, and truncation.
const OLDEST: ABI = ABI::V3;
/// The version that also restricts the control of devices.
const DEVICES: ABI = ABI::V5;

/// Why the rules were not applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{}: {why}", path.display())]
    Path { path: PathBuf, why: String },
    #[error("Landlock: {0}")]
    Kernel(#[from] RulesetError),
}

/// Reports whether the kernel has everything that the level needs for files.
pub(super) fn can_keep_files() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(AccessFs::from_all(OLDEST)).and_then(Ruleset::create).is_ok()
}

/// Reports whether the kernel can refuse signals to processes outside.
pub(super) fn can_keep_signals() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.scope(Scope::Signal).and_then(Ruleset::create).is_ok()
}

/// Applies the rules to this process, permanently.
pub(super) fn enforce(plan: &Plan) -> Result<(), Error> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(OLDEST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::IoctlDev)?
        .scope(Scope::Signal)?;
    if !plan.unix {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket)?;
    }
    let mut created = ruleset.create()?;
    let seen = |path: &PathBuf| plan.seen.get(path).copied();
    for path in &plan.read {
        created = allow(created, path, seen(path), AccessFs::from_read(OLDEST))?;
    }
    for path in &plan.write {
        created = allow(created, path, seen(path), writing())?;
    }
    created.restrict_self()?;
    Ok(())
}

/// Returns all accesses but creating and controlling devices.
fn writing() -> BitFlags<AccessFs> {
    AccessFs::from_all(DEVICES) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
}

/// Allows access to a path, if it is the file or folder that was `seen` there before.
fn allow(
    created: RulesetCreated,
    path: &Path,
    seen: Option<Seen>,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Error> {
    let wrong = |why: String| Error::Path { path: path.to_owned(), why };
    let opened = PathFd::new(path).map_err(|error| wrong(error.to_string()))?;
    // The plan's path has no links. If a link has been created since, its target was not judged.
    let place = Path::new("/proc/self/fd").join(opened.as_fd().as_raw_fd().to_string());
    let is = std::fs::read_link(&place).map_err(|error| wrong(error.to_string()))?;
    if is != path {
        return Err(wrong(format!("was moved to {}", is.display())));
    }
    let found = std::fs::metadata(&place).map_err(|error| wrong(error.to_string()))?;
    // In namespaces the name leads to whatever was mounted there.
    if seen.is_some_and(|seen| seen != (found.dev(), found.ino())) {
        return Err(wrong("is another file by now".to_owned()));
    }
    let access = if found.is_dir() { access } else { access & AccessFs::from_file(DEVICES) };
    Ok(created.add_rule(PathBeneath::new(opened, access))?)
}
