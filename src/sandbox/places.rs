//! Paths of this machine: the user's HOME, the files with keys, and the folders that belong to a confined server.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::sandbox::Error;

/// Files and folders with keys, below HOME.
const KEYS: [&str; 35] = [
    ".aws",
    ".azure",
    ".cargo/credentials.toml",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".config/BraveSoftware",
    ".config/chromium",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/google-chrome",
    ".config/mcp-host",
    ".config/microsoft-edge",
    ".config/op",
    ".config/rclone",
    ".docker",
    ".gem/credentials",
    ".gemini/oauth_creds.json",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".local/share/mcp-host/credentials",
    ".local/state/mcp-host",
    ".m2/settings.xml",
    ".mozilla",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".ssh",
    ".terraform.d",
    ".thunderbird",
    ".vault-token",
];
/// Names that mark a folder as someone's HOME, or as one with keys.
const MARKS: [&str; 3] = [".aws", ".gnupg", ".ssh"];

/// The paths that matter for one start.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The user's HOME, without links.
    pub(super) home: Option<PathBuf>,
    /// HOME as the environment names it, possibly with links.
    pub(super) named_home: Option<PathBuf>,
    keys: Vec<PathBuf>,
}

impl Places {
    /// Returns the paths of this process. `state` is mcp-host's state directory.
    pub(super) fn here(state: &Path) -> Self {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self::of(state, variable("HOME"), variable("XDG_CONFIG_HOME"))
    }

    /// Returns the paths of an account with this HOME, and with this config folder if it is not the usual one.
    pub(super) fn of(state: &Path, named_home: Option<PathBuf>, config: Option<PathBuf>) -> Self {
        let home = named_home.as_ref().and_then(|home| home.canonicalize().ok());
        let mut keys: Vec<PathBuf> = vec![state.to_owned()];
        keys.extend(config.map(|config| config.join("mcp-host")));
        for home in home.iter().chain(&named_home) {
            keys.extend(KEYS.iter().map(|key| home.join(key)));
        }
        keys.extend(keys.clone().iter().filter_map(|key| key.canonicalize().ok()));
        keys.retain(|key| key.exists());
        Self { home, named_home, keys }
    }

    /// Reports whether a path, without links, may be granted although nobody has listed it: it is not `/`, not HOME,
    /// and not above HOME; it contains nobody's keys, and is not inside a folder of keys.
    pub(super) fn may_grant(&self, path: &Path) -> bool {
        let is_above_home = self.home.iter().any(|home| home.starts_with(path));
        let has_keys = self.keys.iter().any(|key| key.starts_with(path) || path.starts_with(key));
        let is_in = |mark: &str| path.ancestors().any(|above| above.ends_with(mark));
        let is_marked = MARKS.iter().any(|mark| path.join(mark).exists() || is_in(mark));
        path.parent().is_some() && !is_above_home && !has_keys && !is_marked
    }

    /// Returns a path with HOME in place of `~`.
    pub(super) fn meant(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), &self.named_home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path.to_owned(),
        }
    }
}

/// The folders of one server, created for it in the state directory.
#[derive(Clone, Debug)]
pub(super) struct Own {
    /// The parent of the other folders. The server may not write into it.
    pub(super) folder: PathBuf,
    pub(super) home: PathBuf,
    pub(super) tmp: PathBuf,
    pub(super) cache: PathBuf,
}

impl Own {
    /// Creates the folders of the server with this name.
    pub(super) fn make(state: &Path, whose: &str) -> Result<Self, Error> {
        let folder = state.join("sandbox").join(whose);
        let make = || -> io::Result<PathBuf> {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            // The server may not write into the parent of these folders, so it cannot plant links there.
            for name in ["home", "tmp", "cache"] {
                DirBuilder::new().recursive(true).mode(0o700).create(folder.join(name))?;
            }
            folder.canonicalize()
        };
        let folder =
            make().map_err(|error| Error::Home { path: folder.display().to_string(), why: error.to_string() })?;
        let [home, tmp, cache] = ["home", "tmp", "cache"].map(|name| folder.join(name));
        Ok(Self { folder, home, tmp, cache })
    }

    /// Returns the variables that tell programs where to put temporary files and caches.
    pub(super) fn variables(&self) -> [(&'static str, PathBuf); 5] {
        [
            ("TMPDIR", self.tmp.clone()),
            ("XDG_CACHE_HOME", self.cache.clone()),
            ("npm_config_cache", self.cache.join("npm")),
            ("UV_CACHE_DIR", self.cache.join("uv")),
            ("PIP_CACHE_DIR", self.cache.join("pip")),
        ]
    }
}
