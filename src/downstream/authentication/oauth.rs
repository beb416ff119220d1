//! The endpoint as an OAuth resource server: it accepts access tokens from one issuer for one audience, and challenges
//! clients without such a token (RFC 6750, RFC 9728).

use std::sync::Arc;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use super::jwt::{self, KeySet, TokenClaims, TokenPolicy, Wrong};
use super::keys::{Fetch, Keys, Unavailable};
use super::{AuthProgress, AuthResult, Lack, Proven, SignedClaims, challenged, token};
use crate::auth::{IssuerKeys, well_known};
use crate::config::{HostOAuth, Limits};
use crate::downstream::guard::Denied;
use crate::router::Principal;

/// Accepts the access tokens from one issuer.
#[derive(Clone, Debug)]
pub(crate) struct ResourceServer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: HostOAuth,
    wanted: TokenPolicy,
    keys: Arc<Keys>,
    challenges: Challenges,
    metadata: String,
    /// The paths at which the metadata document is served.
    paths: Vec<String>,
}

/// The values for `WWW-Authenticate`, one for each kind of refusal.
#[derive(Debug)]
struct Challenges {
    plain: HeaderValue,
    malformed: HeaderValue,
    invalid: HeaderValue,
    insufficient: HeaderValue,
}

const PROTECTED: &str = "oauth-protected-resource";
/// The paths that always serve the metadata, whatever the endpoint's public URL: a proxy may have stripped a prefix.
const PATHS: [&str; 2] = ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"];

impl ResourceServer {
    /// Applies the config, and starts to fetch the issuer's keys.
    pub(super) fn new(settings: &HostOAuth, limits: &Limits) -> Self {
        let keys = IssuerKeys::new(&settings.issuer, limits);
        Self::with(
            settings,
            limits,
            Box::new(move || {
                let keys = keys.clone();
                Box::pin(async move { keys?.fetch().await.map_err(|error| error.to_string()) })
            }),
        )
    }

    /// Applies the config, and gets the keys from `fetch`.
    pub(super) fn with(settings: &HostOAuth, limits: &Limits, fetch: Fetch) -> Self {
        Self::by(settings, Arc::new(Keys::new(settings.issuer.clone(), fetch, limits.oauth_request)))
    }

    /// Applies other settings. The keys are kept if the issuer stays the same.
    pub(super) fn anew(&self, settings: &HostOAuth, limits: &Limits) -> Self {
        if self.0.settings == *settings {
            self.clone()
        } else if self.0.settings.issuer == settings.issuer {
            Self::by(settings, self.0.keys.clone())
        } else {
            Self::new(settings, limits)
        }
    }

