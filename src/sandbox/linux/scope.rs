//! Limits for all processes of a server together: a scope of systemd, which is a group of the kernel (cgroup v2) with limits.
//!
//! The manager of the user's session has such groups to give away; for root it is that of the system. The launcher becomes
//! `systemd-run --scope`, which asks the manager for a scope, moves into it, and becomes the launcher again. So the process
//! id, the pipes and the mark stay, and a scope goes with its last process. **Invariant:** a limit whose controller was
//! not delegated is a lack; systemd would pass over it without a word.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::io::FdFlags;

use super::plan::{Plan, Scope};
use crate::config::Sandbox;
use crate::sandbox::ARGUMENT;

const PROGRAM: &str = "systemd-run";
/// Where the groups are.
const GROUPS: &str = "/sys/fs/cgroup";
const CONTROLLERS: &str = "cgroup.controllers";
/// The variable that names the folder of the user's session.
const RUNTIME: &str = "XDG_RUNTIME_DIR";

/// What this machine can limit for the processes of a server together.
#[derive(Debug, PartialEq, Eq)]
struct Here {
    program: PathBuf,
    session: Option<PathBuf>,
    controllers: Vec<String>,
}

static HERE: OnceLock<Result<Here, String>> = OnceLock::new();

fn here() -> &'static Result<Here, String> {
    HERE.get_or_init(|| {
        let user = rustix::process::geteuid();
        let session = std::env::var_os(RUNTIME).map(PathBuf::from).filter(|folder| folder.is_absolute());
        let session = session.unwrap_or_else(|| format!("/run/user/{}", user.as_raw()).into());
        let session = (!user.is_root()).then_some(session);
        find(Path::new("/"), user.as_raw(), session)
    })
}

/// Looks for a manager below a root of the file system, and for what was delegated to it.
fn find(root: &Path, user: u32, session: Option<PathBuf>) -> Result<Here, String> {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let (group, is_there) = match &session {
        Some(session) => {
            let group = format!("{GROUPS}/user.slice/user-{user}.slice/user@{user}.service");
            (group, session.join("systemd/private").exists())
        }
        None => (GROUPS.to_owned(), below("/run/systemd/system").is_dir()),
    };
    if !is_there {
        let whose = if session.is_some() { "of this account" } else { "of the system" };
        return Err(format!("there is no manager {whose} by systemd, so no cgroup is delegated"));
    }
    let controllers = fs::read_to_string(below(&group).join(CONTROLLERS))
        .map_err(|_| "this machine has no cgroups of version 2 for it".to_owned())?;
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let program = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    let program = program.into_iter().find(|file| file.is_absolute() && file.is_file());
    let program = program.ok_or_else(|| format!("there is no {PROGRAM} (in the package `systemd`)"))?;
    Ok(Here { program, session, controllers: controllers.split_whitespace().map(str::to_owned).collect() })
}

/// Says why a controller cannot be had; `None` if it can.
pub(super) fn lacks(controller: &str) -> Option<String> {
    match here() {
        Err(why) => Some(why.clone()),
        Ok(here) if here.controllers.iter().any(|own| own == controller) => None,
        Ok(_) => Some(format!("the cgroup of this account has no controller `{controller}`")),
    }
}

/// Returns the scope that the limits of a sandbox need, as far as this machine has it.
pub(super) fn of(sandbox: &Sandbox) -> Option<Scope> {
    let here = here().as_ref().ok()?;
    let properties = properties(sandbox, |controller| here.controllers.iter().any(|own| own == controller));
    let (program, session) = (here.program.clone(), here.session.clone());
    (!properties.is_empty()).then_some(Scope { program, session, properties })
}

fn properties(sandbox: &Sandbox, has: impl Fn(&str) -> bool) -> Vec<String> {
    let mut properties = Vec::new();
    if let Some(memory) = sandbox.memory.filter(|_| has("memory")) {
        // Else as much as one likes could be swapped out.
        properties.extend([format!("MemoryMax={memory}"), "MemorySwapMax=0".to_owned()]);
    }
    if let Some(cpu) = sandbox.cpu.filter(|_| has("cpu")) {
        properties.push(format!("CPUQuota={}%", cpu.div_ceil(10)));
    }
    if let Some(processes) = sandbox.processes.filter(|_| has("pids")) {
        properties.push(format!("TasksMax={processes}"));
    }
    properties
}

