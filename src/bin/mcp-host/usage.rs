//! Parses the command line. If that fails, explains what is wrong and suggests the command line that was meant.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, ValueEnum as _};

use crate::args::{self, Cli};
use crate::listen;
use crate::nearest::{nearest, question};
use crate::others;
use crate::paint::When;
use crate::text::quoted;

/// Why no command runs.
#[derive(Debug)]
pub(crate) enum Misunderstood {
    /// Help or the version was requested.
    Asked(Box<clap::Error>),
    Wrong(Mistake),
}

/// Parses a command line.
pub(crate) fn parse(words: &[OsString]) -> Result<Cli, Misunderstood> {
    if let Some(cli) = args::parse_serving(words) {
        return Ok(cli);
    }
    let wrong = |error: clap::Error| match error.use_stderr() {
        true => Misunderstood::Wrong(explain(&error, &Line::of(words))),
        false => Misunderstood::Asked(Box::new(error)),
    };
    let matches = Cli::command().try_get_matches_from(words).map_err(wrong)?;
    if let Some(mistake) = misread(&matches) {
        return Err(Misunderstood::Wrong(mistake));
    }
    Cli::from_arg_matches(&matches).map_err(wrong)
}

/// Returns the value of `--color` on a command line that does not parse.
pub(crate) fn color(words: &[OsString]) -> When {
    Line::of(words).value(&["--color"]).and_then(|said| When::from_str(said, true).ok()).unwrap_or_default()
}

/// What is wrong with a command line, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) wrong: String,
    pub(crate) help: String,
}

impl Mistake {
    fn new(wrong: impl Into<String>, help: impl Into<String>) -> Self {
        Self { wrong: wrong.into(), help: help.into() }
    }
}

/// The words after the program's name.
#[derive(Clone, Debug)]
struct Line(Vec<String>);

impl Line {
    fn of(words: &[OsString]) -> Self {
        Self(words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect())
    }

    /// Returns the value of an option, as `--option value` or `--option=value`.
    fn value(&self, options: &[&str]) -> Option<&str> {
        self.0.iter().enumerate().find_map(|(at, word)| {
            if options.contains(&word.as_str()) {
                return self.0.get(at + 1).map(String::as_str).filter(|value| !value.starts_with('-'));
            }
            options.iter().find_map(|option| word.strip_prefix(option)?.strip_prefix('='))
        })
    }

    /// Returns the command, if there is one.
    fn command(&self) -> Option<&str> {
        let known = commands();
        self.0.iter().map(String::as_str).find(|word| known.iter().any(|name| name == word))
    }

    /// Returns the options that make a suggested command use the same servers.
    fn again(&self) -> String {
        let demo = if self.0.iter().any(|word| word == "--demo") { " --demo" } else { "" };
        let file = self.value(&["--config", "-c"]).map(|file| format!(" --config {}", quoted(file)));
        format!("{demo}{}", file.unwrap_or_default())
    }
}

/// Explains an error of the parser.
fn explain(error: &clap::Error, line: &Line) -> Mistake {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            if let Some(command) = text(ContextKind::InvalidSubcommand) {
                return unknown_command(command);
            }
        }
        ErrorKind::UnknownArgument => {
            if let Some(argument) = text(ContextKind::InvalidArg) {
                let near = text(ContextKind::SuggestedArg);
                return unknown_argument(argument, near, usage(error), line);
            }
        }
        ErrorKind::ValueValidation if text(ContextKind::InvalidArg).is_some_and(|arg| arg.starts_with("--listen")) => {
            let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            return Mistake::new(
                format!("--listen {value}: {why}"),
                "--listen 127.0.0.1:8808, or a port alone: --listen 8808",
            );
        }
        _ => {}
    }
    let told = error.render().to_string();
    let told = told.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let wrong = told.strip_prefix("error: ").unwrap_or(&told);
    Mistake::new(wrong, usage(error).unwrap_or_else(|| HELP.to_owned()))
}

/// Returns the mistake if a command line that parses has a file where a server or tool belongs.
fn misread(matches: &ArgMatches) -> Option<Mistake> {
    let (command, given) = matches.subcommand()?;
    let (what, file) =
        [("server", "a server"), ("of", "a server"), ("tool", "a tool")].iter().find_map(|(id, what)| {
            let values = given.try_get_many::<String>(id).ok()??;
            Some((*what, values.into_iter().find(|value| is_file(value))?))
        })?;
    let needed = match command {
        "call" => " TOOL",
        "login" | "logout" => " SERVER",
        _ => "",
    };
    let (told, file) = (file, quoted(file));
    Some(Mistake::new(
        format!("`{told}` is a file, and `{command}` takes {what} there"),
        format!("mcp-host {command}{needed} --config {file}"),
    ))
}

fn unknown_command(command: &str) -> Mistake {
    if is_file(command) {
        let wrong = format!("`{command}` is a file, and a command belongs there");
        return Mistake::new(wrong, format!("mcp-host serve --config {}", quoted(command)));
    }
    let wrong = format!("no command is called `{command}`");
    let known = commands();
    let near = || nearest(command, known.iter().map(String::as_str)).first().map(|name| format!("mcp-host {name}"));
    Mistake::new(wrong, others::meant(command).map(str::to_owned).or_else(near).unwrap_or_else(|| HELP.to_owned()))
}

