//! The table of runners: which program starts a package of each kind. Nothing else of an entry decides that.
//!
//! **Invariant:** pure. The first word of a command comes from this file, versions are exact, and the entry's own
//! arguments come after the package. Arguments of the runner are accepted only if they are known not to change any of
//! this.

use url::Url;

use super::Error;
use super::bundle::Bundle;
use super::inputs::{Answers, Walk, Wanted};
use super::manifest::{Argument, Manifest, Package, Remote};
use super::variables::is_variable;
use crate::config::edit::{self, NewServer};
use crate::config::{Package as Pinned, PackageKind as Kind};
use crate::loopback::is_loopback;
use crate::protocol::Theirs;

/// One form of a server: a package to start, or an endpoint to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// A package.
    Package(Kind, &'a Package),
    /// An endpoint.
    Remote(&'a Remote),
    /// A bundle.
    Bundle(&'a Bundle),
}

/// How a server is started or reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The server to write into the config.
    pub server: NewServer,
    /// The inputs that are required but have no value yet. The server is incomplete without them.
    pub missing: Vec<String>,
}

/// The kinds in order of preference, if the user names none.
const ORDER: [Kind; 5] = [Kind::Npm, Kind::Pypi, Kind::Oci, Kind::Nuget, Kind::Mcpb];

impl Manifest {
    /// Chooses a form of the server: the one that the user names, else a package of npm or PyPI, else an endpoint, else
    /// any package.
    ///
    /// # Errors
    /// Fails if no form can be started here.
    pub fn choose(&self, word: Option<&str>) -> Result<Choice<'_>, Error> {
        let package = |kind: Kind| {
            let of_kind = self.packages.iter().filter(|package| package.kind == Ok(kind));
            of_kind.clone().find(|package| package.transport == "stdio").map(|package| Choice::Package(kind, package))
        };
        let remote = || {
            let best = self.remotes.iter().find(|remote| remote.transport != "sse").or(self.remotes.first());
            best.map(Choice::Remote)
        };
        let found = match word {
            Some("remote") => remote(),
            Some(word) => ORDER.into_iter().find(|kind| kind.word() == word).and_then(package),
            None => package(Kind::Npm)
                .or_else(|| package(Kind::Pypi))
                .or_else(remote)
                .or_else(|| ORDER.into_iter().find_map(package)),
        };
        found.ok_or_else(|| Error::Unsupported(self.without(word)))
    }

    /// Describes which forms a server has, for an error that says that none of them can be started here.
    fn without(&self, word: Option<&str>) -> String {
        let name = Theirs(&self.name);
        let is_by_http = |package: &&Package| package.transport != "stdio" && package.kind.is_ok();
        if let Some(package) = self.packages.iter().find(is_by_http).filter(|_| word.is_none()) {
            let transport = Theirs(&package.transport);
            return format!("{name} is a program that serves {transport} by itself: start it, and add its URL");
        }
        let mut has: Vec<String> = self.forms().into_iter().map(str::to_owned).collect();
        has.dedup();
        let has = if has.is_empty() { "nothing".to_owned() } else { has.join(", ") };
        match word {
            Some(word) => format!("{name} has no {word} that can be started here; it has: {}", Theirs(&has)),
            None => format!("{name} has nothing that can be started here; it has: {}", Theirs(&has)),
        }
    }

    /// Returns the words for the available forms, such as `npm` and `remote`.
    #[must_use]
    pub fn forms(&self) -> Vec<&str> {
        let packages = self.packages.iter().map(|package| match &package.kind {
            Ok(kind) => kind.word(),
            Err(word) => word,
        });
        let mut forms: Vec<&str> = packages.chain(self.remotes.iter().map(|_| "remote")).collect();
        forms.dedup();
        forms
    }
}

impl Choice<'_> {
    /// Returns the word for the form.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Package(kind, _) => kind.word(),
            Self::Remote(_) => "remote",
            Self::Bundle(_) => Kind::Mcpb.word(),
        }
    }

    /// Returns the values that the user has to provide, or may provide.
    ///
    /// # Errors
    /// Fails if the entry is invalid.
    pub fn wanted(&self) -> Result<Vec<Wanted>, Error> {
        let answers = Answers::default();
        let mut walk = Walk::new(&answers);
        self.walk(&mut walk)?;
        Ok(walk.wanted())
    }

    /// Creates the server from the user's answers.
    ///
    /// # Errors
    /// Fails if the entry is invalid, or a value does not fit.
    pub fn plan(&self, answers: &Answers) -> Result<Plan, Error> {
        let mut walk = Walk::new(answers);
        let server = self.walk(&mut walk)?;
        Ok(Plan { server, missing: walk.missing })
    }

    fn walk(&self, walk: &mut Walk<'_>) -> Result<NewServer, Error> {
        match self {
            Self::Package(kind, package) => process(*kind, package, walk),
            Self::Remote(remote) => endpoint(remote, walk),
            Self::Bundle(bundle) => bundle.walk(walk),
        }
    }
}

