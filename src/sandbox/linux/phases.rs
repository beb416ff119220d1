//! Runs npx and uvx in two phases: a first start only fetches the package, with access to package hosts alone; then the
//! server runs offline.
//!
//! So the server itself reaches no package registry, and what it runs stays what was fetched. A command is not divided
//! if the server may reach every host, or if the command line is not understood: then the hosts of its entry apply.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio as Stream};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::config::{Sandbox, SandboxHost, SandboxNetwork, Stdio};
use crate::hex;
use crate::sandbox::grants::variable;
use crate::sandbox::places::{Own, Places};

/// The variable that keeps a runner offline, and its value.
pub(super) type Offline = (&'static str, &'static str);

/// How a command is divided.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Phases {
    /// The arguments that fetch the package and run nothing of it.
    pub(super) fetch: Vec<String>,
    /// The hosts that this phase may reach; empty if the package was fetched already.
    pub(super) hosts: Vec<SandboxHost>,
    /// The variable that keeps the runner offline.
    pub(super) offline: Offline,
    /// The file that records that the package was fetched.
    pub(super) mark: PathBuf,
}

/// A runner of packages.
struct Runner {
    name: &'static str,
    fetch: fn(&[String]) -> Option<Vec<String>>,
    offline: Offline,
    /// Returns the registries that it uses unless another one is named in their place.
    usual: fn() -> Vec<String>,
    /// Variables that replace its default registry.
    instead: &'static [&'static str],
    /// Variables that name additional registries.
    besides: &'static [&'static str],
    /// Its config file, and the function that reads registries from it.
    config: (&'static str, fn(&str) -> Registries),
}

/// Registries that a config names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Registries {
    /// Registries in place of the default one.
    instead: Vec<String>,
    besides: Vec<String>,
}

const RUNNERS: [Runner; 2] = [
    Runner {
        name: "npx",
        fetch: npx,
        offline: ("npm_config_offline", "true"),
        usual: npm_registry,
        instead: &["npm_config_registry", "NPM_CONFIG_REGISTRY"],
        besides: &[],
        config: ("~/.npmrc", npmrc),
    },
    Runner {
        name: "uvx",
        fetch: uvx,
        offline: ("UV_OFFLINE", "1"),
        usual: pypi,
        instead: &["UV_DEFAULT_INDEX", "UV_INDEX_URL"],
        besides: &["UV_INDEX", "UV_EXTRA_INDEX_URL"],
        config: ("~/.config/uv/uv.toml", uv_toml),
    },
];

/// Returns how the command of a server is divided into phases; `None` if it is not.
pub(super) fn of(stdio: &Stdio, sandbox: &Sandbox, places: &Places, own: &Own) -> Option<Phases> {
    let name = Path::new(&stdio.command).file_name()?.to_str()?;
    let runner = RUNNERS.iter().find(|runner| runner.name == name)?;
    if sandbox.network == SandboxNetwork::Open {
        return None;
    }
    let fetch = (runner.fetch)(&stdio.args)?;
    let line = fetch.iter().fold(Sha256::new(), |hash, word| hash.chain_update(word).chain_update([0]));
    let mark = own.folder.join(format!("fetched-{}", hex::encode(&line.finalize()[..8])));
    let mut hosts = Vec::new();
    if !mark.exists() {
        hosts = sandbox.install.clone().unwrap_or_else(|| runner.all_hosts(stdio, sandbox, places));
        if hosts.is_empty() {
            return None;
        }
    }
    Some(Phases { fetch, hosts, offline: runner.offline, mark })
}

