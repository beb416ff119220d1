//! The MCP clients whose files are known: where each keeps its servers, how it writes a server with a URL, and how many
//! tools it accepts. One table; pure.
//!
//! The formats themselves are in `shape.rs` and `edit/entry.rs`; this file says which client uses which. Start with
//! [`ALL`].

use std::path::{Path, PathBuf};

use super::shape::Flavor;
use super::vars::Vars;

/// An MCP client.
///
/// ```
/// use mcp_host::config::clients::Client;
///
/// let client = Client::named("cursor").expect("it is in the table");
/// assert_eq!((client.name, client.tools), ("Cursor", Some(40)));
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Client {
    /// Its id on a command line.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The most tools that it accepts, if it has a limit.
    pub tools: Option<usize>,
    /// The start of the name that it states when it connects, in lower case; empty if the name decides nothing.
    says: &'static [&'static str],
    /// Its files in a project, relative to the project's folder.
    pub projects: &'static [&'static str],
    /// The paths of its own file; the first one that exists counts.
    files: &'static [Place],
    /// A folder that shows that the client is installed, if that is not the folder of its file.
    sign: Option<Place>,
    /// The keys under which the file keeps its servers.
    pub(super) root: &'static [&'static str],
    pub(super) flavor: Flavor,
    /// How it writes a server with a URL; `None` if the client only starts programs.
    pub(super) address: Option<Address>,
}

