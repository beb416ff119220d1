//! A server in a container: the command line of podman or docker for it.
//!
//! In: an entry with `sandbox.container`. Out: the command of the launcher, whose plan holds the options that the entry
//! decides. The launcher (`enter.rs`) asks the engine what it can (`engine.rs`), and becomes the engine's client: so the
//! group, the pipes and the mark stay. **Invariant:** what is not listed is not mounted, no value of a variable stands in
//! a command line, and an image stays the one of its first use.

mod engine;
mod enter;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

pub(super) use self::enter::{enter, keep};
use super::plan::{Container, Plan};
use super::{ARGUMENT, OURSELVES};
use crate::config::{Sandbox, SandboxNetwork, Stdio, inherits};
use crate::hex;
use crate::sandbox::Error;
use crate::sandbox::places::{Own, Places};

/// The engines, in the order in which they are looked for: podman needs neither a daemon nor root.
const ENGINES: [&str; 2] = ["podman", "docker"];
pub(super) const ABSENT: &str = "there is neither podman nor docker (the programs `podman` and `docker`, in the packages `podman` and `docker.io`); install one, or remove `container`";
/// What an engine's client reads itself. In the container they would have to differ, and a server's entry must not steer it.
const STEERS: [&str; 5] = ["HOME", "PATH", "TMPDIR", "REGISTRY_AUTH_FILE", "SSH_AUTH_SOCK"];
/// How such names begin.
const STEER: [&str; 7] = ["BUILDAH_", "CONTAINER_", "CONTAINERS_", "DOCKER_", "LD_", "PODMAN_", "XDG_"];
/// What of this host's own variables the client gets besides, to find its engine.
const FOR_CLIENT: [&str; 3] = ["CONTAINER_*", "CONTAINERS_*", "DOCKER_*"];

/// Where every program makes temporary files.
const TMP: &str = "/tmp";

/// Finds an engine on the host's own PATH: what a server's entry says is no matter here.
pub(super) fn find() -> Option<(PathBuf, bool)> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let runs = |file: &Path| {
        file.is_absolute() && file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
    };
    let found = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| runs(file));
    ENGINES.iter().find_map(|name| Some((found(name)?, *name == "podman")))
}

/// Returns the launcher of a command in a container.
pub(super) fn start(stdio: Stdio, sandbox: &Sandbox, image: &str, places: &Places, own: &Own) -> Result<Stdio, Error> {
    let (engine, is_podman) = find().ok_or_else(|| Error::Uncontained { lacks: vec![ABSENT.to_owned()] })?;
    let hash = Sha256::digest(image.as_bytes());
    let limits = [
        ("memory", sandbox.memory.is_some()),
        ("cpu", sandbox.cpu.is_some()),
        ("processes", sandbox.processes.is_some()),
    ];
    let container = Container {
        engine,
        is_podman,
        image: image.to_owned(),
        kept: own.folder.join(format!("image-{}", hex::encode(&hash[..8]))),
        options: options(&stdio, sandbox, places, own)?,
        limits: limits.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key.to_owned()).collect(),
    };
    let plan = Plan { container: Some(container), ..Plan::default() };
    // An object of texts can always be written.
    let plan = serde_json::to_string(&plan).unwrap_or_default();
    let mut args = vec![ARGUMENT.to_owned(), plan, "--".to_owned(), stdio.command];
    args.extend(stdio.args);
    let mut forward_env = stdio.forward_env;
    forward_env.extend(FOR_CLIENT.map(str::to_owned));
    // The folder is one in the container; here it may be anything.
    let command = OURSELVES.to_owned();
    Ok(Stdio { command, args, env: stdio.env, forward_env, cwd: None, package: None, sandbox: None })
}

/// Returns the options that follow from an entry alone.
fn options(stdio: &Stdio, sandbox: &Sandbox, places: &Places, own: &Own) -> Result<Vec<String>, Error> {
    let mut options = Vec::new();
    let mut add = |option: String| options.push(option);
    if sandbox.network == SandboxNetwork::None {
        add("--network=none".to_owned());
    }
    if let Some(files) = sandbox.files {
        add(format!("--ulimit=nofile={files}:{files}"));
    }
    if let Some(memory) = sandbox.memory {
        // Without the second one, as much again could be swapped out.
        add(format!("--memory={memory}"));
        add(format!("--memory-swap={memory}"));
    }
    if let Some(cpu) = sandbox.cpu {
        add(format!("--cpus={}.{:03}", cpu / 1000, cpu % 1000));
    }
    if let Some(processes) = sandbox.processes {
        add(format!("--pids-limit={processes}"));
    }
    let mounts = mounts(sandbox, places, own)?;
    if !mounts.contains_key(Path::new(TMP)) {
        add(format!("--tmpfs={TMP}:rw,mode=1777"));
    }
    for (target, (source, may_write)) in &mounts {
        add(mount(source, target, *may_write)?);
    }
    add(format!("--env=HOME={}", own.home.display()));
    for (name, path) in own.variables().into_iter().filter(|(name, _)| *name != "TMPDIR") {
        add(format!("--env={name}={}", path.display()));
    }
    for name in names(stdio)? {
        add(format!("--env={name}"));
    }
    if let Some(cwd) = &stdio.cwd {
        if !mounts.keys().any(|target| cwd.starts_with(target)) {
            let why = format!("its `cwd` {} is not in the container; list it in `read` or `write`", cwd.display());
            return Err(Error::Container(why));
        }
        add(format!("--workdir={}", cwd.display()));
    }
    Ok(options)
}

