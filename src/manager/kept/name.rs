//! File names of kept listings. Each stands for a config entry with its secrets, working directory, and login, so that
//! no account sees another's lists. A file name does not reveal what it stands for.

use std::io;
use std::path::{Path, PathBuf};

use ring::hmac;
use sha2::{Digest as _, Sha256};

use super::ListKey;
use crate::config::{self, Auth, Grant, OAuth, Remote, Roots, SecretSource, Transport, Words as _};
use crate::hex;
use crate::keep;

/// Makes file names with a secret key, which lies in the same folder as the files.
pub(super) struct Names(hmac::Key);

/// A fingerprint of a server's entry: while it is unchanged, kept lists of the server are still good. It is never stored.
pub(in crate::manager) type Identity = [u8; 32];

const KEY: &str = "key";
const KEY_BYTES: usize = 32;
/// Takes the login's place in a file name if there is no login.
const NO_LOGIN: &str = "0";

impl Names {
    /// Reads the folder's secret key, and creates one if there is none. The caller holds the folder's lock.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let path = folder.join(KEY);
        if let Some(names) = Self::read(folder) {
            return Ok(names);
        }
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        // An unusable key is replaced, which orphans every file it named.
        keep::replace(&path, &bytes)?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// Reads the folder's secret key; `None` if there is no valid one.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let bytes = super::small::read(&folder.join(KEY), KEY_BYTES).ok()?;
        (bytes.len() == KEY_BYTES).then(|| Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// Returns the first part of the file names of a server's listings.
    pub(super) fn server(&self, identity: &Identity) -> String {
        self.short(b"server", identity)
    }

    /// Returns the file name of a server's listing for one login and one key.
    pub(super) fn listing(&self, identity: &Identity, login: Option<&str>, key: &ListKey) -> String {
        let (server, key) = (self.server(identity), self.short(b"key", key.text().as_bytes()));
        format!("{server}-{}-{key}.json", login.map_or_else(|| NO_LOGIN.to_owned(), |login| self.login(login)))
    }

    /// Returns the middle part of the file names of a login's listings, which does not depend on the config entry.
    pub(super) fn login(&self, login: &str) -> String {
        self.short(b"login", login.as_bytes())
    }

    fn short(&self, what: &[u8], of: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(what);
        context.update(&[0]);
        context.update(of);
        hex::encode(&context.sign().as_ref()[..16])
    }
}

/// Returns the fingerprint of a config entry: everything in it that decides what the server lists, and the environment
/// variables that the server gets. `None` if the account cannot be known: a helper program supplies the headers, or a
/// file names the signed-in user.
pub(in crate::manager) fn identity(server: &config::Server) -> Option<Identity> {
    let mut parts = Parts(Sha256::new());
    match &server.transport {
        Transport::Stdio(stdio) => {
            parts.add("stdio", [&*stdio.command]);
            parts.add("args", stdio.args.iter().map(String::as_str));
            parts.add("tree", stdio.package.iter().filter_map(|package| package.digest.as_deref()));
            parts.add("env", stdio.env.iter().flat_map(|(name, value)| [name.as_str(), value.expose()]));
            let mut passed: Vec<(String, String)> = std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
                .filter(|(name, _)| config::inherits(&stdio.forward_env, name) || ACCOUNT.contains(&name.as_str()))
                .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
                .collect();
            passed.sort();
            parts.add("passed", passed.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
            if stdio.is_confined() {
                parts.add("sandbox", [format!("{:?}", stdio.sandbox).as_str()]);
            }
            parts.add("cwd", cwd(stdio).map(|cwd| cwd.to_string_lossy().into_owned()).as_deref());
        }
        Transport::Http(remote) => parts.remote("http", remote)?,
        Transport::Sse(remote) => parts.remote("sse", remote)?,
        Transport::Auto(remote) => parts.remote("auto", remote)?,
    }
    parts.add("how", [server.sharing.word(), server.era.word()]);
    match &server.roots {
        Roots::Client => parts.add("roots", ["client"]),
        Roots::None => parts.add("roots", ["none"]),
        Roots::Fixed(roots) => parts.add("fixed roots", roots.iter().map(String::as_str)),
    }
    Some(parts.0.finalize().into())
}

/// Returns the working directory that decides what a program lists: the entry's own, or this process's if the command
/// or an argument is a path in it. `None` for any other program, which lists the same wherever this process runs.
fn cwd(stdio: &config::Stdio) -> Option<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    if let Some(own) = &stdio.cwd {
        return Some(here.join(own));
    }
    // A bare command is looked up in PATH.
    let command = Some(stdio.command.as_str()).filter(|command| command.contains(std::path::is_separator));
    let mut words = command.into_iter().chain(stdio.args.iter().map(String::as_str));
    let is_here = |word: &str| !word.is_empty() && Path::new(word).is_relative() && here.join(word).exists();
    words.any(is_here).then_some(here)
}

/// Returns the fingerprint of a config entry with one of its logins.
pub(in crate::manager) fn signed_in(identity: &Identity, login: Option<&str>) -> Identity {
    let mut parts = Parts(Sha256::new());
    parts.0.update(identity);
    parts.add("login", login);
    parts.0.finalize().into()
}

/// Environment variables by which programs find their accounts, in addition to those that the config names.
const ACCOUNT: &[&str] = &[
    "HOME",
    "USER",
    "LOGNAME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    // Windows
    "USERNAME",
    "USERPROFILE",
    "APPDATA",
    "LOCALAPPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
];

/// Hashes texts unambiguously: each with its length, each group with its count.
struct Parts(Sha256);

impl Parts {
    fn add<'a>(&mut self, what: &str, texts: impl IntoIterator<Item = &'a str>) {
        let mut count = 0_u64;
        self.text(what);
        for text in texts {
            self.text(text);
            count += 1;
        }
        self.0.update(u64::MAX.to_be_bytes());
        self.0.update(count.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_be_bytes());
        self.0.update(text);
    }

