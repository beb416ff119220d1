//! Paths: how to make one absolute, which project a config belongs to, and why a file cannot be read.

use std::io;
use std::path::{Component, Path, PathBuf};

/// Names of the folders, at the root of a project, in which clients keep their files.
const FOLDERS: [&str; 22] = [
    ".agents",
    ".air",
    ".amazonq",
    ".augment",
    ".claude",
    ".cline",
    ".codex",
    ".continue",
    ".copilot",
    ".crush",
    ".cursor",
    ".devcontainer",
    ".factory",
    ".gemini",
    ".junie",
    ".kilocode",
    ".kiro",
    ".roo",
    ".vscode",
    ".warp",
    ".windsurf",
    ".zed",
];
/// How many levels a client's folder may be above its file, as in `.continue/mcpServers/a.yaml`.
const DEEPEST: usize = 3;

/// Makes a path absolute. Symlinks are not resolved, because a file that is linked into `.cursor` belongs there.
pub(super) fn absolute(path: &Path) -> PathBuf {
    let Ok(path) = std::path::absolute(path) else { return path.to_owned() };
    // `a/link/..` is not `a`: only the file system knows the parent.
    let parts: Vec<Component<'_>> = path.components().collect();
    let Some(last) = parts.iter().rposition(|part| *part == Component::ParentDir) else { return path };
    let head: PathBuf = parts[..=last].iter().collect();
    let tail: PathBuf = parts[last + 1..].iter().collect();
    match head.canonicalize() {
        Ok(head) => head.join(tail),
        Err(_) => path,
    }
}

/// Returns the root folder of the project that a file belongs to: `x` for `x/.vscode/mcp.json`,
/// `x/.kiro/settings/mcp.json` and `x/.mcp.json`. Returns `None` for other files; the home directory is not a project.
pub(super) fn workspace<'a>(file: &'a Path, home: Option<&Path>) -> Option<&'a Path> {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let folders = || file.ancestors().skip(1).take(DEEPEST);
    let known = folders().find(|folder| FOLDERS.contains(&name(folder).as_str()));
    let hidden = || file.ancestors().take(2).find(|path| name(path).starts_with('.'));
    let inside = known.or_else(hidden)?;
    inside.parent().filter(|folder| !folder.as_os_str().is_empty() && Some(*folder) != home)
}

/// Returns the system's reason why a file cannot be read, without its error number.
pub(super) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    // The system's text starts with a capital letter, but here it continues a sentence.
    let rest = text.strip_prefix(|c: char| c.is_ascii_uppercase());
    match (text.chars().next(), rest) {
        (Some(first), Some(rest)) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => {
            format!("{}{rest}", first.to_ascii_lowercase())
        }
        _ => text.to_owned(),
    }
}

/// Suggests what to do about a file that cannot be read.
pub(super) fn help(path: &Path, error: &io::Error) -> Option<String> {
    let shown = quoted(&path.to_string_lossy());
    Some(match error.kind() {
        _ if path.starts_with("~") => "write out the home directory: no shell has expanded the ~".to_owned(),
        io::ErrorKind::NotFound => match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) if !folder.exists() => format!("there is no directory {}", quoted(&folder.to_string_lossy())),
            Some(folder) if path.is_absolute() => {
                format!("look for its name: ls -a {}", quoted(&folder.to_string_lossy()))
            }
            _ => match std::env::current_dir() {
                Ok(here) => format!("relative paths start in {}", quoted(&here.to_string_lossy())),
                Err(_) => "write an absolute path".to_owned(),
            },
        },
        io::ErrorKind::PermissionDenied => format!("give this user permission to read it: ls -l {shown} shows who may"),
        io::ErrorKind::IsADirectory => format!("name a file in it: ls -a {shown}"),
        io::ErrorKind::InvalidData => "save the file as UTF-8".to_owned(),
        _ => return None,
    })
}

/// Quotes a text as one word of a shell command.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '/' | ':' | '+' | ',');
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_project_is_told_by_the_place_of_its_file() {
        let home = Path::new("/home/ada");
        for (file, expected) in [
            ("/src/shop/.cursor/mcp.json", Some("/src/shop")),
            ("/src/shop/.kiro/settings/mcp.json", Some("/src/shop")),
            ("/src/shop/.junie/mcp/mcp.json", Some("/src/shop")),
            ("/src/shop/.continue/mcpServers/a.yaml", Some("/src/shop")),
            ("/src/shop/.mcp.json", Some("/src/shop")),
            ("/src/shop/.unheard-of/mcp.json", Some("/src/shop")),
            ("/src/shop/mcp.json", None),
            ("/home/ada/.cursor/mcp.json", None),
            ("/home/ada/.claude.json", None),
            (".cursor/mcp.json", None),
        ] {
            assert_eq!(workspace(Path::new(file), Some(home)), expected.map(Path::new), "{file}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_goes_from_the_root_on_and_keeps_its_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/deep")).unwrap();
        std::os::unix::fs::symlink(root.join("real/deep"), root.join(".cursor")).unwrap();
        assert_eq!(absolute(&root.join(".cursor/mcp.json")), root.join(".cursor/mcp.json"));
        assert_eq!(absolute(&root.join("./.cursor/../mcp.json")), root.join("real/mcp.json"));
        assert!(absolute(Path::new("mcp.json")).is_absolute());
    }

    #[test]
    fn a_word_is_quoted_for_a_shell() {
        assert_eq!(quoted("/a/b-c.json"), "/a/b-c.json");
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
