//! Places of this machine: the user's HOME, what holds keys, and the folders that a confined server has of its own.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::sandbox::Error;

/// What holds keys, below HOME.
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
/// What marks a folder as somebody's HOME, or as one with keys.
const MARKS: [&str; 3] = [".aws", ".gnupg", ".ssh"];

/// The places that count for one start.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The user's HOME, without links.
    pub(super) home: Option<PathBuf>,
    /// HOME as the environment has it.
    pub(super) named_home: Option<PathBuf>,
    keys: Vec<PathBuf>,
}

impl Places {
    /// Returns the places of this process. `state` is the folder for what the host keeps.
    pub(super) fn here(state: &Path) -> Self {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self::of(state, variable("HOME"), variable("XDG_CONFIG_HOME"))
    }

    /// Returns the places of an account with this HOME, and this folder for configs if it has another one than usual.
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

    /// Reports whether a path, without links, may be granted although nobody has listed it: it is not `/`, not HOME or above
    /// it, and neither holds keys, of whomever, nor is held by a folder of keys.
    pub(super) fn may_grant(&self, path: &Path) -> bool {
        let is_above_home = self.home.iter().any(|home| home.starts_with(path));
        let has_keys = self.keys.iter().any(|key| key.starts_with(path) || path.starts_with(key));
        let is_in = |mark: &str| path.ancestors().any(|above| above.ends_with(mark));
        let is_marked = MARKS.iter().any(|mark| path.join(mark).exists() || is_in(mark));
        path.parent().is_some() && !is_above_home && !has_keys && !is_marked
    }

    /// Returns a path as it was meant, with HOME for `~`.
    pub(super) fn meant(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), &self.named_home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path.to_owned(),
        }
    }
}

/// The folders of one server, made for it in the state directory.
#[derive(Clone, Debug)]
pub(super) struct Own {
    /// What holds the others. The server may not write into it.
    pub(super) folder: PathBuf,
    pub(super) home: PathBuf,
    pub(super) tmp: PathBuf,
    pub(super) cache: PathBuf,
}

impl Own {
    /// Makes the folders of the server with this name.
    pub(super) fn make(state: &Path, whose: &str) -> Result<Self, Error> {
        let folder = state.join("sandbox").join(whose);
        let make = || -> io::Result<PathBuf> {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            // The parent of what the server may write is not the server's, so no link can be planted there.
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

    /// Returns the variables by which programs find the folders for temporary files and caches.
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
