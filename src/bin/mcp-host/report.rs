//! How a command ends: with an exit code, and on stderr with one line about what is wrong and one about what to do.

use std::io;
use std::process::ExitCode;

use mcp_host::{Error, ErrorKind, config};

use crate::output::Output;
use crate::text::quoted;

/// The exit codes. Scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    Failed = 1,
    /// The command line or the config is wrong, or names something that does not exist.
    Usage = 2,
    Unauthorized = 3,
    /// A server or the daemon cannot be reached or did not start.
    Unreachable = 4,
    /// The tool answered with an error.
    ToolError = 5,
    Denied = 6,
    TimedOut = 7,
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// The problems, each with its own help.
    problems: Vec<(String, Option<String>)>,
    /// Lines of help for the failure as a whole.
    help: Option<Vec<String>>,
    findings: Vec<config::Problem>,
    /// Whether the user wants it this way, as with a disabled server.
    pub(crate) is_wanted: bool,
}

impl Failure {
    /// Returns the first line of help, if there is any.
    pub(crate) fn advice(&self) -> Option<&str> {
        let of_problems = self.problems.iter().filter_map(|(_, help)| help.as_deref());
        self.help.iter().flatten().map(String::as_str).chain(of_problems).next()
    }

    pub(crate) fn new(exit: Exit, error: impl Into<String>) -> Self {
        Self::several(exit, [error.into()])
    }

    /// Creates a failure with several errors.
    pub(crate) fn several(exit: Exit, errors: impl IntoIterator<Item = String>) -> Self {
        Self::each(exit, errors.into_iter().map(|error| (error, None)))
    }

    /// Creates a failure with several errors, each with its own help.
    pub(crate) fn each(exit: Exit, problems: impl IntoIterator<Item = (String, Option<String>)>) -> Self {
        let problems = problems.into_iter().collect();
        Self { exit, problems, help: None, findings: Vec::new(), is_wanted: false }
    }

    /// Creates a failure from the problems of a config.
    pub(crate) fn found(findings: Vec<config::Problem>) -> Self {
        let problems = findings.iter().map(|problem| (problem.to_string(), problem.help.clone())).collect();
        Self { exit: Exit::Usage, problems, help: None, findings, is_wanted: false }
    }

    /// Creates a failure that prints nothing: everything was said, or stdout is closed.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::several(exit, [])
    }

    /// Marks the failure as wanted by the user, so that it is no reason for a warning.
    #[must_use]
    pub(crate) fn wanted(mut self) -> Self {
        self.is_wanted = true;
        self
    }

    /// Replaces the help with one line.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(vec![help.into()]);
        self
    }

    /// Sets the help of the last problem, if `help` has any. It is printed before the help for the failure as a whole.
    #[must_use]
    pub(crate) fn maybe_first(mut self, help: Option<String>) -> Self {
        if let Some((_, first)) = self.problems.last_mut() {
            *first = help.or(first.take());
        }
        self
    }

    /// Sets the help for the failure as a whole, if `help` has any.
    #[must_use]
    pub(crate) fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help.map(|help| vec![help]).or(self.help);
        self
    }

    /// Adds lines to the help.
    #[must_use]
    pub(crate) fn more_help(mut self, lines: Vec<String>) -> Self {
        self.help.get_or_insert_default().extend(lines);
        self
    }

    /// Removes a line of the help.
    #[must_use]
    pub(crate) fn without_help(mut self, line: &str) -> Self {
        self.help.iter_mut().for_each(|lines| lines.retain(|known| known != line));
        self
    }

    /// Sets the help unless there is some already.
    #[must_use]
    pub(crate) fn or_help(mut self, help: impl Into<String>) -> Self {
        self.help.get_or_insert_with(|| vec![help.into()]);
        self
    }

    /// Puts words before each problem.
    #[must_use]
    pub(crate) fn before(mut self, words: &str) -> Self {
        self.problems.iter_mut().for_each(|(error, _)| error.insert_str(0, words));
        self
    }

    /// Returns the first problem in words.
    pub(crate) fn first(&self) -> String {
        self.problems.first().map(|(error, _)| error.clone()).unwrap_or_default()
    }

    /// Returns the problems of the config.
    pub(crate) fn findings(&self) -> &[config::Problem] {
        &self.findings
    }

    /// Prints the failure as an error.
    pub(crate) fn tell(&self, output: &Output) -> Exit {
        self.say("error", output);
        self.exit
    }

    /// Prints the failure as a warning.
    pub(crate) fn warn(&self, output: &Output) {
        self.say("warning", output);
    }

    fn say(&self, level: &str, output: &Output) {
        for (index, (error, help)) in self.problems.iter().enumerate() {
            output.talk(&format!("{level}: {error}"));
            if let Some(excerpt) = self.findings.get(index).and_then(|finding| finding.excerpt.as_ref()) {
                output.talk(&format!("  {}", excerpt.line));
                output.talk(&format!("  {}^", " ".repeat(excerpt.caret)));
            }
            if let Some(help) = help {
                output.talk(&format!("help: {help}"));
            }
        }
        for help in self.help.iter().flatten() {
            output.talk(&format!("help: {help}"));
        }
    }
}

/// Converts an error of stdout. A closed stdout is no failure: the reader wants no more.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::silent(Exit::Ok);
        }
        Self::new(Exit::Failed, format!("cannot read or write: {error}"))
            .help("look at where the output goes: a disk that is full, or a file that may not be written")
    }
}

impl From<config::Error> for Failure {
    fn from(error: config::Error) -> Self {
        let mut failure = Self::found(error.problems().to_vec());
        if failure.problems.is_empty() {
            failure.problems.push((error.to_string(), None));
        }
        let help = match &error {
            config::Error::NotFound { .. } => Some(
                "mcp-host serve --demo needs none; else name one with --config FILE, any MCP client's will do"
                    .to_owned(),
            ),
            _ => error.help().map(str::to_owned).or_else(|| again(&failure.findings)),
        };
        failure.maybe_help(help)
    }
}