/// Returns what is mounted by its place in the container: its path here, and whether it may be written. What is listed is at the
/// path that the entry names, and in the server's own HOME, if it is in that of the user.
fn mounts(sandbox: &Sandbox, places: &Places, own: &Own) -> Result<BTreeMap<PathBuf, (PathBuf, bool)>, Error> {
    let mut mounts = BTreeMap::new();
    for folder in [&own.home, &own.cache] {
        mounts.insert(folder.clone(), (folder.clone(), true));
    }
    for (key, paths, may_write) in [("read", &sandbox.read, false), ("write", &sandbox.write, true)] {
        for path in paths {
            let meant = places.meant(path);
            let Ok(source) = meant.canonicalize() else {
                let why = "does not exist, or cannot be reached; create it, or take it out of the list";
                return Err(Error::Path { key, path: meant.display().to_string(), why });
            };
            let in_home = places.named_home.as_ref().and_then(|home| meant.strip_prefix(home).ok());
            let is_plain = |rest: &&Path| rest.components().all(|part| matches!(part, Component::Normal(_)));
            if let Some(rest) = in_home.filter(is_plain).filter(|rest| rest.components().next().is_some()) {
                place(&own.home, rest, source.is_dir())?;
                mounts.insert(own.home.join(rest), (source.clone(), may_write));
            }
            mounts.insert(meant, (source, may_write));
        }
    }
    // The engine would make what is mounted below it in there, and leave it.
    if !mounts.keys().any(|target| target.starts_with(TMP)) {
        mounts.insert(TMP.into(), (own.tmp.clone(), true));
    }
    Ok(mounts)
}

/// Makes the place of a mount in the server's own HOME, so that the engine makes none as somebody else. A link that the server
/// planted on the way is not followed.
fn place(home: &Path, rest: &Path, is_folder: bool) -> Result<(), Error> {
    let wrong = |error: Errno| {
        let path = home.join(rest);
        Error::Container(format!("{} in its own HOME cannot be made: {error}; remove it", path.display()))
    };
    let (folder, nothing) = (OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let mut at = open(home, folder, nothing).map_err(wrong)?;
    let parts: Vec<_> = rest.components().map(|part| part.as_os_str()).collect();
    for (number, part) in parts.iter().enumerate() {
        if number + 1 == parts.len() && !is_folder {
            let file = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            return openat(&at, *part, file, Mode::RUSR | Mode::WUSR).map(drop).map_err(wrong);
        }
        match mkdirat(&at, *part, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(wrong(error)),
        }
        at = openat(&at, *part, folder, nothing).map_err(wrong)?;
    }
    Ok(())
}

fn mount(source: &Path, target: &Path, may_write: bool) -> Result<String, Error> {
    let text = |path: &Path| {
        let text = path.to_str().filter(|text| !text.contains([',', '"', '\n', '\r']));
        text.map(str::to_owned).ok_or_else(|| {
            let why = "has a comma, a quotation mark, or letters that are not UTF-8 in its name, which no engine takes; rename it";
            Error::Container(format!("{} {why}", path.display()))
        })
    };
    let read_only = if may_write { "" } else { ",readonly" };
    Ok(format!("--mount=type=bind,source={},target={}{read_only}", text(source)?, text(target)?))
}

/// Returns the names of the variables that the server gets: those of its entry, and those of ours that it inherits.
fn names(stdio: &Stdio) -> Result<Vec<String>, Error> {
    let steers = |name: &str| STEERS.contains(&name) || STEER.iter().any(|prefix| name.starts_with(prefix));
    let mut names: Vec<String> = stdio.env.iter().map(|(name, _)| name.clone()).collect();
    if let Some(name) = names.iter().find(|name| steers(name)) {
        let why = format!("`env` sets {name}, which podman and docker read themselves; set it in the image");
        return Err(Error::Container(why));
    }
    let own = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.extend(own.filter(|name| !steers(name) && inherits(&stdio.forward_env, name)));
    // The mark of the host, by which the guard finds what it started.
    names.push(crate::sandbox::MARK.to_owned());
    names.sort();
    names.dedup();
    Ok(names)
}
