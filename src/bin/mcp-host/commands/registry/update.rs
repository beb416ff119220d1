//! `mcp-host update`: updates servers to newer versions from the registry. The changes are shown before anything is
//! fetched, and the changes of the tools' definitions before anything is written.

use std::collections::BTreeMap;

use mcp_host::config::edit::Change;
use mcp_host::config::{Config, LoadRequest, Package, Sandbox, Secret, Server, Transport};
use mcp_host::install::{Choice, Index, Manifest, Status, Wanted};
use serde::Serialize;
use serde_json::Value;

use super::failures::failed;
use super::install::{Question, confirm};
use super::tree::Tree;
use super::{open, outdated};
use crate::args::{Common, Update};
use crate::commands::edits::attempt::{self, Tried};
use crate::commands::edits::target::Target;
use crate::commands::edits::write;
use crate::commands::unused;
use crate::compare::{Step, steps};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers;
use crate::text;

/// An update, as `--json` prints it.
#[derive(Serialize)]
struct Told<'a> {
    edit: u64,
    server: &'a str,
    from: &'a str,
    to: &'a str,
    tree: Option<&'a str>,
    /// The tools whose definitions differ.
    tools: Differences,
}

#[derive(Serialize)]
struct Differences {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<String>,
}

/// A server, and its newer version.
struct Newer<'a> {
    server: &'a Server,
    old: &'a Package,
    new: Package,
    /// The index of the package in the arguments of the entry.
    at: usize,
    /// Variables that only the newer version needs, and their values.
    env: Vec<(String, String)>,
    /// Other inputs that only the newer version needs, in words.
    wants: Vec<String>,
}

pub(super) async fn run(args: &Update, common: &Common, output: &Output) -> Result<Exit, Failure> {
    write::refuse_below()?;
    let target = match &args.name {
        Some(name) => Target::of_entry(common, args.user.user, name)?,
        None => Target::of_new(common, args.user.user)?,
    };
    let config = servers::load(&target.request)?;
    let index = open(&target.request)?;
    let of_registry = outdated::packages(&config);
    let meant = of_registry.iter().filter(|(server, _)| args.name.as_ref().is_none_or(|name| server.is_called(name)));
    let meant: Vec<_> = meant.collect();
    if let (Some(name), []) = (&args.name, &meant[..]) {
        let error = format!("`{}` did not come from the registry", text::line(name));
        return Err(Failure::new(Exit::Usage, error).help("mcp-host outdated shows the servers that did"));
    }
    let (mut count, mut last) = (0, None);
    for (server, package) in meant {
        let updated = match newer(&index, server, package, args, output).await {
            Ok(None) => continue,
            Ok(Some(newer)) => Box::pin(newer.take(args, &target, output)).await,
            Err(failure) => Err(failure),
        };
        count += 1;
        // If one server cannot be updated, the others still are.
        if let Err(failure) = updated {
            let name = format!("server `{}`", text::line(&server.name));
            let failure =
                if failure.first().starts_with(&name) { failure } else { failure.before(&format!("{name}: ")) };
            last.replace(failure).iter().for_each(|failure: &Failure| failure.warn(output));
        }
    }
    match count {
        0 => output.remark("nothing to update: the config has the latest versions of the registry"),
        _ => unused::sweep(&write::edits()?, &target.file, output).await,
    }
    last.map_or(Ok(Exit::Ok), Err)
}