impl Runner {
    /// Returns the hosts of the registries that the entry's variables and a listed config name, and of the default one
    /// unless it is replaced.
    fn all_hosts(&self, stdio: &Stdio, sandbox: &Sandbox, places: &Places) -> Vec<SandboxHost> {
        let named = |names: &[&str]| {
            let texts = names.iter().filter_map(|name| variable(stdio, name));
            texts.flat_map(|text| text.split(' ').map(of_index).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let (config, read) = self.config;
        let config = places.meant(Path::new(config));
        let is_listed = sandbox.read.iter().any(|path| config.starts_with(places.meant(path)));
        let text = is_listed.then(|| std::fs::read_to_string(&config).ok()).flatten().unwrap_or_default();
        let found = read(&text);
        let hosts = |urls: Vec<String>| urls.iter().filter_map(|url| host_of(url)).collect::<Vec<_>>();
        let mut all = hosts([named(self.instead), found.instead].concat());
        if all.is_empty() {
            all.extend(hosts((self.usual)()).into_iter().map(SandboxHost::near));
        }
        all.extend(hosts([named(self.besides), found.besides].concat()));
        all
    }
}

/// Returns the hosts of PyPI: that of the index, and that of the files. uv cannot be asked for them.
fn pypi() -> Vec<String> {
    [concat!("https://pypi", ".org/"), concat!("https://files.", "pythonhosted.org/")].map(str::to_owned).into()
}

/// Asks npm for the registry that it uses without a config of the user.
fn npm_registry() -> Vec<String> {
    let mut command = Command::new("npm");
    command.args(["config", "get", "registry", "--userconfig=/dev/null"]).current_dir("/").stdin(Stream::null());
    let said = command.output().ok().filter(|output| output.status.success()).map(|output| output.stdout);
    said.and_then(|said| String::from_utf8(said).ok()).map(|url| url.trim().to_owned()).into_iter().collect()
}

/// Returns the URL of an index, which may follow a name.
fn of_index(text: &str) -> String {
    text.split_once('=').filter(|(name, _)| !name.contains('/')).map_or(text, |(_, url)| url).to_owned()
}

/// Reads the registries in an `.npmrc`: of all packages, and of scopes.
fn npmrc(text: &str) -> Registries {
    let mut found = Registries::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let value = || value.trim().trim_matches('"').to_owned();
        match key.trim() {
            "registry" => found.instead.push(value()),
            key if key.ends_with(":registry") => found.besides.push(value()),
            _ => {}
        }
    }
    found
}

/// Reads the indexes in a `uv.toml`; none if the text is not TOML.
fn uv_toml(text: &str) -> Registries {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "kebab-case")]
    struct File {
        index_url: Option<String>,
        extra_index_url: Vec<String>,
        index: Vec<Index>,
    }
    #[derive(Deserialize)]
    struct Index {
        url: String,
        #[serde(default)]
        default: bool,
    }
    let File { index_url, extra_index_url, index } = toml::from_str(text).unwrap_or_default();
    let (instead, besides): (Vec<Index>, Vec<Index>) = index.into_iter().partition(|index| index.default);
    let urls = |indexes: Vec<Index>| indexes.into_iter().map(|index| index.url);
    Registries {
        instead: urls(instead).chain(index_url).collect(),
        besides: urls(besides).chain(extra_index_url).collect(),
    }
}

fn host_of(url: &str) -> Option<SandboxHost> {
    let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    format!("{}:{}", url.host_str()?, url.port_or_known_default()?).parse().ok()
}

/// Reports whether a variable is for the runner. The server's secrets are not passed to the phase that fetches.
pub(super) fn of_runner(name: &str) -> bool {
    const NAMES: [&str; 3] = ["PATH", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"];
    let lower = name.to_ascii_lowercase();
    NAMES.contains(&name) || ["npm_config_", "uv_", "pip_"].iter().any(|prefix| lower.starts_with(prefix))
}

/// `npx -y PACKAGE ARGUMENTS..` fetches its package for any command, such as `true`.
fn npx(args: &[String]) -> Option<Vec<String>> {
    let (mut options, mut packages) = (vec!["-y".to_owned()], Vec::new());
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-y" | "--yes" => {}
            "-q" | "--quiet" => options.push(word.clone()),
            "-p" | "--package" => packages.push(words.next()?.clone()),
            "--" => {
                packages.extend(words.next().filter(|_| packages.is_empty()).cloned());
                break;
            }
            word if word.starts_with("--package=") => packages.push(word["--package=".len()..].to_owned()),
            word if word.starts_with("--registry=") => options.push(word.to_owned()),
            // An option that may be followed by a value.
            word if word.starts_with('-') => return None,
            word => {
                if packages.is_empty() {
                    packages.push(word.to_owned());
                }
                break;
            }
        }
    }
    if packages.is_empty() {
        return None;
    }
    options.extend(packages.into_iter().map(|package| format!("--package={package}")));
    options.extend(["--", "true"].map(str::to_owned));
    Some(options)
}

