//! Why there is no token.

use crate::protocol::Theirs;

/// Why there is no token. No variant holds one, nor a body that was fetched.
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
    /// Somebody has to sign in first.
    #[error("somebody has to sign in")]
    LoginNeeded,
    /// It wants a token, and says nothing of where one signs in: most likely it takes an API key.
    #[error("it answered 401 and does not say where to sign in")]
    KeyNeeded,
    /// Its user has ended the login.
    #[error("its user has signed out")]
    SignedOut,
    /// Somebody is signing in just now.
    #[error("a login is under way")]
    LoginUnderWay,
    /// The user was asked, and there is no login.
    #[error("the login was not finished: {0}")]
    Declined(String),
    /// No answer came from somebody who hands out tokens or tells where they are.
    #[error("{reason}")]
    Unreachable {
        /// Who was asked, and what went wrong.
        reason: String,
        /// Whether not a byte of the request has left.
        unsent: bool,
    },
    /// What a server says of its authorization cannot be true, or is not safe to follow.
    #[error("{} {what}", Theirs(at))]
    Metadata {
        /// Whose word it is.
        at: String,
        /// What is wrong with it.
        what: String,
    },
    /// There is no way to be known to the authorization server.
    #[error("{} {what}", Theirs(issuer))]
    Client {
        /// The authorization server.
        issuer: String,
        /// What is missing, and what to do.
        what: String,
    },
    /// The authorization server said no.
    #[error("the authorization server refused: {code}")]
    Refused {
        /// Its error code, as OAuth has them.
        code: String,
    },
    /// What came back is no answer of OAuth.
    #[error("the authorization server answered {0}")]
    Malformed(&'static str),
    /// What came with the browser is not the answer to our question. Nothing of it is shown.
    #[error("what the browser brought back is not the end of this login: {0}")]
    Redirect(&'static str),
    /// A server wants more than was granted.
    #[error("it wants {}, which the login did not bring", named(.scope))]
    Scope {
        /// What it wants, as far as it said.
        scope: String,
    },
    /// The token is not taken, though it is new.
    #[error("it does not take the token that it was just given")]
    Useless,
    /// A key of the config cannot be used.
    #[error("{key} of the config: {what}")]
    Config {
        /// Which one.
        key: &'static str,
        /// What is wrong.
        what: String,
    },
    /// There is nothing that others could not guess.
    #[error("the system has no random numbers, without which nobody can sign in safely")]
    Random,
    /// Tokens cannot be kept, or read.
    #[error("what is kept of its login is out of reach: {0}")]
    Store(#[from] super::store::StoreError),
}

impl Error {
    /// Whether the same may go well a little later.
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

/// An error code as OAuth has them; anything else of a server's text is not repeated.
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
