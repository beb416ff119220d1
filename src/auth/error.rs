//! Why there is no access token for a server.

use crate::protocol::Theirs;

/// Why there is no access token for a server. No variant holds a token or the body of a response.
///
/// ```
/// use mcp_host::auth::Error;
///
/// assert!(!Error::LoginNeeded.is_transient());
/// assert_eq!(Error::SignedOut.to_string(), "its user has signed out");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A user has to sign in first.
    #[error("somebody has to sign in")]
    LoginNeeded,
    /// The server wants a token but does not say where to sign in; most likely it takes an API key.
    #[error("it answered 401 and does not say where to sign in")]
    KeyNeeded,
    /// The user has signed out.
    #[error("its user has signed out")]
    SignedOut,
    /// A login is in progress.
    #[error("a login is in progress")]
    LoginUnderWay,
    /// The user was asked to sign in, but did not finish; the text says why.
    #[error("the login was not finished: {0}")]
    Declined(String),
    /// An authorization server, or a server with metadata about where to get tokens, did not answer.
    #[error("{reason}")]
    Unreachable {
        /// Which server did not answer, and what went wrong.
        reason: String,
        /// Whether it is certain that nothing of the request was sent.
        unsent: bool,
    },
    /// Authorization metadata is wrong, or not safe to follow.
    #[error("{} {what}", Theirs(at))]
    Metadata {
        /// The URL of the metadata, or a description of its source.
        at: String,
        /// What is wrong with it.
        what: String,
    },
    /// We have no usable client id at the authorization server.
    #[error("{} {what}", Theirs(issuer))]
    Client {
        /// The issuer, that is, the authorization server.
        issuer: String,
        /// What is missing, and what to do.
        what: String,
    },
    /// The authorization server refused to issue a token.
    #[error("the authorization server refused: {code}")]
    Refused {
        /// The OAuth error code in its response.
        code: String,
    },
    /// A response from an authorization server is not valid OAuth.
    #[error("the authorization server answered {0}")]
    Malformed(&'static str),
    /// The browser's redirect does not belong to this login. Nothing in it is shown.
    #[error("the redirect from the browser does not complete this login: {0}")]
    Redirect(&'static str),
    /// A server wants more scopes than were granted.
    #[error("it wants {}, which the login did not grant", named(.scope))]
    Scope {
        /// The scopes, separated by spaces; empty if the server did not name them.
        scope: String,
    },
    /// The server refuses a token that was just issued.
    #[error("it refuses a token that was just issued")]
    Useless,
    /// The value of a config key cannot be used.
    #[error("{key} of the config: {what}")]
    Config {
        /// The config key.
        key: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The system has no random numbers.
    #[error("the system has no random numbers, so nobody can sign in safely")]
    Random,
    /// Tokens cannot be stored or read.
    #[error("its stored login cannot be read: {0}")]
    Store(#[from] super::store::StoreError),
}

impl Error {
    /// Reports whether a retry may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::LoginUnderWay)
    }

    pub(super) fn metadata(at: &url::Url, what: impl Into<String>) -> Self {
        let mut at = at.clone();
        at.set_query(None);
        Self::Metadata { at: at.to_string(), what: what.into() }
    }
}

fn named(scope: &str) -> String {
    if scope.is_empty() { "a scope that it does not name".to_owned() } else { format!("the scope {:?}", Theirs(scope)) }
}

/// Returns the text if it has the form of an OAuth error code. Any other text from a server is not repeated.
pub(super) fn code(text: &str) -> String {
    let legal = !text.is_empty() && text.len() <= 64;
    let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if legal && plain { text.to_owned() } else { "an unknown error".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h105_whose_word_it_is_is_told_in_few_characters() {
        let long = format!("a\n\u{202e}{}", "x".repeat(1 << 20));
        let url = url::Url::parse(&format!("https://{}/", "x".repeat(1 << 20))).unwrap();
        let errors = [
            Error::metadata(&url, "has no metadata"),
            Error::Client { issuer: long.clone(), what: "did not register us".to_owned() },
            Error::Scope { scope: long },
        ];
        for error in errors {
            let why = error.to_string();
            assert!(why.len() < 1024 && !why.contains(['\n', '\u{202e}']), "{} bytes: {why:.300}", why.len());
        }
    }
}
