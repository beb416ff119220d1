//! `mcp-host install`: shows what a server of the registry would start, asks, starts it once, and writes its entry.

use std::path::PathBuf;
use std::time::Duration;

use mcp_host::StateName;
use mcp_host::config::Sandbox;
use mcp_host::config::edit::{Change, NewServer};
use mcp_host::install::{Bundle, Choice, Index, Kind, Manifest, Status};
use serde::Serialize;
use url::Url;

use super::failures::failed;
use super::show::{command, head};
use super::tree::Tree;
use super::values::Values;
use super::{locked, named, open, tell_age};
use crate::args::{Common, Install};
use crate::commands::agreed;
use crate::commands::edits::attempt::{self, Tried};
use crate::commands::edits::pasted::{self, How};
use crate::commands::edits::target::Target;
use crate::commands::edits::write::{self, shown};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::state_directory;
use crate::text::{self, quoted};

/// What was installed, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    edit: u64,
    server: &'a str,
    file: String,
    name: &'a str,
    version: &'a str,
    form: &'static str,
    /// The hash of its tree, if the tree is locked.
    tree: Option<&'a str>,
    state: Option<StateName>,
    tools: Option<usize>,
    ready_after_ms: Option<u64>,
}

/// The start timeout for the first start, which fetches the package.
pub(super) const FETCH: Duration = Duration::from_secs(120);

/// A server to install.
struct Newcomer<'a> {
    about: About,
    choice: Choice<'a>,
    /// Its name in the config.
    alias: String,
    server: NewServer,
    values: Values,
    tree: Tree,
    /// Why it gets no sandbox, if it could have had one.
    unconfined: Option<String>,
}

/// The texts about a server.
struct About {
    name: String,
    version: String,
    /// The first lines to show.
    head: Vec<String>,
    /// The publisher's message for after the installation.
    post_install: Option<String>,
}

pub(super) async fn run(args: &Install, common: &Common, output: &Output) -> Result<Exit, Failure> {
    write::refuse_below()?;
    if args.locked {
        return locked::run(args, common, output).await;
    }
    let target = Target::of_new(common, args.user.user)?;
    let text = args.name.as_deref().unwrap_or_default();
    match meant(text)? {
        Meant::Entry(url) => {
            let manifest = Index::at(&url).await.map_err(|error| failed(&error))?;
            output.talk(&format!("warning: no registry has checked who wrote {}", text::line(text)));
            Box::pin(entry(&manifest, None, args, &target, output)).await
        }
        Meant::Bundle(file) => {
            let bundle = Bundle::open(file).await.map_err(|error| failed(&error))?;
            Box::pin(unpacked(&bundle, args, &target, output)).await
        }
        Meant::Link => {
            if args.alias.is_some() || args.package.is_some() || !args.set.is_empty() {
                let error = "an install link has the whole entry: --as, --package and --set do not apply";
                return Err(Failure::new(Exit::Usage, error).help("mcp-host rename NAME NEW renames it afterwards"));
            }
            let how = How { yes: args.yes, no_check: args.no_check, plain: false, command: "install …" };
            Box::pin(pasted::take(pasted::servers(text)?, &target, &how, output)).await
        }
        Meant::Server(name, version) => {
            let index = open(&target.request)?;
            let (manifest, freshness) = index.server(name, version).await.map_err(|error| failed(&error))?;
            tell_age(freshness, &index, output);
            Box::pin(entry(&manifest, Some(&manifest.name), args, &target, output)).await
        }
    }
}

