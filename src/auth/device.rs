//! One device login (RFC 8628): the user enters a code on a page, in any browser, while we poll for the token.
//!
//! **Invariant:** the page is checked like any page to which a browser is sent (`docs/hazards.md` H67), and the code is
//! one short line of plain characters. Polling is no faster than the issuer wants, and stops when the code expires.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use url::Url;

use super::authorizer::Authorizer;
use super::desk::{DeviceAuthorization, Polled};
use super::discovery::Issuer;
use super::dpop::Proof;
use super::ongoing::Ongoing;
use super::registration::{Client, Way};
use super::token::{Origin, Reply};
use super::{Error, Kept, place};

/// The default interval between polls, in seconds.
const PACE: i64 = 5;
/// The shortest interval that an issuer may ask for.
const FASTEST: Duration = Duration::from_secs(1);
/// The longest interval that an issuer may ask for.
const SLOWEST: Duration = Duration::from_secs(60);
/// By how much the error `slow_down` lengthens the interval.
const SLOWER: Duration = Duration::from_secs(5);
/// How long a code is tried whose stated lifetime is zero or less, which must be a mistake.
const MISTAKEN: Duration = Duration::from_secs(60);
/// The longest code that a person has to type, in characters.
const CODE_BYTES: usize = 64;

/// A device login in progress: show the page and the code to the user, then call [`Self::finish`]. Dropping this value
/// ends the login.
///
/// ```no_run
/// # async fn sign_in(host: &mcp_host::Host) -> Result<(), Box<dyn std::error::Error>> {
/// let login = host.device_login("github").await?;
/// println!("enter {} at {}", login.user_code(), login.verification_uri());
/// println!("the token is kept: {:?}", login.finish().await?);
/// # Ok(()) }
/// ```
pub struct DeviceLogin {
    authorizer: Arc<Authorizer>,
    code: Code,
    issuer: Issuer,
    client: Client,
    resource: String,
    scopes: Vec<String>,
    proof: Option<Arc<Proof>>,
    ongoing: Ongoing,
}

impl fmt::Debug for DeviceLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLogin").field("issuer", &self.issuer.issuer).finish_non_exhaustive()
    }
}

impl DeviceLogin {
    /// Returns the page on which the user enters the code: one clean URL of at most 8 KiB, with https or on this
    /// machine. Show its host name to the user.
    #[must_use]
    pub fn verification_uri(&self) -> &Url {
        &self.code.page
    }

    /// Returns the page with the code already in its URL, if the issuer gives one; it is checked like
    /// [`Self::verification_uri`]. Show the code anyway, so that the user can compare.
    #[must_use]
    pub fn verification_uri_complete(&self) -> Option<&Url> {
        self.code.complete.as_ref()
    }

    /// Returns the code that the user enters on the page: at most 64 printable ASCII characters.
    #[must_use]
    pub fn user_code(&self) -> &str {
        &self.code.user
    }

    /// Returns the issuer that the user signs in with.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer.issuer
    }

    /// Returns the time that remains until the code expires, at most `host.limits.login` from the start.
    #[must_use]
    pub fn expires_in(&self) -> Duration {
        self.code.end.saturating_duration_since(Instant::now())
    }

    /// Polls at the issuer's interval until the user has agreed. Stores the token, which is used from then on, and
    /// returns where it is stored.
    ///
    /// # Errors
    /// Fails if the user or the issuer refuses, or if nobody enters the code in time. There is no second try.
    ///
    /// # Cancel safety
    /// Dropping the future ends the login.
    pub async fn finish(mut self) -> Result<Kept, Error> {
        let ongoing = std::mem::take(&mut self.ongoing);
        let done = self.poll().await;
        ongoing.end(done.is_ok());
        done
    }

    async fn poll(&self) -> Result<Kept, Error> {
        let (issuer, client, resource) = (&self.issuer, &self.client, self.resource.as_str());
        let desk = self.authorizer.desk(issuer, client, resource, self.proof.clone()).await?;
        let asking = until(self.code.pace, self.code.end, || desk.device_code(&self.code.device));
        let Some(reply) = self.authorizer.keys.stop.run_until_cancelled(asking).await else {
            return Err(Error::Declined("the host has shut down".to_owned()));
        };
        let reply: Reply = reply?;
        let (requested, proof) = (&self.scopes[..], self.proof.as_deref());
        self.authorizer.signed_in(&reply, &Origin { issuer, resource, client, requested, proof }).await?;
        Ok(self.authorizer.kept())
    }
}