    fn remote(&mut self, kind: &str, remote: &Remote) -> Option<()> {
        if remote.headers_helper.is_some() {
            return None;
        }
        self.add(kind, [remote.url.as_str()]);
        self.add("headers", remote.headers.iter().flat_map(|(name, value)| [name.as_str(), value.expose()]));
        let tls = &remote.tls;
        let identity = tls.identity.iter().flat_map(|(cert, key)| [cert, key]);
        let files: Vec<_> = tls.ca.iter().chain(identity).map(|path| path.to_string_lossy()).collect();
        self.add("tls", files.iter().map(|path| &**path));
        match &remote.auth {
            Auth::Headers => self.add("auth", ["headers"]),
            Auth::OAuth(oauth) => self.oauth(oauth)?,
        }
        Some(())
    }

    fn oauth(&mut self, oauth: &OAuth) -> Option<()> {
        let source = |source: &SecretSource| match source {
            SecretSource::Given(secret) => secret.expose().to_owned(),
            SecretSource::File(path) => path.to_string_lossy().into_owned(),
        };
        let key = oauth.private_key.as_ref().map(source);
        let url = oauth.client_metadata_url.as_ref().map(url::Url::as_str);
        let secret = oauth.client_secret.as_ref().map(config::Secret::expose);
        let texts = [oauth.client_id.as_deref(), secret, url, key.as_deref(), oauth.issuer.as_deref()];
        self.add("auth", texts.into_iter().map(Option::unwrap_or_default));
        self.add("scopes", oauth.scopes.iter().map(String::as_str));
        match &oauth.grant {
            Grant::Code => self.add("grant", ["code"]),
            Grant::ClientCredentials => self.add("grant", ["client"]),
            Grant::Workload(from) => self.add("grant", ["workload", &source(from)]),
            // The file names the signed-in user, and that may change at any time.
            Grant::Enterprise(enterprise) if matches!(enterprise.id_token, SecretSource::File(_)) => return None,
            Grant::Enterprise(enterprise) => {
                let token = source(&enterprise.id_token);
                let secret = enterprise.client_secret.as_ref().map_or("", config::Secret::expose);
                let texts =
                    ["enterprise", enterprise.token_endpoint.as_str(), &enterprise.client_id, secret, token.as_str()];
                self.add("grant", texts);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::{Enterprise, Secret, Server, Stdio};

    fn stdio(change: impl FnOnce(&mut Stdio)) -> Server {
        let mut stdio = Stdio { command: "server".into(), args: vec!["a".into(), "b".into()], ..Stdio::default() };
        change(&mut stdio);
        Server::new("files", Transport::Stdio(stdio)).unwrap()
    }

    fn remote(change: impl FnOnce(&mut Remote)) -> Server {
        let mut remote = Remote::new("https://one.example/mcp".parse().unwrap());
        change(&mut remote);
        Server::new("files", Transport::Http(remote)).unwrap()
    }

    #[test]
    fn whatever_makes_another_account_makes_another_identity() {
        let secret = |value: &str| vec![("TOKEN".to_owned(), Secret::new(value))];
        let all = [
            stdio(|_| {}),
            stdio(|stdio| stdio.args = vec!["ab".into()]),
            stdio(|stdio| stdio.args = vec!["a".into()]),
            stdio(|stdio| stdio.env = secret("one")),
            stdio(|stdio| stdio.env = secret("two")),
            stdio(|stdio| stdio.cwd = Some("/elsewhere".into())),
            stdio(|stdio| stdio.forward_env = vec!["PATH".into()]),
            remote(|_| {}),
            remote(|remote| remote.headers = secret("one")),
            remote(|remote| remote.headers = secret("two")),
            remote(|remote| remote.url = "https://two.example/mcp".parse().unwrap()),
            remote(|remote| remote.auth = Auth::Headers),
            Server { roots: Roots::None, ..remote(|_| {}) },
        ];
        let identities: std::collections::BTreeSet<_> = all.iter().map(|server| identity(server).unwrap()).collect();
        assert_eq!(identities.len(), all.len());
        let here = stdio(|stdio| stdio.args.push("Cargo.toml".into()));
        let (Transport::Stdio(here), Transport::Stdio(anywhere)) = (&here.transport, &all[0].transport) else {
            panic!()
        };
        assert_eq!(
            (cwd(here), cwd(anywhere)),
            (std::env::current_dir().ok(), None),
            "as far as it depends on the folder"
        );
        let named = Server { description: Some("other words".into()), ..stdio(|_| {}) };
        assert_eq!(identity(&named), identity(&all[0]), "what does not reach the server counts for nothing");
        let one = identity(&all[0]).unwrap();
        assert_ne!(signed_in(&one, Some("a")), signed_in(&one, Some("b")));
        assert_ne!(signed_in(&one, Some("")), signed_in(&one, None));
    }

    #[test]
    fn what_does_not_tell_whose_account_it_is_has_no_identity() {
        let helped = remote(|remote| remote.headers_helper = Some(config::Helper::new("token")));
        assert_eq!(identity(&helped), None);
        let by_word_of = |id_token| {
            let endpoint = "https://idp.example/token".parse().unwrap();
            let grant = Grant::Enterprise(Box::new(Enterprise::new(endpoint, "client", id_token)));
            identity(&remote(|remote| remote.auth = Auth::OAuth(Box::new(OAuth { grant, ..OAuth::default() }))))
        };
        assert_eq!(by_word_of(SecretSource::File("id-token".into())), None);
        let given = |text: &str| by_word_of(SecretSource::Given(Secret::new(text)));
        assert!(given("one").is_some() && given("one") != given("two"));
    }

    #[test]
    fn names_hang_on_the_key_of_their_folder() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = |folder: &Path| Names::of(folder).unwrap().listing(&[7; 32], Some("login"), &ListKey::Rest);
        assert_eq!(name(one.path()), name(one.path()), "the key is kept");
        assert_ne!(name(one.path()), name(other.path()));
        fs::write(one.path().join(KEY), "cut").unwrap();
        assert!(Names::read(one.path()).is_none());
        assert_eq!(name(one.path()).len(), 3 * 32 + 2 + 5, "a new key is made");
    }
}
