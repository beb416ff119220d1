//! Redirects, followed by hand: within the origin, a few of them, and a POST only where it stays one (`hazards.md` H28). No
//! header of the config, nor a message, ever goes to another origin.

use reqwest::header::{HeaderValue, LOCATION};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use url::Url;

use super::{Error, Http, excerpt};

/// Steps from one URL to another that one request may take.
const MOST: usize = 3;

impl Http {
    /// Sends a request that `fill` completes, and again to where it is redirected.
    pub(super) async fn send(
        &self,
        method: &Method,
        url: &Url,
        accept: &HeaderValue,
        fill: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, Error> {
        let mut elsewhere: Option<Url> = None;
        for _ in 0..=MOST {
            let url = elsewhere.as_ref().unwrap_or(url);
            let request = self.request_to(method.clone(), url.clone(), accept.clone());
            let response = fill(request).send().await.map_err(|error| self.failed(&error))?;
            self.check_framing(&response)?;
            match self.target(method, url, &response)? {
                None => return Ok(response),
                next => elsewhere = next,
            }
        }
        Err(Error::Malformed(format!("{} redirects more than {MOST} times", self.origin)))
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
                "{} redirects {method} to {shown:?}, {why}; put the final URL into the config",
                self.origin
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
