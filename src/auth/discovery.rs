//! Finds out where the tokens for a server come from: by the server's metadata (RFC 9728), then by the authorization
//! server's metadata (RFC 8414, OpenID Connect), else by the defaults that MCP revision 2025-03-26 defines.
//!
//! **Invariant:** nothing but metadata is requested from an authorization server before two checks: the metadata of the
//! MCP server is about this MCP server, and the metadata of the issuer that it names states the same issuer
//! (`docs/hazards.md` H69).

use serde::Deserialize;
use url::Url;

use super::place::{covers, well_known};
use super::web::{Found, Web};
use super::{Error, place};

/// What a server's metadata says about the server as an OAuth resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// The server's resource identifier, exactly as its metadata states it.
    pub(super) id: String,
    /// The issuers that issue tokens for the server; empty if there is no metadata.
    pub(super) issuers: Vec<String>,
    pub(super) scopes: Option<Vec<String>>,
    /// Whether the server takes key-bound (DPoP) tokens, with proofs by an algorithm that we support.
    pub(super) dpop: bool,
}

#[derive(Deserialize)]
struct ResourceDocument {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    scopes_supported: Option<Vec<String>>,
    #[serde(default)]
    dpop_signing_alg_values_supported: Vec<String>,
    #[serde(default)]
    dpop_bound_access_tokens_required: bool,
}

/// An authorization server, as its checked metadata describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Issuer {
    pub(super) issuer: String,
    pub(super) authorization: Option<Url>,
    pub(super) token: Url,
    pub(super) registration: Option<Url>,
    pub(super) revocation: Option<Url>,
    pub(super) device: Option<Url>,
    pub(super) scopes: Vec<String>,
    /// The client authentication methods that the token endpoint accepts; `None` if the metadata does not say.
    pub(super) methods: Option<Vec<String>>,
    pub(super) client_documents: bool,
    /// Whether it always states its name in the redirect (`iss`).
    pub(super) names_itself: bool,
    /// Whether it issues key-bound (DPoP) tokens, with an algorithm that we support.
    pub(super) dpop: bool,
    /// Whether it supports PKCE with S256; this is assumed if there is no metadata.
    pub(super) pkce: bool,
}

impl Issuer {
    /// Returns the page on which a user signs in.
    pub(super) fn page(&self) -> Result<&Url, Error> {
        self.authorization.as_ref().ok_or_else(|| {
            let what = "does not support signing in with a browser: it has no authorization endpoint".to_owned();
            Error::Client { issuer: self.issuer.clone(), what }
        })
    }

