//! `mcp-host add`: starts the new server once, and writes its entry if that works.

use mcp_host::StateName;
use mcp_host::config::edit::{Change, Kind, NewServer};
use serde::Serialize;

use super::attempt::{self, Tried};
use super::secrets;
use super::target::Target;
use super::write;
use crate::args::{ADD_USAGE, Add, Common, Transport};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text::{self, quoted};

/// The name that means that the entry is on standard input.
pub(super) const PASTED: &str = "-";

/// The added server, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    edit: u64,
    server: &'a str,
    file: String,
    state: Option<StateName>,
    tools: Option<usize>,
    ready_after_ms: Option<u64>,
    /// The estimated number of tokens of its definitions.
    tokens: Option<usize>,
}

pub(super) async fn run(args: &Add, common: &Common, output: &Output) -> Result<Exit, Failure> {
    write::refuse_below()?;
    let mut server = server(args)?;
    let target = Target::of_new(common, args.user.user)?;
    secrets::refer(args, &mut server, output)?;
    let change = Change::Add { name: args.name.clone(), server: server.clone() };
    let mut preview = write::preview(&target, std::slice::from_ref(&change))?;
    if !args.secret.is_empty() {
        secrets::ask(args, output).await?;
        // The config is read again, because the keyring now has the secrets.
        preview.after = None;
    }
    let (config, request) = attempt::approved(preview, &target, &args.name)?;
    if !args.plain {
        secrets::refuse_plain(&server, &args.name, &config)?;
    }
    let tried = match args.no_check {
        true => Tried::default(),
        false => attempt::start(&args.name, config, request, output).await.map_err(nothing)?,
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
            (true, _) => format!("added {name}: {}", tried.told()),
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

/// Reads the server from the command line.
fn server(args: &Add) -> Result<NewServer, Failure> {
    let usage = |error: String, help: &str| Failure::new(Exit::Usage, error).help(help);
    let pair = |text: &str, sign: char, help: &str| match text.split_once(sign) {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim_start().to_owned())),
        // The word may itself be a secret whose key is missing, so it is not shown.
        _ => Err(usage(format!("one word has no key and no `{sign}`"), help)),
    };
    if args.url.is_none() && args.command.is_empty() {
        let error = "the following required arguments were not provided: <URL>".to_owned();
        return Err(usage(error, ADD_USAGE));
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
    // A relative folder would mean another one in another working directory.
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
        confined: false,
        package: None,
    })
}

pub(super) fn nothing(failure: Failure) -> Failure {
    failure.more_help(vec![NOTHING.to_owned()])
}

const NOTHING: &str = "nothing was written; --no-check writes it all the same";
