//! `mcp-host install`: shows what a server of the registry would be, asks, starts it once, and writes its entry.

use std::time::Duration;

use mcp_host::StateName;
use mcp_host::config::edit::{Change, NewServer};
use mcp_host::install::{Choice, Manifest, Status};
use serde::Serialize;

use super::failures::failed;
use super::show::{command, head};
use super::values::Values;
use super::{named, open, tell_age};
use crate::args::{Common, Install};
use crate::commands::agreed;
use crate::commands::edits::attempt::{self, Tried};
use crate::commands::edits::target::Target;
use crate::commands::edits::write::{self, shown};
use crate::output::Output;
use crate::report::{Exit, Failure};
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
    state: Option<StateName>,
    tools: Option<usize>,
    ready_after_ms: Option<u64>,
}

/// The first start of a package fetches it.
const FETCH: Duration = Duration::from_secs(120);

pub(super) async fn run(args: &Install, common: &Common, output: &Output) -> Result<Exit, Failure> {
    write::refuse_below()?;
    let target = Target::of_new(common, args.user.user)?;
    let (name, version) = of_registry(&args.name)?;
    let index = open(&target.request)?;
    let (manifest, freshness) = index.server(name, version).await.map_err(|error| failed(&error))?;
    tell_age(freshness, &index, output);
    if manifest.status == Status::Deleted {
        let why = manifest.status_message.as_ref().map(|why| format!(": {}", text::headline(why))).unwrap_or_default();
        let error = format!("{} {} was taken back{why}", text::line(&manifest.name), text::line(&manifest.version));
        return Err(Failure::new(Exit::Denied, error).help("nothing was written; mcp-host search WORDS finds others"));
    }
    let alias = args.alias.as_deref().unwrap_or_else(|| manifest.short_name()).to_owned();
    let choice = manifest.choose(args.package.map(|form| form.word())).map_err(|error| failed(&error))?;
    let can_ask = !args.yes && output.interactive();
    let values = Values::collect(&choice, &args.set, can_ask, output).await?;
    let server = choice.plan(&values.referring(&alias)).map_err(|error| failed(&error))?.server;
    let change = Change::Put { name: alias.clone(), entry: server.own_entry(&alias) };
    // What cannot be written is said before anybody is asked.
    let mut preview = write::preview(&target, &change)?;
    let lines = plan(&manifest, &choice, &server, &values, &format!("{}, as {}", shown(&target.file), quoted(&alias)));
    if output.json {
        lines.iter().for_each(|line| output.talk(line))
    } else {
        output.lines(lines)?
    }
    confirm(args, output).await?;
    values.keep(&alias).await?;
    if !values.secret.is_empty() {
        // It is read again, with what the keyring has now.
        preview.after = None;
    }
    let (mut config, request) = attempt::approved(preview, &target, &alias)?;
    for server in config.servers.iter_mut().filter(|server| server.name == alias) {
        server.start_timeout = server.start_timeout.max(FETCH);
    }
    let tried = match args.no_check {
        true => Tried::default(),
        false => attempt::start(&alias, config, request, output).await.map_err(|failure| {
            failure.more_help(vec!["nothing was written; --no-check writes it all the same".to_owned()])
        })?,
    };
    let (made, _) = write::make(&target, &change).await?;
    let is_ready = tried.state == Some(StateName::Connected);
    if output.json {
        output.value(&Told {
            edit: made.id,
            server: &alias,
            file: target.file.display().to_string(),
            name: &manifest.name,
            version: &manifest.version,
            form: choice.word(),
            state: tried.state,
            tools: is_ready.then_some(tried.tools),
            ready_after_ms: tried.ready_after_ms,
        })?;
    } else {
        let name = text::line(&alias);
        output.line(&match (is_ready, &tried.wants) {
            (true, _) => format!("installed {name}: {}", tried.told()),
            (false, Some(_)) => format!("installed {name}: a login is missing"),
            (false, None) => format!("installed {name}: not started"),
        })?;
        write::way_back(made.id, output);
    }
    if let Some(text) = &manifest.post_install {
        output.talk(&format!("its publisher says: {}", text::headline(text)));
    }
    write::watch(&target, &change, output).await;
    match tried.wants {
        Some(wants) => Err(wants),
        None => Ok(Exit::Ok),
    }
}

/// Reads the name of a server. What other programs call installable is told apart.
fn of_registry(text: &str) -> Result<(&str, Option<&str>), Failure> {
    let usage = |error: &str, help: &str| Err(Failure::new(Exit::Usage, error).help(help));
    if text.contains("://") || text.starts_with("vscode:") {
        return usage("a URL or an install link cannot be installed", "mcp-host add NAME URL adds an endpoint");
    }
    if [".mcpb", ".dxt"].iter().any(|end| text.to_ascii_lowercase().ends_with(end)) {
        return usage("bundles cannot be installed", "unpack it, and give its command: mcp-host add NAME -- COMMAND");
    }
    Ok(named(text))
}

/// Says what would be started and written. Texts of the entry are escaped.
fn plan(manifest: &Manifest, choice: &Choice<'_>, server: &NewServer, values: &Values, place: &str) -> Vec<String> {
    let mut lines = head(manifest);
    let mut add = |key: &str, value: &str| lines.push(format!("  {key:<11}{}", text::line(value)));
    match choice {
        Choice::Package(kind, package) => {
            let version = package.version.as_deref().unwrap_or_default();
            add("package", &format!("{} {} {version}", kind.word(), package.identifier));
            add("command", &command(&server.command));
            add("", "it runs as you; its tree is not locked: the runner fetches this version, and what that needs");
        }
        Choice::Remote(_) => {
            add("endpoint", server.url.as_deref().unwrap_or_default());
            add("", "the registry has not checked who owns this address");
        }
    }
    for (name, value) in server.env.iter().chain(&server.headers) {
        let key = if server.url.is_some() { "header" } else { "variable" };
        // A reference to the keyring would be masked, as if it were the secret.
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
    add("config", place);
    lines
}

async fn confirm(args: &Install, output: &Output) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    if !output.interactive() {
        let error = "nothing was fetched or written: there is no terminal to ask on";
        return Err(Failure::new(Exit::Denied, error).help("mcp-host install … --yes installs it"));
    }
    match agreed("Install this? [y/N]", output).await {
        true => Ok(()),
        false => Err(Failure::new(Exit::Denied, "nothing was fetched or written")),
    }
}