    /// Checks that an authorization code is useless to everyone but the client that requested it, because of PKCE.
    pub(super) fn checks_codes(&self) -> Result<(), Error> {
        if self.pkce {
            return Ok(());
        }
        let what =
            "does not say that it supports PKCE with S256, without which authorization codes can be stolen".to_owned();
        Err(Error::Metadata { at: self.issuer.clone(), what })
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IssuerDocument {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
    scopes_supported: Vec<String>,
    code_challenge_methods_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    client_id_metadata_document_supported: bool,
    authorization_response_iss_parameter_supported: bool,
    dpop_signing_alg_values_supported: Vec<String>,
}

/// Fetches the metadata of the server at the URL `server`; `hint` is the URL of its metadata that a refusal named, if
/// any.
pub(super) async fn resource(web: &Web, server: &Url, hint: Option<&str>) -> Result<Resource, Error> {
    let mut places = Vec::new();
    if let Some(hint) = hint {
        let url = server.join(hint).map_err(|_| Error::metadata(server, "names metadata at an invalid URL"))?;
        if url.origin() != server.origin() {
            return Err(Error::metadata(server, "names metadata at another origin, where it is not fetched"));
        }
        places.push(url);
    }
    let own = [well_known(server, PROTECTED, true), well_known(server, PROTECTED, false)];
    places.extend(own.into_iter().filter(|url| !places.contains(url)).collect::<Vec<_>>());
    places.dedup();
    for url in places {
        if let Found::This(document) = web.document::<ResourceDocument>(&url).await? {
            return judged(document, &url, server);
        }
    }
    Ok(Resource { id: place::canonical(server), issuers: Vec::new(), scopes: None, dpop: false })
}

const PROTECTED: &str = "oauth-protected-resource";

fn judged(document: ResourceDocument, at: &Url, server: &Url) -> Result<Resource, Error> {
    let names = Url::parse(&document.resource).is_ok_and(|resource| covers(&resource, server));
    if !names {
        return Err(Error::metadata(at, "describes a resource other than this server"));
    }
    if document.authorization_servers.is_empty() {
        return Err(Error::metadata(at, "names no authorization server"));
    }
    let scopes = document.scopes_supported.filter(|scopes| scopes.iter().all(|scope| is_scope(scope)));
    let dpop = document.dpop_bound_access_tokens_required
        || document.dpop_signing_alg_values_supported.iter().any(|algorithm| algorithm == "ES256");
    Ok(Resource { id: document.resource, issuers: document.authorization_servers, scopes, dpop })
}

/// Fetches the metadata of an issuer.
pub(super) async fn issuer(web: &Web, issuer: &str) -> Result<Issuer, Error> {
    let wrong = |what: &str| Error::Metadata { at: "the authorization server".to_owned(), what: what.to_owned() };
    let base = Url::parse(issuer).map_err(|_| wrong("has a name that is not a URL"))?;
    if base.query().is_some() || base.fragment().is_some() || base.cannot_be_a_base() {
        return Err(wrong("has a URL with a query or a fragment"));
    }
    for url in places(&base) {
        if let Found::This(document) = web.document::<IssuerDocument>(&url).await? {
            if document.issuer != issuer {
                return Err(Error::metadata(&url, "names a different issuer than the one requested"));
            }
            return checked(document, &url);
        }
    }
    Err(Error::metadata(&base, "has no metadata of an authorization server"))
}

/// Returns the URLs at which an issuer may have metadata, in the order that the specification prescribes.
pub(super) fn places(base: &Url) -> Vec<Url> {
    let mut places =
        vec![well_known(base, "oauth-authorization-server", true), well_known(base, "openid-configuration", true)];
    let path = base.path().trim_end_matches('/');
    if !path.is_empty() {
        let mut inside = base.clone();
        inside.set_path(&format!("{path}/.well-known/openid-configuration"));
        places.push(inside);
    }
    places
}

/// Returns the issuer for a server that names none, which is the server itself. Its endpoints are those in its
/// metadata, or those that revision 2025-03-26 defines for servers without metadata.
pub(super) async fn itself(web: &Web, server: &Url) -> Result<Issuer, Error> {
    let origin = server.origin().ascii_serialization();
    let base = server.join("/").map_err(|_| Error::metadata(server, "has no origin"))?;
    let at = well_known(&base, "oauth-authorization-server", false);
    if let Found::This(document) = web.document::<IssuerDocument>(&at).await? {
        if document.issuer.trim_end_matches('/') != origin {
            return Err(Error::metadata(&at, "names a different issuer than the one requested"));
        }
        return checked(document, &at);
    }
    let endpoint = |path: &str| {
        let mut url = base.clone();
        url.set_path(path);
        url
    };
    Ok(Issuer {
        issuer: origin,
        authorization: Some(endpoint("/authorize")),
        token: endpoint("/token"),
        registration: Some(endpoint("/register")),
        revocation: None,
        device: None,
        scopes: Vec::new(),
        methods: None,
        client_documents: false,
        names_itself: false,
        dpop: false,
        pkce: true,
    })
}

fn checked(document: IssuerDocument, at: &Url) -> Result<Issuer, Error> {
    // Each endpoint is checked again when it is used; the page to open has rules of its own.
    let endpoint = |text: &Option<String>| match text.as_deref().map(Url::parse) {
        None => Ok(None),
        Some(Ok(url)) if matches!(url.scheme(), "https" | "http") => Ok(Some(url)),
        Some(_) => Err(Error::metadata(at, "names an endpoint that is not an https URL")),
    };
    let page = |text: &str| place::page(place::AUTHORIZATION, text);
    let authorization = document.authorization_endpoint.as_deref().map(page).transpose()?;
    let token = endpoint(&document.token_endpoint)?.ok_or_else(|| Error::metadata(at, "names no token endpoint"))?;
    Ok(Issuer {
        authorization,
        token,
        registration: endpoint(&document.registration_endpoint)?,
        revocation: endpoint(&document.revocation_endpoint)?,
        device: endpoint(&document.device_authorization_endpoint)?,
        issuer: document.issuer,
        scopes: document.scopes_supported,
        methods: document.token_endpoint_auth_methods_supported,
        client_documents: document.client_id_metadata_document_supported,
        names_itself: document.authorization_response_iss_parameter_supported,
        dpop: document.dpop_signing_alg_values_supported.iter().any(|algorithm| algorithm == "ES256"),
        pkce: document.code_challenge_methods_supported.iter().any(|method| method == "S256"),
    })
}

/// Reports whether a text is one scope (RFC 6749, 3.3).
pub(super) fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && !matches!(byte, b'"' | b'\\'))
}