/// Becomes systemd-run, and then the launcher inside of the scope.
pub(super) fn enter(
    scope: &Scope,
    plan: &Plan,
    program: &OsStr,
    arguments: impl Iterator<Item = OsString>,
) -> Result<Infallible, String> {
    let ourselves = File::open("/proc/self/exe").map_err(|error| format!("this program: {error}"))?;
    rustix::io::fcntl_setfd(&ourselves, FdFlags::empty()).map_err(|error| error.to_string())?;
    let again = format!("/proc/self/fd/{}", ourselves.as_raw_fd());
    let text = serde_json::to_string(plan).map_err(|error| error.to_string())?;
    let mut command = Command::new(&scope.program);
    command.args(words(scope)).arg("--").args([&again, ARGUMENT, &text, "--"]).arg(program).args(arguments);
    if let Some(session) = &scope.session {
        command.env(RUNTIME, session);
    }
    Err(format!("{}: {}", scope.program.display(), command.exec()))
}

fn words(scope: &Scope) -> Vec<String> {
    let whose = if scope.session.is_some() { "--user" } else { "--system" };
    let mut words: Vec<String> = [whose, "--scope", "--quiet", "--collect"].map(str::to_owned).into();
    // Else its description is the whole command line.
    words.push("--description=a server of mcp-host".to_owned());
    words.extend(scope.properties.iter().map(|property| format!("--property={property}")));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h108_a_scope_has_the_limits_that_were_delegated() {
        let mut sandbox = Sandbox::on();
        (sandbox.memory, sandbox.cpu, sandbox.processes) = (Some(1 << 20), Some(1505), Some(32));
        let all = properties(&sandbox, |_| true);
        assert_eq!(all, ["MemoryMax=1048576", "MemorySwapMax=0", "CPUQuota=151%", "TasksMax=32"]);
        assert_eq!(properties(&sandbox, |controller| controller == "pids"), ["TasksMax=32"]);
        assert!(properties(&Sandbox::on(), |_| true).is_empty());
        let scope =
            Scope { program: "/usr/bin/systemd-run".into(), session: Some("/run/user/1000".into()), properties: all };
        let expected = "--user --scope --quiet --collect --description=a server of mcp-host --property=MemoryMax=1048576 \
                        --property=MemorySwapMax=0 --property=CPUQuota=151% --property=TasksMax=32";
        assert_eq!(words(&scope).join(" "), expected);
        assert!(words(&Scope { session: None, ..scope }).join(" ").starts_with("--system --scope "));
    }

    #[test]
    fn h108_what_a_machine_lacks_for_a_scope_is_named() {
        let root = tempfile::tempdir().expect("a folder");
        let session = root.path().join("run/user/7");
        let found = || find(root.path(), 7, Some(session.clone()));
        let none = "there is no manager of this account by systemd, so no cgroup is delegated";
        assert_eq!(found(), Err(none.to_owned()));
        fs::create_dir_all(session.join("systemd")).expect("a folder");
        fs::write(session.join("systemd/private"), "").expect("a file");
        assert_eq!(found(), Err("this machine has no cgroups of version 2 for it".to_owned()));
        let group = root.path().join("sys/fs/cgroup/user.slice/user-7.slice/user@7.service");
        fs::create_dir_all(&group).expect("a folder");
        fs::write(group.join(CONTROLLERS), "memory pids\n").expect("a file");
        // Whether the program is there is this machine's affair.
        match found() {
            Ok(here) => assert_eq!(here.controllers, ["memory", "pids"]),
            Err(why) => assert_eq!(why, "there is no systemd-run (in the package `systemd`)"),
        }
        let system = find(root.path(), 0, None);
        assert_eq!(system, Err("there is no manager of the system by systemd, so no cgroup is delegated".to_owned()));
    }
}