fn unknown_argument(argument: &str, near: Option<&str>, usage: Option<String>, line: &Line) -> Mistake {
    let command = line.command();
    let usage = usage.unwrap_or_else(|| HELP.to_owned());
    if command == Some("add")
        && let Some(help) = behind_dashes(line)
    {
        let what = if argument.starts_with('-') { "no option of `add`" } else { "one word too many for `add`" };
        return Mistake::new(format!("`{argument}` is {what}; the command of a server stands behind `--`"), help);
    }
    if !argument.starts_with('-') {
        let named = command.unwrap_or("serve");
        if is_file(argument) || Path::new(argument).is_dir() {
            let file = if is_file(argument) { quoted(argument) } else { "FILE".to_owned() };
            let wrong = format!("`{argument}` is one word too many; a config file is named by an option");
            return Mistake::new(wrong, format!("mcp-host {named} --config {file}"));
        }
        return Mistake::new(format!("`{argument}` is one word too many for `mcp-host {named}`"), usage);
    }
    let wrong = format!("no option is called `{argument}`");
    // To the parser, `--out` is near `--port`.
    let bare = |option: &str| option.trim_start_matches('-').to_owned();
    if let Some(near) = near.filter(|near| !nearest(&bare(argument), [bare(near).as_str()]).is_empty()) {
        return Mistake::new(wrong, question(&[near]).unwrap_or(usage));
    }
    let meant = match command {
        Some("call" | "prompt") => argument_of_tool(argument, line),
        _ => other_option(argument, line),
    };
    Mistake::new(wrong, meant.unwrap_or(usage))
}

/// Suggests a `--` before the command of a new server: `add files npx -y x` becomes `add files -- npx -y x`. Returns
/// `None` if the line has a URL, or has the `--` already.
fn behind_dashes(line: &Line) -> Option<String> {
    let words: Vec<&str> = line.0.iter().map(String::as_str).skip_while(|word| *word != "add").skip(1).collect();
    let [name, command, ..] = words.as_slice() else { return None };
    let is_command = !name.starts_with('-') && !command.starts_with('-') && !command.contains("://");
    (is_command && !words.contains(&"--")).then(|| {
        let words: Vec<String> = words.iter().skip(1).map(|word| quoted(word)).collect();
        format!("mcp-host add {} -- {}", quoted(name), words.join(" "))
    })
}

/// Suggests `key=value` for an unknown option of `call`, which is most likely an argument of the tool.
fn argument_of_tool(option: &str, line: &Line) -> Option<String> {
    let name = option.strip_prefix("--").filter(|name| !name.is_empty())?;
    let value = line.value(&[option]).unwrap_or("VALUE");
    Some(format!("arguments are written key=value: {name}={}", quoted(value)))
}

/// Returns our equivalent of another program's option, if we know the option.
fn other_option(option: &str, line: &Line) -> Option<String> {
    let again = line.again();
    let command = line.command().unwrap_or("serve");
    Some(match option {
        "--port" | "-p" | "-P" | "--host" | "--hostname" | "--bind" | "--address" | "--addr" | "-b" => {
            format!("mcp-host {command}{again} --listen {}", wanted_address(line))
        }
        "--file" | "-f" | "--config-file" | "--mcp-config" | "--cfg" | "--settings" => {
            let file = line.value(&[option]).map_or_else(|| "FILE".to_owned(), quoted);
            format!("mcp-host {command} --config {file}")
        }
        "--debug" | "--trace" | "--log-level" | "--loglevel" | "--log" => {
            format!("mcp-host {command}{again} -v logs more, -vv every message")
        }
        "--silent" | "-s" => format!("mcp-host {command}{again} --quiet"),
        "--no-color" | "--nocolor" | "--no-colour" | "--plain" => format!("mcp-host {command}{again} --color never"),
        "--colour" => format!("mcp-host {command}{again} --color always"),
        "--output" | "-o" | "--format" => format!("mcp-host {command}{again} --json prints data for machines"),
        "--version" | "-V" => "mcp-host --version".to_owned(),
        "--stdio" => format!("mcp-host stdio{again}"),
        "--transport" if line.value(&["--transport"]) == Some("stdio") => format!("mcp-host stdio{again}"),
        "--transport" | "--http" | "--sse" => format!("mcp-host serve{again}"),
        "--daemon" | "--detach" | "--background" | "-d" => {
            format!("`mcp-host serve{again}` stays in the foreground; a service manager runs it in the background")
        }
        "--watch" | "--reload" => "`mcp-host serve` follows changes of its config by itself".to_owned(),
        "--header" | "-H" | "--env" | "-e" => {
            "`headers` and `env` of a server belong into its entry of the config, and `mcp-host add` takes them"
                .to_owned()
        }
        "--server" | "--name" | "-n" => format!("a server is named without an option: mcp-host {command} SERVER"),
        _ => return None,
    })
}

