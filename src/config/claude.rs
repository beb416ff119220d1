//! Claude Code's own file, `~/.claude.json`. Besides the user's servers it holds servers for each project, by the
//! project's directory.
//!
//! The servers of the named project are read, else those of the working directory's project. The file can also disable
//! servers of the project's own `.mcp.json`, but when it enables one, that never replaces the user's approval.

use std::path::{Path, PathBuf};

use super::place;
use super::report::{Place, Report};
use super::syntax::{Member, Node, Value};

/// The directories by which a project is selected.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stand<'a> {
    /// The project's directory, if the user has named it.
    pub(super) named: Option<&'a Path>,
    /// The working directory, used if none is named.
    pub(super) here: Option<&'a Path>,
    pub(super) home: Option<&'a Path>,
}

/// A project in Claude Code's file.
#[derive(Debug)]
pub(super) struct Project<'a> {
    pub(super) folder: PathBuf,
    /// Its servers; `None` if the file has no servers for it.
    pub(super) servers: Option<&'a Node>,
    /// The names of the servers that it enables in the project's own `.mcp.json`.
    pub(super) enabled: Vec<&'a str>,
    /// The names of the servers that it disables in the project's own `.mcp.json`.
    pub(super) disabled: Vec<&'a str>,
    pub(super) at: Place,
}

/// How many projects a note names, and how many servers of each project.
const NAMED: usize = 5;

/// Returns the projects in a file; empty if the file is not Claude Code's own.
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

/// Selects the project of the named directory; without one, the project of the working directory or of its nearest
/// ancestor that has one.
pub(super) fn choose<'p, 'a>(projects: &'p [Project<'a>], stand: Stand<'_>) -> Option<&'p Project<'a>> {
    let find = |folder: &Path| projects.iter().find(|project| same(&project.folder, folder));
    if let Some(named) = stand.named {
        return find(named);
    }
    let here = stand.here?;
    // A past session of Claude Code in the home directory or at the root does not turn everything below it into one
    // project.
    let counts = |folder: &&Path| *folder == here || (folder.parent().is_some() && Some(*folder) != stand.home);
    here.ancestors().filter(counts).find_map(find)
}

/// Reports whether both are the same directory, after resolving symlinks.
pub(super) fn same(left: &Path, right: &Path) -> bool {
    left == right || matches!((left.canonicalize(), right.canonicalize()), (Ok(left), Ok(right)) if left == right)
}

/// Adds a note about the projects whose servers are not read.
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

/// Describes a project: `/home/ada/shop (db, jira)`.
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

/// Refuses a named directory that is not a project in any file; `known` describes the projects that exist.
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

/// Describes the projects with servers.
pub(super) fn known(projects: &[Project<'_>]) -> Vec<String> {
    projects.iter().filter(|project| project.servers.is_some()).take(NAMED).map(describe).collect()
}

/// What Claude Code's file says about the servers in another file, the project's own `.mcp.json`.
#[derive(Debug)]
pub(super) struct Shared {
    folder: PathBuf,
    enabled: Vec<String>,
    disabled: Vec<String>,
    /// The path of Claude Code's file.
    by: PathBuf,
    at: Place,
}

impl Shared {
    pub(super) fn new(project: &Project<'_>, by: &Path) -> Self {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let (enabled, disabled) = (owned(&project.enabled), owned(&project.disabled));
        Self { folder: project.folder.clone(), enabled, disabled, by: by.to_owned(), at: project.at }
    }

    /// Returns why the server `name` of `file` is disabled; `None` if Claude Code's file does not disable it.
    pub(super) fn turns_off(&self, name: &str, file: &Path) -> Option<String> {
        let named = self.is_about(file) && self.disabled.iter().any(|disabled| disabled == name);
        named.then(|| format!("named in disabledMcpjsonServers of {}", self.by.display()))
    }

    fn is_about(&self, file: &Path) -> bool {
        let file = place::absolute(file);
        file.file_name().is_some_and(|name| name == ".mcp.json")
            && file.parent().is_some_and(|folder| same(folder, &self.folder))
    }

    /// Adds a note about servers that the user has enabled but whose file, the project's `.mcp.json`, is not read.
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
