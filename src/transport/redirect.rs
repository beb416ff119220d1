//! Redirects, followed manually: within the origin, a few at most, and a POST only if it stays a POST
//! (`docs/hazards.md` H28). No configured header and no message ever goes to another origin.

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, Method, Request, StatusCode};
use url::Url;

use super::helper::HelperHeaders;
use super::http::{Asked, replace, uri};
use super::{Error, Http, excerpt};
use crate::auth::{Authorizer, Held, Tries};
use crate::dial::Response;

/// The credentials that one request is sent with: the helper's headers, and an access token.
#[derive(Clone, Copy)]
struct Credentials<'a> {
    given: Option<&'a HelperHeaders>,
    held: Option<&'a Held>,
}

impl Http {
    /// Sends a request with the helper's headers and an access token, if there are any. Resends it with new credentials
    /// if the server may accept those. Returns the response, and the URL that it came from if that is not the first one.
    pub(super) async fn send(&self, asked: &Asked<'_>) -> Result<(Response, Option<Url>), Error> {
        if self.helper.is_none() && self.tokens.is_none() {
            return self.send_with(asked, Credentials { given: None, held: None }).await;
        }
        // Boxed, so that requests without credentials are small.
        Box::pin(self.send_with_credentials(asked)).await
    }

    async fn send_with_credentials(&self, asked: &Asked<'_>) -> Result<(Response, Option<Url>), Error> {
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
            let (response, place) = self.send_with(asked, credentials).await?;
            let status = response.status().as_u16();
            if let (Some(helper), Some(given)) = (&self.helper, &given) {
                let others = helper.judge(status, given, replaced).await?;
                if others {
                    replaced = true;
                    continue;
                }
            }
            let Some(tokens) = &self.tokens else { return Ok((response, place)) };
            let again = tokens.judge(status, response.headers(), held.as_ref(), &mut tries).await;
            match again {
                Ok(false) => return Ok((response, place)),
                Ok(true) => {}
                Err(reason) => return Err(Error::sign_in(tokens, reason)),
            }
        }
    }

    /// Sends a request and follows its redirects.
    async fn send_with(
        &self,
        asked: &Asked<'_>,
        credentials: Credentials<'_>,
    ) -> Result<(Response, Option<Url>), Error> {
        let (url, first) = asked.place.unwrap_or((&self.url, &self.uri));
        let mut elsewhere: Option<Url> = None;
        for _ in 0..=self.redirects {
            let url = elsewhere.as_ref().unwrap_or(url);
            let mut request = Request::new(Bytes::clone(&asked.body));
            *request.method_mut() = asked.method.clone();
            *request.uri_mut() = if elsewhere.is_none() { first.clone() } else { uri(url)? };
            *request.headers_mut() = self.headers_with(asked, url, credentials)?;
            let response = self.client.load().send(request).await.map_err(|error| self.failed(error))?;
            self.check_framing(&response)?;
            match self.target(&asked.method, url, &response)? {
                None => return Ok((response, elsewhere)),
                next => elsewhere = next,
            }
        }
        let most = self.redirects;
        Err(Error::Malformed(format!("{} redirects more than {most} times (host.limits.redirects)", self.origin)))
    }

    fn headers_with(
        &self,
        asked: &Asked<'_>,
        url: &Url,
        Credentials { given, held }: Credentials<'_>,
    ) -> Result<HeaderMap, Error> {
        let mut headers = self.headers(&asked.method);
        if let Some(given) = given {
            replace(&mut headers, given.headers.clone());
        }
        if let (Some(held), Some(tokens)) = (held, &self.tokens) {
            let token = Authorizer::headers(held, asked.method.as_str(), url);
            replace(&mut headers, token.map_err(|reason| Error::sign_in(tokens, reason))?);
        }
        if !asked.own.is_empty() {
            replace(&mut headers, asked.own.clone());
        }
        Ok(headers)
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