fn wrong(field: &str, why: impl Into<String>) -> Error {
    Error::Entry { field: field.to_owned(), why: why.into() }
}

fn endpoint(remote: &Remote, walk: &mut Walk<'_>) -> Result<NewServer, Error> {
    let kind = match remote.transport.as_str() {
        "streamable-http" | "http" | "streamable" => edit::Kind::Http,
        "sse" => edit::Kind::Sse,
        other => return Err(wrong("remotes.type", format!("{:?} is no transport of MCP", Theirs(other)))),
    };
    let url = walk.url(&remote.url, &remote.variables)?;
    // A URL with references is parsed when the server starts.
    if walk.missing.is_empty() && !url.contains("${") {
        match Url::parse(&url) {
            Ok(url) if url.scheme() == "https" || url.scheme() == "http" && is_loopback(&url) => {}
            Ok(_) => return Err(wrong("remotes.url", "is no https URL")),
            Err(error) => return Err(wrong("remotes.url", format!("is no URL: {error}"))),
        }
    }
    let mut headers = Vec::new();
    for header in &remote.headers {
        if http::HeaderName::from_bytes(header.name.as_bytes()).is_err() {
            return Err(wrong("remotes.headers", format!("{:?} is no name of a header", Theirs(&header.name))));
        }
        headers.extend(walk.named(header)?);
    }
    Ok(NewServer { url: Some(url), kind: Some(kind), headers, ..NewServer::default() })
}

fn process(kind: Kind, package: &Package, walk: &mut Walk<'_>) -> Result<NewServer, Error> {
    let source = source(kind, package)?;
    let mut env = Vec::new();
    for variable in &package.environment {
        is_variable(&variable.name)?;
        env.extend(walk.named(variable)?);
    }
    let before = runtime_arguments(kind, package, walk)?;
    let mut arguments = Vec::new();
    for (at, argument) in package.arguments.iter().enumerate() {
        arguments.extend(walk.argument(argument, at + 1)?);
    }
    let mut command: Vec<String> = match kind {
        Kind::Npm => vec!["npx".to_owned(), "-y".to_owned()],
        Kind::Pypi if package.runtime_hint.as_deref() == Some("pipx") => vec!["pipx".to_owned(), "run".to_owned()],
        Kind::Pypi => vec!["uvx".to_owned()],
        Kind::Oci => ["docker", "run", "-i", "--rm"].map(str::to_owned).to_vec(),
        Kind::Nuget => vec!["dnx".to_owned(), "--yes".to_owned()],
        Kind::Mcpb => return Err(Error::Unsupported("a bundle says what it starts once it is there".to_owned())),
    };
    command.extend(before);
    if kind == Kind::Oci {
        // The Docker client reads the values from its own environment.
        command.extend(env.iter().flat_map(|(name, _)| ["-e".to_owned(), name.clone()]));
    }
    let package = pinned(kind, package, &source);
    command.push(source);
    if kind == Kind::Nuget {
        command.push("--".to_owned());
    }
    command.extend(arguments);
    Ok(NewServer { command, env, package, ..NewServer::default() })
}

/// Returns the package as the config describes it; `None` for an image that its entry names by a hash.
fn pinned(kind: Kind, package: &Package, source: &str) -> Option<Pinned> {
    let (name, version) = match kind {
        Kind::Oci => source.rsplit_once(':').filter(|_| !source.contains('@'))?,
        _ => (package.identifier.as_str(), package.version.as_deref()?),
    };
    Some(Pinned::new(kind, name, version))
}