/// Installs the server of an entry. `registry` is its name in the registry, if the entry comes from there.
async fn entry(
    manifest: &Manifest,
    registry: Option<&str>,
    args: &Install,
    target: &Target,
    output: &Output,
) -> Result<Exit, Failure> {
    if manifest.status == Status::Deleted {
        let why = manifest.status_message.as_ref().map(|why| format!(": {}", text::headline(why))).unwrap_or_default();
        let error = format!("{} {} was taken back{why}", text::line(&manifest.name), text::line(&manifest.version));
        return Err(Failure::new(Exit::Denied, error).help("nothing was written; mcp-host search WORDS finds others"));
    }
    let about = About {
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        head: head(manifest),
        post_install: manifest.post_install.clone(),
    };
    let choice = manifest.choose(args.package.map(|form| form.word())).map_err(|error| failed(&error))?;
    if let Choice::Package(Kind::Mcpb, package) = choice {
        let mut lines = about.head;
        lines.push(format!("  {:<11}{}", "bundle", text::line(&package.identifier)));
        lines.push(format!("  {:<11}{}", "sha256", text::line(package.sha256.as_deref().unwrap_or("none"))));
        lines.push(format!("  {:<11}what it starts, and what it wants to know, is shown before that", ""));
        lines.iter().for_each(|line| output.talk(line));
        confirm(args.yes, &Question::before("Fetch this bundle? [y/N]"), output).await?;
        let bundle = Bundle::fetch(package).await.map_err(|error| failed(&error))?;
        return Box::pin(unpacked(&bundle, args, target, output)).await;
    }
    let newcomer = Newcomer::of(about, choice, manifest.short_name(), args, output).await?;
    Box::pin(newcomer.install(registry, args, target, output)).await
}

/// Installs the server of a bundle.
async fn unpacked(bundle: &Bundle, args: &Install, target: &Target, output: &Output) -> Result<Exit, Failure> {
    let (count, bytes) = bundle.size;
    let mut head = vec![
        format!("{} {}", text::line(&bundle.name), text::line(&bundle.version)),
        format!("  {}", text::headline(&bundle.description)),
    ];
    if let Some(author) = &bundle.author {
        head.push(format!("  author     {} (nobody has checked that)", text::headline(author)));
    }
    if bundle.is_signed {
        head.push("  signature  there is one; nobody has checked it".to_owned());
    }
    head.push(format!("  bundle     {}, {} KiB, {}", text::count(count, "file"), bytes / 1024, bundle.digest));
    let about = About { name: bundle.name.clone(), version: bundle.version.clone(), head, post_install: None };
    let mut newcomer = Newcomer::of(about, Choice::Bundle(bundle), &bundle.name, args, output).await?;
    newcomer.tree = Tree::Bundle(Box::new(bundle.clone()));
    Box::pin(newcomer.install(None, args, target, output)).await
}

impl<'a> Newcomer<'a> {
    /// Collects the values that the server needs. `name` is its name in the config unless the user gives another.
    async fn of(
        about: About,
        choice: Choice<'a>,
        name: &str,
        args: &Install,
        output: &Output,
    ) -> Result<Self, Failure> {
        let alias = args.alias.as_deref().unwrap_or(name).to_owned();
        let can_ask = !args.yes && output.interactive();
        let values = Values::collect(&choice, &args.set, can_ask, output).await?;
        let mut server = choice.plan(&values.referring(&alias)).map_err(|error| failed(&error))?.server;
        let tree = Tree::of(server.package.as_ref(), args.scripts).await;
        let unconfined = can_be_confined(&choice).then(unconfined).flatten();
        server.confined = can_be_confined(&choice) && unconfined.is_none();
        Ok(Self { about, choice, alias, server, values, tree, unconfined })
    }

    /// Shows the server, asks, and installs it.
    async fn install(
        mut self,
        registry: Option<&str>,
        args: &Install,
        target: &Target,
        output: &Output,
    ) -> Result<Exit, Failure> {
        if let Some(package) = &mut self.server.package {
            package.registry = registry.map(str::to_owned);
        }
        // If the entry cannot be written, the user is told before being asked anything.
        write::preview(target, &[self.change()])?;
        let lines = self.lines(&shown(&target.file));
        if output.json {
            lines.iter().for_each(|line| output.talk(line))
        } else {
            output.lines(lines)?
        }
        confirm(args.yes, &Question::before("Install this? [y/N]"), output).await?;
        self.make(args, target, output).await
    }
}

