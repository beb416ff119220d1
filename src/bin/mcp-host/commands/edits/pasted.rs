//! `mcp-host add -`: adds servers given as JSON or as an install link on standard input. They may come from anyone, so
//! they are shown in full, and the user is asked before anything starts.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _};

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use mcp_host::StateName;
use mcp_host::config::edit::{Change, NewServer};
use mcp_host::config::import::{Entry, candidates};
use serde::Serialize;
use serde_json::{Map, Value, json};
use url::Url;

use super::add::nothing;
use super::attempt::{self, Tried};
use super::secrets;
use super::target::Target;
use super::write;
use crate::args::{Add, Common};
use crate::commands::agreed;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text;

/// The most bytes to read: no entry is longer.
const MOST: u64 = 1024 * 1024;

/// What was added, as `--json` prints it.
#[derive(Serialize)]
struct Told<'a> {
    edit: u64,
    server: &'a str,
    file: String,
    state: Option<StateName>,
}

pub(super) async fn run(args: &Add, common: &Common, output: &Output) -> Result<Exit, Failure> {
    write::refuse_below()?;
    if args.url.is_some() || !args.command.is_empty() || has_options(args) {
        let error = "`add -` takes the whole server from standard input";
        return Err(Failure::new(Exit::Usage, error).help("mcp-host add - < entry.json"));
    }
    let found = servers(&stdin().await?)?;
    let target = Target::of_new(common, args.user.user)?;
    let how = How { yes: args.yes, no_check: args.no_check, plain: args.plain, command: "add -" };
    Box::pin(take(found, &target, &how, output)).await
}

/// How to add servers that someone else wrote.
pub(in crate::commands) struct How {
    /// Whether not to ask.
    pub(in crate::commands) yes: bool,
    /// Whether not to start the servers first.
    pub(in crate::commands) no_check: bool,
    /// Whether to allow secrets in plain text.
    pub(in crate::commands) plain: bool,
    /// The command, for help texts.
    pub(in crate::commands) command: &'static str,
}

/// Shows the servers, asks, starts each once, and writes them.
pub(in crate::commands) async fn take(
    found: Vec<(String, Entry)>,
    target: &Target,
    args: &How,
    output: &Output,
) -> Result<Exit, Failure> {
    for (name, entry) in &found {
        output.talk(name);
        entry.shown().iter().for_each(|line| output.talk(&format!("  {line}")));
    }
    if !args.yes && !is_wanted(args.command, output).await? {
        return Err(Failure::new(Exit::Denied, "nothing was written"));
    }
    // All servers are started before the first one is written.
    let mut tried = Vec::new();
    for (name, entry) in &found {
        let change = Change::Put { name: name.clone(), entry: entry.clone() };
        let (config, request) =
            attempt::approved(write::preview(target, std::slice::from_ref(&change))?, target, name)?;
        if !args.plain {
            secrets::refuse_plain(&NewServer::default(), name, &config)?;
        }
        tried.push(match args.no_check {
            true => Tried::default(),
            false => attempt::start(name, config, request, output).await.map_err(nothing)?,
        });
    }
    let mut wants = None;
    for ((name, entry), tried) in found.into_iter().zip(tried) {
        let change = Change::Put { name: name.clone(), entry };
        let (made, _) = write::make(target, &change).await?;
        if output.json {
            let file = target.file.display().to_string();
            output.value(&Told { edit: made.id, server: &name, file, state: tried.state })?;
        } else {
            let what = match (tried.state, &tried.wants) {
                (Some(StateName::Connected), _) => tried.told(),
                (_, Some(_)) => "a login is missing".to_owned(),
                (_, None) => "not started".to_owned(),
            };
            output.line(&format!("added {}: {what}", text::line(&name)))?;
            output.remark(&format!("it stands in {}", write::shown(&target.file)));
            write::way_back(made.id, output);
        }
        write::watch(target, &change, output).await;
        wants = wants.or(tried.wants);
    }
    wants.map_or(Ok(Exit::Ok), Err)
}

fn has_options(args: &Add) -> bool {
    let lists = [&args.env, &args.header, &args.secret];
    lists.iter().any(|list| !list.is_empty()) || args.transport.is_some() || args.cwd.is_some() || args.lazy
}