/// How a client writes a server that uses Streamable HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    /// As its flavor does, without a word for the transport if the flavor has none.
    Bare,
    /// As its flavor does, with a word for the transport.
    Typed,
    /// With the URL under this key.
    Under(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Home,
    /// `~/.config`.
    Config,
    /// The data folder of desktop programs.
    Data,
    /// The data folder, on Windows only.
    Windows,
    /// The folder that `CLAUDE_CONFIG_DIR` names.
    Claude,
    /// The folder that `CODEX_HOME` names.
    Codex,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place(Base, &'static str);

/// The folders in which clients keep their files.
///
/// ```
/// use mcp_host::config::Vars;
/// use mcp_host::config::clients::{Client, Folders};
///
/// let folders = Folders::of(&Vars::from_iter([("HOME", "/home/ada")]));
/// let codex = Client::named("codex").expect("it is in the table");
/// # if cfg!(unix) {
/// assert_eq!(codex.files(&folders), [std::path::PathBuf::from("/home/ada/.codex/config.toml")]);
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folders {
    home: Option<PathBuf>,
    config: Option<PathBuf>,
    data: Option<PathBuf>,
    claude: Option<PathBuf>,
    codex: Option<PathBuf>,
}

impl Folders {
    /// Returns the folders that the environment variables name. Relative paths are ignored.
    #[must_use]
    pub fn of(vars: &Vars) -> Self {
        let variable = |name: &str| vars.path(name).filter(|path| path.is_absolute());
        let home = variable(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
        let inside = |folder: &str| home.as_ref().map(|home| home.join(folder));
        let config = variable("XDG_CONFIG_HOME").or_else(|| inside(".config"));
        let data = if cfg!(windows) {
            variable("APPDATA")
        } else if cfg!(target_os = "macos") {
            inside("Library/Application Support")
        } else {
            config.clone()
        };
        Self { config, data, claude: variable("CLAUDE_CONFIG_DIR"), codex: variable("CODEX_HOME"), home }
    }

    /// Returns the user's home.
    #[must_use]
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    fn find(&self, place: Place) -> Option<PathBuf> {
        let folder = match place.0 {
            Base::Home => &self.home,
            Base::Config => &self.config,
            Base::Data => &self.data,
            Base::Windows if cfg!(windows) => &self.data,
            Base::Windows => &None,
            Base::Claude => &self.claude,
            Base::Codex => &self.codex,
        };
        folder.as_ref().map(|folder| folder.join(place.1))
    }
}

impl Client {
    /// Returns the client with this id.
    #[must_use]
    pub fn named(id: &str) -> Option<&'static Self> {
        ALL.iter().find(|client| client.id == id)
    }

    /// Returns the client whose file this is, by the end of its path.
    #[must_use]
    pub fn of_file(file: &Path) -> Option<&'static Self> {
        // The file name `config.toml` alone identifies no client.
        let is_place = |place: &Place| {
            !matches!(place.0, Base::Claude | Base::Codex) && file.is_absolute() && file.ends_with(place.1)
        };
        ALL.iter().find(|client| client.files.iter().any(is_place))
    }

    /// Returns the paths of its own file, the preferred one first.
    #[must_use]
    pub fn files(&self, folders: &Folders) -> Vec<PathBuf> {
        self.files.iter().filter_map(|place| folders.find(*place)).collect()
    }

    /// Returns a folder that exists if the client is installed.
    #[must_use]
    pub fn sign(&self, folders: &Folders) -> Option<PathBuf> {
        match self.sign {
            Some(sign) => folders.find(sign),
            None => self.files(folders).first()?.parent().map(Path::to_owned),
        }
    }

    /// Reports whether it accepts a URL. Other clients only start programs.
    #[must_use]
    pub fn takes_urls(&self) -> bool {
        self.address.is_some()
    }

    /// Reports whether it passes only `PATH` of its environment to the programs that it starts.
    #[must_use]
    pub fn hides_home(&self) -> bool {
        self.flavor == Flavor::Copilot
    }
}

const fn home(path: &'static str) -> Place {
    Place(Base::Home, path)
}

const fn config(path: &'static str) -> Place {
    Place(Base::Config, path)
}

const fn data(path: &'static str) -> Place {
    Place(Base::Data, path)
}

const PLAIN: Client = Client {
    id: "",
    name: "",
    tools: None,
    says: &[],
    projects: &[],
    files: &[],
    sign: None,
    root: &["mcpServers"],
    flavor: Flavor::Plain,
    address: Some(Address::Bare),
};

/// Returns the most tools that a client with this name accepts; `None` if that is not known.
pub(crate) fn tools_of(name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    ALL.iter().find(|client| client.says.iter().any(|start| name.starts_with(start)))?.tools
}

/// All clients, in the order in which their files are searched.
pub static ALL: &[Client] = &[
    Client {
        id: "claude-code",
        name: "Claude Code",
        projects: &[".mcp.json"],
        files: &[Place(Base::Claude, ".claude.json"), home(".claude.json")],
        sign: Some(home(".claude")),
        address: Some(Address::Typed),
        ..PLAIN
    },
    Client {
        id: "claude-desktop",
        name: "Claude Desktop",
        files: &[data("Claude/claude_desktop_config.json")],
        address: None,
        ..PLAIN
    },
    Client {
        id: "codex",
        name: "Codex",
        projects: &[".codex/config.toml"],
        files: &[Place(Base::Codex, "config.toml"), home(".codex/config.toml")],
        root: &["mcp_servers"],
        flavor: Flavor::Codex,
        ..PLAIN
    },
    Client {
        id: "gemini",
        name: "Gemini CLI",
        projects: &[".gemini/settings.json"],
        files: &[home(".gemini/settings.json")],
        flavor: Flavor::Gemini,
        address: Some(Address::Under("httpUrl")),
        ..PLAIN
    },
    Client {
        id: "cursor",
        name: "Cursor",
        tools: Some(40),
        says: &["cursor"],
        projects: &[".cursor/mcp.json"],
        files: &[home(".cursor/mcp.json")],
        ..PLAIN
    },
    Client {
        id: "vscode",
        name: "VS Code",
        tools: Some(128),
        says: &["visual studio code", "vscode"],
        projects: &[".vscode/mcp.json"],
        files: &[data("Code/User/mcp.json")],
        root: &["servers"],
        flavor: Flavor::VsCode,
        address: Some(Address::Typed),
        ..PLAIN
    },
    Client {
        id: "windsurf",
        name: "Windsurf",
        tools: Some(100),
        says: &["windsurf"],
        files: &[home(".codeium/windsurf/mcp_config.json")],
        address: Some(Address::Under("serverUrl")),
        ..PLAIN
    },
    Client {
        id: "zed",
        name: "Zed",
        projects: &[".zed/settings.json"],
        files: &[Place(Base::Windows, "Zed/settings.json"), config("zed/settings.json")],
        root: &["context_servers"],
        flavor: Flavor::Zed,
        ..PLAIN
    },
    Client {
        id: "goose",
        name: "Goose",
        files: &[Place(Base::Windows, "Block/goose/config/config.yaml"), config("goose/config.yaml")],
        root: &["extensions"],
        flavor: Flavor::Goose,
        address: Some(Address::Typed),
        ..PLAIN
    },
    Client {
        id: "opencode",
        name: "opencode",
        projects: &["opencode.json", "opencode.jsonc"],
        files: &[config("opencode/opencode.json"), config("opencode/opencode.jsonc")],
        root: &["mcp"],
        flavor: Flavor::OpenCode,
        ..PLAIN
    },
    Client {
        id: "copilot",
        name: "Copilot CLI",
        projects: &[".github/mcp.json"],
        files: &[home(".copilot/mcp-config.json")],
        flavor: Flavor::Copilot,
        address: Some(Address::Typed),
        ..PLAIN
    },
    Client {
        id: "kiro",
        name: "Kiro",
        projects: &[".kiro/settings/mcp.json"],
        files: &[home(".kiro/settings/mcp.json")],
        sign: Some(home(".kiro")),
        ..PLAIN
    },
    Client {
        id: "amazon-q",
        name: "Amazon Q",
        projects: &[".amazonq/mcp.json"],
        files: &[home(".aws/amazonq/mcp.json")],
        ..PLAIN
    },
    Client { id: "lmstudio", name: "LM Studio", files: &[home(".lmstudio/mcp.json")], ..PLAIN },
    Client {
        id: "junie",
        name: "Junie",
        projects: &[".junie/mcp/mcp.json"],
        files: &[home(".junie/mcp/mcp.json")],
        sign: Some(home(".junie")),
        address: None,
        ..PLAIN
    },
    Client {
        id: "cline",
        name: "Cline",
        files: &[data("Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json")],
        flavor: Flavor::Cline,
        address: Some(Address::Typed),
        ..PLAIN
    },
    Client {
        id: "cline-cli",
        name: "Cline CLI",
        files: &[home(".cline/mcp.json")],
        flavor: Flavor::Cline,
        address: Some(Address::Typed),
        ..PLAIN
    },
    Client {
        id: "roo",
        name: "Roo Code",
        projects: &[".roo/mcp.json"],
        files: &[data("Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json")],
        flavor: Flavor::Roo,
        address: Some(Address::Typed),
        ..PLAIN
    },
    Client {
        id: "continue",
        name: "Continue",
        files: &[home(".continue/config.yaml")],
        flavor: Flavor::Continue,
        address: Some(Address::Typed),
        ..PLAIN
    },
    Client { id: "warp", name: "Warp", projects: &[".warp/.mcp.json"], files: &[home(".warp/.mcp.json")], ..PLAIN },
    Client {
        id: "qwen",
        name: "Qwen Code",
        projects: &[".qwen/settings.json"],
        files: &[home(".qwen/settings.json")],
        flavor: Flavor::Gemini,
        address: Some(Address::Under("httpUrl")),
        ..PLAIN
    },
    Client {
        id: "inspector",
        name: "MCP Inspector",
        files: &[home(".mcp-inspector/mcp.json")],
        address: Some(Address::Typed),
        ..PLAIN
    },
    Client { id: "amp", name: "Amp", files: &[config("amp/settings.json")], root: &["amp.mcpServers"], ..PLAIN },
    Client {
        id: "crush",
        name: "Crush",
        projects: &["crush.json", ".crush.json"],
        files: &[config("crush/crush.json")],
        root: &["mcp"],
        flavor: Flavor::Crush,
        address: Some(Address::Typed),
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn folders(vars: &[(&str, &str)]) -> Folders {
        Folders::of(&Vars::from_iter(vars.iter().copied()))
    }

    #[test]
    fn every_client_has_one_word_and_a_place() {
        let ids: BTreeSet<&str> = ALL.iter().map(|client| client.id).collect();
        assert_eq!(ids.len(), ALL.len());
        let folders = folders(&[("HOME", "/home/ada")]);
        for client in ALL {
            let files = client.files(&folders);
            assert!(!files.is_empty() && client.sign(&folders).is_some(), "{}", client.id);
            for file in files {
                assert_eq!(Client::of_file(&file), Some(client), "{}", file.display());
            }
        }
    }

    #[test]
    fn a_variable_moves_a_folder() {
        let vars = [("HOME", "/h"), ("CODEX_HOME", "/c"), ("CLAUDE_CONFIG_DIR", "no"), ("XDG_CONFIG_HOME", "/x")];
        let folders = folders(&vars);
        let first = |id: &str| Client::named(id).unwrap().files(&folders).remove(0);
        assert_eq!(first("codex"), Path::new("/c/config.toml"));
        assert_eq!(first("claude-code"), Path::new("/h/.claude.json"), "a relative path names no folder");
        assert_eq!(first("zed"), Path::new("/x/zed/settings.json"));
        assert_eq!(Client::of_file(Path::new("/srv/config.toml")), None);
    }
}
