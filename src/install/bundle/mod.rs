//! Bundles (`.mcpb`): an archive with a server and its `manifest.json`, which says how it is started.
//!
//! In: a file. Out: what the bundle would start, and what it asks the user; after the user agrees, its tree in the
//! store.
//!
//! **Invariant:** nothing that a bundle says is trusted. It starts Node.js, Python, or a program of its own, and no
//! other program of this machine. Nothing is unpacked before the whole file is hashed, and `unpack.rs` writes no file
//! outside of the tree. A signature is mentioned to the user, but not believed.

mod fetch;
mod unpack;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use self::unpack::Archive;
use super::Error;
use super::inputs::Walk;
use super::manifest::{Argument, Input, Named};
use super::tree::{Installed, Made, Scripts, Work, place_of, put};
use super::variables::is_variable;
use crate::config::edit::NewServer;
use crate::config::{Package, PackageKind};
use crate::keep;
use crate::protocol::Theirs;
use crate::trees::{Place, Start, Store};

/// The most inputs, arguments and variables.
const MOST: usize = 200;
/// The longest text, in bytes.
const TEXT: usize = 16 * 1024;

/// A bundle that was read but not unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Its name, as the manifest states it.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it is for, as the manifest states it.
    pub description: String,
    /// Its author, as the manifest states it.
    pub author: Option<String>,
    /// Whether it has a signature, which is not verified.
    pub is_signed: bool,
    /// The number of its files, and their total size in bytes.
    pub size: (usize, u64),
    /// The SHA-256 of the file, as in a registry's entry.
    pub digest: String,
    file: PathBuf,
    /// The folder of its tree in the store.
    tree: PathBuf,
    program: Program,
    args: Vec<String>,
    env: Vec<(String, String)>,
    inputs: Vec<(String, Field)>,
    /// The folder of a downloaded file; it is removed with the last bundle that was read from it.
    fetched: Option<Arc<Work>>,
}

/// The kind of program that a bundle starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Node,
    Python,
    /// A program of the bundle itself.
    Own,
}

/// A setting that a bundle asks the user for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    input: Input,
    is_multiple: bool,
}

impl Bundle {
    /// Reads a bundle: hashes the whole file, and checks each name in it.
    ///
    /// # Errors
    /// Fails if the file is not a bundle, or is not acceptable.
    ///
    /// # Cancel safety
    /// A dropped future changes nothing.
    pub async fn open(file: PathBuf) -> Result<Self, Error> {
        let wrong = {
            let file = file.display().to_string();
            move |why: String| Error::Bundle { file: file.clone(), why }
        };
        let opened = keep::done({
            let file = file.clone();
            move || {
                let mut archive = Archive::open(&file)?;
                let manifest = archive.manifest()?;
                Ok((archive.digest.clone(), archive.is_signed, archive.size, manifest))
            }
        });
        let (digest, is_signed, size, manifest): (String, bool, (usize, u64), String) =
            opened.await.map_err(|why: String| wrong(why))?;
        let manifest: Value =
            serde_json::from_str(&manifest).map_err(|error| wrong(format!("manifest.json is no JSON: {error}")))?;
        let store = Store::of_user().map_err(|error| wrong(error.to_string()))?;
        read(&manifest, Opened { file, digest, is_signed, size }, &store).map_err(wrong)
    }

    /// Returns the package as the config describes it.
    #[must_use]
    pub fn package(&self) -> Package {
        let mut package = Package::new(PackageKind::Mcpb, &self.name, &self.version);
        package.digest = Some(self.digest.clone());
        package
    }