async fn stdin() -> Result<String, Failure> {
    let read = tokio::task::spawn_blocking(|| {
        let mut text = String::new();
        io::stdin().lock().take(MOST).read_to_string(&mut text).map(|_| text)
    });
    let text = read.await.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    text.map_err(|error| Failure::new(Exit::Usage, format!("standard input cannot be read: {error}")).help(FORMS))
}

/// Asks the user, at the terminal itself, because standard input has been read to its end.
async fn is_wanted(command: &str, output: &Output) -> Result<bool, Failure> {
    const QUESTION: &str = "Start this once, and add it? [y/N]";
    if output.interactive() {
        return Ok(agreed(QUESTION, output).await);
    }
    let nobody = || {
        let error = "nothing was written: there is no terminal to ask on";
        Failure::new(Exit::Denied, error).help(format!("mcp-host {command} --yes adds it without asking"))
    };
    if !io::stderr().is_terminal() {
        return Err(nobody());
    }
    let terminal = std::fs::File::open("/dev/tty").map_err(|_| nobody())?;
    output.ask(QUESTION);
    let answer = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        io::BufReader::new(terminal).read_line(&mut line).map(|_| line)
    });
    Ok(matches!(answer.await, Ok(Ok(line)) if matches!(line.trim(), "y" | "Y" | "yes")))
}

const FORMS: &str =
    "give JSON such as {\"mcpServers\": {\"NAME\": {\"command\": \"…\"}}}, or an install link of Cursor or VS Code";

fn wrong(what: &str) -> Failure {
    Failure::new(Exit::Usage, format!("the input has {what}")).help(FORMS)
}

/// Parses servers from JSON or from an install link.
pub(in crate::commands) fn servers(text: &str) -> Result<Vec<(String, Entry)>, Failure> {
    let text = text.trim();
    if text.is_empty() {
        return Err(wrong("nothing"));
    }
    let config = if text.starts_with('{') { config(text)? } else { of_link(text, true)? };
    let found = candidates(&config, "stdin.json".as_ref(), None)?;
    if found.is_empty() {
        return Err(wrong("no server"));
    }
    let entry = |candidate: mcp_host::config::import::Candidate| match candidate.entry {
        Ok(entry) => Ok((candidate.name, entry)),
        Err(why) => Err(wrong(&format!("`{}`, which cannot be added: {why}", text::line(&candidate.name)))),
    };
    found.into_iter().map(entry).collect()
}

/// Returns a config for JSON that may be a single entry with its name.
fn config(text: &str) -> Result<String, Failure> {
    match serde_json::from_str::<Map<String, Value>>(text) {
        Ok(entry)
            if ["command", "url", "serverUrl", "httpUrl"]
                .iter()
                .any(|key| entry.get(*key).is_some_and(Value::is_string)) =>
        {
            named(entry, None)
        }
        // The text is a config, possibly with comments.
        _ => Ok(text.to_owned()),
    }
}

/// Returns a config with this one entry.
fn named(mut entry: Map<String, Value>, name: Option<String>) -> Result<String, Failure> {
    let own = entry.remove("name").and_then(|name| name.as_str().map(str::to_owned));
    let name = name.or(own).filter(|name| !name.is_empty()).ok_or_else(|| wrong("an entry without a name"))?;
    Ok(json!({ "mcpServers": { name: entry } }).to_string())
}

/// Reads an install link: Cursor's (`config` in base64), or VS Code's (JSON, percent-encoded).
fn of_link(text: &str, may_lead: bool) -> Result<String, Failure> {
    let link = Url::parse(text).map_err(|_| wrong("neither JSON nor a link"))?;
    let pair = |name: &str| link.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    let object =
        |text: &str| serde_json::from_str::<Map<String, Value>>(text).map_err(|_| wrong("a link without a server"));
    if matches!(link.scheme(), "vscode" | "vscode-insiders") {
        let query = percent_encoding::percent_decode_str(link.query().unwrap_or_default()).decode_utf8_lossy();
        return named(object(&query)?, None);
    }
    if link.scheme() == "goose" {
        return of_goose(&link);
    }
    if let Some(led) = pair("url").filter(|_| may_lead) {
        return of_link(&led, false);
    }
    let (Some(name), Some(config)) = (pair("name"), pair("config")) else {
        return Err(wrong("a link without a server"));
    };
    if config.starts_with('{') {
        return named(object(&config)?, Some(name));
    }
    // A `+` that was not percent-encoded in the query is read as a space.
    let config = config.replace(' ', "+");
    let decoded = decode(&config).ok_or_else(|| wrong("a link without a server"))?;
    named(object(&decoded)?, Some(name))
}

