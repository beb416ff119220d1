//! Redirects, followed by hand: within the origin, a few of them, and a POST only where it stays one
//! (`docs/hazards.md` H28). No header of the config, nor a message, ever goes to another origin.

use reqwest::header::{HeaderValue, LOCATION};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use url::Url;

use super::helper::Given;
use super::{Error, Http, excerpt};
use crate::auth::{Authorizer, Held, Tries};

impl Http {
    /// Sends a request that `fill` completes, with the headers of the helper and the token that the server takes, if it takes
    /// one; again with others where it takes those.
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
            let response = self.send_with(method, url, accept, &fill, (given.as_deref(), held.as_deref())).await?;
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

    /// Sends a request, and again to where it is redirected.
    async fn send_with(
        &self,
        method: &Method,
        url: &Url,
        accept: &HeaderValue,
        fill: &impl Fn(RequestBuilder) -> RequestBuilder,
        (given, held): (Option<&Given>, Option<&Held>),
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

    /// Where a response sends us, if it does.
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
            return Err(refused("which would not be a POST any more"));
        }
        let target = url.join(location).map_err(|_| refused("which is no URL"))?;
        if target.origin() != self.url.origin() {
            return Err(refused("another origin, where nothing is sent to"));
        }
        tracing::debug!("{} redirects {method}", self.origin);
        Ok(Some(target))
    }
}