/// Asks the registry for a newer version of a server. Returns `None` if there is none.
async fn newer<'a>(
    index: &Index,
    server: &'a Server,
    old: &'a Package,
    args: &Update,
    output: &Output,
) -> Result<Option<Newer<'a>>, Failure> {
    let (manifest, version) = outdated::latest(index, old, output).await?;
    if manifest.status == Status::Deleted {
        return Err(Failure::new(Exit::Denied, "the registry has taken it back")
            .help(format!("mcp-host remove {} takes it out", text::quoted(&server.name))));
    }
    let Some(version) = version else {
        let error = format!("its latest version has no {} package {}", old.kind.word(), text::line(&old.name));
        return Err(Failure::new(Exit::Failed, error)
            .help(format!("mcp-host show {} shows what it has", text::line(&manifest.name))));
    };
    if version == old.version {
        return Ok(None);
    }
    let form = manifest.choose(Some(old.kind.word())).map_err(|error| failed(&error))?;
    // This fails if the new version must not be installed. Existing values stay those in the config.
    let wanted = form.wanted().map_err(|error| failed(&error))?;
    let Choice::Package(_, package) = form else { return Ok(None) };
    if package.identifier != old.name {
        let error = format!("its package is another one now: {}", text::line(&package.identifier));
        return Err(Failure::new(Exit::Failed, error).help(anew(server)));
    }
    let Transport::Stdio(stdio) = &server.transport else { return Ok(None) };
    let Some(at) = stdio.args.iter().position(|word| *word == old.spec()) else {
        let error = format!("its command does not start {}", text::line(&old.spec()));
        return Err(Failure::new(Exit::Failed, error).help(anew(server)));
    };
    let before = wanted_before(index, old).await;
    let fresh: Vec<&Wanted> = wanted.iter().filter(|wanted| !before.contains(&wanted.key)).collect();
    let mut new = Package::new(old.kind, &old.name, version);
    new.registry.clone_from(&old.registry);
    let Fresh { env, wants } =
        asked(&fresh, package.environment.iter().map(|named| named.name.as_str()), server, args)?;
    Ok(Some(Newer { server, old, new, at, env, wants }))
}

/// Returns the keys of the inputs of the installed version; empty if the registry no longer has that version.
async fn wanted_before(index: &Index, old: &Package) -> Vec<String> {
    let Some(name) = &old.registry else { return Vec::new() };
    let Ok((manifest, _)) = index.server(name, Some(&old.version)).await else { return Vec::new() };
    let keys = |manifest: &Manifest| {
        let wanted = manifest.choose(Some(old.kind.word())).and_then(|form| form.wanted()).unwrap_or_default();
        wanted.into_iter().map(|wanted| wanted.key).collect()
    };
    keys(&manifest)
}

/// Returns the commands that reinstall a server.
fn anew(server: &Server) -> String {
    let registry = match &server.transport {
        Transport::Stdio(stdio) => stdio.package.as_ref().and_then(|package| package.registry.as_deref()),
        _ => None,
    };
    let (name, registry) = (text::quoted(&server.name), text::quoted(registry.unwrap_or("NAME")));
    format!("mcp-host remove {name}, then mcp-host install {registry} --as {name}")
}

/// The inputs that only the newer version has.
struct Fresh {
    /// Variables, and their values.
    env: Vec<(String, String)>,
    /// Other inputs, in words.
    wants: Vec<String>,
}

/// Splits the inputs that only the newer version has: variables with their values, and others in words.
fn asked<'a>(
    fresh: &[&Wanted],
    variables: impl Iterator<Item = &'a str>,
    server: &Server,
    args: &Update,
) -> Result<Fresh, Failure> {
    let variables: Vec<&str> = variables.collect();
    let mut given: BTreeMap<&str, &str> = BTreeMap::new();
    for pair in &args.set {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Failure::new(Exit::Usage, "one value of --set has no key and no `=`").help("--set KEY=VALUE"));
        };
        given.insert(key, value);
    }
    let has = |key: &str| match &server.transport {
        Transport::Stdio(stdio) => stdio.env.iter().any(|(name, _)| name == key),
        _ => false,
    };
    let (mut env, mut wants, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for wanted in fresh {
        let is_variable = variables.contains(&wanted.key.as_str());
        match given.remove(wanted.key.as_str()) {
            Some(value) if is_variable => {
                wanted.check(value).map_err(|error| failed(&error))?;
                env.push((wanted.key.clone(), value.to_owned()));
            }
            _ if is_variable && has(&wanted.key) => {}
            _ if wanted.is_required && wanted.default.is_none() => missing.push((wanted.key.clone(), is_variable)),
            _ => wants.push(format!("{} (optional)", text::line(&wanted.key))),
        }
    }
    if let Some(key) = given.keys().next() {
        let error = format!("the new version has no new variable `{}`", text::line(key));
        return Err(Failure::new(Exit::Usage, error).help("--set gives values for variables that are new"));
    }
    if let Some((key, _)) = missing.iter().find(|(_, is_variable)| !is_variable) {
        let error = format!("the new version wants the argument {}", text::line(key));
        return Err(Failure::new(Exit::Usage, error).help(anew(server)));
    }
    if !missing.is_empty() {
        let set: Vec<String> = missing.iter().map(|(key, _)| format!("--set {}=…", text::line(key))).collect();
        let errors = missing.iter().map(|(key, _)| format!("the new version wants {}", text::line(key)));
        return Err(Failure::several(Exit::Usage, errors).help(format!(
            "mcp-host update {} {}",
            text::quoted(&server.name),
            set.join(" ")
        )));
    }
    Ok(Fresh { env, wants })
}