    /// Returns the folder of its tree in the store.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.tree
    }

    /// Unpacks it into the store, unless it is there already.
    ///
    /// # Errors
    /// Fails if the file has changed, or cannot be unpacked within the limits.
    ///
    /// # Cancel safety
    /// A dropped future may go on unpacking, and may leave a folder in the store.
    pub async fn unpack(&self) -> Result<Installed, Error> {
        let wrong = |why: String| Error::Bundle { file: self.file.display().to_string(), why };
        let store = Store::of_user().map_err(|error| wrong(error.to_string()))?;
        let (package, digest) = (self.package(), self.digest.clone());
        let place: Place = place_of(&store, &package)?;
        let there = place.clone();
        if let Some(record) = keep::done(move || there.sound()).await {
            return Ok(Installed { tree: record.tree, was_there: true });
        }
        let work = Work::new(&store, &package).await?;
        let (file, hash) = (self.file.clone(), self.digest.clone());
        let unpacked = keep::done(move || {
            let mut archive = Archive::open(&file)?;
            if archive.digest != hash {
                return Err("it has changed since it was shown".to_owned());
            }
            archive.unpack(&work.tree)?;
            let made = Made { digest, start: Start::AsWritten, scripts: Scripts::Refused };
            put(&store, &work, &place, made).map_err(|error| error.to_string())
        });
        unpacked.await.map(|tree| Installed { tree, was_there: false }).map_err(wrong)
    }

    /// Creates the config entry for the server from the user's answers.
    pub(super) fn walk(&self, walk: &mut Walk<'_>) -> Result<NewServer, Error> {
        let tree = self.tree.display().to_string();
        let mut args = Vec::new();
        for (number, arg) in self.args.iter().enumerate() {
            let argument = self.argument(arg, &tree)?;
            args.extend(walk.argument(&argument, number + 1)?);
        }
        let mut env = Vec::new();
        for (name, value) in &self.env {
            let is_of_tree = value.starts_with("${__dirname}") && !value.contains([':', ';']);
            if !(name == "PYTHONPATH" && is_of_tree) {
                is_variable(name)?;
            }
            let input = self.template(value, &tree)?;
            env.extend(walk.named(&Named { name: name.clone(), input })?);
        }
        let command = match self.program {
            Program::Node => vec!["node".to_owned()],
            Program::Python => vec!["python3".to_owned()],
            Program::Own => Vec::new(),
        };
        let command = command.into_iter().chain(args).collect();
        Ok(NewServer { command, env, package: Some(self.package()), ..NewServer::default() })
    }

    fn argument(&self, arg: &str, tree: &str) -> Result<Argument, Error> {
        let argument = |input: Input, hint: Option<&str>, is_repeated: bool| Argument {
            flag: None,
            hint: hint.map(str::to_owned),
            is_repeated,
            input,
        };
        let whole = arg.strip_prefix("${user_config.").and_then(|rest| rest.strip_suffix('}'));
        if let Some((key, field)) =
            whole.and_then(|key| self.inputs.iter().find(|(known, field)| known == key && field.is_multiple))
        {
            return Ok(argument(field.input.clone(), Some(key), true));
        }
        Ok(argument(self.template(arg, tree)?, None, false))
    }

    /// Turns a text of the manifest into an input: fills in paths such as `${HOME}`, and turns user settings into
    /// variables.
    fn template(&self, text: &str, tree: &str) -> Result<Input, Error> {
        let (mut value, mut variables, mut rest) = (String::new(), Vec::new(), text);
        while let Some(at) = rest.find("${") {
            value.push_str(&rest[..at]);
            let length = rest[at..].find('}').ok_or_else(|| wrong(text, "has a `${` without its end"))?;
            let name = &rest[at + 2..at + length];
            rest = &rest[at + length + 1..];
            match (filled(name, tree), name.strip_prefix("user_config.")) {
                (Some(filled), _) => value.push_str(&filled),
                (None, Some(key)) => {
                    let (_, field) = self
                        .inputs
                        .iter()
                        .find(|(known, _)| known == key)
                        .ok_or_else(|| wrong(text, "names an input that the bundle does not have"))?;
                    value.push_str(&format!("{{{key}}}"));
                    variables.push(Named { name: key.to_owned(), input: field.input.clone() });
                }
                (None, None) => return Err(wrong(text, "refers to something that bundles do not have")),
            }
        }
        value.push_str(rest);
        Ok(Input { value: Some(value), variables, ..Input::default() })
    }
}

fn wrong(text: &str, why: &str) -> Error {
    Error::Entry { field: format!("server.mcp_config: {:?}", Theirs(text)), why: why.to_owned() }
}

/// Returns the text for which a placeholder stands.
fn filled(name: &str, tree: &str) -> Option<String> {
    let home = || std::env::var("HOME").ok().filter(|home| Path::new(home).is_absolute());
    let below = |folder: &str| home().map(|home| format!("{home}/{folder}"));
    match name {
        "__dirname" => Some(tree.to_owned()),
        "HOME" => home(),
        "DESKTOP" => below("Desktop"),
        "DOCUMENTS" => below("Documents"),
        "DOWNLOADS" => below("Downloads"),
        "/" | "pathSeparator" => Some(std::path::MAIN_SEPARATOR.to_string()),
        _ => None,
    }
}

/// What is known about the file of a bundle.
struct Opened {
    file: PathBuf,
    digest: String,
    is_signed: bool,
    size: (usize, u64),
}

