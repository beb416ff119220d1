//! Reads `server.json`: the form of 2025-12-11, and the older ones, whose members have other names.
//!
//! **Invariant:** pure, and bounded: nothing of an entry is taken without a limit on its size. Unknown members are
//! ignored; a member of a wrong type is an error that names the member.

use serde_json::{Map, Value};

use super::Error;
use crate::config::PackageKind as Kind;
use crate::protocol::Theirs;

/// The entry of a server in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Manifest {
    /// Its name: a namespace, a slash, and a name.
    pub name: String,
    /// Its title, for people.
    pub title: Option<String>,
    /// What the server is for.
    pub description: String,
    /// The version of the entry.
    pub version: String,
    /// The URL of its source code.
    pub repository: Option<String>,
    /// The URL of its website.
    pub website: Option<String>,
    /// Whether the publisher still supports it.
    pub status: Status,
    /// What the publisher says about the status.
    pub status_message: Option<String>,
    /// When it was published, as the registry states it.
    pub published_at: Option<String>,
    /// What the publisher asks people to do after the installation. It is only shown.
    pub post_install: Option<String>,
    /// The packages.
    pub packages: Vec<Package>,
    /// The endpoints.
    pub remotes: Vec<Remote>,
}

/// Whether the publisher of a server still supports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is supported.
    Active,
    /// It should no longer be used.
    Deprecated,
    /// It was withdrawn.
    Deleted,
}

/// A package that contains the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Package {
    /// Its kind; for an unknown kind, the word in the entry.
    pub kind: Result<Kind, String>,
    /// Its name in its own registry.
    pub identifier: String,
    /// Its version; `None` is allowed for images.
    pub version: Option<String>,
    /// The URL of the package registry, if the entry names one.
    pub base_url: Option<String>,
    /// The SHA-256 of the file, if the entry states one.
    pub sha256: Option<String>,
    /// The runner that the entry suggests.
    pub runtime_hint: Option<String>,
    /// Its transport: `stdio` if the program communicates over stdin and stdout.
    pub transport: String,
    /// Arguments of the runner.
    pub runtime_arguments: Vec<Argument>,
    /// Arguments of the program.
    pub arguments: Vec<Argument>,
    /// Its environment variables.
    pub environment: Vec<Named>,
}

/// An endpoint of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remote {
    /// Its transport: `streamable-http` or `sse`.
    pub transport: String,
    /// Its URL; `{NAME}` stands for an input.
    pub url: String,
    /// The headers of its requests.
    pub headers: Vec<Named>,
    /// The inputs of the URL.
    pub variables: Vec<Named>,
}

/// An input with a name: an environment variable, or a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub name: String,
    /// The input.
    pub input: Input,
}

/// An argument of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The flag before the value, such as `--port`.
    pub flag: Option<String>,
    /// The name of the value, which is shown to people.
    pub hint: Option<String>,
    /// Whether it may be given several times.
    pub is_repeated: bool,
    /// The input.
    pub input: Input,
}

/// A value, either given by the entry or provided by a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// What it is for.
    pub description: Option<String>,
    /// The value, if the entry gives it; `{NAME}` stands for a variable.
    pub value: Option<String>,
    /// The value if nobody gives one.
    pub default: Option<String>,
    /// Whether there must be a value.
    pub is_required: bool,
    /// Whether it is a secret.
    pub is_secret: bool,
    /// Its format: `string`, `number`, `boolean` or `filepath`.
    pub format: Option<String>,
    /// The allowed values; empty if any value is allowed.
    pub choices: Vec<String>,
    /// The variables in the value.
    pub variables: Vec<Named>,
}

/// The most members of one list.
const MOST: usize = 200;
/// The longest text, in bytes.
const TEXT: usize = 16 * 1024;
/// How many levels of variables inside variables are read.
const DEPTH: usize = 3;

