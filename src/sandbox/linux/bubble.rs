//! Starts a launcher inside namespaces that bubblewrap creates, with the file system that the plan describes.
//!
//! The launcher starts outside. It checks each granted path once more and becomes bubblewrap. bubblewrap then becomes
//! the launcher again, inside, through a file descriptor of this program: so even if the program was replaced
//! meanwhile, the build that made the plan runs. Inside, the launcher compares each path with what it saw outside.
//! **Invariant:** the process group, the pipes and the mark stay the same. The process that mcp-host knows is
//! bubblewrap's. When its group is killed, the first process inside is killed, too, and with it everything inside.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;

use super::door;
use super::plan::{Bubble, Plan, Seen};
use crate::sandbox::ARGUMENT;

/// Folders that bubblewrap creates itself.
const MADE: [&str; 2] = ["/dev", "/proc"];
/// How many links are followed in one path.
const DEEPEST: usize = 16;

/// Becomes bubblewrap, and then the launcher inside.
pub(super) fn enter(
    bubble: &Bubble,
    mut plan: Plan,
    program: &OsStr,
    arguments: impl Iterator<Item = OsString>,
) -> Result<Infallible, String> {
    plan.is_inside = true;
    if bubble.is_whole {
        let places = plan.read.iter().chain(&plan.write).filter(|path| is_bound(path));
        plan.seen = places.map(|path| Ok((path.clone(), seen(path)?))).collect::<Result<_, String>>()?;
    }
    if let Some(door) = &bubble.door {
        plan.door = Some(door::connect(door).map_err(|error| format!("the connection to its network proxy: {error}"))?);
    }
    let ourselves = File::open("/proc/self/exe").map_err(|error| format!("this program: {error}"))?;
    rustix::io::fcntl_setfd(&ourselves, FdFlags::empty()).map_err(|error| error.to_string())?;
    let again = format!("/proc/self/fd/{}", ourselves.as_raw_fd());
    let text = serde_json::to_string(&plan).map_err(|error| error.to_string())?;
    let mut command = Command::new(&bubble.program);
    command.args(words(bubble, &plan)).arg("--").args([&again, ARGUMENT, &text, "--"]).arg(program).args(arguments);
    Err(format!("{}: {}", bubble.program.display(), command.exec()))
}

/// Returns the arguments of bubblewrap.
fn words(bubble: &Bubble, plan: &Plan) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["--unshare-user", "--cap-drop", "ALL"].map(OsString::from).into();
    if bubble.has_network {
        words.push("--unshare-net".into());
    }
    if !bubble.is_whole {
        words.extend(["--dev-bind", "/", "/"].map(OsString::from));
        return words;
    }
    words.extend(["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--chdir", "/"].map(OsString::from));
    for (place, target) in &bubble.links {
        words.extend(["--symlink".into(), target.into(), place.into()]);
    }
    if let Some(tmp) = &bubble.tmp {
        words.extend(["--bind".into(), tmp.into(), "/tmp".into()]);
    }
    // In order of their names, a folder comes before what is in it.
    let reads = plan.read.iter().map(|path| (path, "--ro-bind"));
    let binds: BTreeMap<&PathBuf, &str> = reads.chain(plan.write.iter().map(|path| (path, "--bind"))).collect();
    for (path, how) in binds.into_iter().filter(|(path, _)| is_bound(path)) {
        words.extend([how.into(), path.into(), path.into()]);
    }
    words.extend(["--proc", "/proc", "--dev", "/dev"].map(OsString::from));
    words
}

fn is_bound(path: &Path) -> bool {
    !MADE.iter().any(|made| path.starts_with(made))
}

/// Returns the identity of a path that has no links.
fn seen(path: &Path) -> Result<Seen, String> {
    let wrong = |error: io::Error| format!("{}: {error}", path.display());
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let opened = opened.map_err(|error| wrong(error.into()))?;
    let place = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string());
    let is = std::fs::read_link(&place).map_err(wrong)?;
    if is != path {
        return Err(format!("{}: was moved to {}", path.display(), is.display()));
    }
    let stat = rustix::fs::fstat(&opened).map_err(|error| wrong(error.into()))?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink() {
        return Err(format!("{}: is a link by now", path.display()));
    }
    Ok((stat.st_dev, stat.st_ino))
}