/// Returns help if a problem has none of its own: how to check that problem's file again.
fn again(findings: &[config::Problem]) -> Option<String> {
    let problem = findings.iter().find(|problem| problem.help.is_none())?;
    let file = quoted(&problem.file.to_string_lossy());
    Some(format!("correct it, then: mcp-host check --config {file}"))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = exit_of(error.kind());
        // The outermost cause comes first. A cause that only repeats what the text already says is left out.
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        let known = error.help().map(str::to_owned);
        let help = known.unwrap_or_else(|| help_for(error.kind(), &text, error.server()));
        Self::new(exit, text).help(help)
    }
}

/// Returns the exit code for an error of the library.
pub(crate) fn exit_of(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Config | ErrorKind::Unknown => Exit::Usage,
        ErrorKind::Unauthorized => Exit::Unauthorized,
        ErrorKind::Unreachable => Exit::Unreachable,
        ErrorKind::Answer => Exit::ToolError,
        ErrorKind::Denied => Exit::Denied,
        ErrorKind::Timeout => Exit::TimedOut,
        ErrorKind::Cancelled => Exit::Interrupted,
        _ => Exit::Failed,
    }
}

/// Returns help for an error of the library.
fn help_for(kind: ErrorKind, text: &str, server: Option<&str>) -> String {
    let name = server.unwrap_or("SERVER");
    match (kind, server) {
        (ErrorKind::Unauthorized, _) => credentials(text, &quoted(name)),
        (ErrorKind::Timeout, _) => format!("raise `callTimeout` of `{name}` in the config"),
        (ErrorKind::Config, _) => "correct it in the config, and run this again".to_owned(),
        (ErrorKind::Unknown, _) => {
            "mcp-host tools, mcp-host resources and mcp-host prompts list what there is".to_owned()
        }
        (ErrorKind::Unreachable, Some(name)) => format!("mcp-host check --connect -v {}", quoted(name)),
        (ErrorKind::Unreachable, None) => "mcp-host check --connect -v".to_owned(),
        (ErrorKind::Answer, Some(name)) => format!("that is what `{name}` answered; -vv shows every message"),
        (ErrorKind::Answer, None) => "that is what the server answered; -vv shows every message".to_owned(),
        (ErrorKind::Denied, _) => refused(text, &quoted(name), ""),
        (ErrorKind::Cancelled, _) => "run it again".to_owned(),
        _ if text.contains("(host.limits.message)") => {
            "raise it in your config: \"host\": { \"limits\": { \"message\": \"64MiB\" } }".to_owned()
        }
        _ => "run it again with -vv: the log shows what happened before".to_owned(),
    }
}

/// Returns help for a request that the host refused, depending on whether the refusal says that someone can approve it.
pub(crate) fn refused(refusal: &str, server: &str, again: &str) -> String {
    if refusal.contains("mcp-host approve") {
        format!("mcp-host approve {server}{again} shows what has changed, and asks whether you approve it")
    } else {
        "mcp-host policy explain TOOL ARGUMENTS says which rule decides, and why".to_owned()
    }
}

/// Returns help for a server that wants other credentials. It depends on whether the refusal mentions a token or a
/// login.
pub(crate) fn credentials(refusal: &str, server: &str) -> String {
    if refusal.contains("put a token into `headers` or `auth`") {
        format!(
            "put a token for it into `headers` of its entry, such as `Authorization: Bearer TOKEN`; if it has a login: mcp-host login {server}"
        )
    } else if refusal.contains("mcp-host login") {
        format!("mcp-host login {server}, or put a token for it into its `headers` or `auth`")
    } else {
        format!(
            "look at what its `headers`, `headersHelper` or `auth` give it, then: mcp-host check --connect -v {server}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_offered_where_there_is_one() {
        let refusals = ["http://a wants a token: …; sign in with: mcp-host login a", "http://a answered 401: …"];
        let help = refusals.map(|refusal| credentials(refusal, "a"));
        assert!(help[0].starts_with("mcp-host login a,"), "{help:?}");
        let key = "http://a wants a token: …; put a token into `headers` or `auth` of its entry; if it has a login: mcp-host login a";
        assert!(credentials(key, "a").starts_with("put a token for it into `headers`"));
        assert!(!help[1].contains("login") && help[1].ends_with("mcp-host check --connect -v a"), "{help:?}");
    }

    #[test]
    fn approval_is_offered_where_something_waits_for_it() {
        let refusals = ["it has changed; a person can run `mcp-host approve a`", r#"the rule "r" denies it"#];
        let help = refusals.map(|refusal| refused(refusal, "a", " --config x"));
        assert!(help[0].starts_with("mcp-host approve a --config x shows"), "{help:?}");
        assert!(help[1].starts_with("mcp-host policy explain"), "{help:?}");
    }

    #[test]
    fn exit_codes_are_those_of_the_contract() {
        let kinds = [
            ErrorKind::Config,
            ErrorKind::Unknown,
            ErrorKind::Unauthorized,
            ErrorKind::Unreachable,
            ErrorKind::Answer,
            ErrorKind::Denied,
            ErrorKind::Timeout,
            ErrorKind::Cancelled,
            ErrorKind::Internal,
        ];
        assert_eq!(kinds.map(|kind| exit_of(kind) as u8), [2, 2, 3, 4, 5, 6, 7, 130, 1]);
    }

    #[test]
    fn a_closed_stdout_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((failure.exit, failure.problems), (Exit::Ok, Vec::new()));
    }
}