/// Reads `manifest.json`.
fn read(manifest: &Value, opened: Opened, store: &Store) -> Result<Bundle, String> {
    let version = text(manifest, "manifest_version").or_else(|_| text(manifest, "dxt_version"))?;
    if !matches!(version.as_str(), "0.1" | "0.2" | "0.3" | "0.4") {
        return Err(format!("its manifest has version {}, which is not known here", Theirs(&version)));
    }
    let server = &manifest["server"];
    let kind = text(server, "type").map_err(|why| format!("server.{why}"))?;
    let config = overridden(&server["mcp_config"]);
    let command = match config.get("command") {
        Some(Value::String(command)) => command.clone(),
        _ => String::new(),
    };
    let mut args = texts(config.get("args"), "server.mcp_config.args")?;
    let program = match (kind.as_str(), command.as_str()) {
        ("node", "node") => Program::Node,
        ("python", "python" | "python3") => Program::Python,
        ("binary", command) if command.starts_with("${__dirname}/") && is_inside(&command["${__dirname}/".len()..]) => {
            args.insert(0, command.to_owned());
            Program::Own
        }
        ("uv", _) => return Err("it is of type uv, which fetches packages that nothing has locked".to_owned()),
        ("node" | "python" | "binary", command) => {
            return Err(format!("it wants to start {:?}, which a {kind} bundle may not", Theirs(command)));
        }
        (other, _) => return Err(format!("it is of type {:?}, which is not known here", Theirs(other))),
    };
    let env = match config.get("env") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(env)) => env
            .iter()
            .map(|(name, value)| match value {
                Value::String(value) if value.len() <= TEXT => Ok((name.clone(), value.clone())),
                _ => Err(format!("server.mcp_config.env.{} is no text", Theirs(name))),
            })
            .collect::<Result<_, _>>()?,
        Some(_) => return Err("server.mcp_config.env is no object".to_owned()),
    };
    let mut bundle = Bundle {
        name: text(manifest, "name")?,
        version: text(manifest, "version")?,
        description: text(manifest, "description").unwrap_or_default(),
        author: manifest["author"]["name"].as_str().map(str::to_owned),
        is_signed: opened.is_signed,
        size: opened.size,
        digest: opened.digest,
        file: opened.file,
        tree: PathBuf::new(),
        program,
        args,
        env,
        inputs: inputs(&manifest["user_config"])?,
        fetched: None,
    };
    bundle.tree = store.place(&bundle.package()).map(|place| place.tree()).ok_or("it has no hash")?;
    Ok(bundle)
}

/// Returns how the server is started on this system, with the manifest's settings for this platform.
fn overridden(config: &Value) -> Map<String, Value> {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    };
    let mut own = config.as_object().cloned().unwrap_or_default();
    let overrides = config["platform_overrides"][system].as_object().cloned().unwrap_or_default();
    for (key, value) in overrides {
        match (own.get_mut(&key), value) {
            (Some(Value::Object(env)), Value::Object(more)) => env.extend(more),
            (_, value) => drop(own.insert(key, value)),
        }
    }
    own
}

fn inputs(config: &Value) -> Result<Vec<(String, Field)>, String> {
    let Some(members) = config.as_object() else { return Ok(Vec::new()) };
    if members.len() > MOST {
        return Err(format!("user_config has {} members; {MOST} at most", members.len()));
    }
    let scalar = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    };
    let flag = |field: &Value, key: &str| field[key].as_bool().unwrap_or_default();
    let mut found = Vec::new();
    for (key, field) in members {
        let is_name = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        if !is_name || !field.is_object() {
            return Err(format!("user_config.{} is no input", Theirs(key)));
        }
        let format = match field["type"].as_str() {
            Some("string") | None => "string",
            Some("directory" | "file") => "filepath",
            Some("number") => "number",
            Some("boolean") => "boolean",
            Some(other) => return Err(format!("user_config.{key}.type is {:?}", Theirs(other))),
        };
        // A default may contain a placeholder, such as `${HOME}/Desktop`.
        let default = scalar(&field["default"]).filter(|text| text.len() <= TEXT).map(|text| in_place(&text));
        let input = Input {
            description: field["description"].as_str().or(field["title"].as_str()).map(str::to_owned),
            default,
            is_required: flag(field, "required"),
            is_secret: flag(field, "sensitive"),
            format: Some(format.to_owned()),
            ..Input::default()
        };
        found.push((key.clone(), Field { input, is_multiple: flag(field, "multiple") }));
    }
    Ok(found)
}

fn in_place(text: &str) -> String {
    let places = ["HOME", "DESKTOP", "DOCUMENTS", "DOWNLOADS", "/", "pathSeparator"];
    places.into_iter().fold(text.to_owned(), |text, place| match filled(place, "") {
        Some(filled) => text.replace(&format!("${{{place}}}"), &filled),
        None => text,
    })
}

fn text(value: &Value, key: &str) -> Result<String, String> {
    match &value[key] {
        Value::String(text) if !text.is_empty() && text.len() <= TEXT && !text.contains('\0') => Ok(text.clone()),
        Value::Null => Err(format!("{key} is missing in manifest.json")),
        _ => Err(format!("{key} in manifest.json is no text, empty, or too long")),
    }
}

fn texts(value: Option<&Value>, key: &str) -> Result<Vec<String>, String> {
    let items = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) if items.len() <= MOST => items,
        Some(_) => return Err(format!("{key} is no list, or has more than {MOST} members")),
    };
    let text = |item: &Value| item.as_str().filter(|text| text.len() <= TEXT).map(str::to_owned);
    items.iter().map(|item| text(item).ok_or_else(|| format!("{key} holds something else than texts"))).collect()
}

fn is_inside(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

#[cfg(test)]
mod tests;