impl Newcomer<'_> {
    fn change(&self) -> Change {
        Change::Put { name: self.alias.clone(), entry: self.server.own_entry(&self.alias) }
    }

    /// Installs the server's tree, starts the server once, and writes its entry.
    async fn make(mut self, args: &Install, target: &Target, output: &Output) -> Result<Exit, Failure> {
        let made = self.tree.make(self.server.package.as_mut(), &target.file, output).await?;
        self.values.keep(&self.alias).await?;
        let change = self.change();
        let preview = write::preview(target, std::slice::from_ref(&change))?;
        let (mut config, request) = attempt::approved(preview, target, &self.alias)?;
        for server in config.servers.iter_mut().filter(|server| server.name == self.alias) {
            server.start_timeout = server.start_timeout.max(FETCH);
        }
        let tried = match args.no_check {
            true => Tried::default(),
            false => attempt::start(&self.alias, config, request, output).await.map_err(|failure| {
                failure.more_help(vec!["nothing was written; --no-check writes it all the same".to_owned()])
            })?,
        };
        let lock = made.as_ref().and_then(|made| made.lock.as_ref());
        if let (Some(lock), Some(package)) = (lock, &self.server.package) {
            lock.write(&target.file, package).await.map_err(|error| failed(&error))?;
        }
        let (edit, _) = write::make(target, &change).await?;
        self.tell(edit.id, &tried, made.as_ref().map(|made| made.hash.as_str()), target, output)?;
        if let Some(text) = &self.about.post_install {
            output.talk(&format!("its publisher says: {}", text::headline(text)));
        }
        write::watch(target, &change, output).await;
        match tried.wants {
            Some(wants) => Err(wants),
            None => Ok(Exit::Ok),
        }
    }

    fn tell(
        &self,
        edit: u64,
        tried: &Tried,
        tree: Option<&str>,
        target: &Target,
        output: &Output,
    ) -> Result<(), Failure> {
        let is_ready = tried.state == Some(StateName::Connected);
        if output.json {
            return Ok(output.value(&Told {
                edit,
                server: &self.alias,
                file: target.file.display().to_string(),
                name: &self.about.name,
                version: &self.about.version,
                form: self.choice.word(),
                tree,
                state: tried.state,
                tools: is_ready.then_some(tried.tools),
                ready_after_ms: tried.ready_after_ms,
            })?);
        }
        let name = text::line(&self.alias);
        output.line(&match (is_ready, &tried.wants) {
            (true, _) => format!("installed {name}: {}", tried.told()),
            (false, Some(_)) => format!("installed {name}: a login is missing"),
            (false, None) => format!("installed {name}: not started"),
        })?;
        write::way_back(edit, output);
        Ok(())
    }

    /// Describes what would be started and written. Texts of the entry are escaped.
    fn lines(&self, file: &str) -> Vec<String> {
        let Self { about, choice, server, values, unconfined, .. } = self;
        let mut lines = about.head.clone();
        let mut add = |key: &str, value: &str| lines.push(format!("  {key:<11}{}", text::line(value)));
        match choice {
            Choice::Package(kind, package) => {
                let version = package.version.as_deref().unwrap_or_default();
                add("package", &format!("{} {} {version}", kind.word(), package.identifier));
                add("command", &command(&server.command));
                add("", &self.tree.told(*kind));
            }
            Choice::Bundle(bundle) => {
                // The name of the bundle's folder is long and meaningless, so it is shortened.
                let folder = bundle.folder().display().to_string();
                add("command", &command(&server.command).replace(&folder, "TREE"));
                add("", &self.tree.told(Kind::Mcpb));
            }
            Choice::Remote(_) => {
                add("endpoint", server.url.as_deref().unwrap_or_default());
                add("", "the registry has not checked who owns this address");
            }
        }
        match unconfined {
            Some(lack) => add("sandbox", &format!("none: {lack}")),
            None if server.confined => {
                add("sandbox", "default: it reads and writes what its entry names, and its own folders")
            }
            None => {}
        }
        for (name, value) in server.env.iter().chain(&server.headers) {
            let key = if server.url.is_some() { "header" } else { "variable" };
            // A reference to the keyring would be masked as if it were the secret.
            match (value.contains("${keyring:"), value.contains("${")) {
                (true, _) => add(key, &format!("{name}, with a secret from the keyring")),
                (false, true) => add(key, &format!("{name} from {value}")),
                (false, false) => add(key, &format!("{name}={value}")),
            }
        }
        if !values.secret.is_empty() {
            let keys: Vec<&str> = values.secret.iter().map(String::as_str).collect();
            add("secrets", &format!("{}: kept in the keyring", keys.join(", ")));
        }
        add("config", &format!("{file}, as {}", quoted(&self.alias)));
        lines
    }
}