/// Returns the package with its exact version, as an argument for its runner.
fn source(kind: Kind, package: &Package) -> Result<String, Error> {
    let name = &package.identifier;
    let plain = |text: &str, more: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    let is_name = match kind {
        Kind::Npm => match name.strip_prefix('@').and_then(|name| name.split_once('/')) {
            Some((scope, name)) => plain(scope, "-._~") && plain(name, "-._~"),
            None => plain(name, "-._~"),
        },
        Kind::Pypi | Kind::Nuget => plain(name, "-._"),
        Kind::Oci => plain(name, "-._/:@"),
        Kind::Mcpb => true,
    };
    if !is_name || name.len() > 200 {
        let why = format!("{:?} is no name of a package of {}", Theirs(name), kind.word());
        return Err(wrong("packages.identifier", why));
    }
    if let Some(url) = package.base_url.as_deref().filter(|url| !is_usual(kind, url)) {
        let why = format!("{} is not the usual registry of {}: its packages are not taken", Theirs(url), kind.word());
        return Err(wrong("packages.registryBaseUrl", why));
    }
    let version = package.version.as_deref();
    let is_exact = |version: &&str| {
        let is_first = version.starts_with(|c: char| c.is_ascii_digit());
        is_first && version.chars().all(|c| c.is_ascii_alphanumeric() || "-._+!".contains(c)) && version.len() <= 100
    };
    if kind == Kind::Oci {
        let is_tag = |tag: &&str| plain(tag, "-._") && *tag != "latest" && tag.len() <= 128;
        let last = name.rsplit('/').next().unwrap_or_default();
        return match version {
            Some(tag) if !is_tag(&tag) => Err(wrong("packages.version", "is no exact version")),
            Some(tag) if !last.contains([':', '@']) => Ok(format!("{name}:{tag}")),
            _ if last.contains('@') || last.split_once(':').is_some_and(|(_, tag)| is_tag(&tag)) => Ok(name.clone()),
            _ => Err(wrong("packages.identifier", "names no exact version of the image")),
        };
    }
    let version = version.filter(is_exact).ok_or_else(|| wrong("packages.version", "is no exact version"))?;
    let at = if kind == Kind::Pypi { "==" } else { "@" };
    Ok(format!("{name}{at}{version}"))
}

/// Reports whether a package registry is the runner's default, unless the user has configured another one.
fn is_usual(kind: Kind, url: &str) -> bool {
    let usual: &[&str] = match kind {
        Kind::Npm => &[concat!("registry.", "npmjs.org")],
        Kind::Pypi => &[concat!("pypi", ".org")],
        Kind::Oci => {
            &["docker.io", "index.docker.io", "registry-1.docker.io", "ghcr.io", "quay.io", "mcr.microsoft.com"]
        }
        Kind::Nuget => &["api.nuget.org", "www.nuget.org", "nuget.org"],
        Kind::Mcpb => &["github.com", "gitlab.com"],
    };
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| usual.contains(&host.as_str()))
}

/// Builds the runner's arguments that are known to be harmless, and drops those that we add anyway.
fn runtime_arguments(kind: Kind, package: &Package, walk: &mut Walk<'_>) -> Result<Vec<String>, Error> {
    let mut words = Vec::new();
    for (at, argument) in package.runtime_arguments.iter().enumerate() {
        let given = walk.argument(argument, at + 1)?;
        match judge(kind, package, argument, &given) {
            Judged::Taken => words.extend(given),
            Judged::Ours => {}
            Judged::Refused(word) => {
                let why = format!("{:?} is not among the arguments of the runner that an entry may set", Theirs(&word));
                return Err(wrong("packages.runtimeArguments", why));
            }
        }
    }
    Ok(words)
}

enum Judged {
    Taken,
    Ours,
    Refused(String),
}

fn judge(kind: Kind, package: &Package, argument: &Argument, given: &[String]) -> Judged {
    let word = argument.flag.clone().or_else(|| given.first().cloned()).unwrap_or_default();
    let name = word.split('=').next().unwrap_or_default();
    let is_package = || {
        let (name, version) = (&package.identifier, package.version.as_deref().unwrap_or_default());
        [name.clone(), format!("{name}@{version}"), format!("{name}=={version}"), format!("{name}:{version}")]
            .contains(&word)
    };
    let (ours, taken): (&[&str], &[&str]) = match kind {
        Kind::Npm => (&["-y", "--yes", "-q", "--quiet"], &[]),
        Kind::Pypi => (&["run", "-q", "--quiet"], &["-p", "--python"]),
        Kind::Oci => (
            &["run", "-i", "--interactive", "--rm"],
            &["-e", "--env", "-v", "--volume", "--mount", "--network", "--init", "-p", "--publish", "--user", "-u"],
        ),
        Kind::Nuget => (&["--yes", "-y"], &[]),
        Kind::Mcpb => (&[], &[]),
    };
    // An argument without a value is left out.
    if ours.contains(&word.as_str()) || is_package() || given.is_empty() {
        return Judged::Ours;
    }
    // With a word too many or too few, another word would be taken for the package.
    let is_whole = match given {
        [alone] if name == "--init" => alone == "--init",
        [alone] => alone.starts_with("--") && alone.contains('='),
        pairs => name != "--init" && pairs.len() % 2 == 0 && pairs.iter().step_by(2).all(|flag| *flag == word),
    };
    let is_version = |value: &String| value.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_harmless = kind != Kind::Pypi || given.get(1).is_some_and(is_version);
    let is_taken = argument.flag.is_some() && taken.contains(&name) && is_whole && is_harmless;
    if is_taken { Judged::Taken } else { Judged::Refused(word) }
}
