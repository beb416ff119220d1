//! How a command ends: the exit code, and on stderr one line of what is wrong and one of what to do.

use std::io;
use std::process::ExitCode;

use mcp_host::{Error, ErrorKind, config};

use crate::output::Output;

/// The exit codes. Scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    Failed = 1,
    /// The command line or the config is wrong, or names what does not exist.
    Usage = 2,
    Unauthorized = 3,
    /// A server, or the daemon, cannot be reached or did not start.
    Unreachable = 4,
    /// The tool answered, with an error.
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

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Each problem with its own help.
    problems: Vec<(String, Option<String>)>,
    /// Help that fits the whole.
    help: Option<String>,
    findings: Vec<config::Problem>,
    /// It is as the user wants it.
    pub(crate) is_wanted: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, error: impl Into<String>) -> Self {
        Self::several(exit, [error.into()])
    }

    /// Many errors of one kind.
    pub(crate) fn several(exit: Exit, errors: impl IntoIterator<Item = String>) -> Self {
        let problems = errors.into_iter().map(|error| (error, None)).collect();
        Self { exit, problems, help: None, findings: Vec::new(), is_wanted: false }
    }

    /// Ends the command without a word: all was said, or nobody listens.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::several(exit, [])
    }

    /// The same, as the user wants it to be: nothing to be warned of.
    #[must_use]
    pub(crate) fn wanted(mut self) -> Self {
        self.is_wanted = true;
        self
    }

    /// Adds what to do.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds what to do, if there is something.
    #[must_use]
    pub(crate) fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }

    /// What is wrong with the config, place by place.
    pub(crate) fn findings(&self) -> &[config::Problem] {
        &self.findings
    }

    /// Says it on stderr.
    pub(crate) fn tell(&self, output: &Output) -> Exit {
        self.say("error", output);
        self.exit
    }

    /// Says it on stderr as something that the command can live with.
    pub(crate) fn warn(&self, output: &Output) {
        self.say("warning", output);
    }

    fn say(&self, level: &str, output: &Output) {
        for (error, help) in &self.problems {
            output.talk(&format!("{level}: {error}"));
            if let Some(help) = help {
                output.talk(&format!("help: {help}"));
            }
        }
        if let Some(help) = &self.help {
            output.talk(&format!("help: {help}"));
        }
    }
}

/// What went wrong with stdout. Whoever closed it wants no more: that is no failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::silent(Exit::Ok);
        }
        Self::new(Exit::Failed, format!("cannot write: {error}"))
    }
}

impl From<config::Error> for Failure {
    fn from(error: config::Error) -> Self {
        let findings = error.problems().to_vec();
        let mut problems: Vec<(String, Option<String>)> =
            findings.iter().map(|problem| (problem.to_string(), problem.help.clone())).collect();
        if problems.is_empty() {
            problems.push((error.to_string(), None));
        }
        let help = match &error {
            config::Error::NotFound { .. } => Some(
                "mcp-host serve --demo needs none; else name one with --config FILE, any MCP client's will do"
                    .to_owned(),
            ),
            _ => error.help().map(str::to_owned),
        };
        Self { exit: Exit::Usage, problems, help, findings, is_wanted: false }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = exit_of(error.kind());
        // The chain is told outermost first; a cause that only repeats what was said adds nothing.
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        let help = help_for(error.kind(), &text, error.server());
        Self::new(exit, text).maybe_help(help)
    }
}

/// The exit code of an error of the library.
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

fn help_for(kind: ErrorKind, text: &str, server: Option<&str>) -> Option<String> {
    let server = server.unwrap_or("SERVER");
    match kind {
        ErrorKind::Unauthorized => Some(credentials(text, server)),
        ErrorKind::Timeout => Some(format!("raise `callTimeout` of `{server}` in the config")),
        _ => None,
    }
}

/// What helps with a server that wants other credentials: a login, where its refusal speaks of one, or what the config gives it.
pub(crate) fn credentials(refusal: &str, server: &str) -> String {
    if refusal.contains("mcp-host login") {
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
        assert!(!help[1].contains("login") && help[1].ends_with("mcp-host check --connect -v a"), "{help:?}");
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
