//! One browser login: the page to open, and the check of the redirect with which the browser comes back
//! (`docs/hazards.md` H70).
//!
//! **Invariant:** `state`, PKCE verifier, issuer and redirect URI are fixed together at the start. If a redirect does
//! not match them, nothing in it is acted on or shown.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oauth2::PkceCodeChallenge;
use tokio::time::Instant;
use url::Url;

use super::discovery::Issuer;
use super::dpop::Proof;
use super::ongoing::Ongoing;
use super::registration::Client;
use super::{Error, error, jwt, place};

/// A browser login in progress.
pub(super) struct Attempt {
    pub(super) page: Url,
    state: String,
    pub(super) verifier: String,
    pub(super) issuer: Issuer,
    pub(super) client: Client,
    pub(super) redirect: Url,
    pub(super) resource: String,
    pub(super) scopes: Vec<String>,
    pub(super) proof: Option<Arc<Proof>>,
    begun: Instant,
    ongoing: Ongoing,
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("issuer", &self.issuer.issuer).finish_non_exhaustive()
    }
}

impl Attempt {
    /// Begins a login by creating the URL of the page to open. `redirect` is the URL to which the browser is sent back.
    pub(super) fn new(
        issuer: Issuer,
        client: Client,
        redirect: Url,
        resource: String,
        scopes: Vec<String>,
    ) -> Result<Self, Error> {
        let mut page = issuer.page()?.clone();
        issuer.checks_codes()?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let state = jwt::unguessable()?;
        {
            let mut query = page.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", &client.id)
                .append_pair("redirect_uri", redirect.as_str())
                .append_pair("code_challenge", challenge.as_str())
                .append_pair("code_challenge_method", "S256")
                .append_pair("state", &state);
            if !scopes.is_empty() {
                query.append_pair("scope", &scopes.join(" "));
            }
            query.append_pair("resource", &resource);
        }
        let page = place::page(place::AUTHORIZATION, page.as_str())?;
        let proof = if issuer.dpop { Some(Arc::new(Proof::generate()?)) } else { None };
        let verifier = verifier.into_secret();
        let begun = Instant::now();
        Ok(Self {
            page,
            state,
            verifier,
            issuer,
            client,
            redirect,
            resource,
            scopes,
            proof,
            begun,
            ongoing: Ongoing::default(),
        })
    }

    /// Reports the start and the end of this login through `ongoing`.
    pub(super) fn tells(self, ongoing: Ongoing) -> Self {
        Self { ongoing, ..self }
    }

    /// Ends the login; `is_done` says whether the user is signed in.
    pub(super) fn end(self, is_done: bool) {
        self.ongoing.end(is_done);
    }

    /// Returns the authorization code from `back`, the URL to which the browser was sent back. `limit` is how long a
    /// login may take.
    ///
    /// # Errors
    /// Fails if the URL does not belong to this login, comes too late, or contains an error.
    pub(super) fn code(&self, back: &str, limit: Duration) -> Result<String, Error> {
        let wrong = |what| Err(Error::Redirect(what));
        if self.begun.elapsed() > limit {
            return wrong("it came too late (host.limits.login)");
        }
        let Ok(back) = Url::parse(back.trim()) else { return wrong("it is not a URL") };
        if back.origin() != self.redirect.origin() || back.path() != self.redirect.path() {
            return wrong("it came to a different URL than the redirect URI");
        }
        let mut parts = Parts::default();
        for (name, value) in back.query_pairs() {
            let slot = match &*name {
                "state" => &mut parts.state,
                "iss" => &mut parts.issuer,
                "code" => &mut parts.code,
                "error" => &mut parts.error,
                _ => continue,
            };
            if slot.replace(value.into_owned()).is_some() {
                return wrong("it has a duplicate parameter");
            }
        }
        if parts.state.as_deref() != Some(&self.state) {
            return wrong("its state is not the one that was sent");
        }
        // Issuers are compared byte by byte: an issuer that nearly matches is another issuer.
        match parts.issuer {
            Some(issuer) if issuer != self.issuer.issuer => return wrong("it is from another issuer"),
            None if self.issuer.names_itself => {
                return wrong("it does not say which issuer it is from, although this issuer always does");
            }
            _ => {}
        }
        if let Some(text) = parts.error {
            return Err(Error::Refused { code: error::code(&text) });
        }
        parts.code.filter(|code| !code.is_empty()).ok_or(Error::Redirect("it has no code"))
    }
}

#[derive(Default)]
struct Parts {
    state: Option<String>,
    issuer: Option<String>,
    code: Option<String>,
    error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::super::registration::Method;
    use super::*;

    fn issuer(names_itself: bool, pkce: bool) -> Issuer {
        Issuer {
            issuer: "https://i.example".to_owned(),
            authorization: Some("https://i.example/authorize?tenant=1".parse().unwrap()),
            token: "https://i.example/token".parse().unwrap(),
            registration: None,
            revocation: None,
            device: None,
            scopes: Vec::new(),
            methods: None,
            client_documents: false,
            names_itself,
            dpop: false,
            pkce,
        }
    }