impl Newer<'_> {
    /// Returns the edit of the entry.
    fn changes(&self) -> Vec<Change> {
        let mut texts = vec![
            (vec!["args".to_owned(), self.at.to_string()], self.new.spec()),
            (vec!["package".to_owned(), "version".to_owned()], self.new.version.clone()),
        ];
        let digest = self.new.digest.clone().filter(|digest| Some(digest) != self.old.digest.as_ref());
        texts.extend(digest.map(|digest| (vec!["package".to_owned(), "digest".to_owned()], digest)));
        texts.extend(self.env.iter().map(|(key, value)| (vec!["env".to_owned(), key.clone()], value.clone())));
        let change = |(at, value)| Change::Text { name: self.server.name.clone(), at, value };
        texts.into_iter().map(change).collect()
    }

    /// Shows the update, asks, and applies it.
    async fn take(mut self, args: &Update, target: &Target, output: &Output) -> Result<(), Failure> {
        let tree = Tree::of(Some(&self.new), args.scripts).await;
        if self.old.digest.is_some() && !tree.is_locked() {
            let error = "its tree is locked, and the tool that locks the new one is not here";
            return Err(Failure::new(Exit::Failed, error).help(tree.told(self.new.kind)));
        }
        let lines = self.lines(&tree);
        if output.json {
            lines.iter().for_each(|line| output.talk(line))
        } else {
            output.lines(lines)?
        }
        if !args.yes && !output.interactive() {
            confirm(false, &self.question(), output).await?;
        }
        let made = tree.make(Some(&mut self.new), &target.file, output).await?;
        let changes = self.changes();
        let name = &self.server.name;
        let preview = write::preview(target, &changes)?;
        let (after, request) = attempt::approved(preview, target, name)?;
        let new = self.start(after, request, output).await?;
        let old = self.start(servers::load(&target.request)?, target.request.clone(), output).await;
        let before = match &old {
            Ok(tried) => tried.definitions.clone(),
            Err(failure) => {
                output.talk(&format!("warning: the installed version does not start: {}", failure.first()));
                BTreeMap::new()
            }
        };
        let (lines, tools) = compared(&before, &new.definitions);
        if output.json {
            lines.iter().for_each(|line| output.talk(line))
        } else {
            output.lines(lines)?
        }
        confirm(args.yes, &self.question(), output).await?;
        if let Some(lock) = made.as_ref().and_then(|made| made.lock.as_ref()) {
            lock.write(&target.file, &self.new).await.map_err(|error| failed(&error))?;
        }
        let command = format!("update {name}");
        let (edit, _) = write::make_all(target, Some(&command), &changes).await?;
        let (from, to) = (self.old.version.as_str(), self.new.version.as_str());
        if output.json {
            let tree = made.as_ref().map(|made| made.hash.as_str());
            return Ok(output.value(&Told { edit: edit.id, server: name, from, to, tree, tools })?);
        }
        output.line(&format!("updated {}: {} to {}", text::line(name), text::line(from), text::line(to)))?;
        write::way_back(edit.id, output);
        Ok(())
    }

    fn question(&self) -> Question {
        Question {
            text: "Take this version? [y/N]",
            command: format!("update {} …", text::quoted(&self.server.name)),
            refused: "nothing was written",
        }
    }

    /// Starts one of the two versions once, with an empty folder as its home, and in a sandbox if the machine supports
    /// it.
    async fn start(&self, mut config: Config, request: LoadRequest, output: &Output) -> Result<Tried, Failure> {
        let home = Scratch::new()?;
        let host = config.host.sandbox.clone();
        let mut is_ours = false;
        for server in config.servers.iter_mut().filter(|server| server.name == self.server.name) {
            server.start_timeout = server.start_timeout.max(super::install::FETCH);
            server.disabled = None;
            let known = server.sandbox(host.as_ref());
            let Transport::Stdio(stdio) = &mut server.transport else { continue };
            // The new version may do anything, so it gets a sandbox. If the config sets one, even `off`, that is used
            // instead.
            is_ours = stdio.sandbox.is_none() && host.is_none() && known.is_none();
            let sandbox = if is_ours { Some(Sandbox::on().weak()) } else { known };
            if !stdio.env.iter().any(|(name, _)| name == "HOME") {
                stdio.env.push(("HOME".to_owned(), Secret::new(home.0.display().to_string())));
            }
            stdio.sandbox = sandbox.map(|sandbox| sandbox.write(&home.0)).or(stdio.sandbox.take());
        }
        let tried = attempt::start(&self.server.name, config, request, output).await;
        tried.map_err(|failure| match is_ours {
            true => failure.more_help(vec![format!(
                "it was started in a sandbox; \"sandbox\": \"off\" in the entry of {} starts it without one",
                text::quoted(&self.server.name)
            )]),
            false => failure,
        })
    }

    fn lines(&self, tree: &Tree) -> Vec<String> {
        let (old, new) = (self.server.transport.shown(), self.new.spec());
        let mut lines = vec![format!("{} {}", text::line(&self.server.name), text::line(&self.new.version))];
        let mut add = |key: &str, value: &str| lines.push(format!("  {key:<11}{}", text::line(value)));
        add("version", &format!("{} to {}", self.old.version, self.new.version));
        add("command", &format!("{old}, with {new} in place of {}", self.old.spec()));
        add("", &tree.told(self.new.kind));
        for (key, value) in &self.env {
            let value = if value.contains("${") { format!(" from {value}") } else { String::new() };
            add("variable", &format!("{key}{value}, new"));
        }
        for wants in &self.wants {
            add("input", &format!("{wants}, new"));
        }
        lines
    }
}