    /// Reports whether both accept the same tokens.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        self.0.settings == other.0.settings
    }

    /// Reports whether the issuer can have issued a token of this principal.
    #[cfg(feature = "cluster")]
    pub(super) fn issued(&self, principal: &Principal) -> bool {
        principal.is_of_issuer(&self.0.wanted.issuer)
    }

    fn by(settings: &HostOAuth, keys: Arc<Keys>) -> Self {
        let at = well_known(&settings.resource, PROTECTED, true);
        let mut paths = PATHS.map(str::to_owned).to_vec();
        paths.push(at.path().to_owned());
        let mut metadata = json!({
            "resource": settings.resource_id(),
            "authorization_servers": [settings.issuer],
            "bearer_methods_supported": ["header"],
        });
        if !settings.scopes.is_empty() {
            metadata["scopes_supported"] = json!(settings.scopes);
        }
        // If the audience is an origin, it is accepted with and without a trailing slash: both name the same resource.
        let audience = settings.audience.as_str();
        let bare = settings.resource.path() == "/" && settings.resource_id() == audience;
        let twin = bare.then(|| format!("{}/", audience.trim_end_matches('/')));
        let mut audiences = vec![audience.to_owned()];
        audiences.extend(twin.iter().map(|twin| twin.trim_end_matches('/').to_owned()));
        audiences.extend(twin);
        Self(Arc::new(Inner {
            wanted: TokenPolicy { issuer: settings.issuer.clone(), audiences },
            keys,
            challenges: Challenges::new(at.as_str(), &settings.scopes),
            metadata: metadata.to_string(),
            paths,
            settings: settings.clone(),
        }))
    }

    /// Returns the metadata document, if this is one of its paths.
    pub(super) fn metadata(&self, path: &str) -> Option<&str> {
        self.0.paths.iter().any(|known| known == path).then_some(&*self.0.metadata)
    }

    /// Authenticates a request. The result is pending only if the token's key is unknown and the token could still be
    /// valid.
    pub(super) fn authenticate(&self, headers: &HeaderMap) -> AuthProgress {
        let inner = &self.0;
        let token = match token(headers) {
            Ok(token) => token,
            Err(lack) => return AuthProgress::Done(Err(inner.lacks(&lack))),
        };
        let judged = match inner.keys.known() {
            Some(keys) => inner.judge(token, &keys),
            None => jwt::header(token).and(Err(Wrong::UnknownKey)),
        };
        match judged {
            Ok(told) => AuthProgress::Done(inner.admit(told)),
            Err(Wrong::Token(reason)) => AuthProgress::Done(Err(inner.invalid(reason))),
            Err(Wrong::UnknownKey) => {
                let (inner, token) = (inner.clone(), token.to_owned());
                AuthProgress::Pending(Box::pin(async move {
                    let keys = inner.keys.anew().await.map_err(|Unavailable| unavailable())?;
                    match inner.judge(&token, &keys) {
                        Ok(told) => inner.admit(told),
                        Err(Wrong::Token(reason)) => Err(inner.invalid(reason)),
                        Err(Wrong::UnknownKey) => {
                            Err(inner.invalid("the token is not signed with a key of the issuer"))
                        }
                    }
                }))
            }
        }
    }
}

impl Inner {
    fn judge(&self, token: &[u8], keys: &KeySet) -> Result<TokenClaims, Wrong> {
        jwt::judge(token, keys, &self.wanted)
    }

    /// Checks the scopes of a valid token.
    fn admit(&self, told: TokenClaims) -> AuthResult {
        if !self.settings.scopes.iter().all(|scope| told.scopes.contains(scope)) {
            let reason = "the token lacks a scope that the endpoint wants (host.auth.scopes)";
            return Err(challenged(StatusCode::FORBIDDEN, reason, self.challenges.insufficient.clone()));
        }
        let principal = Principal::oauth(&self.wanted.issuer, told.subject.as_deref(), told.client.as_deref());
        Ok(Proven::until(principal, told.until, SignedClaims { scopes: told.scopes, all: told.all }))
    }

    fn lacks(&self, lack: &Lack) -> Denied {
        match lack {
            Lack::Missing | Lack::NotBearer => {
                challenged(StatusCode::UNAUTHORIZED, lack.reason(), self.challenges.plain.clone())
            }
            Lack::Twice => challenged(StatusCode::BAD_REQUEST, lack.reason(), self.challenges.malformed.clone()),
        }
    }

    fn invalid(&self, reason: &'static str) -> Denied {
        challenged(StatusCode::UNAUTHORIZED, reason, self.challenges.invalid.clone())
    }
}

/// Returns the refusal while the issuer's keys are unavailable: without them, no client is let in.
fn unavailable() -> Denied {
    let reason = "the token cannot be checked: its issuer gives no keys (the log says why)";
    Denied { status: StatusCode::SERVICE_UNAVAILABLE, reason, more: Some((RETRY_AFTER, HeaderValue::from_static("5"))) }
}

impl Challenges {
    fn new(metadata: &str, scopes: &[String]) -> Self {
        let scope = if scopes.is_empty() { String::new() } else { format!(r#", scope="{}""#, scopes.join(" ")) };
        let challenge = |error: &str| {
            let error = if error.is_empty() { String::new() } else { format!(r#", error="{error}""#) };
            let text = format!(r#"Bearer resource_metadata="{metadata}"{scope}{error}"#);
            // URLs and scopes contain only characters that a header allows.
            HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(super::SCHEME))
        };
        Self {
            plain: challenge(""),
            malformed: challenge("invalid_request"),
            invalid: challenge("invalid_token"),
            insufficient: challenge("insufficient_scope"),
        }
    }
}
