//! How to get tokens for a server, as far as the config says.

use std::fmt;
use std::path::PathBuf;

use url::Url;

use super::secret::Secret;

/// How requests to a server authenticate, besides the headers of the config.
///
/// ```
/// use mcp_host::config::{Auth, Remote};
///
/// let remote = Remote::new("https://example.com/mcp".parse()?).auth(Auth::Headers);
/// # Ok::<_, url::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Auth {
    /// They carry nothing besides the headers.
    Headers,
    /// They carry OAuth tokens, once the server asks for a token.
    OAuth(Box<OAuth>),
}

impl Default for Auth {
    fn default() -> Self {
        Self::OAuth(Box::default())
    }
}

/// OAuth settings from the config; the server and its authorization server provide the rest.
///
/// ```
/// use mcp_host::config::{Auth, OAuth, Remote};
///
/// let mut oauth = OAuth::default();
/// oauth.client_id = Some("my-agent".to_owned());
/// let remote = Remote::new("https://example.com/mcp".parse()?).auth(Auth::OAuth(oauth.into()));
/// # Ok::<_, url::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OAuth {
    /// The kind of grant.
    pub grant: Grant,
    /// The client id that is registered at the authorization server.
    pub client_id: Option<String>,
    /// The client's secret.
    pub client_secret: Option<Secret>,
    /// The URL of our client metadata document, which is also our client id.
    pub client_metadata_url: Option<Url>,
    /// The private key that the client authenticates with, in PEM.
    pub private_key: Option<Source>,
    /// The key id (`kid`) of `private_key`.
    pub key_id: Option<String>,
    /// The authorization server to use, at which the client is registered.
    pub issuer: Option<String>,
    /// Scopes to request in addition to those that the server wants.
    pub scopes: Vec<String>,
}

/// Who is granted access, and how.
///
/// ```
/// use mcp_host::config::{Grant, OAuth};
///
/// let mut oauth = OAuth::default();
/// oauth.grant = Grant::ClientCredentials;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Grant {
    /// A user, who signs in with a browser.
    #[default]
    Code,
    /// The client itself.
    ClientCredentials,
    /// A program, which presents a token from the platform that it runs on.
    Workload(Source),
    /// A user who has signed in with a company's identity provider.
    Enterprise(Box<Enterprise>),
}

/// A secret in the config, or the path of a file that holds one and is read on each use.
///
/// ```
/// use mcp_host::config::{Grant, OAuth, SecretSource};
///
/// let mut oauth = OAuth::default();
/// oauth.grant = Grant::Workload(SecretSource::File("/var/run/secrets/token".into()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A value in the config, with its variables substituted.
    Given(Secret),
    /// The path of a file that holds the secret.
    File(PathBuf),
}

/// A company's identity provider, and the ID token that it has issued for the user.
///
/// ```
/// use mcp_host::config::{Enterprise, Grant, OAuth, SecretSource};
///
/// let id_token = SecretSource::File("/run/user/1000/id-token".into());
/// let provider = Enterprise::new("https://idp.example.com/token".parse()?, "my-agent", id_token);
/// let mut oauth = OAuth::default();
/// oauth.grant = Grant::Enterprise(provider.into());
/// # Ok::<_, url::ParseError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enterprise {
    /// The identity provider's token exchange endpoint.
    pub token_endpoint: Url,
    /// Our client id at the identity provider.
    pub client_id: String,
    /// Our client secret at the identity provider.
    pub client_secret: Option<Secret>,
    /// The ID token that the identity provider has issued for the user.
    pub id_token: Source,
}

impl Enterprise {
    /// Returns an identity provider that needs no client secret.
    pub fn new(token_endpoint: Url, client_id: impl Into<String>, id_token: Source) -> Self {
        Self { token_endpoint, client_id: client_id.into(), client_secret: None, id_token }
    }
}

impl fmt::Debug for Enterprise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = self.token_endpoint.origin().ascii_serialization();
        f.debug_struct("Enterprise").field("token_endpoint", &origin).finish_non_exhaustive()
    }
}