/// A folder that is removed on drop.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new() -> Result<Self, Failure> {
        let wrong = |error: std::io::Error| {
            let error = format!("no empty home directory can be made for the new version: {error}");
            Failure::new(Exit::Failed, error).help("set TMPDIR to a folder that can be written")
        };
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| wrong(std::io::Error::other(error)))?;
        let folder = std::env::temp_dir().join(format!("mcp-host-{:016x}", u64::from_be_bytes(random)));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&folder).map_err(wrong)?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that cannot be removed does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Compares the definitions of tools: lines for people, and the names.
fn compared(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> (Vec<String>, Differences) {
    let (mut lines, mut found) =
        (Vec::new(), Differences { added: Vec::new(), removed: Vec::new(), changed: Vec::new() });
    for (name, new) in now {
        let Some(old) = before.get(name) else {
            lines.push(format!("  + {}", text::line(name)));
            found.added.push(name.clone());
            continue;
        };
        let (old, new) = (pretty(old), pretty(new));
        if old == new {
            continue;
        }
        found.changed.push(name.clone());
        lines.push(format!("  ~ {}", text::line(name)));
        for step in steps(&old, &new) {
            let (sign, line) = match step {
                Step::Same(_) => continue,
                Step::Gone(at) => ('-', &old[at]),
                Step::New(at) => ('+', &new[at]),
            };
            lines.push(format!("    {sign} {}", text::line(line.trim())));
        }
    }
    for name in before.keys().filter(|name| !now.contains_key(*name)) {
        lines.push(format!("  - {}", text::line(name)));
        found.removed.push(name.clone());
    }
    let head = if lines.is_empty() { "its tools have the same definitions" } else { "its tools change:" };
    lines.insert(0, head.to_owned());
    (lines, found)
}

/// Returns a definition as lines, with its members sorted.
fn pretty(definition: &str) -> Vec<String> {
    let value: Value = serde_json::from_str(definition).unwrap_or(Value::Null);
    format!("{value:#}").lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_compared_whatever_the_order_of_their_members() {
        let tools = |list: &[(&str, &str)]| -> BTreeMap<String, String> {
            list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let before =
            tools(&[("a", r#"{"name":"a","description":"Reads."}"#), ("b", "{}"), ("same", r#"{"x":1,"y":2}"#)]);
        let now = tools(&[("a", r#"{"description":"Sends.","name":"a"}"#), ("c", "{}"), ("same", r#"{"y":2,"x":1}"#)]);
        let (lines, found) = compared(&before, &now);
        let wanted = [
            "its tools change:",
            "  ~ a",
            "    - \"description\": \"Reads.\",",
            "    + \"description\": \"Sends.\",",
            "  + c",
            "  - b",
        ];
        assert_eq!(lines, wanted);
        assert_eq!((found.added, found.removed, found.changed), (vec!["c".into()], vec!["b".into()], vec!["a".into()]));
        assert_eq!(compared(&now, &now).0, ["its tools have the same definitions"]);
    }
}
