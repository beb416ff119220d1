//! Redirects, followed manually: within the origin, a few at most, and a POST only if it stays a POST
//! (`docs/hazards.md` H28). No configured header and no message ever goes to another origin.

use reqwest::header::{HeaderValue, LOCATION};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use url::Url;

use super::helper::HelperHeaders;
use super::{Error, Http, excerpt};
use crate::auth::{Authorizer, Held, Tries};

/// The credentials that one request is sent with: the helper's headers, and an access token.
#[derive(Clone, Copy)]
struct Credentials<'a> {
    given: Option<&'a HelperHeaders>,
    held: Option<&'a Held>,
}

impl Http {
    /// Sends a request that `fill` completes, with the helper's headers and an access token, if there are any. Resends
    /// it with new credentials if the server may accept those.
    pub(super) async fn send(
        &self,
        method: &Method,
        url: &Url,
        accept: &HeaderValue,
        fill: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, Error> {
        let (mut tries, mut replaced) = (Tries::default(), false);
        loop {
            let given = match &self.helper {
                Some(helper) => Some(helper.headers().await?),
                None => None,
            };
            let held = match &self.tokens {
                Some(tokens) => tokens.credentials().await,
                None => None,
            };
            let credentials = Credentials { given: given.as_deref(), held: held.as_deref() };
            let response = self.send_with(method, url, accept, &fill, credentials).await?;
            let status = response.status().as_u16();
            if let (Some(helper), Some(given)) = (&self.helper, &given) {
                let others = helper.judge(status, given, replaced).await?;
                if others {
                    replaced = true;
                    continue;
                }
            }
            let Some(tokens) = &self.tokens else { return Ok(response) };
            let again = tokens.judge(status, response.headers(), held.as_ref(), &mut tries).await;
            match again {
                Ok(false) => return Ok(response),
                Ok(true) => {}
                Err(reason) => return Err(Error::sign_in(tokens, reason)),
            }
        }
    }

    /// Sends a request and follows its redirects.
    async fn send_with(
        &self,
        method: &Method,
        url: &Url,
        accept: &HeaderValue,
        fill: &impl Fn(RequestBuilder) -> RequestBuilder,
        Credentials { given, held }: Credentials<'_>,
    ) -> Result<Response, Error> {
        let mut elsewhere: Option<Url> = None;
        for _ in 0..=self.redirects {
            let url = elsewhere.as_ref().unwrap_or(url);
            let request = self.request_to(method.clone(), url.clone(), accept.clone());
            let request = match given {
                Some(given) => request.headers(given.headers.clone()),
                None => request,
            };
            let request = match (held, &self.tokens) {
                (Some(held), Some(tokens)) => {
                    let headers = Authorizer::headers(held, method.as_str(), url);
                    request.headers(headers.map_err(|reason| Error::sign_in(tokens, reason))?)
                }
                _ => request,
            };
            let response = fill(request).send().await.map_err(|error| self.failed(&error))?;
            self.check_framing(&response)?;
            match self.target(method, url, &response)? {
                None => return Ok(response),
                next => elsewhere = next,
            }
        }
        let most = self.redirects;
        Err(Error::Malformed(format!("{} redirects more than {most} times (host.limits.redirects)", self.origin)))
    }

    /// Returns the target of a redirect; `None` if the response is no redirect.
    fn target(&self, method: &Method, url: &Url, response: &Response) -> Result<Option<Url>, Error> {
        let keeps_method = match response.status() {
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => *method == Method::GET,
            _ => return Ok(None),
        };
        let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
        let refused = |why: &str| {
            let shown = excerpt(location.split(['?', '#']).next().unwrap_or_default().as_bytes(), 200);
            Error::Malformed(format!(
                "{} answered {}: it redirects {method} to {shown:?}, {why}; put the final URL into the config",
                self.place,
                response.status().as_u16()
            ))
        };
        if !keeps_method {
            return Err(refused("which would no longer be a POST"));
        }
        let target = url.join(location).map_err(|_| refused("which is not a URL"))?;
        if target.origin() != self.url.origin() {
            return Err(refused("another origin, to which nothing is sent"));
        }
        tracing::debug!("{} redirects {method}", self.origin);
        Ok(Some(target))
    }
}