/// Returns the address for `--listen` that `--host` and `--port` mean.
fn wanted_address(line: &Line) -> String {
    let host = line.value(&["--host", "--hostname", "--bind", "--address", "--addr", "-b"]);
    let port = line.value(&["--port", "-p", "-P"]);
    if host.is_none() && port.is_none() {
        return "127.0.0.1:PORT".to_owned();
    }
    let Ok(mut address) = listen::address(host.unwrap_or("127.0.0.1")) else { return "127.0.0.1:PORT".to_owned() };
    if let Some(port) = port.and_then(|port| port.parse().ok()) {
        address.set_port(port);
    }
    address.to_string()
}

/// Reports whether a word names a config file. A server may have the name of an existing file, so the extension counts,
/// or a path separator.
fn is_file(word: &str) -> bool {
    let path = Path::new(word);
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ["json", "jsonc", "json5", "toml", "yaml", "yml"].contains(&ending) || word.contains(['/', '\\']) && path.is_file()
}

/// Returns the visible commands.
fn commands() -> Vec<String> {
    let command = Cli::command();
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| command.get_name().to_owned()).collect()
}

/// Returns the parser's usage line of the command.
fn usage(error: &clap::Error) -> Option<String> {
    let text = error.render().to_string();
    let usage = text.split("\n\n").find_map(|part| part.strip_prefix("Usage: "))?;
    Some(usage.split_whitespace().collect::<Vec<_>>().join(" "))
}

const HELP: &str = "mcp-host --help lists the commands";

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &str) -> (String, String) {
        let words: Vec<OsString> = std::iter::once("mcp-host").chain(words.split(' ')).map(OsString::from).collect();
        let mistake = parse(&words).map(|_| ()).unwrap_err();
        let Misunderstood::Wrong(mistake) = mistake else { panic!("{words:?} asks for help") };
        (mistake.wrong, mistake.help)
    }

    #[test]
    fn an_unknown_word_leads_to_what_was_meant() {
        for (words, help) in [
            ("tolls", "mcp-host tools"),
            ("stats", "`mcp-host status` shows the servers of a running `serve`"),
            ("version", "mcp-host --version"),
            ("frobnicate", HELP),
            ("mcp.json", "mcp-host serve --config mcp.json"),
            ("help frobnicate", HELP),
            ("serve mcp.json", "mcp-host serve --config mcp.json"),
            ("serve /", "mcp-host serve --config FILE"),
            ("check mcp.json", "mcp-host check --config mcp.json"),
            ("call mcp.json a__b", "mcp-host call TOOL --config mcp.json"),
            ("login mcp.json", "mcp-host login SERVER --config mcp.json"),
        ] {
            assert_eq!(told(words).1, help, "{words}");
        }
        let (wrong, help) = told("log");
        assert_eq!(wrong, "no command is called `log`");
        assert!(!help.contains("logout") && !help.contains("login"), "{help}");
    }

    #[test]
    fn a_missing_argument_is_told_with_the_usage() {
        let words = ["mcp-host", "call"].map(OsString::from);
        let Err(Misunderstood::Wrong(mistake)) = parse(&words) else { panic!("a tool is missing") };
        assert_eq!(mistake.wrong, "the following required arguments were not provided: <TOOL>");
        assert_eq!(mistake.help, "mcp-host call <TOOL> [JSON | KEY=VALUE]...");
    }

    #[test]
    fn an_unknown_option_leads_to_the_right_form() {
        for (words, help) in [
            ("serve --port 9000", "mcp-host serve --listen 127.0.0.1:9000"),
            ("serve -p 9000 -c a.json", "mcp-host serve --config a.json --listen 127.0.0.1:9000"),
            ("serve --host 0.0.0.0", "mcp-host serve --listen 0.0.0.0:8808"),
            ("serve --host=::1 --port=1", "mcp-host serve --listen [::1]:1"),
            ("serve --host a.example", "mcp-host serve --listen 127.0.0.1:PORT"),
            ("--port 9000", "mcp-host serve --listen 127.0.0.1:9000"),
            ("tools --confg mcp.json", "did you mean `--config`?"),
            ("call s__big --mb 1", "arguments are written key=value: mb=1"),
            ("call s__big --port=1", "arguments are written key=value: port=1"),
            ("serve --stdio --demo", "mcp-host stdio --demo"),
            ("serve --frob", "mcp-host serve [OPTIONS]"),
            ("add files npx -y @a/files", "mcp-host add files -- npx -y @a/files"),
            ("add files uvx files", "mcp-host add files -- uvx files"),
            ("add search https://a.example/mcp --frob", "mcp-host add [OPTIONS] <NAME> (<URL> | -- <COMMAND>...)"),
            ("serve --listen example.com", "--listen 127.0.0.1:8808, or a port alone: --listen 8808"),
        ] {
            assert_eq!(told(words).1, help, "{words}");
        }
        assert!(
            told("serve --listen example.com:80").0.starts_with("--listen example.com:80: `example.com` is a name")
        );
    }
}
