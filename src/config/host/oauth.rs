//! `host.auth` with `type: oauth`: from which issuer the endpoint accepts tokens, and which audience they must have.

use url::Url;

use crate::config::fields::{Field, Fields};
use crate::config::report::Report;
use crate::config::syntax::Value;
use crate::loopback::is_loopback;

/// How clients authenticate with tokens that an authorization server issues for this endpoint alone.
///
/// ```
/// use mcp_host::config::{HostAuth, HostOAuth, HostSettings};
///
/// let oauth = HostOAuth::new("https://login.example.com", "https://mcp.example.com/mcp").expect("two URLs");
/// let settings = HostSettings::default().auth(HostAuth::OAuth(oauth.into()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostOAuth {
    /// The issuer, exactly as in the token (`iss`).
    pub issuer: String,
    /// The audience, exactly as in the token (`aud`).
    pub audience: String,
    /// The URL at which clients reach the endpoint. They request tokens for this URL.
    pub resource: Url,
    /// The scopes that each token must have.
    pub scopes: Vec<String>,
    /// The text of `resource` as written in the config.
    id: String,
}

impl HostOAuth {
    /// Accepts tokens from this issuer for the endpoint at the URL `resource`. Returns `None` if either URL is not
    /// acceptable.
    #[must_use]
    pub fn new(issuer: &str, resource: &str) -> Option<Self> {
        of_issuer(issuer).ok()?;
        let url = of_resource(resource).ok()?;
        let (issuer, audience, id) = (issuer.to_owned(), resource.to_owned(), resource.to_owned());
        Some(Self { issuer, audience, resource: url, scopes: Vec::new(), id })
    }

    /// Returns the endpoint's resource identifier (RFC 9728): its URL exactly as written.
    #[must_use]
    pub fn resource_id(&self) -> &str {
        &self.id
    }
}

const ISSUER: &str =
    "name the authorization server by its URL, exactly as in its metadata: \"https://auth.example.com\"";
const AUDIENCE: &str =
    "name the audience of the tokens: the URL at which clients reach this host, \"https://box.example:8808/mcp\"";
const RESOURCE: &str = "`audience` is not a URL: set `resource` to the URL at which clients reach this host, \"https://box.example:8808/mcp\"";

/// Reads the keys of `host.auth` besides `type`.
pub(super) fn read(of: &Field<'_>, mut fields: Fields<'_>, report: &mut Report) -> Option<HostOAuth> {
    let [issuer, audience, resource, scopes] =
        ["issuer", "audience", "resource", "scopes"].map(|name| fields.take(&[name], report));
    fields.finish(&["type", "issuer", "audience", "resource", "scopes"], report);
    let scopes = scopes.map(|field| self::scopes(&field, report)).unwrap_or_default();
    let mut missing = |name: &str, help: &'static str| {
        report.problem(of.at, &format!("{}.{name}", of.path), "is missing").help(help);
    };
    if issuer.is_none() {
        missing("issuer", ISSUER);
    }
    if audience.is_none() {
        missing("audience", AUDIENCE);
    }
    let issuer = issuer.and_then(|field| url(&field, of_issuer, report));
    let field = audience?;
    let audience = field.text(report)?.to_owned();
    let is_url = audience.starts_with("https://") || audience.starts_with("http://");
    let resource = match resource {
        Some(resource) => url(&resource, of_resource, report),
        None if is_url => url(&field, of_resource, report),
        None => {
            report.problem(of.at, &format!("{}.resource", of.path), "is missing").help(RESOURCE);
            None
        }
    };
    let ((issuer, _), (id, resource)) = issuer.zip(resource)?;
    Some(HostOAuth { issuer, audience, resource, scopes, id })
}

/// Reads a URL that `judge` accepts. Returns it both as written and parsed.
fn url(field: &Field<'_>, judge: fn(&str) -> Judged, report: &mut Report) -> Option<(String, Url)> {
    let text = field.text(report)?;
    match judge(text) {
        Ok(url) => Some((text.to_owned(), url)),
        Err(what) => {
            report.problem(field.at, &field.path, format!("{} {what}", field.quote(text)));
            None
        }
    }
}

type Judged = Result<Url, &'static str>;

fn of_issuer(text: &str) -> Judged {
    let url = of_resource(text)?;
    if url.scheme() == "http" && !is_loopback(&url) { Err("is not an https URL") } else { Ok(url) }
}

/// Parses a URL that serves as an identifier: without credentials, query, or fragment.
fn of_resource(text: &str) -> Judged {
    let url = Url::parse(text).map_err(|_| "is not a URL")?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err("is not an https URL");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a user or a password");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has a query or a fragment");
    }
    Ok(url)
}

/// Reads scopes from a list, or from a text separated by whitespace.
fn scopes(field: &Field<'_>, report: &mut Report) -> Vec<String> {
    let scopes: Vec<String> = match field.node.value {
        Value::List(_) => field.texts(report),
        _ => field.text(report).unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
    };
    let legal = |byte: u8| (0x21..=0x7e).contains(&byte) && !matches!(byte, b'"' | b'\\');
    for scope in scopes.iter().filter(|scope| scope.is_empty() || !scope.bytes().all(legal)) {
        report.problem(field.at, &field.path, format!("{} is not a scope", field.quote(scope)));
    }
    scopes
}
