//! The request `client`: a process of the same user introduces itself in order to become a client of the daemon, and
//! the daemon judges it.
//!
//! A client is admitted if it would read the same config as the daemon. **Invariant:** what the client says about its
//! environment is only compared: the daemon opens no path and takes no environment variable from it. The values of
//! variables are sent only as digests.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{Config, HostAuth, Join};
use crate::glob;
use crate::hex;
use crate::protocol::Theirs;

/// The revision of the `client` request.
const VERSION: u8 = 1;
/// The revision of a request that names a view. A daemon that knows no views refuses it, and so shows nothing that the
/// view leaves out.
const WITH_VIEW: u8 = 2;
/// Our environment variables that are no settings of the daemon, or that only decide whether to join.
const NO_SETTINGS: [&str; 3] = ["MCP_HOST_CONFIG", "MCP_HOST_SECRET_KEY", "MCP_HOST_JOIN"];
/// An upper bound for the ids of questions (requests to clients), which no real client reaches.
const MOST_ASKED: u64 = 1 << 40;

/// How a client introduces itself.
///
/// ```no_run
/// use mcp_host::admin::Introduction;
///
/// if let Some(client) = Introduction::of(&["mcp.json".into()], false, None) {
///     println!("{client:?}");
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Introduction {
    /// The revision of this request.
    v: u8,
    /// The client's config files, in order, as paths without symbolic links.
    files: Vec<PathBuf>,
    /// Whether the config files were found in the working directory.
    project: bool,
    /// The client's working directory.
    cwd: PathBuf,
    /// The folder that the client was given to choose among the projects in a config file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<PathBuf>,
    /// The names of the client's environment variables that are settings.
    settings: Vec<String>,
    /// Whether the client accepts any daemon of its user, so that nothing is compared.
    #[serde(default)]
    any: bool,
    /// The highest request id that an earlier host used for a question to this client.
    #[serde(default)]
    asked: u64,
    /// The view that the client wants; `None` means that of `host.view`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<String>,
}

/// The first line that a client sends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) client: Introduction,
}

impl Introduction {
    /// Introduces this process, with these config files; `None` if a path does not exist or is not UTF-8.
    #[must_use]
    pub fn of(files: &[PathBuf], project: bool, scope: Option<&Path>) -> Option<Self> {
        let real = |path: &Path| path.canonicalize().ok().filter(|path| path.to_str().is_some());
        let settings = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        Some(Self {
            v: VERSION,
            files: files.iter().map(|file| real(file)).collect::<Option<_>>()?,
            project,
            cwd: std::env::current_dir().ok().filter(|path| path.to_str().is_some())?,
            scope: scope.map(|scope| real(scope).ok_or(())).transpose().ok()?,
            settings: settings.filter(|name| is_setting(name)).collect(),
            any: false,
            asked: 0,
            view: None,
        })
    }

    /// Returns an introduction that asks for no comparison.
    #[must_use]
    pub fn to_any() -> Self {
        Self { v: VERSION, any: true, ..Self::default() }
    }

    /// Sets the highest request id that an earlier host used for a question to this client.
    #[must_use]
    pub fn asked(self, asked: u64) -> Self {
        Self { asked, ..self }
    }

    /// Asks for a view of the daemon.
    #[must_use]
    pub fn view(self, view: Option<&str>) -> Self {
        let v = if view.is_some() { WITH_VIEW } else { VERSION };
        Self { v, view: view.map(str::to_owned), ..self }
    }

    /// Returns the view that the client wants.
    pub(crate) fn wanted_view(&self) -> Option<&str> {
        self.view.as_deref()
    }

    /// Reports whether the client has no config file, and so accepts whichever daemon runs.
    pub(super) fn takes_any(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the highest request id that an earlier host used for a question to this client, capped at a plausible
    /// value.
    pub(crate) fn asked_before(&self) -> u64 {
        self.asked.min(MOST_ASKED)
    }
}

fn is_setting(name: &str) -> bool {
    name.starts_with("MCP_HOST_") && !name.starts_with("MCP_HOST_INPUT_") && !NO_SETTINGS.contains(&name)
}

/// Why a client is refused.
///
/// ```
/// let refusal: mcp_host::admin::Refusal = serde_json::from_str(r#""config""#)?;
/// assert_eq!(refusal, mcp_host::admin::Refusal::Config);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Refusal {
    /// The daemon serves another config.
    Config,
    /// One side treats the config as a project's, the other as the user's own.
    Project,
    /// The config would mean something else in the client's working directory.
    Cwd,
    /// An environment variable that the config names has a different value.
    Env,
    /// The daemon requires clients to authenticate, and `host.join` is not set.
    Auth,
    /// `host.join` is `never`.
    Never,
    /// All `host.limits.connections` are in use.
    Full,
    /// The daemon has no view of that name.
    View,
    /// The daemon is stopping.
    Stopping,
    /// A reason that this version does not know.
    #[serde(other)]
    Other,
}

