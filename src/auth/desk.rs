//! Requests to a token endpoint and to related endpoints of an issuer: every grant that we use, with client
//! authentication and proof of possession (DPoP).

use std::sync::Arc;

use base64::Engine as _;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use oauth2::basic::{BasicErrorResponse, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse};
use oauth2::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use oauth2::http::{Request, Response};
use oauth2::{
    AsyncHttpClient, AuthType, AuthorizationCode, ClientId, ClientSecret, EndpointNotSet, EndpointSet, HttpRequest,
    HttpResponse, PkceCodeVerifier, RedirectUrl, RefreshToken, RequestTokenError, Scope, StandardRevocableToken,
    TokenUrl,
};
use serde::Deserialize;
use url::{Url, form_urlencoded};

use super::dpop::{Nonce, Proof};
use super::registration::{Client, DEVICE_CODE, Method};
use super::token::{self, Reply};
use super::web::Web;
use super::{Error, error, jwt};

type TokenClient = oauth2::Client<
    BasicErrorResponse,
    Reply,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;

/// An endpoint that issues or revokes tokens, and our client there.
pub(super) struct Desk {
    pub(super) web: Web,
    pub(super) endpoint: Url,
    pub(super) issuer: String,
    pub(super) client: Client,
    /// The resource for which tokens are requested; `None` for requests that do not ask for an access token.
    pub(super) resource: Option<String>,
    pub(super) key: Option<Signer>,
    pub(super) proof: Option<Arc<Proof>>,
}

/// The private key with which the client authenticates, and its key id.
#[derive(Debug)]
pub(super) struct Signer {
    pub(super) key: jwt::Key,
    pub(super) id: Option<String>,
}

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// The response to a token exchange (RFC 8693).
#[derive(Deserialize)]
struct Exchanged {
    access_token: String,
    issued_token_type: String,
}

/// The response of a device authorization endpoint.
#[derive(Deserialize)]
pub(super) struct DeviceAuthorization {
    pub(super) device_code: String,
    pub(super) user_code: String,
    pub(super) verification_uri: String,
    pub(super) verification_uri_complete: Option<String>,
    #[serde(default, deserialize_with = "token::seconds")]
    pub(super) expires_in: Option<i64>,
    #[serde(default, deserialize_with = "token::seconds")]
    pub(super) interval: Option<i64>,
}

/// How far a device login is, as the token endpoint tells on a poll.
#[derive(Debug)]
pub(super) enum Polled<T> {
    Token(T),
    /// The user has not finished yet.
    Pending,
    /// We poll too often.
    SlowDown,
    /// There was no usable response; the next poll may succeed.
    Nothing(Error),
}

impl Desk {
    fn oauth(&self) -> Result<TokenClient, Error> {
        let endpoint = TokenUrl::new(self.endpoint.to_string()).map_err(|_| Error::Malformed("with an invalid URL"))?;
        let client = oauth2::Client::new(ClientId::new(self.client.id.clone())).set_token_uri(endpoint);
        let secret = || ClientSecret::new(self.client.secret.clone().unwrap_or_default());
        Ok(match self.client.method {
            Method::ClientSecretBasic => client.set_client_secret(secret()).set_auth_type(AuthType::BasicAuth),
            Method::ClientSecretPost => client.set_client_secret(secret()).set_auth_type(AuthType::RequestBody),
            Method::None | Method::PrivateKeyJwt => client.set_auth_type(AuthType::RequestBody),
        })
    }

    /// Exchanges an authorization code for a token.
    pub(super) async fn code(&self, code: String, verifier: String, redirect: &Url) -> Result<Reply, Error> {
        let redirect = RedirectUrl::new(redirect.to_string()).map_err(|_| Error::Malformed("with an invalid URL"))?;
        let client = self.oauth()?.set_redirect_uri(redirect);
        let mut request = client.exchange_code(AuthorizationCode::new(code));
        request = request.set_pkce_verifier(PkceCodeVerifier::new(verifier));
        if let Some(resource) = &self.resource {
            request = request.add_extra_param("resource", resource.clone());
        }
        request.request_async(self).await.map_err(failed)
    }

