//! Claude Code's own file, `~/.claude.json`: beside the servers of the user it has those of each project, by directory.
//!
//! Those of the project that the command stands in count, or of the one that was named. Where the file speaks of the
//! project's own `.mcp.json`, it can turn its servers off; it never approves anything that waits for the user's yes.

use std::path::{Path, PathBuf};

use super::place;
use super::report::{Place, Report};
use super::syntax::{Member, Node, Value};

/// Which project is meant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stand<'a> {
    /// The directory that was named for it.
    pub(super) named: Option<&'a Path>,
    /// Else the directory that the command stands in.
    pub(super) here: Option<&'a Path>,
    pub(super) home: Option<&'a Path>,
}

/// A project of the file.
#[derive(Debug)]
pub(super) struct Project<'a> {
    pub(super) folder: PathBuf,
    /// Its servers; none where the file keeps none for it.
    pub(super) servers: Option<&'a Node>,
    /// What it says of the servers of the project's own `.mcp.json`.
    pub(super) enabled: Vec<&'a str>,
    pub(super) disabled: Vec<&'a str>,
    pub(super) at: Place,
}

/// How many projects, and servers of each, a note names.
const NAMED: usize = 5;

/// The projects of a file, if it is one of Claude Code's.
pub(super) fn projects(root: &Node) -> Vec<Project<'_>> {
    let members = root.get("projects").and_then(Node::members).unwrap_or_default();
    members.iter().filter(|member| is_path(&member.key) && member.node.members().is_some()).map(project).collect()
}

fn is_path(key: &str) -> bool {
    key.starts_with('/') || key.chars().nth(1) == Some(':')
}

fn project(member: &Member) -> Project<'_> {
    let names = |key: &str| match member.node.get(key).map(|node| &node.value) {
        Some(Value::List(items)) => items.iter().filter_map(Node::text).collect(),
        _ => Vec::new(),
    };
    Project {
        folder: PathBuf::from(&member.key),
        servers: member.node.get("mcpServers").filter(|servers| servers.members().is_some_and(|all| !all.is_empty())),
        enabled: names("enabledMcpjsonServers"),
        disabled: names("disabledMcpjsonServers"),
        at: member.at,
    }
}

/// The project that is meant: that of the directory, or of the nearest one around it.
pub(super) fn choose<'p, 'a>(projects: &'p [Project<'a>], stand: Stand<'_>) -> Option<&'p Project<'a>> {
    let find = |folder: &Path| projects.iter().find(|project| same(&project.folder, folder));
    if let Some(named) = stand.named {
        return find(named);
    }
    let here = stand.here?;
    // A session that was once held in the home, or at the root, does not make one project of all that lies there.
    let counts = |folder: &&Path| *folder == here || (folder.parent().is_some() && Some(*folder) != stand.home);
    here.ancestors().filter(counts).find_map(find)
}

/// Whether both are the same directory, whatever links lead there.
pub(super) fn same(left: &Path, right: &Path) -> bool {
    left == right || matches!((left.canonicalize(), right.canonicalize()), (Ok(left), Ok(right)) if left == right)
}

/// Says which projects have servers that are not read.
pub(super) fn tell_others(projects: &[Project<'_>], report: &mut Report) {
    let with: Vec<&Project<'_>> = projects.iter().filter(|project| project.servers.is_some()).collect();
    let Some(first) = with.first() else { return };
    let mut shown: Vec<String> = with.iter().take(NAMED).map(|project| describe(project)).collect();
    if with.len() > shown.len() {
        shown.push(format!("and {} more", with.len() - shown.len()));
    }
    let note =
        report.note(first.at, "projects", format!("servers of other projects are not read: {}", shown.join("; ")));
    note.help(format!(
        "run this in that directory, or add: --project {}",
        place::quoted(&first.folder.to_string_lossy())
    ));
}

/// `/home/ada/shop (db, jira)`
fn describe(project: &Project<'_>) -> String {
    let names: Vec<&str> = names(project).collect();
    let more = if names.len() > NAMED { ", …" } else { "" };
    let names = names.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    format!("{} ({names}{more})", project.folder.display())
}

fn names<'a>(project: &Project<'a>) -> impl Iterator<Item = &'a str> {
    let members = project.servers.and_then(Node::members).unwrap_or_default();
    members.iter().map(|member| member.key.as_str())
}

/// Refuses a directory that was named and is a project of no file; `known` is what the files have.
pub(super) fn refuse(named: &Path, known: &[String], report: &mut Report) {
    let at = Place { file: report.add_file(Path::new("--project")), ..Place::default() };
    let problem = report.problem(at, "", format!("no config has servers for the project {}", named.display()));
    problem.help(match known {
        [] => {
            "it chooses among the `projects` of Claude Code's ~/.claude.json: name that file with --config".to_owned()
        }
        known => format!("those there are: {}", known.join("; ")),
    });
}

/// The projects with servers, in words.
pub(super) fn known(projects: &[Project<'_>]) -> Vec<String> {
    projects.iter().filter(|project| project.servers.is_some()).take(NAMED).map(describe).collect()
}

/// What a file of Claude Code says of the servers that another file has, the project's own `.mcp.json`.
#[derive(Debug)]
pub(super) struct Shared {
    folder: PathBuf,
    enabled: Vec<String>,
    disabled: Vec<String>,
    /// The file that says it.
    by: PathBuf,
    at: Place,
}

impl Shared {
    pub(super) fn new(project: &Project<'_>, by: &Path) -> Self {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let (enabled, disabled) = (owned(&project.enabled), owned(&project.disabled));
        Self { folder: project.folder.clone(), enabled, disabled, by: by.to_owned(), at: project.at }
    }

    /// Why a server of that file is off, if it is.
    pub(super) fn turns_off(&self, name: &str, file: &Path) -> Option<String> {
        let named = self.is_about(file) && self.disabled.iter().any(|disabled| disabled == name);
        named.then(|| format!("named in disabledMcpjsonServers of {}", self.by.display()))
    }

    fn is_about(&self, file: &Path) -> bool {
        let file = place::absolute(file);
        file.file_name().is_some_and(|name| name == ".mcp.json")
            && file.parent().is_some_and(|folder| same(folder, &self.folder))
    }

    /// Says that servers which the user has enabled there stand in a file that is not read.
    pub(super) fn tell_unread(&self, files: &[PathBuf], report: &mut Report) {
        let file = self.folder.join(".mcp.json");
        if self.enabled.is_empty() || files.iter().any(|read| self.is_about(read)) || !file.exists() {
            return;
        }
        let message = format!("these stand in {}, which is not read: {}", file.display(), self.enabled.join(", "));
        let note = report.note(self.at, "enabledMcpjsonServers", message);
        note.help(format!("add --config {}", place::quoted(&file.to_string_lossy())));
    }
}