/// Reports whether a sandbox makes sense: an image is isolated already, and an endpoint has no process here.
fn can_be_confined(choice: &Choice<'_>) -> bool {
    match choice {
        Choice::Package(kind, _) => *kind != Kind::Oci,
        Choice::Bundle(_) => true,
        Choice::Remote(_) => false,
    }
}

/// Returns what this machine lacks for the sandbox `default`; `None` if it lacks nothing.
fn unconfined() -> Option<String> {
    let lacks = Sandbox::on().lacks(state_directory().is_some());
    (!lacks.is_empty()).then(|| lacks.join(", "))
}

/// The meaning of the word after `install`.
enum Meant<'a> {
    /// A server of the registry, and its version.
    Server(&'a str, Option<&'a str>),
    /// A `server.json` at a URL.
    Entry(Url),
    /// A bundle in a file.
    Bundle(PathBuf),
    /// An install link of a client.
    Link,
}

/// Schemes of install links, and hosts of those that begin with https.
const LINKS: [&str; 5] = ["cursor", "vscode", "vscode-insiders", "lmstudio", "goose"];
const SITES: [&str; 5] = ["cursor.com", "www.cursor.com", "vscode.dev", "insiders.vscode.dev", "lmstudio.ai"];

fn meant(text: &str) -> Result<Meant<'_>, Failure> {
    let usage = |error: &str, help: &str| Err(Failure::new(Exit::Usage, error).help(help));
    if [".mcpb", ".dxt"].iter().any(|end| text.to_ascii_lowercase().ends_with(end)) {
        return match text.contains("://") {
            true => usage("a bundle is installed from a file", "download it, and give the file"),
            false => Ok(Meant::Bundle(PathBuf::from(text))),
        };
    }
    let (name, version) = named(text);
    let Ok(url) = Url::parse(text) else { return Ok(Meant::Server(name, version)) };
    if LINKS.contains(&url.scheme()) {
        return Ok(Meant::Link);
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Ok(Meant::Server(name, version));
    }
    if SITES.contains(&url.host_str().unwrap_or_default()) && url.query().is_some() {
        return Ok(Meant::Link);
    }
    match url.path().ends_with(".json") {
        true => Ok(Meant::Entry(url)),
        false => usage("this URL is no server.json and no install link", "mcp-host add NAME URL adds an endpoint"),
    }
}

/// A question to the user before an action.
pub(super) struct Question {
    pub(super) text: &'static str,
    /// The command to type with `--yes` instead.
    pub(super) command: String,
    /// What to tell the user after a no.
    pub(super) refused: &'static str,
}

impl Question {
    /// Asks before anything is fetched for an install.
    fn before(text: &'static str) -> Self {
        Self { text, command: "install …".to_owned(), refused: "nothing was fetched or written" }
    }
}

/// Asks the user, unless `--yes` was given. Fails if nobody can be asked; then nothing was fetched either.
pub(super) async fn confirm(is_agreed: bool, question: &Question, output: &Output) -> Result<(), Failure> {
    if is_agreed {
        return Ok(());
    }
    if !output.interactive() {
        let error = "nothing was fetched or written: there is no terminal to ask on";
        return Err(Failure::new(Exit::Denied, error).help(format!("mcp-host {} --yes does it", question.command)));
    }
    match agreed(question.text, output).await {
        true => Ok(()),
        false => Err(Failure::new(Exit::Denied, question.refused)),
    }
}
