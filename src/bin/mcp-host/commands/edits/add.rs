//! `mcp-host add`: starts the new server once, and writes its entry if that works.

use std::path::PathBuf;

use mcp_host::StateName;
use mcp_host::config::edit::{Change, Kind, NewServer};
use mcp_host::config::{Config, NOT_APPROVED};
use serde::Serialize;

use super::secrets;
use super::target::Target;
use super::write::{self, Preview};
use crate::args::{ADD_USAGE as USAGE, Add, Common, Transport};
use crate::commands::check;
use crate::commands::connect::last_words;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{self, Plan};
use crate::session::{Session, failure, look_closer};
use crate::text::{self, quoted};

/// What the server has, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    edit: u64,
    server: &'a str,
    file: String,
    state: Option<StateName>,
    tools: Option<usize>,
    ready_after_ms: Option<u64>,
    /// Tokens of the definitions, by their size.
    tokens: Option<usize>,
}

/// What came of the start.
#[derive(Default)]
pub(super) struct Tried {
    pub(super) state: Option<StateName>,
    tools: usize,
    ready_after_ms: Option<u64>,
    tokens: usize,
    /// The login that is missing.
    pub(super) wants: Option<Failure>,
}

/// The name that stands for an entry on standard input.
pub(super) const PASTED: &str = "-";
/// How many bytes of a definition are about one token.
const TOKEN: usize = 4;

pub(super) async fn run(args: &Add, common: &Common, output: &Output) -> Result<Exit, Failure> {
    write::refuse_below()?;
    let mut server = server(args)?;
    let target = Target::of_new(common, args.user.user)?;
    secrets::refer(args, &mut server, output)?;
    let change = Change::Add { name: args.name.clone(), server: server.clone() };
    let mut preview = write::preview(&target, &change)?;
    if !args.secret.is_empty() {
        secrets::ask(args, output).await?;
        // It is read again, with what the keyring has now.
        preview.after = None;
    }
    let (config, request) = approved(preview, &target, &args.name)?;
    if !args.plain {
        secrets::refuse_plain(&server, &args.name, &config)?;
    }
    let tried = match args.no_check {
        true => Tried::default(),
        false => attempt(&args.name, config, request, output).await?,
    };
    let (made, _) = write::make(&target, &change).await?;
    let file = write::shown(&target.file);
    let name = text::line(&args.name).into_owned();
    let is_ready = tried.state == Some(StateName::Connected);
    if output.json {
        output.value(&Told {
            edit: made.id,
            server: &args.name,
            file: target.file.display().to_string(),
            state: tried.state,
            tools: is_ready.then_some(tried.tools),
            ready_after_ms: tried.ready_after_ms,
            tokens: is_ready.then_some(tried.tokens),
        })?;
    } else {
        output.line(&match (is_ready, &tried.wants) {
            (true, _) => format!("added {name}: {}", told(&tried)),
            (false, Some(_)) => format!("added {name}: a login is missing"),
            (false, None) => format!("added {name}: not started"),
        })?;
        output.remark(&format!("it stands in {file}"));
        write::way_back(made.id, output);
    }
    write::watch(&target, &change, output).await;
    match tried.wants {
        Some(wants) => Err(wants),
        None => Ok(Exit::Ok),
    }
}

/// Says what a server has: `9 tools, 640 ms, ~2.1k tokens`.
pub(super) fn told(tried: &Tried) -> String {
    let mut parts = vec![text::count(tried.tools, "tool")];
    parts.extend(tried.ready_after_ms.map(text::duration));
    parts.push(format!("~{} tokens", thousands(tried.tokens)));
    parts.join(", ")
}

fn thousands(count: usize) -> String {
    match count {
        0..1000 => count.to_string(),
        _ => format!("{}.{}k", count / 1000, count % 1000 / 100),
    }
}