    /// Exchanges a refresh token for a token.
    pub(super) async fn refresh(&self, token: &str) -> Result<Reply, Error> {
        let (client, token) = (self.oauth()?, RefreshToken::new(token.to_owned()));
        let mut request = client.exchange_refresh_token(&token);
        if let Some(resource) = &self.resource {
            request = request.add_extra_param("resource", resource.clone());
        }
        request.request_async(self).await.map_err(failed)
    }

    /// Gets a token by the client credentials grant.
    pub(super) async fn credentials(&self, scopes: &[String]) -> Result<Reply, Error> {
        let client = self.oauth()?;
        let mut request = client.exchange_client_credentials();
        request = request.add_scopes(scopes.iter().cloned().map(Scope::new));
        if let Some(resource) = &self.resource {
            request = request.add_extra_param("resource", resource.clone());
        }
        request.request_async(self).await.map_err(failed)
    }

    /// Exchanges a signed assertion, which another party has issued, for a token (RFC 7523).
    pub(super) async fn assertion(&self, assertion: &str, scopes: &[String]) -> Result<Reply, Error> {
        let scope = scopes.join(" ");
        let mut form = vec![("grant_type", JWT_BEARER), ("assertion", assertion)];
        form.extend((!scope.is_empty()).then_some(("scope", scope.as_str())));
        form.extend(self.resource.as_deref().map(|resource| ("resource", resource)));
        let answer = self.send(self.form(&form)?).await?;
        read(&answer)
    }

    /// Exchanges an ID token, at the identity provider that issued it, for an assertion that a server's issuer accepts
    /// (RFC 8693).
    pub(super) async fn exchange(
        &self,
        id_token: &str,
        issuer: &str,
        resource: &str,
        scopes: &[String],
    ) -> Result<String, Error> {
        let scope = scopes.join(" ");
        let mut form = vec![
            ("grant_type", TOKEN_EXCHANGE),
            ("requested_token_type", ID_JAG),
            ("audience", issuer),
            ("resource", resource),
            ("subject_token", id_token),
            ("subject_token_type", ID_TOKEN),
        ];
        form.extend((!scope.is_empty()).then_some(("scope", scope.as_str())));
        let answer = self.send(self.form(&form)?).await?;
        let exchanged: Exchanged = read(&answer)?;
        if exchanged.issued_token_type != ID_JAG {
            return Err(Error::Malformed("with another kind of token than requested"));
        }
        Ok(exchanged.access_token)
    }

    /// Begins a device login: requests a code that the user enters on a page (RFC 8628).
    pub(super) async fn device(&self, scopes: &[String]) -> Result<DeviceAuthorization, Error> {
        let scope = scopes.join(" ");
        let mut form = Vec::new();
        form.extend((!scope.is_empty()).then_some(("scope", scope.as_str())));
        form.extend(self.resource.as_deref().map(|resource| ("resource", resource)));
        let answer = self.send(self.form(&form)?).await?;
        if !answer.status().is_success() {
            return Err(refused(answer.body()));
        }
        serde_json::from_slice(answer.body()).map_err(|_| Error::Malformed("without a code to enter"))
    }

    /// Polls once for the token of a device login.
    pub(super) async fn device_code(&self, code: &str) -> Result<Polled<Reply>, Error> {
        let mut form = vec![("grant_type", DEVICE_CODE), ("device_code", code)];
        form.extend(self.resource.as_deref().map(|resource| ("resource", resource)));
        let answer = match self.send(self.form(&form)?).await {
            Err(error) if error.is_transient() => return Ok(Polled::Nothing(error)),
            answer => answer?,
        };
        if answer.status().is_success() {
            return read(&answer).map(Polled::Token);
        }
        match refused(answer.body()) {
            Error::Refused { code } if code == "authorization_pending" => Ok(Polled::Pending),
            Error::Refused { code } if code == "slow_down" => Ok(Polled::SlowDown),
            // The endpoint, or a proxy in front of it, is failing or overloaded.
            error if answer.status().is_server_error() || answer.status() == 429 => Ok(Polled::Nothing(error)),
            error => Err(error),
        }
    }

