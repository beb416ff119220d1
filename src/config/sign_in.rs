//! How tokens for a server are come by: what the config says of it.

use std::fmt;
use std::path::PathBuf;

use url::Url;

use super::secret::Secret;

/// How requests to a server prove whose they are, beside the headers of the config.
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
    /// By nothing else.
    Headers,
    /// By tokens of OAuth, once the server wants some.
    OAuth(Box<OAuth>),
}

impl Default for Auth {
    fn default() -> Self {
        Self::OAuth(Box::default())
    }
}

/// What is said of a login beforehand; the server and its authorization server tell the rest.
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
    /// Who is granted something, and by what.
    pub grant: Grant,
    /// A client that was registered with the authorization server.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<Secret>,
    /// Where a document about us lies; the URL is our name then.
    pub client_metadata_url: Option<Url>,
    /// The private key that the client proves itself with, in PEM.
    pub private_key: Option<Source>,
    /// The name of that key.
    pub key_id: Option<String>,
    /// The authorization server that is meant; the client belongs to it.
    pub issuer: Option<String>,
    /// What to ask for, beside what the server wants.
    pub scopes: Vec<String>,
}

/// Who is granted access, and by what.
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
    /// A user, who signs in by a browser.
    #[default]
    Code,
    /// The client itself.
    ClientCredentials,
    /// A program, by the token of the platform that it runs on.
    Workload(Source),
    /// A user who has signed in with the identity provider of a company.
    Enterprise(Box<Enterprise>),
}

/// A secret that the config has, or a file with one, which is read each time.
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
    /// As it stands in the config, after its variables.
    Given(Secret),
    /// In a file.
    File(PathBuf),
}

/// The identity provider of a company, and what it has said of the user.
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
    /// Where it exchanges tokens.
    pub token_endpoint: Url,
    /// Who we are there.
    pub client_id: String,
    /// Our secret there.
    pub client_secret: Option<Secret>,
    /// Its word about the user.
    pub id_token: Source,
}

impl Enterprise {
    /// An identity provider where we need no secret.
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