/// Reads the server from the command line.
fn server(args: &Add) -> Result<NewServer, Failure> {
    let usage = |error: String, help: &str| Failure::new(Exit::Usage, error).help(help);
    let pair = |text: &str, sign: char, help: &str| match text.split_once(sign) {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim_start().to_owned())),
        // The word may be a secret without its key.
        _ => Err(usage(format!("one word has no key and no `{sign}`"), help)),
    };
    if args.url.is_none() && args.command.is_empty() {
        let error = "the following required arguments were not provided: <URL>".to_owned();
        return Err(usage(error, USAGE));
    }
    if let Some(url) = args.url.as_ref().filter(|url| !url.contains("://") && !url.contains("${")) {
        let error = format!("`{}` is no URL, and a command stands behind `--`", text::line(url));
        let help = format!("mcp-host add {} -- {}", quoted(&args.name), quoted(url));
        return Err(usage(error, &help));
    }
    let env = args.env.iter().map(|text| pair(text, '=', "write a variable as KEY=VALUE: -e LEVEL=debug"));
    let headers = args.header.iter().map(|text| pair(text, ':', "write a header as 'KEY: VALUE': -H 'X-Team: core'"));
    let kind = args.transport.map(|transport| match transport {
        Transport::Stdio => Kind::Stdio,
        Transport::Http => Kind::Http,
        Transport::Sse => Kind::Sse,
    });
    if kind.is_some_and(|kind| (kind == Kind::Stdio) == args.url.is_some()) {
        let error = "a URL is reached by http or sse, and a command by stdio".to_owned();
        return Err(usage(error, "leave out --transport: it is found out at the start"));
    }
    // A relative folder would start elsewhere in another working directory.
    let cwd = args.cwd.as_ref().map(|cwd| match cwd.starts_with('~') || cwd.contains("${") {
        true => cwd.clone(),
        false => std::path::absolute(cwd).map_or_else(|_| cwd.clone(), |path| path.to_string_lossy().into_owned()),
    });
    Ok(NewServer {
        command: args.command.clone(),
        url: args.url.clone(),
        kind,
        env: env.collect::<Result<_, _>>()?,
        headers: headers.collect::<Result<_, _>>()?,
        cwd,
        lazy: args.lazy,
    })
}

/// Returns the config with the new entry, which in a project's file counts as approved: the user has just typed it.
pub(super) fn approved(
    preview: Preview,
    target: &Target,
    name: &str,
) -> Result<(Config, mcp_host::config::LoadRequest), Failure> {
    let mut request = target.request.clone();
    request.texts = vec![(target.file.clone(), preview.edited.text)];
    let Some(config) = preview.after else {
        return servers::load(&request).map(|config| (config, request)).map_err(Failure::from);
    };
    let waiting = config.servers.iter().find(|server| server.name == name).and_then(|server| {
        let project = server.project.as_ref()?;
        (server.disabled.as_deref() == Some(NOT_APPROVED)).then(|| (server.source.file.clone(), project.hash.clone()))
    });
    match waiting {
        None => Ok((config, request)),
        Some((file, hash)) => {
            let file: PathBuf = file;
            request.approved = request.approved.clone().and(file, name.to_owned(), hash);
            Ok((servers::load(&request)?, request))
        }
    }
}

/// Starts the new server once.
pub(super) async fn attempt(
    name: &str,
    mut config: Config,
    request: mcp_host::config::LoadRequest,
    output: &Output,
) -> Result<Tried, Failure> {
    config.servers.retain(|server| server.name == name);
    // The server is in no config yet, so nothing else could look at it.
    let closer = look_closer(name, "");
    let wanted = |failure: Failure| failure.without_help(&closer).more_help(vec![NOTHING.to_owned()]);
    if let Some(unusable) = check::unusable(&config) {
        return Err(wanted(unusable));
    }
    let plan = Plan::of(config, request);
    let session = Box::pin(Session::look_alone(plan, String::new(), output)).await?;
    let status = session.status();
    let catalog = session.host.catalog();
    let tokens = catalog.tools().iter().map(|tool| tool.definition().as_str().len()).sum::<usize>() / TOKEN;
    session.close().await;
    let Some(status) = status.into_iter().find(|server| server.name == name) else {
        return Err(wanted(Failure::new(Exit::Failed, format!("`{name}` is no server that can be started"))));
    };
    let mut tried = Tried {
        state: Some(status.state),
        tools: status.tools,
        ready_after_ms: status.ready_after_ms,
        tokens,
        wants: None,
    };
    match failure(&status, "") {
        None => Ok(tried),
        Some(failure) if failure.exit == Exit::Unauthorized => {
            tried.wants = Some(failure);
            Ok(tried)
        }
        Some(failure) => {
            last_words(&status).iter().for_each(|line| output.talk(line));
            Err(wanted(failure))
        }
    }
}

const NOTHING: &str = "nothing was written; --no-check writes it all the same";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_told_roughly() {
        assert_eq!([0, 999, 1000, 2149, 31_000].map(thousands), ["0", "999", "1.0k", "2.1k", "31.0k"]);
    }
}
