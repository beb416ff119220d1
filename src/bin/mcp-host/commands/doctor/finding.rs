//! The result of a check.

use serde::Serialize;

/// The checks in their order. Their numbers are stable.
pub(super) const CHECKS: [(&str, &str); 15] = [
    (FILES, "files"),
    (VARIABLES, "variables"),
    (COMMANDS, "commands"),
    (RUNTIMES, "runtimes"),
    (START, "start"),
    (REVISION, "revision"),
    (LOGIN, "login"),
    (TLS, "TLS and clock"),
    (NAMES, "names and numbers of tools"),
    (SCHEMAS, "schemas"),
    (TOKENS, "tokens"),
    (ORPHANS, "processes left behind"),
    (STATE, "state folder and keyring"),
    (PORT, "port and service"),
    (TWICE, "servers started twice"),
];

pub(super) const FILES: &str = "D01";
pub(super) const VARIABLES: &str = "D02";
pub(super) const COMMANDS: &str = "D03";
pub(super) const RUNTIMES: &str = "D04";
pub(super) const START: &str = "D05";
pub(super) const REVISION: &str = "D06";
pub(super) const LOGIN: &str = "D07";
pub(super) const TLS: &str = "D08";
pub(super) const NAMES: &str = "D09";
pub(super) const SCHEMAS: &str = "D10";
pub(super) const TOKENS: &str = "D11";
pub(super) const ORPHANS: &str = "D12";
pub(super) const STATE: &str = "D13";
pub(super) const PORT: &str = "D14";
pub(super) const TWICE: &str = "D15";

/// The checks of the config's content.
pub(super) const OF_CONFIG: [&str; 12] =
    [VARIABLES, COMMANDS, RUNTIMES, START, REVISION, LOGIN, TLS, NAMES, SCHEMAS, TOKENS, PORT, TWICE];

/// How severe a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// There was nothing to check.
    Unchecked,
    Ok,
    Warn,
    Fail,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Unchecked => "-",
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// A problem, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    #[serde(skip)]
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    pub(super) what: String,
    pub(super) help: String,
}

impl Finding {
    pub(super) fn fail(check: &'static str, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fail, server: None, what: what.into(), help: help.into() }
    }

    pub(super) fn warn(check: &'static str, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warn, ..Self::fail(check, what, help) }
    }

    /// Sets the server that the finding is about.
    pub(super) fn of(mut self, server: &str) -> Self {
        self.server = Some(server.to_owned());
        self
    }

    /// Returns the server that cannot be started because of this problem.
    pub(super) fn broken(&self) -> Option<&str> {
        self.server.as_deref().filter(|_| self.verdict == Verdict::Fail)
    }
}