    /// Revokes a token (RFC 7009).
    pub(super) async fn revoke(&self, token: &str, hint: &str) -> Result<(), Error> {
        let answer = self.send(self.form(&[("token", token), ("token_type_hint", hint)])?).await?;
        if answer.status().is_success() { Ok(()) } else { Err(refused(answer.body())) }
    }

    /// Builds a request with these form fields and the client's authentication.
    fn form(&self, pairs: &[(&str, &str)]) -> Result<HttpRequest, Error> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(pairs);
        let mut request = Request::post(self.endpoint.as_str()).header(ACCEPT, JSON).header(CONTENT_TYPE, FORM);
        let secret = self.client.secret.as_deref().unwrap_or_default();
        match self.client.method {
            Method::ClientSecretBasic => {
                let part = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", part(&self.client.id), part(secret));
                let value = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
                request = request.header(AUTHORIZATION, value);
            }
            Method::ClientSecretPost => {
                form.append_pair("client_id", &self.client.id).append_pair("client_secret", secret);
            }
            Method::None | Method::PrivateKeyJwt => {
                form.append_pair("client_id", &self.client.id);
            }
        }
        request.body(form.finish().into_bytes()).map_err(|_| Error::Malformed("with an invalid URL"))
    }

    /// Sends a request, and retries it once if the endpoint wants a proof with a nonce.
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Error> {
        let (parts, body) = request.into_parts();
        let mut again = true;
        loop {
            let mut headers: HeaderMap = parts.headers.clone();
            if let Some(proof) = &self.proof {
                let proof = proof.of_request("POST", &self.endpoint, None, Nonce::Issuer)?;
                headers
                    .insert("dpop", HeaderValue::try_from(proof).map_err(|_| Error::Malformed("with an invalid URL"))?);
            }
            let answer = self.web.post_form(&self.endpoint, headers, self.signed(&body)?).await?;
            let new = self.proof.as_ref().is_some_and(|proof| proof.learn(&answer.headers, Nonce::Issuer));
            let wants_nonce =
                || serde_json::from_slice::<Refusal>(&answer.body).is_ok_and(|no| no.error == "use_dpop_nonce");
            if again && new && matches!(answer.status, 400 | 401) && wants_nonce() {
                again = false;
                continue;
            }
            // The response's content type does not matter: the body has to be JSON in any case.
            let response = Response::builder().status(answer.status).body(answer.body.to_vec());
            return response.map_err(|_| Error::Malformed("with no status"));
        }
    }

    /// Returns the body of a request. If the client authenticates with a signed assertion, that replaces the client id.
    fn signed(&self, body: &[u8]) -> Result<Bytes, Error> {
        let (Method::PrivateKeyJwt, Some(signer)) = (self.client.method, &self.key) else {
            return Ok(Bytes::copy_from_slice(body));
        };
        let assertion = jwt::assertion(&signer.key, signer.id.as_deref(), &self.client.id, &self.issuer)?;
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(form_urlencoded::parse(body).filter(|(name, _)| name != "client_id"));
        form.append_pair("client_assertion_type", ASSERTION).append_pair("client_assertion", &assertion);
        Ok(form.finish().into())
    }
}

impl<'c> AsyncHttpClient<'c> for Desk {
    type Error = Error;
    type Future = BoxFuture<'c, Result<HttpResponse, Error>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}

fn read<T: serde::de::DeserializeOwned>(answer: &HttpResponse) -> Result<T, Error> {
    if !answer.status().is_success() {
        return Err(refused(answer.body()));
    }
    serde_json::from_slice(answer.body()).map_err(|_| Error::Malformed("without a token"))
}

fn refused(body: &[u8]) -> Error {
    match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) => Error::Refused { code: error::code(&refusal.error) },
        Err(_) => Error::Malformed("with an error that is not an OAuth error"),
    }
}

fn failed(failure: RequestTokenError<Error, BasicErrorResponse>) -> Error {
    match failure {
        RequestTokenError::ServerResponse(response) => Error::Refused { code: error::code(response.error().as_ref()) },
        RequestTokenError::Request(error) => error,
        RequestTokenError::Parse(..) => Error::Malformed("with neither a token nor an OAuth error"),
        RequestTokenError::Other(_) => Error::Malformed("with nothing"),
    }
}
