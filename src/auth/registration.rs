//! Our client id at an authorization server: the one in the config, else the URL of a client metadata document, else
//! one that the server gives us when we register, else none.
//!
//! **Invariant:** a client id belongs to one issuer and is shown to no other (`docs/hazards.md` H78). Only a client
//! metadata document is the same for all issuers, since it contains no secret.

use serde::{Deserialize, Serialize};
use url::Url;

use super::discovery::Issuer;
use super::web::Web;
use super::{Error, error};
use crate::config;

/// Our client id at one issuer, and how the client authenticates.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) secret: Option<String>,
    pub(super) method: Method,
    /// The redirect URI with which we registered the client, if we registered it for browser logins.
    pub(super) redirect: Option<String>,
    /// Whether we registered the client for device logins.
    #[serde(default)]
    pub(super) by_code: bool,
}

/// The way in which a user signs in, which a registration has to state.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way<'a> {
    /// In a browser that is redirected to this URL.
    Redirect(&'a Url),
    /// With a code that the user enters on a page (RFC 8628).
    Code,
}

/// How a client authenticates at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Method {
    None,
    ClientSecretBasic,
    ClientSecretPost,
    PrivateKeyJwt,
}

impl Method {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "client_secret_basic" => Self::ClientSecretBasic,
            "client_secret_post" => Self::ClientSecretPost,
            "private_key_jwt" => Self::PrivateKeyJwt,
            _ => return None,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ClientSecretBasic => "client_secret_basic",
            Self::ClientSecretPost => "client_secret_post",
            Self::PrivateKeyJwt => "private_key_jwt",
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("id", &self.id).field("method", &self.method).finish_non_exhaustive()
    }
}

/// Returns the client from the config, if there is one.
pub(super) fn given(config: &config::OAuth, issuer: &Issuer) -> Result<Option<Client>, Error> {
    let Some(id) = &config.client_id else { return Ok(None) };
    if config.issuer.as_ref().is_some_and(|bound| *bound != issuer.issuer) {
        let what = "is not the issuer that auth.clientId of the config is for (auth.issuer)".to_owned();
        return Err(Error::Client { issuer: issuer.issuer.clone(), what });
    }
    let secret = config.client_secret.as_ref().map(|secret| secret.expose().to_owned());
    let accepts =
        |method: Method| issuer.methods.as_ref().is_none_or(|all| all.iter().any(|one| one == method.as_str()));
    let method = match (&config.private_key, &secret) {
        (Some(_), _) => Method::PrivateKeyJwt,
        (None, Some(_)) if accepts(Method::ClientSecretBasic) || !accepts(Method::ClientSecretPost) => {
            Method::ClientSecretBasic
        }
        (None, Some(_)) => Method::ClientSecretPost,
        (None, None) => Method::None,
    };
    Ok(Some(Client { id: id.clone(), secret, method, redirect: None, by_code: false }))
}

/// Returns our client at this issuer for a user's login. `before` is the issuer of the current token, and our client
/// there.
pub(super) async fn client(
    web: &Web,
    config: &config::OAuth,
    issuer: &Issuer,
    way: Way<'_>,
    before: Option<(&str, &Client)>,
) -> Result<Client, Error> {
    if let Some(client) = given(config, issuer)? {
        return Ok(client);
    }
    if let (true, Some(document)) = (issuer.client_documents, &config.client_metadata_url) {
        let id = document.to_string();
        return Ok(Client { id, secret: None, method: Method::None, redirect: None, by_code: false });
    }
    if let Some((known, client)) = before
        && known == issuer.issuer
        && match way {
            Way::Redirect(redirect) => client.redirect.as_deref() == Some(redirect.as_str()),
            Way::Code => client.by_code,
        }
    {
        return Ok(client.clone());
    }
    register(web, issuer, endpoint(issuer)?, way).await
}

/// Reports whether [`client`] could return a client, as far as that is known without registering.
#[cfg(feature = "server")]
pub(super) fn is_possible(config: &config::OAuth, issuer: &Issuer) -> Result<(), Error> {
    let has_document = issuer.client_documents && config.client_metadata_url.is_some();
    if given(config, issuer)?.is_some() || has_document { Ok(()) } else { endpoint(issuer).map(drop) }
}

fn endpoint(issuer: &Issuer) -> Result<&Url, Error> {
    issuer.registration.as_ref().ok_or_else(|| {
        let what = "does not let clients register themselves: register one there, and put its id into auth.clientId";
        Error::Client { issuer: issuer.issuer.clone(), what: what.to_owned() }
    })
}

/// The grant type of a device login.
pub(super) const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";

#[derive(Serialize)]
struct Registration<'a> {
    client_name: &'static str,
    application_type: &'static str,
    redirect_uris: &'a [&'a str],
    grant_types: [&'static str; 2],
    response_types: &'static [&'static str],
    token_endpoint_auth_method: &'static str,
}

#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

async fn register(web: &Web, issuer: &Issuer, endpoint: &Url, way: Way<'_>) -> Result<Client, Error> {
    let wanted = wanted(issuer);
    let redirect = match way {
        Way::Redirect(redirect) => Some(redirect.as_str()),
        Way::Code => None,
    };
    let registration = Registration {
        client_name: env!("CARGO_PKG_NAME"),
        application_type: "native",
        redirect_uris: redirect.as_slice(),
        grant_types: [if redirect.is_some() { "authorization_code" } else { DEVICE_CODE }, "refresh_token"],
        response_types: if redirect.is_some() { &["code"] } else { &[] },
        token_endpoint_auth_method: wanted.as_str(),
    };
    let body = serde_json::to_vec(&registration).unwrap_or_default();
    let answer = web.post_json(endpoint, body).await?;
    if !matches!(answer.status, 200 | 201) {
        let code = serde_json::from_slice::<Refusal>(&answer.body).map(|refusal| error::code(&refusal.error));
        let why = code.map_or_else(|_| answer.status.to_string(), |code| format!("{} {code}", answer.status));
        let what = format!("did not register us ({why}): register a client there, and put its id into auth.clientId");
        return Err(Error::Client { issuer: issuer.issuer.clone(), what });
    }
    let registered: Registered =
        serde_json::from_slice(&answer.body).map_err(|_| Error::Malformed("with an invalid registration"))?;
    let printable = |text: &str| !text.is_empty() && text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    if !printable(&registered.client_id) || registered.client_secret.as_deref().is_some_and(|text| !printable(text)) {
        return Err(Error::Malformed("with an invalid registration"));
    }
    let method = match registered.token_endpoint_auth_method.as_deref().and_then(Method::named) {
        Some(method) => method,
        // A client that should have got a secret, but did not, has to authenticate without one.
        None if registered.client_secret.is_none() => Method::None,
        None => wanted,
    };
    Ok(Client {
        id: registered.client_id,
        secret: registered.client_secret,
        method,
        redirect: redirect.map(str::to_owned),
        by_code: redirect.is_none(),
    })
}

/// Returns the authentication method to register with. A program on a user's machine cannot keep a secret, so it avoids
/// methods with a secret if possible.
fn wanted(issuer: &Issuer) -> Method {
    let Some(methods) = &issuer.methods else { return Method::ClientSecretBasic };
    let mut order = [Method::None, Method::ClientSecretBasic, Method::ClientSecretPost].into_iter();
    order.find(|method| methods.iter().any(|one| one == method.as_str())).unwrap_or(Method::None)
}
