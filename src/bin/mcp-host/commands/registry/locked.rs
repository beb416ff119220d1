//! `mcp-host install --locked`: installs the trees that a config has locked, exactly as the locks beside it state.

use mcp_host::config::{NOT_APPROVED, Package, Server, Transport};
use mcp_host::install::{self, Lock, Maker, Scripts};
use serde::Serialize;

use super::failures::failed;
use crate::args::{Common, Install};
use crate::commands::edits::target::Target;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers;
use crate::text;

/// A tree, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    server: &'a str,
    package: String,
    digest: &'a str,
    tree: &'a str,
    was_there: bool,
}

pub(super) async fn run(args: &Install, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let target = match &args.name {
        Some(name) => Target::of_entry(common, args.user.user, name)?,
        None => Target::of_new(common, args.user.user)?,
    };
    let config = servers::load(&target.request)?;
    let is_meant = |server: &&Server| args.name.as_ref().is_none_or(|name| server.is_called(name));
    let scripts = if args.scripts { Scripts::Run } else { Scripts::Refused };
    let (mut count, mut failures) = (0, Vec::new());
    for server in config.servers.iter().filter(is_meant) {
        let Some(package) = locked(server) else {
            if args.name.is_some() {
                let error = format!("the tree of `{}` is not locked", text::line(&server.name));
                let help = "mcp-host install and mcp-host update lock the trees of npm and PyPI";
                return Err(Failure::new(Exit::Usage, error).help(help));
            }
            continue;
        };
        count += 1;
        match install(server, package, scripts, output).await {
            Ok(()) => {}
            Err(failure) => failures.push(failure.before(&format!("server `{}`: ", text::line(&server.name)))),
        }
    }
    if count == 0 {
        output.remark("no server of this config has a locked tree");
    }
    match failures.pop() {
        None => Ok(Exit::Ok),
        Some(last) => {
            failures.iter().for_each(|failure| failure.warn(output));
            Err(last)
        }
    }
}

/// Returns the package of a server whose tree is locked.
fn locked(server: &Server) -> Option<&Package> {
    let Transport::Stdio(stdio) = &server.transport else { return None };
    stdio.package.as_ref().filter(|package| package.digest.is_some())
}

async fn install(server: &Server, package: &Package, scripts: Scripts, output: &Output) -> Result<(), Failure> {
    if server.disabled.as_deref() == Some(NOT_APPROVED) {
        // The author of the project has also written the lock.
        return Err(Failure::new(Exit::Denied, "it is not approved, so nothing is fetched").help("mcp-host approve"));
    }
    let lock = Lock::read(server.source.file.clone(), package.clone()).await.map_err(|error| failed(&error))?;
    let Some(maker) = Maker::find(package.kind).await else {
        let tools = if package.kind == install::Kind::Npm { "npm" } else { "uv or pip" };
        return Err(Failure::new(Exit::Failed, format!("{tools} is not here")).help(format!("install {tools}")));
    };
    let installed = maker.install(package, &lock, scripts).await.map_err(|error| failed(&error))?;
    install::note(server.source.file.clone(), package.clone()).await.map_err(|error| failed(&error))?;
    if output.json {
        return Ok(output.value(&Row {
            server: &server.name,
            package: package.spec(),
            digest: package.digest.as_deref().unwrap_or_default(),
            tree: &installed.tree,
            was_there: installed.was_there,
        })?);
    }
    let done = if installed.was_there { "is installed already" } else { "installed" };
    Ok(output.line(&format!(
        "{}: {} {done}, tree {}",
        text::line(&server.name),
        text::line(&package.spec()),
        installed.tree
    ))?)
}