impl Authorizer {
    /// Begins a device login for this server.
    pub(crate) async fn begin_by_code(self: &Arc<Self>) -> Result<DeviceLogin, Error> {
        let hint = self.wanted_of_a_login().await?;
        let (resource, issuer) = self.chosen(&hint).await?;
        let Some(endpoint) = issuer.device.clone() else {
            let what = format!(
                "lets nobody sign in by a code (it names no device authorization endpoint): take `mcp-host login {}` \
                 without --device, and where no browser can come back, paste the address that it ends at",
                self.server
            );
            return Err(Error::Client { issuer: issuer.issuer, what });
        };
        let client = self.identity(&issuer, Way::Code).await?;
        let scopes = self.wanted(&hint, &resource, &issuer);
        let mut desk = self.desk(&issuer, &client, &resource.id, None).await?;
        desk.endpoint = endpoint;
        let code = Code::new(desk.device(&scopes).await?, self.keys.limits.login)?;
        let proof = if issuer.dpop { Some(Arc::new(Proof::generate()?)) } else { None };
        self.try_anew().await;
        let (authorizer, resource) = (self.clone(), resource.id);
        let ongoing = Ongoing::begin(&self.keys.told, &self.server);
        Ok(DeviceLogin { authorizer, code, issuer, client, resource, scopes, proof, ongoing })
    }
}

/// The checked response of a device authorization endpoint.
struct Code {
    device: String,
    user: String,
    page: Url,
    complete: Option<Url>,
    pace: Duration,
    end: Instant,
}

impl Code {
    fn new(answer: DeviceAuthorization, limit: Duration) -> Result<Self, Error> {
        let user = answer.user_code.trim();
        if !(1..=CODE_BYTES).contains(&user.len()) || !user.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
            return Err(Error::Malformed("with a code that cannot be typed"));
        }
        if answer.device_code.is_empty() {
            return Err(Error::Malformed("without a device code"));
        }
        let page = |text: &str| place::page("the page to enter the code at", text);
        let seconds = |number: i64| Duration::from_secs(u64::try_from(number).unwrap_or(0));
        let life = answer.expires_in.map_or(limit, |life| if life > 0 { seconds(life) } else { MISTAKEN });
        Ok(Self {
            page: page(&answer.verification_uri)?,
            complete: answer.verification_uri_complete.as_deref().map(page).transpose()?,
            user: user.to_owned(),
            device: answer.device_code,
            pace: seconds(answer.interval.unwrap_or(PACE)).clamp(FASTEST, SLOWEST),
            end: Instant::now() + life.min(limit),
        })
    }
}

