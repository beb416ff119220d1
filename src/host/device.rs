//! Logins by a code that the user enters at a page, for embedders and for the status socket.
//!
//! Over the socket nobody waits: whoever has shown the code asks again and again whether it is done. **Invariant:** a login
//! goes on only while somebody asks for it, and is forgotten when it is abandoned or over.

#[cfg(feature = "server")]
use std::collections::BTreeMap;
#[cfg(feature = "server")]
use std::sync::Mutex;
#[cfg(feature = "server")]
use std::time::Duration;

#[cfg(feature = "server")]
use futures_util::future::BoxFuture;
#[cfg(feature = "server")]
use serde_json::{Value, json};
#[cfg(feature = "server")]
use tokio::time::{Instant, timeout};

use super::Host;
#[cfg(feature = "server")]
use super::lock;
use crate::auth;
use crate::error::Error;

/// Logins that were begun over the status socket.
#[cfg(feature = "server")]
#[derive(Default)]
pub(super) struct Codes(Mutex<Begun>);

#[cfg(feature = "server")]
#[derive(Default)]
struct Begun {
    last: u64,
    waiting: BTreeMap<u64, Waiting>,
}

#[cfg(feature = "server")]
struct Waiting {
    end: Instant,
    /// Not here while somebody looks after it.
    finish: Option<BoxFuture<'static, Result<auth::Kept, auth::Error>>>,
}

/// So many may be under way; the oldest go first.
#[cfg(feature = "server")]
const UNDER_WAY: usize = 16;
/// So long goes on what somebody asks for; then they ask again.
#[cfg(feature = "server")]
const LOOK: Duration = Duration::from_secs(1);

impl Host {
    /// Begins a login for a server by a code (RFC 8628), for users whose browser cannot come back here. A login that is
    /// finished brings the server back.
    ///
    /// # Errors
    /// When there is no such server, it wants no tokens, it cannot be found out where they come from, or they are not given
    /// for a code there.
    pub async fn device_login(&self, server: &str) -> Result<auth::DeviceLogin, Error> {
        self.tokens(server)?.begin_by_code().await.map_err(|error| self.unauthorized(server, &error))
    }
}

#[cfg(feature = "server")]
impl Host {
    /// Begins a login, and tells what is to be shown.
    pub(super) async fn begin_by_code(&self, server: &str) -> Result<Value, String> {
        let login = self.device_login(server).await.map_err(|error| error.to_string())?;
        let mut answer = json!({
            "page": login.verification_uri(),
            "complete": login.verification_uri_complete(),
            "code": login.user_code(),
            "issuer": login.issuer(),
            "expiresIn": (login.expires_in() + Duration::from_millis(999)).as_secs(),
        });
        let now = Instant::now();
        let mut begun = lock(&self.0.codes.0);
        begun.waiting.retain(|_, waiting| waiting.end > now);
        while begun.waiting.len() >= UNDER_WAY {
            begun.waiting.pop_first();
        }
        begun.last += 1;
        let number = begun.last;
        let waiting = Waiting { end: now + login.expires_in(), finish: Some(Box::pin(login.finish())) };
        begun.waiting.insert(number, waiting);
        answer["login"] = number.into();
        Ok(answer)
    }

    /// Lets a login go on for a moment, and tells whether it is done.
    pub(super) async fn look(&self, number: u64) -> Result<Value, String> {
        let mut finish = match lock(&self.0.codes.0).waiting.get_mut(&number) {
            Some(waiting) => waiting.finish.take().ok_or("somebody else looks after this login")?,
            None => return Err("this login is over already".to_owned()),
        };
        let done = timeout(LOOK, &mut finish).await;
        let mut begun = lock(&self.0.codes.0);
        let Ok(done) = done else {
            // It may have been abandoned meanwhile.
            if let Some(waiting) = begun.waiting.get_mut(&number) {
                waiting.finish = Some(finish);
            }
            return Ok(json!({ "pending": true }));
        };
        begun.waiting.remove(&number);
        done.map(|kept| json!({ "signedIn": true, "kept": kept })).map_err(|error| error.to_string())
    }

    /// Forgets a login; whether it was under way.
    pub(super) fn abandon(&self, number: u64) -> Value {
        json!({ "abandoned": lock(&self.0.codes.0).waiting.remove(&number).is_some() })
    }
}
