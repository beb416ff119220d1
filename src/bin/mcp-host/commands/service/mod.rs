//! `mcp-host service`: runs `serve` as a service of the user's account, managed by systemd or launchd.
//!
//! `unit.rs` writes and reads the service's files, `surroundings.rs` determines the environment of the service and what
//! it lacks, and `manager.rs` runs the commands of the service manager.

mod manager;
pub(super) mod surroundings;
mod unit;

use std::fs;
use std::path::Path;

use mcp_host::admin;
use mcp_host::config::{Config, LoadRequest};
use serde::Serialize;

use self::manager::Manager;
use self::surroundings::Surroundings;
use crate::args::{Common, Service, ServiceCommand, ServiceInstall, Uninstall};
use crate::commands::edits::target;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers;
use crate::text::{self, quoted};

pub(super) use self::manager::State;

/// What a command did, or would do, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    command: &'a str,
    dry_run: bool,
    files: Vec<FileToShow<'a>>,
    commands: Vec<String>,
    lacking: Vec<String>,
}

#[derive(Serialize)]
struct FileToShow<'a> {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

pub(super) async fn run(args: &Service, common: &Common, output: &Output) -> Result<Exit, Failure> {
    match &args.what {
        ServiceCommand::Install(args) => install(args, common, output).await,
        ServiceCommand::Uninstall(args) => uninstall(args, output).await,
        ServiceCommand::Status(_) => status(output).await,
    }
}

/// Returns the request that loads the user's own config, by the absolute paths of its files.
pub(super) fn request(common: &Common) -> Result<LoadRequest, Failure> {
    if common.project.is_some() {
        let error = "a service serves your own config, not that of a project";
        return Err(Failure::new(Exit::Usage, error).help("leave out --project; --config FILE names another file"));
    }
    // The config of a working directory is not the user's own.
    let is_named = std::env::var_os("MCP_HOST_CONFIG").is_some_and(|file| !file.is_empty());
    let mut request = target::request(common, !is_named)?;
    request.files =
        request.files.iter().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone())).collect();
    Ok(request)
}

async fn install(args: &ServiceInstall, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let manager = Manager::find()?;
    let request = request(common)?;
    let config = servers::load(&request)?;
    let env_file = args.env_file.as_deref().map(surroundings::env_file).transpose()?;
    let (file, vars) = env_file.unzip();
    let surroundings = Surroundings::of_shell(vars.unwrap_or_default());
    let plan = plan(args, &request, &config, &surroundings, file.as_deref())?;
    let files = manager.files(&plan)?;
    let commands = manager.starts(args.socket);
    let lacking = surroundings.lacks(&request, &config);
    if output.json {
        let files = files.iter().map(|(file, text)| FileToShow { file: file.display().to_string(), text: Some(text) });
        let (files, commands) = (files.collect(), commands.iter().map(|words| words.join(" ")).collect());
        let lacking = lacking.iter().map(|lack| lack.what.clone()).collect();
        output.value(&Told { command: "install", dry_run: args.dry_run, files, commands, lacking })?;
    } else if args.dry_run {
        for (file, text) in &files {
            output.line(&text::line(&file.display().to_string()))?;
            output.lines(text.lines().map(|line| format!("  {}", text::line(line)).trim_end().to_owned()))?;
            output.line("")?;
        }
        output.lines(commands.iter().map(|words| words.join(" ")))?;
    }
    for lack in &lacking {
        output.talk(&format!("warning: {}", lack.what));
        output.talk(&format!("help: {}", lack.help));
    }
    if args.dry_run {
        return Ok(Exit::Ok);
    }
    // An installed service is restarted; any other program at its address would prevent the start.
    if !files.iter().any(|(file, _)| file.exists())
        && let Some(pid) = admin::serving(config.host.listen)
    {
        let error = format!("another mcp-host, process {pid}, serves {} already", config.host.listen);
        return Err(Failure::new(Exit::Failed, error).help("stop it first: Ctrl-C where it runs"));
    }
    // The installed service may have been started in the other way: with its socket, or without.
    let before = manager.installed();
    if !before.is_empty() {
        manager.run(&manager.stops()).await.ok();
    }
    for (file, _) in before.iter().filter(|(file, _)| !files.iter().any(|(new, _)| new == file)) {
        remove(file)?;
    }
    for (file, text) in &files {
        write(file, text)?;
    }
    manager.run(&commands).await?;
    if !output.json {
        let what = if args.socket { "installed; the first connection starts it" } else { "installed, and started" };
        output.line(&format!("mcp-host is {what}: {}", shown_address(&config)))?;
        output.remark("mcp-host service status shows it; mcp-host service uninstall removes it");
        manager.remarks().iter().for_each(|line| output.remark(line));
    }
    Ok(Exit::Ok)
}