/// Reads Goose's install link: a command with its arguments, or a URL.
fn of_goose(link: &Url) -> Result<String, Failure> {
    let all = |name: &str| -> Vec<String> {
        link.query_pairs().filter(|(key, _)| key == name).map(|(_, value)| value.into_owned()).collect()
    };
    let first = |name: &str| all(name).into_iter().next().filter(|value| !value.is_empty());
    let name = first("id").or_else(|| first("name"));
    let mut entry = Map::new();
    match (first("cmd"), first("url")) {
        (Some(command), None) => {
            entry.insert("command".to_owned(), json!(command));
            entry.insert("args".to_owned(), json!(all("arg")));
            // In these links, the text after a variable's name describes the variable; it is not its value.
            let names = all("env").into_iter().filter_map(|pair| Some(pair.split_once('=')?.0.to_owned()));
            let env: Map<String, Value> = names.map(|name| (name.clone(), json!(format!("${{env:{name}}}")))).collect();
            if !env.is_empty() {
                entry.insert("env".to_owned(), Value::Object(env));
            }
        }
        (None, Some(url)) => drop(entry.insert("url".to_owned(), json!(url))),
        _ => return Err(wrong("a link without a server")),
    }
    named(entry, name)
}

fn decode(text: &str) -> Option<String> {
    let how = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let bytes =
        [STANDARD, URL_SAFE].iter().find_map(|alphabet| GeneralPurpose::new(alphabet, how).decode(text).ok())?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, Vec<String>)> {
        servers(text).unwrap().into_iter().map(|(name, entry)| (name, entry.shown())).collect()
    }

    #[test]
    fn json_and_links_are_read() {
        let files = vec![("files".to_owned(), vec![r#"command: "npx""#.to_owned(), r#"args: ["-y", "x"]"#.to_owned()])];
        let entry = r#"{"command":"npx","args":["-y","x"]}"#;
        let base64 = base64::engine::general_purpose::STANDARD.encode(entry);
        let percent = percent_encoding::utf8_percent_encode(entry, percent_encoding::NON_ALPHANUMERIC).to_string();
        let whole = r#"{"name":"files","command":"npx","args":["-y","x"]}"#;
        let code = percent_encoding::utf8_percent_encode(whole, percent_encoding::NON_ALPHANUMERIC).to_string();
        let inner = format!("vscode:mcp/install?{code}");
        let outer = percent_encoding::utf8_percent_encode(&inner, percent_encoding::NON_ALPHANUMERIC);
        for text in [
            whole.to_owned(),
            format!("{{ // a comment\n\"mcpServers\": {{\"files\": {entry}}} }}"),
            format!("{{\"servers\": {{\"files\": {entry}}}}}"),
            format!("cursor://anysphere.cursor-deeplink/mcp/install?name=files&config={base64}"),
            format!("https://cursor.com/install-mcp?name=files&config={base64}"),
            inner.clone(),
            format!("https://insiders.vscode.dev/redirect/mcp/install?name=files&config={percent}"),
            format!("https://vscode.dev/redirect?url={outer}"),
            format!("lmstudio://add_mcp?name=files&config={base64}"),
            "goose://extension?cmd=npx&arg=-y&arg=x&id=files&name=Files".to_owned(),
        ] {
            assert_eq!(read(&text), files, "{text}");
        }
    }

    #[test]
    fn what_is_no_server_is_refused_in_one_line() {
        for text in [
            "",
            "{}",
            "hello",
            r#"{"command":"npx"}"#,
            "https://example.com/",
            "vscode:mcp/install?x",
            "cursor://a?name=x&config=%%",
            "goose://extension?id=x",
            "goose://extension?id=x&cmd=a&url=https://a.example/",
        ] {
            let failure = servers(text).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{text}");
            assert!(!failure.first().contains('\n') && !failure.first().is_empty(), "{text}");
        }
    }
}