/// Polls until there is a token or a final error, or until `end`. `pace` is the interval between polls; it doubles
/// while there is no usable response, and grows on `slow_down`.
async fn until<T, F>(mut pace: Duration, end: Instant, mut ask: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<Polled<T>, Error>>,
{
    let mut wait = pace;
    // Why the last poll had no usable response, and whether the response to any poll may have been lost.
    let (mut failed, mut lost) = (None, false);
    loop {
        let next = Instant::now() + wait;
        if next >= end {
            let late = || Error::Declined("nobody entered the code in time: begin again".to_owned());
            return Err(failed.unwrap_or_else(late));
        }
        sleep_until(next).await;
        let said = ask().await;
        failed = None;
        match said {
            Ok(Polled::Token(token)) => return Ok(token),
            Ok(Polled::Pending) => wait = pace,
            Ok(Polled::SlowDown) => {
                pace += SLOWER;
                wait = pace;
            }
            Ok(Polled::Nothing(error)) => {
                lost |= matches!(error, Error::Unreachable { unsent: false, .. });
                wait = (wait * 2).min(SLOWEST.max(pace));
                failed = Some(error);
            }
            // A code yields only one token, which may have been in a response that was lost.
            Err(Error::Refused { code }) if lost && code == "invalid_grant" => {
                let what = "the answer with the token seems to have been lost on the way: begin again";
                return Err(Error::Declined(what.to_owned()));
            }
            Err(Error::Refused { code }) if code == "expired_token" => {
                return Err(Error::Declined("the code has expired: begin again".to_owned()));
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(600);

    fn answer(more: &str) -> Result<Code, Error> {
        let text = format!(
            r#"{{"device_code":"d","user_code":"WDJB-MJHT","verification_uri":"https://a.example/device"{more}}}"#
        );
        // Of duplicates, the last wins.
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        Code::new(serde_json::from_value(value).unwrap(), LIMIT)
    }

    /// Polls with scripted answers; returns the result, and the second at which each poll happened.
    async fn asked(pace: u64, life: u64, script: Vec<Result<Polled<u8>, Error>>) -> (Result<u8, Error>, Vec<u64>) {
        let (begun, mut script, mut at) = (Instant::now(), VecDeque::from(script), Vec::new());
        let done = until(Duration::from_secs(pace), begun + Duration::from_secs(life), || {
            at.push(begun.elapsed().as_secs());
            std::future::ready(script.pop_front().unwrap_or(Ok(Polled::Pending)))
        });
        (done.await, at)
    }

    fn unreachable(unsent: bool) -> Result<Polled<u8>, Error> {
        Ok(Polled::Nothing(Error::Unreachable { reason: "away".to_owned(), unsent }))
    }

    fn refused(code: &str) -> Result<Polled<u8>, Error> {
        Err(Error::Refused { code: code.to_owned() })
    }

    #[tokio::test(start_paused = true)]
    async fn the_issuer_says_how_often_it_is_asked() {
        let script = vec![Ok(Polled::Pending), Ok(Polled::SlowDown), Ok(Polled::Pending), Ok(Polled::SlowDown)];
        let script = script.into_iter().chain([Ok(Polled::Token(1))]).collect();
        assert_eq!(asked(5, 600, script).await, (Ok(1), vec![5, 10, 20, 30, 45]));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_answer_is_asked_less_and_less_until_it_does() {
        let none = || Ok(Polled::Nothing(Error::Malformed("503")));
        let script = vec![none(), none(), none(), none(), none(), Ok(Polled::Pending), Ok(Polled::Token(1))];
        assert_eq!(asked(5, 600, script).await, (Ok(1), vec![5, 15, 35, 75, 135, 195, 200]));
        let (end, at) = asked(5, 600, (0..100).map(|_| unreachable(true)).collect()).await;
        assert_eq!((end, at.len()), (Err(Error::Unreachable { reason: "away".to_owned(), unsent: true }), 12));
    }

    #[tokio::test(start_paused = true)]
    async fn a_no_ends_it_and_so_does_time() {
        for code in ["access_denied", "invalid_client", "invalid_grant", "unknown"] {
            let (end, at) = asked(5, 600, vec![Ok(Polled::Pending), refused(code)]).await;
            assert_eq!((end, at), (Err(Error::Refused { code: code.to_owned() }), vec![5, 10]));
        }
        let (end, at) = asked(5, 600, vec![refused("expired_token")]).await;
        assert!(matches!(&end, Err(Error::Declined(what)) if what.contains("has expired")) && at == [5], "{end:?}");
        let (end, at) = asked(5, 21, Vec::new()).await;
        assert!(matches!(&end, Err(Error::Declined(what)) if what.contains("in time")), "{end:?}");
        assert_eq!(at, [5, 10, 15, 20]);
        // A code that expires before the first poll is never polled for.
        assert!(asked(60, 60, Vec::new()).await.1.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn h73_a_code_whose_token_was_lost_says_so() {
        let (end, at) = asked(5, 600, vec![unreachable(false), refused("invalid_grant")]).await;
        assert!(matches!(&end, Err(Error::Declined(what)) if what.contains("lost on the way")), "{end:?}");
        assert_eq!(at, [5, 15]);
        let (end, _) = asked(5, 600, vec![unreachable(true), refused("invalid_grant")]).await;
        assert_eq!(end, Err(Error::Refused { code: "invalid_grant".to_owned() }));
    }

    #[tokio::test(start_paused = true)]
    async fn h75_paces_and_lives_that_issuers_write() {
        let seconds = |code: Code| (code.pace.as_secs(), (code.end - Instant::now()).as_secs());
        for (more, want) in [
            ("", (5, 600)),
            (r#","interval":null,"expires_in":null"#, (5, 600)),
            (r#","interval":2,"expires_in":300"#, (2, 300)),
            (r#","interval":"7","expires_in":"30""#, (7, 30)),
            (r#","interval":0,"expires_in":0"#, (1, 60)),
            (r#","interval":-1,"expires_in":-5"#, (1, 60)),
            (r#","interval":1e300,"expires_in":1e300"#, (60, 600)),
            (r#","interval":[],"expires_in":{}"#, (5, 600)),
        ] {
            assert_eq!(seconds(answer(more).unwrap()), want, "{more}");
        }
    }

    #[tokio::test]
    async fn h67_only_a_clean_page_and_a_code_that_can_be_entered_are_shown() {
        for page in
            ["javascript:alert(1)", "http://a.example/", "https://u:p@a.example/", "https://a.example/#x", "-a", ""]
        {
            assert!(answer(&format!(r#","verification_uri":"{page}""#)).is_err(), "{page}");
            assert!(answer(&format!(r#","verification_uri_complete":"{page}""#)).is_err(), "{page}");
        }
        let of = |code: &str| answer(&format!(r#","user_code":{}"#, serde_json::to_string(code).unwrap()));
        for (length, legal) in [(CODE_BYTES - 1, true), (CODE_BYTES, true), (CODE_BYTES + 1, false)] {
            assert_eq!(of(&"X".repeat(length)).is_ok(), legal, "{length}");
        }
        for code in ["", " ", "A\nB", "\u{1b}[2J", "A\u{202e}B", "\u{0}"] {
            assert!(of(code).is_err(), "{code:?}");
        }
        assert_eq!(of(" 123 456 ").unwrap().user, "123 456");
        assert!(answer(r#","device_code":"""#).is_err());
    }
}