/// `uvx PACKAGE ARGUMENTS..` creates the environment for any program in it, such as its Python.
fn uvx(args: &[String]) -> Option<Vec<String>> {
    const VALUED: [&str; 8] =
        ["--with", "--python", "-p", "--index", "--default-index", "--index-url", "--extra-index-url", "-i"];
    let (mut options, mut from) = (Vec::new(), None);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-q" | "--quiet" => options.push(word.clone()),
            "--from" => from = Some(words.next()?.clone()),
            word if word.starts_with("--from=") => from = Some(word["--from=".len()..].to_owned()),
            word if VALUED.contains(&word) => options.extend([word.to_owned(), words.next()?.clone()]),
            word if VALUED.iter().any(|option| word.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))) => {
                options.push(word.to_owned());
            }
            word if word.starts_with('-') => return None,
            word => {
                let from = from.unwrap_or_else(|| word.to_owned());
                options.extend(["--from".to_owned(), from]);
                options.extend(["python", "-c", ""].map(str::to_owned));
                return Some(options);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetches(command: &str) -> Option<String> {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let runner = RUNNERS.iter().find(|runner| runner.name == words[0]).expect("a runner");
        (runner.fetch)(&words[1..]).map(|words| words.join(" "))
    }

    #[test]
    fn h108_a_command_line_is_divided_only_where_it_is_understood() {
        for (command, expected) in [
            ("npx -y @a/b@1 /srv --flag", Some("-y --package=@a/b@1 -- true")),
            ("npx @a/b", Some("-y --package=@a/b -- true")),
            ("npx --yes -- a -p x", Some("-y --package=a -- true")),
            ("npx -y -p a --package=b c d", Some("-y --package=a --package=b -- true")),
            ("npx -y --registry=https://r.example a", Some("-y --registry=https://r.example --package=a -- true")),
            ("npx -y --cache /x a", None),
            ("npx -y", None),
            ("npx -c whatever", None),
            ("uvx a==1 --root /srv", Some("--from a==1 python -c ")),
            ("uvx --from a[b]==1 c d", Some("--from a[b]==1 python -c ")),
            (
                "uvx --with d -p 3.12 --index=https://i.example a",
                Some("--with d -p 3.12 --index=https://i.example --from a python -c "),
            ),
            ("uvx --with-editable . a", None),
            ("uvx --from a", None),
        ] {
            assert_eq!(fetches(command).as_deref(), expected, "{command}");
        }
    }

    #[test]
    fn h108_registries_are_named_by_variables_and_by_configs() {
        let text = "; a comment\nregistry = \"https://r.example:8443/npm/\"\n@a:registry=http://s.example\n//r.example/:_authToken=x\n";
        let hosts = |urls: Vec<String>| {
            urls.iter().filter_map(|url| host_of(url)).map(|host| host.to_string()).collect::<Vec<_>>()
        };
        let Registries { instead, besides } = npmrc(text);
        assert_eq!((hosts(instead), hosts(besides)), (vec!["r.example:8443".into()], vec!["s.example:80".into()]));
        let text = "index-url = \"https://i.example/simple\"\nextra-index-url = [\"https://e.example\"]\n\
                    [[index]]\nurl = \"https://d.example\"\ndefault = true\n[[index]]\nname = \"b\"\nurl = \"https://b.example\"\n";
        let Registries { instead, besides } = uv_toml(text);
        assert_eq!(hosts(instead), ["d.example:443", "i.example:443"]);
        assert_eq!(hosts(besides), ["b.example:443", "e.example:443"]);
        assert_eq!(uv_toml("no [ TOML"), Registries::default());
        assert_eq!(of_index("inner=https://i.example/simple?a=b"), "https://i.example/simple?a=b");
        assert_eq!(of_index("https://i.example/simple?a=b"), "https://i.example/simple?a=b");
        assert!(["npm_config_registry", "UV_INDEX", "PATH"].iter().all(|name| of_runner(name)));
        assert!(!["API_KEY", "GITHUB_TOKEN", "NODE_OPTIONS"].iter().any(|name| of_runner(name)));
    }
}