/// What a daemon compares a client's introduction with.
#[derive(Debug)]
pub(crate) struct Grounds {
    pub(crate) config: Config,
    /// The daemon's working directory.
    pub(crate) cwd: PathBuf,
}

/// A refusal: its kind, and its reason in words.
pub(crate) type No = (Refusal, String);

impl Grounds {
    /// Decides whether a client may join, from its first message. Returns the environment variables (names or patterns)
    /// whose values the client must prove that it has, or why it is refused. Reads the file system.
    pub(crate) fn judge(&self, client: &Introduction) -> Result<Vec<String>, No> {
        if !matches!((client.v, &client.view), (VERSION, None) | (WITH_VIEW, Some(_))) {
            return Err((Refusal::Other, format!("this daemon knows version {WITH_VIEW} of the request")));
        }
        let join = self.config.host.join;
        if join == Some(Join::Never) {
            return Err((Refusal::Never, "host.join is \"never\" there".to_owned()));
        }
        if self.config.host.auth != HostAuth::None && join.is_none() {
            return Err((Refusal::Auth, "it has host.auth, and host.join is not set".to_owned()));
        }
        if let Some(view) = client.wanted_view().filter(|view| !self.config.host.has_view(view)) {
            return Err((Refusal::View, format!("it has no view {:?}", Theirs(view))));
        }
        if client.any {
            return Ok(Vec::new());
        }
        if !client.takes_any() {
            self.compare(client)?;
        }
        let settings = client.settings.iter().filter(|name| is_setting(name)).map(String::as_str);
        let mut names: Vec<String> = self.config.names().chain(settings).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn compare(&self, client: &Introduction) -> Result<(), No> {
        let own: Vec<PathBuf> =
            self.config.files.iter().map(|file| file.canonicalize().unwrap_or_else(|_| file.clone())).collect();
        if own != client.files {
            let files: Vec<String> = own.iter().map(|file| file.display().to_string()).collect();
            let files = if files.is_empty() { "no config file".to_owned() } else { files.join(", ") };
            return Err((Refusal::Config, format!("it serves {files}")));
        }
        if self.config.project != client.project {
            let whose = if self.config.project { "a project's config" } else { "the user's own config" };
            return Err((Refusal::Project, format!("it treats this file as {whose}")));
        }
        let same = |left: &Path, right: &Path| {
            left == right || matches!((left.canonicalize(), right.canonicalize()), (Ok(l), Ok(r)) if l == r)
        };
        match (self.config.scope(), &client.scope) {
            (Some(own), scope) if !same(own, scope.as_ref().unwrap_or(&client.cwd)) => {
                return Err((Refusal::Cwd, format!("it serves the project {}", own.display())));
            }
            (None, Some(scope)) => {
                return Err((Refusal::Config, format!("its config has no project {}", scope.display())));
            }
            _ => {}
        }
        if !same(&self.cwd, &client.cwd)
            && let Some(server) = self.config.depends_on(&[&self.cwd, &client.cwd])
        {
            let own = self.cwd.display();
            return Err((Refusal::Cwd, format!("server {server:?} has a relative path, and it runs in {own}")));
        }
        Ok(())
    }
}

/// Compares the digests of a client's environment variables with those of the daemon's. A variable that the client
/// lacks counts as equal.
pub(crate) fn same_values(
    salt: &[u8],
    wanted: &[String],
    proven: &BTreeMap<String, String>,
    value: impl Fn(&str) -> Option<std::ffi::OsString>,
) -> Result<(), No> {
    for (name, theirs) in proven {
        let is_wanted = wanted.iter().any(|wanted| wanted == name || glob::is_match(wanted, name));
        if is_wanted && value(name).map(|own| digest(salt, &own)).as_ref() != Some(theirs) {
            return Err((Refusal::Env, format!("the variable {name} has another value there")));
        }
    }
    Ok(())
}

/// Returns the digest of each wanted environment variable that this process has.
#[cfg_attr(not(unix), expect(dead_code, reason = "this system has no local sockets"))]
pub(crate) fn proofs(salt: &[u8], wanted: &[String]) -> BTreeMap<String, String> {
    let is_glob = wanted.iter().any(|wanted| wanted.contains(['*', '?']));
    let named = wanted.iter().filter(|name| !name.contains(['*', '?', '=', '\0']) && !name.is_empty());
    let mut values: BTreeMap<String, String> =
        named.filter_map(|name| Some((name.clone(), digest(salt, &std::env::var_os(name)?)))).collect();
    if is_glob {
        let all = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let all = all.filter(|(name, _)| wanted.iter().any(|wanted| glob::is_match(wanted, name)));
        values.extend(all.map(|(name, value)| (name, digest(salt, &value))));
    }
    values
}

/// Returns the first half of the HMAC-SHA-256 of a value, in hex.
fn digest(salt: &[u8], value: &OsStr) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, salt);
    hex::encode(&ring::hmac::sign(&key, value.as_encoded_bytes()).as_ref()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoadRequest, Vars};

    fn grounds(folder: &Path, text: &str) -> Grounds {
        let file = folder.join("mcp-host.json");
        std::fs::write(&file, text).unwrap();
        let request = LoadRequest { vars: Vars::from_iter([("TOKEN", "1")]), ..LoadRequest::default() }.file(file);
        Grounds { config: crate::config::load(&request).unwrap(), cwd: folder.to_owned() }
    }

    fn client(folder: &Path) -> Introduction {
        let file = folder.join("mcp-host.json").canonicalize().unwrap();
        Introduction { v: 1, files: vec![file], cwd: folder.to_owned(), ..Introduction::default() }
    }

    const CONFIG: &str = r#"{"mcpServers":{"a":{"command":"a","args":["server.py"],"env":{"T":"${TOKEN}"}}}}"#;

    #[test]
    fn a_client_is_judged_by_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let grounds = grounds(folder.path(), CONFIG);
        let same = client(folder.path());
        let no = |client: &Introduction| grounds.judge(client).map_err(|(why, _)| why);
        assert_eq!(no(&same), Ok(vec!["TOKEN".to_owned()]));
        let settings = vec!["MCP_HOST_LISTEN".to_owned(), "MCP_HOST_CONFIG".to_owned(), "HOME".to_owned()];
        let wanted = Ok(vec!["MCP_HOST_LISTEN".to_owned(), "TOKEN".to_owned()]);
        assert_eq!(no(&Introduction { settings, ..same.clone() }), wanted);
        assert_eq!(no(&Introduction { v: 2, ..same.clone() }), Err(Refusal::Other));
        assert!(no(&same.clone().view(Some("all"))).is_ok());
        assert_eq!(no(&same.clone().view(Some("review"))), Err(Refusal::View));
        assert_eq!(no(&Introduction { v: 1, ..same.clone().view(Some("all")) }), Err(Refusal::Other));
        assert_eq!(no(&Introduction { project: true, ..same.clone() }), Err(Refusal::Project));
        let mut twice = same.clone();
        twice.files.push("/other.json".into());
        assert_eq!(no(&twice), Err(Refusal::Config));
        assert_eq!(no(&Introduction { scope: Some("/p".into()), ..same.clone() }), Err(Refusal::Config));
        let elsewhere = Introduction { cwd: other.path().to_owned(), ..same };
        assert!(no(&elsewhere).is_ok(), "the file is in neither folder");
        std::fs::write(other.path().join("server.py"), "").unwrap();
        assert_eq!(no(&elsewhere), Err(Refusal::Cwd));
        assert_eq!(no(&Introduction { files: Vec::new(), ..elsewhere }), Ok(vec!["TOKEN".to_owned()]));
        assert_eq!(no(&Introduction::to_any()), Ok(Vec::new()));
    }

    #[test]
    fn the_setting_of_the_daemon_counts() {
        let folder = tempfile::tempdir().unwrap();
        let auth = r#""auth":{"type":"bearer","clients":{"a":"sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"}}"#;
        for (host, verdict) in [
            (r#""join":"never""#.to_owned(), Err(Refusal::Never)),
            (auth.to_owned(), Err(Refusal::Auth)),
            (format!(r#"{auth},"join":"auto""#), Ok(vec![])),
            (r#""join":"auto""#.to_owned(), Ok(vec![])),
        ] {
            let grounds = grounds(folder.path(), &format!(r#"{{"mcpServers":{{}},"host":{{{host}}}}}"#));
            for client in [client(folder.path()), Introduction::to_any()] {
                assert_eq!(grounds.judge(&client).map_err(|(why, _)| why), verdict, "{host}");
            }
        }
    }

    #[test]
    fn values_are_proven_and_not_sent() {
        let salt = [7; 16];
        let wanted = vec!["TOKEN".to_owned(), "AWS_*".to_owned()];
        let daemon = |name: &str| match name {
            "TOKEN" | "AWS_PROFILE" => Some("same".into()),
            _ => None,
        };
        let judge = |proven: &[(&str, &str)]| {
            let proven = proven.iter().map(|(name, value)| ((*name).to_owned(), digest(&salt, OsStr::new(value))));
            same_values(&salt, &wanted, &proven.collect(), daemon).map_err(|(why, _)| why)
        };
        assert_eq!(judge(&[]), Ok(()), "what the client does not have is equal");
        assert_eq!(judge(&[("TOKEN", "same"), ("AWS_PROFILE", "same"), ("HOME", "other")]), Ok(()));
        assert_eq!(judge(&[("TOKEN", "other")]), Err(Refusal::Env));
        assert_eq!(judge(&[("AWS_REGION", "set here only")]), Err(Refusal::Env));
        let proven = proofs(&salt, &["PATH".to_owned(), "no such".to_owned()]);
        let path = std::env::var_os("PATH").unwrap();
        assert_eq!(proven, [("PATH".to_owned(), digest(&salt, &path))].into());
        assert_eq!(proven["PATH"].len(), 32);
    }
}