/// Adds the links on the way to a path, so that inside, where only the target is visible, the path leads to it, too.
pub(super) fn links(path: &Path, found: &mut BTreeMap<PathBuf, PathBuf>) {
    let mut path = path.to_owned();
    for _ in 0..DEEPEST {
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        let Some((place, target)) =
            above.into_iter().find_map(|place| std::fs::read_link(place).ok().map(|target| (place.to_owned(), target)))
        else {
            return;
        };
        let rest = path.strip_prefix(&place).unwrap_or(Path::new(""));
        let next = place.parent().unwrap_or(Path::new("/")).join(&target).join(rest);
        found.insert(place, target);
        path = plain(&next);
    }
}

/// Removes `..` from a path whose links are followed one by one.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            std::path::Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bubble() -> Bubble {
        Bubble {
            program: "/usr/bin/bwrap".into(),
            is_whole: true,
            has_network: true,
            door: None,
            links: vec![("/bin".into(), "usr/bin".into())],
            tmp: Some("/state/tmp".into()),
        }
    }

    #[test]
    fn h108_namespaces_have_what_is_granted_and_nothing_else() {
        let plan = Plan {
            read: ["/a/b", "/proc", "/usr"].map(PathBuf::from).into(),
            write: ["/a", "/dev/null", "/state/tmp"].map(PathBuf::from).into(),
            ..Plan::default()
        };
        let said = |bubble: &Bubble| {
            let words = words(bubble, &plan).into_iter().map(|word| word.into_string().expect("UTF-8"));
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            said(&bubble()),
            "--unshare-user --cap-drop ALL --unshare-net --unshare-pid --unshare-ipc --unshare-uts --chdir / --symlink usr/bin /bin \
             --bind /state/tmp /tmp --bind /a /a --ro-bind /a/b /a/b --bind /state/tmp /state/tmp --ro-bind /usr /usr --proc /proc --dev /dev"
        );
        let network = Bubble { is_whole: false, ..bubble() };
        assert_eq!(said(&network), "--unshare-user --cap-drop ALL --unshare-net --dev-bind / /");
    }

    #[test]
    fn h108_links_on_the_way_to_a_program_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("it is there");
        std::fs::create_dir_all(root.join("versions/1/bin")).expect("a folder");
        std::fs::write(root.join("versions/1/bin/tool-1"), "").expect("a file");
        let link = |target: &str, place: &str| std::os::unix::fs::symlink(target, root.join(place)).expect("a link");
        link("versions/1", "current");
        link("tool-1", "versions/1/bin/tool");
        link("../loop", "versions/loop");
        link("versions/loop", "loop");
        let mut found = BTreeMap::new();
        links(&root.join("current/bin/tool"), &mut found);
        links(&root.join("loop/x"), &mut found);
        let found: Vec<_> =
            found.iter().map(|(place, target)| (place.strip_prefix(&root).expect("below"), &**target)).collect();
        let expected = [
            ("current", "versions/1"),
            ("loop", "versions/loop"),
            ("versions/1/bin/tool", "tool-1"),
            ("versions/loop", "../loop"),
        ];
        assert_eq!(found, expected.map(|(place, target)| (Path::new(place), Path::new(target))));
    }

    #[test]
    fn h108_a_path_that_is_a_link_by_now_is_not_bound() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("it is there");
        std::fs::create_dir(root.join("data")).expect("a folder");
        let before = seen(&root.join("data")).expect("it is there");
        std::fs::rename(root.join("data"), root.join("old")).expect("it moves");
        assert_eq!(seen(&root.join("old")), Ok(before));
        std::os::unix::fs::symlink("/", root.join("data")).expect("a link");
        std::fs::create_dir(root.join("real")).expect("a folder");
        assert!(seen(&root.join("data")).is_err_and(|error| error.contains("is a link by now")));
        std::os::unix::fs::symlink(".", root.join("here")).expect("a link");
        assert!(seen(&root.join("here/real")).is_err_and(|error| error.contains("was moved to")));
    }
}