    const LOGIN: Duration = Duration::from_secs(10 * 60);

    fn attempt(names_itself: bool) -> Attempt {
        made(issuer(names_itself, true)).unwrap()
    }

    fn made(issuer: Issuer) -> Result<Attempt, Error> {
        let client = Client { id: "me".to_owned(), secret: None, method: Method::None, redirect: None, by_code: false };
        let redirect = "http://127.0.0.1:4321/callback".parse().unwrap();
        Attempt::new(issuer, client, redirect, "https://r.example/mcp".to_owned(), vec!["a".into(), "b".into()])
    }

    #[test]
    fn the_page_asks_for_what_is_wanted() {
        let attempt = attempt(false);
        let query: std::collections::HashMap<_, _> = attempt.page.query_pairs().into_owned().collect();
        for (name, value) in [
            ("tenant", "1"),
            ("response_type", "code"),
            ("client_id", "me"),
            ("redirect_uri", "http://127.0.0.1:4321/callback"),
            ("code_challenge_method", "S256"),
            ("scope", "a b"),
            ("resource", "https://r.example/mcp"),
        ] {
            assert_eq!(query[name], value);
        }
        assert_eq!((query["state"].len(), query["code_challenge"].len()), (43, 43));
        assert!(!attempt.page.as_str().contains(&attempt.verifier));
    }

    #[test]
    fn h69_no_login_without_s256() {
        assert!(matches!(made(issuer(false, false)), Err(Error::Metadata { .. })));
    }

    /// Gives the attempt a redirect with this query, in which STATE becomes the attempt's state.
    fn back(attempt: &Attempt, query: &str) -> Result<String, Error> {
        attempt.code(&format!("http://127.0.0.1:4321/callback?{}", query.replace("STATE", &attempt.state)), LOGIN)
    }

    #[test]
    fn h70_state_and_issuer_before_anything_else() {
        let iss = "iss=https%3A%2F%2Fi.example";
        for (names_itself, query, fine) in [
            (true, format!("code=c&state=STATE&{iss}"), true),
            (false, format!("code=c&state=STATE&{iss}"), true),
            (false, "code=c&state=STATE".to_owned(), true),
            (true, "code=c&state=STATE".to_owned(), false),
            (false, "code=c&state=STATE&iss=https://evil.example".to_owned(), false),
            (true, "code=c&state=STATE&iss=https://i.example/".to_owned(), false),
            (true, "code=c&state=STATE&iss=https://I.example".to_owned(), false),
            (true, "code=c&state=STATE&iss=https://i.example:443".to_owned(), false),
            (false, "code=c".to_owned(), false),
            (false, "code=c&state=".to_owned(), false),
            (false, "code=c&state=STATEx".to_owned(), false),
            (false, "code=c&state=STATE&state=STATE".to_owned(), false),
            (false, "code=c&code=d&state=STATE".to_owned(), false),
            (false, format!("code=c&state=STATE&{iss}&iss=https://evil.example"), false),
            (false, "state=STATE".to_owned(), false),
            (false, "code=&state=STATE".to_owned(), false),
        ] {
            let code = back(&attempt(names_itself), &query);
            assert_eq!(code.is_ok(), fine, "{query}");
            assert_eq!(code.is_err_and(|error| matches!(error, Error::Redirect(_))), !fine, "{query}");
        }
    }

    #[test]
    fn h70_an_error_counts_only_from_who_was_asked_and_its_text_is_not_shown() {
        let attempt = attempt(true);
        let denied = back(&attempt, "error=access_denied&error_description=x&state=STATE&iss=https://i.example");
        assert_eq!(denied, Err(Error::Refused { code: "access_denied".to_owned() }));
        let strange = back(&attempt, "error=%1b[2Jboo&state=STATE&iss=https://i.example");
        assert!(!strange.unwrap_err().to_string().contains("boo"));
        let other = back(&attempt, "error=boo&state=STATE&iss=https://evil.example").unwrap_err();
        assert!(matches!(other, Error::Redirect(_)) && !other.to_string().contains("evil"));
    }

    #[test]
    fn h70_only_at_the_place_that_was_agreed_on() {
        let attempt = attempt(false);
        for place in [
            "http://127.0.0.1:4322/callback",
            "http://localhost:4321/callback",
            "https://127.0.0.1:4321/callback",
            "http://127.0.0.1:4321/callback/",
            "http://127.0.0.1:4321/other",
        ] {
            let code = attempt.code(&format!("{place}?code=c&state={}", attempt.state), LOGIN);
            assert!(matches!(code, Err(Error::Redirect(_))), "{place}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn h70_ten_minutes() {
        let attempt = attempt(false);
        tokio::time::advance(LOGIN).await;
        assert!(back(&attempt, "code=c&state=STATE").is_ok());
        tokio::time::advance(Duration::from_millis(2)).await;
        assert_eq!(back(&attempt, "code=c&state=STATE"), Err(Error::Redirect("it came too late (host.limits.login)")));
    }
}