/// Returns the scopes in a text that are separated by spaces, each once; invalid scopes are left out.
pub(super) fn scopes(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for scope in text.split(' ').filter(|scope| is_scope(scope)) {
        if !all.iter().any(|known| known == scope) {
            all.push(scope.to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> IssuerDocument {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_order_in_which_issuers_are_asked() {
        let at = |issuer: &str| places(&Url::parse(issuer).unwrap()).into_iter().map(String::from).collect::<Vec<_>>();
        assert_eq!(
            at("https://a.example/t1"),
            [
                "https://a.example/.well-known/oauth-authorization-server/t1",
                "https://a.example/.well-known/openid-configuration/t1",
                "https://a.example/t1/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            at("https://a.example"),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration",
            ]
        );
    }

    #[test]
    fn h69_metadata_without_s256_or_with_strange_endpoints() {
        let at = Url::parse("https://a.example/x").unwrap();
        let judge = |text: &str| checked(document(text), &at);
        let token = r#""token_endpoint":"https://a.example/token""#;
        assert!(!judge(&format!("{{{token}}}")).unwrap().pkce);
        assert!(!judge(&format!(r#"{{{token},"code_challenge_methods_supported":["plain"]}}"#)).unwrap().pkce);
        assert!(judge(&format!(r#"{{{token},"code_challenge_methods_supported":["S256"]}}"#)).unwrap().pkce);
        assert!(judge("{}").is_err());
        for endpoint in ["javascript:x", "file:///x", "x", "ftp://a/"] {
            assert!(judge(&format!(r#"{{"token_endpoint":"{endpoint}"}}"#)).is_err(), "{endpoint}");
            assert!(judge(&format!(r#"{{{token},"registration_endpoint":"{endpoint}"}}"#)).is_err(), "{endpoint}");
            assert!(judge(&format!(r#"{{{token},"authorization_endpoint":"{endpoint}"}}"#)).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn h69_the_server_must_speak_of_itself() {
        let server = Url::parse("https://a.example/mcp").unwrap();
        let judge = |text: &str| judged(serde_json::from_str(text).unwrap(), &server, &server);
        assert!(judge(r#"{"resource":"https://a.example/mcp","authorization_servers":["https://b.example"]}"#).is_ok());
        assert!(
            judge(r#"{"resource":"https://evil.example/mcp","authorization_servers":["https://b.example"]}"#).is_err()
        );
        assert!(judge(r#"{"resource":"https://a.example/mcp"}"#).is_err());
    }

    #[test]
    fn scopes_of_a_text() {
        assert_eq!(scopes("a  b a \"c d\\ e:f"), ["a", "b", "e:f"]);
    }
}