/// Plans the service.
fn plan(
    args: &ServiceInstall,
    request: &LoadRequest,
    config: &Config,
    surroundings: &Surroundings,
    env_file: Option<&Path>,
) -> Result<unit::Plan, Failure> {
    if args.socket && cfg!(target_os = "macos") {
        return Err(Failure::new(Exit::Usage, "launchd passes sockets in a way that mcp-host does not know")
            .help("mcp-host service install"));
    }
    let program = std::env::current_exe().ok();
    let program = program.as_deref().ok_or_else(|| {
        Failure::new(Exit::Failed, "the path of this program is not known").help("start it by its whole path")
    })?;
    Ok(unit::Plan {
        program: whole(program)?,
        configs: request.files.iter().map(|file| whole(file)).collect::<Result<_, _>>()?,
        vars: surroundings.written().to_vec(),
        env_file: env_file.map(whole).transpose()?,
        listen: args.socket.then(|| config.host.listen.to_string()),
        log: whole(&request.home.clone().unwrap_or_default().join("Library/Logs/mcp-host.log"))?,
    })
}

/// Returns a path as text for a line-based file.
fn whole(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().filter(|text| !text.contains(char::is_control));
    text.map(str::to_owned).ok_or_else(|| {
        let error = format!("{} has characters that a unit cannot hold", path.display());
        Failure::new(Exit::Usage, error).help("give it a plain name")
    })
}

fn shown_address(config: &Config) -> String {
    let scheme = if config.host.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{}/mcp", config.host.listen)
}

/// Writes a file whole or not at all.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let written = || {
        fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
        let new = file.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(&new, file)
    };
    written().map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot write {}: {error}", file.display())).help(format!(
            "ls -ld {} shows who may write there",
            quoted(&file.parent().unwrap_or(file).display().to_string())
        ))
    })
}

fn remove(file: &Path) -> Result<(), Failure> {
    fs::remove_file(file).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot remove {}: {error}", file.display()))
            .help(format!("rm {}", quoted(&file.display().to_string())))
    })
}

async fn uninstall(args: &Uninstall, output: &Output) -> Result<Exit, Failure> {
    let manager = Manager::find()?;
    let installed = manager.installed();
    let commands = manager.stops();
    if output.json {
        let files = installed.iter().map(|(file, _)| FileToShow { file: file.display().to_string(), text: None });
        let (files, commands) = (files.collect(), commands.iter().map(|words| words.join(" ")).collect());
        let told = Told { command: "uninstall", dry_run: args.dry_run, files, commands, lacking: Vec::new() };
        output.value(&told)?;
    }
    if installed.is_empty() {
        output.remark("no service is installed");
        return Ok(Exit::Ok);
    }
    if args.dry_run {
        if !output.json {
            output.lines(commands.iter().map(|words| words.join(" ")))?;
            output.lines(installed.iter().map(|(file, _)| format!("rm {}", quoted(&file.display().to_string()))))?;
        }
        return Ok(Exit::Ok);
    }
    // The files are removed even if the manager does not run, because it would find them at the next login.
    let stopped = manager.run(&commands).await;
    for (file, _) in &installed {
        remove(file)?;
    }
    manager.run(&manager.forgets()).await.ok();
    if !output.json {
        output.line("the service is removed")?;
    }
    stopped.map(|()| Exit::Ok)
}

async fn status(output: &Output) -> Result<Exit, Failure> {
    let manager = Manager::find()?;
    let state = manager.state().await;
    if output.json {
        output.value(&state)?;
    } else if !state.files.is_empty() {
        output.line(&format!("{}, {}", state.active, if state.enabled { "enabled" } else { "not enabled" }))?;
        output.lines(state.files.iter().map(|file| text::line(file).into_owned()))?;
    }
    if state.files.is_empty() {
        return Err(Failure::new(Exit::Unreachable, "no service is installed").help("mcp-host service install"));
    }
    if let Some(program) = &state.missing {
        let error = format!("the service starts {program}, which is not there any more");
        return Err(Failure::new(Exit::Failed, error).help("mcp-host service install writes it anew"));
    }
    if state.is_up() {
        return Ok(Exit::Ok);
    }
    Err(Failure::new(Exit::Unreachable, format!("the service does not run: it is {}", text::line(&state.active)))
        .help(manager.log()))
}

/// Returns the state of the service; `None` if there is no known manager.
pub(super) async fn state() -> Option<State> {
    Some(Manager::find().ok()?.state().await)
}

/// Reports whether the installed service serves this config.
pub(super) fn serves(config: &Path) -> bool {
    let installed = Manager::find().map(|manager| manager.installed()).unwrap_or_default();
    let name = config.to_string_lossy();
    installed.iter().any(|(_, text)| unit::serves(text, &name))
}

/// Returns the variables of the installed service; `None` if none is installed.
pub(super) fn installed() -> Option<Surroundings> {
    Manager::find().ok()?.written().map(Surroundings::of_written)
}