impl Manifest {
    /// Reads the text of a `server.json`, or of a registry's answer about one server.
    ///
    /// # Errors
    /// Fails if the text is not JSON, or a member has a wrong type.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let value = serde_json::from_str(text).map_err(|error| wrong("the file", format!("no JSON: {error}")))?;
        Self::of(&value)
    }

    /// Reads an entry together with the registry's own statements about it.
    pub(super) fn of(value: &Value) -> Result<Self, Error> {
        let outer = Fields::of(value, "")?;
        let server = match outer.get(&["server"]) {
            Some((server, _)) => Fields::of(server, "")?,
            None => Fields::of(value, "")?,
        };
        // The registry's own statements are beside the entry, or inside it.
        let said = [&outer, &server].into_iter().find_map(|fields| {
            let meta = fields.members.get("_meta")?.as_object()?;
            let (_, official) = meta.iter().find(|(key, _)| key.ends_with("registry/official"))?;
            Fields::of(official, "_meta").ok()
        });
        let of_registry = |names: &[&str]| said.as_ref().map_or(Ok(None), |said| said.text(names));
        let status = match of_registry(&["status"])?.or(server.text(&["status"])?).as_deref() {
            Some("deleted") => Status::Deleted,
            Some("deprecated") => Status::Deprecated,
            _ => Status::Active,
        };
        let version = match server.text(&["version"])? {
            Some(version) => Some(version),
            None => server.object("version_detail")?.map_or(Ok(None), |detail| detail.text(&["version"]))?,
        };
        let name = server.text(&["name"])?.ok_or_else(|| wrong("name", "is missing"))?;
        if !is_name(&name) {
            return Err(wrong("name", format!("{:?} is not of the form NAMESPACE/NAME", Theirs(&name))));
        }
        Ok(Self {
            name,
            title: server.text(&["title"])?,
            description: server.text(&["description"])?.unwrap_or_default(),
            version: version.unwrap_or_default(),
            repository: server.object("repository")?.map_or(Ok(None), |fields| fields.text(&["url"]))?,
            website: server.text(&["websiteUrl", "website_url"])?,
            status,
            status_message: of_registry(&["statusMessage"])?,
            published_at: of_registry(&["publishedAt", "published_at"])?,
            post_install: server.text(&["postInstallInstructions"])?,
            packages: server.each(&["packages"], package)?,
            remotes: server.each(&["remotes"], remote)?,
        })
    }

    /// Returns the part of the name before the slash, which the registry has verified to belong to the publisher.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.name.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Returns a name for the server in a config: the part after the slash.
    #[must_use]
    pub fn short_name(&self) -> &str {
        self.name.split_once('/').map_or(&self.name, |(_, name)| name)
    }
}

/// Reports whether a text is a valid server name: a namespace, one slash, and a name.
pub(super) fn is_name(name: &str) -> bool {
    let part = |part: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !part.is_empty() && part.chars().all(inner) && part.chars().any(|c| c.is_ascii_alphanumeric())
    };
    let (namespace, word) = name.split_once('/').unwrap_or_default();
    name.len() <= 200 && part(namespace) && part(word)
}

fn wrong(field: &str, why: impl Into<String>) -> Error {
    Error::Entry { field: field.to_owned(), why: why.into() }
}

/// The members of an object, and the path to the object.
struct Fields<'a> {
    members: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value, path: &str) -> Result<Self, Error> {
        let shown = if path.is_empty() { "the entry" } else { path };
        let members = value.as_object().ok_or_else(|| wrong(shown, "is no object"))?;
        Ok(Self { members, path: path.to_owned() })
    }

    /// Returns the first of these members that exists, and the path to it.
    fn get(&self, names: &[&str]) -> Option<(&'a Value, String)> {
        let found = |name: &&str| {
            let value = self.members.get(*name).filter(|value| !value.is_null())?;
            let dot = if self.path.is_empty() { "" } else { "." };
            Some((value, format!("{}{dot}{name}", self.path)))
        };
        names.iter().find_map(found)
    }

    /// Reads a text. Numbers and booleans are accepted as texts, because some files write defaults that way.
    fn text(&self, names: &[&str]) -> Result<Option<String>, Error> {
        let Some((value, path)) = self.get(names) else { return Ok(None) };
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            _ => return Err(wrong(&path, "is no text")),
        };
        if text.len() > TEXT {
            return Err(wrong(&path, format!("has {} bytes; {TEXT} at most", text.len())));
        }
        Ok(Some(text))
    }

    fn flag(&self, names: &[&str]) -> Result<bool, Error> {
        match self.get(names) {
            None => Ok(false),
            Some((Value::Bool(flag), _)) => Ok(*flag),
            Some((_, path)) => Err(wrong(&path, "is neither true nor false")),
        }
    }

    fn object(&self, name: &str) -> Result<Option<Self>, Error> {
        self.get(&[name]).map(|(value, path)| Self::of(value, &path)).transpose()
    }

    /// Reads each item of a list of objects.
    fn each<T>(&self, names: &[&str], read: impl Fn(&Self) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let Some((value, path)) = self.get(names) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| wrong(&path, "is no list"))?;
        is_few(&path, items.len())?;
        items.iter().enumerate().map(|(at, item)| read(&Fields::of(item, &format!("{path}[{at}]"))?)).collect()
    }
}

fn is_few(path: &str, count: usize) -> Result<(), Error> {
    if count <= MOST { Ok(()) } else { Err(wrong(path, format!("has {count} members; {MOST} at most"))) }
}

fn package(fields: &Fields<'_>) -> Result<Package, Error> {
    let lacks = |name: &str| wrong(&format!("{}.{name}", fields.path), "is missing");
    let word =
        fields.text(&["registryType", "registry_type", "registry_name"])?.ok_or_else(|| lacks("registryType"))?;
    let kind = match word.as_str() {
        // The oldest files use the name of the hub for images.
        "docker" => Some(Kind::Oci),
        word => Kind::of(word),
    };
    let transport = match fields.get(&["transport"]) {
        Some((Value::String(word), _)) => Some(word.clone()),
        Some((value, path)) => Fields::of(value, &path)?.text(&["type"])?,
        None => fields.text(&["transport_type"])?,
    };
    Ok(Package {
        kind: kind.ok_or(word),
        identifier: fields.text(&["identifier", "name"])?.ok_or_else(|| lacks("identifier"))?,
        version: fields.text(&["version"])?.filter(|version| !version.is_empty()),
        base_url: fields.text(&["registryBaseUrl", "registry_base_url"])?,
        sha256: fields.text(&["fileSha256", "file_sha256"])?,
        runtime_hint: fields.text(&["runtimeHint", "runtime_hint"])?,
        transport: transport.unwrap_or_else(|| "stdio".to_owned()),
        runtime_arguments: fields.each(&["runtimeArguments", "runtime_arguments"], argument)?,
        arguments: fields.each(&["packageArguments", "package_arguments"], argument)?,
        environment: fields.each(&["environmentVariables", "environment_variables"], named)?,
    })
}

fn remote(fields: &Fields<'_>) -> Result<Remote, Error> {
    let transport = fields.text(&["type", "transport_type", "transport"])?;
    let url = fields.text(&["url"])?.ok_or_else(|| wrong(&format!("{}.url", fields.path), "is missing"))?;
    Ok(Remote {
        transport: transport.unwrap_or_else(|| "streamable-http".to_owned()),
        url,
        headers: fields.each(&["headers"], named)?,
        variables: variables(fields, 0)?,
    })
}

fn named(fields: &Fields<'_>) -> Result<Named, Error> {
    let name = fields.text(&["name"])?.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| wrong(&format!("{}.name", fields.path), "is missing"))?;
    Ok(Named { name, input: input(fields, 0)? })
}

fn argument(fields: &Fields<'_>) -> Result<Argument, Error> {
    let flag = match fields.text(&["type"])?.as_deref() {
        Some("named") => {
            let name = fields.text(&["name"])?.filter(|name| !name.is_empty());
            Some(name.ok_or_else(|| wrong(&format!("{}.name", fields.path), "is missing"))?)
        }
        Some("positional") | None => None,
        Some(other) => {
            let why = format!("{:?} is neither positional nor named", Theirs(other));
            return Err(wrong(&format!("{}.type", fields.path), why));
        }
    };
    Ok(Argument {
        flag,
        hint: fields.text(&["valueHint", "value_hint"])?,
        is_repeated: fields.flag(&["isRepeated", "is_repeated"])?,
        input: input(fields, 0)?,
    })
}

fn input(fields: &Fields<'_>, depth: usize) -> Result<Input, Error> {
    let choices = match fields.get(&["choices"]) {
        None => Vec::new(),
        Some((Value::Array(items), path)) => {
            is_few(&path, items.len())?;
            let text = |item: &Value| match item {
                Value::String(text) if text.len() <= TEXT => Ok(text.clone()),
                Value::Number(number) => Ok(number.to_string()),
                _ => Err(wrong(&path, "holds something else than texts")),
            };
            items.iter().map(text).collect::<Result<_, _>>()?
        }
        Some((_, path)) => return Err(wrong(&path, "is no list")),
    };
    Ok(Input {
        description: fields.text(&["description"])?,
        value: fields.text(&["value"])?,
        default: fields.text(&["default"])?,
        is_required: fields.flag(&["isRequired", "is_required"])?,
        is_secret: fields.flag(&["isSecret", "is_secret"])?,
        format: fields.text(&["format"])?,
        choices,
        variables: variables(fields, depth)?,
    })
}

fn variables(fields: &Fields<'_>, depth: usize) -> Result<Vec<Named>, Error> {
    let Some(variables) = fields.object("variables")? else { return Ok(Vec::new()) };
    is_few(&variables.path, variables.members.len())?;
    if depth >= DEPTH {
        return Err(wrong(&variables.path, "is nested too deeply"));
    }
    let read = |(name, value): (&String, &Value)| {
        let fields = Fields::of(value, &format!("{}.{name}", variables.path))?;
        Ok(Named { name: name.clone(), input: input(&fields, depth + 1)? })
    };
    variables.members.iter().map(read).collect()
}
