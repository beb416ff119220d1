//! A login that ends with its connection: the process that began it may be killed before the person has signed in.
//!
//! In: `{"held":REQUEST}` with a request that begins a login. Out: its reply. After that, the connection carries no
//! data. **Invariant:** when the other side closes the connection, the login is abandoned, unless it was finished.
//! Daemons of older versions do not know this request; there a login stays until newer logins exceed the limit.

use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::reader::FeedReader;
use super::{AskError, Refused, SignIn, SignInReply, replies, sign_in};

/// How long the daemon may take to begin a login: it asks an authorization server.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Line<T> {
    held: T,
}

/// Begins a login, and ends it when the other side is gone.
///
/// # Errors
/// When the connection fails.
pub(super) async fn serve<F: Future<Output = Result<SignInReply, Refused>>>(
    answer: impl Fn(SignIn) -> F,
    request: &[u8],
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let request = serde_json::from_slice::<Line<SignIn>>(request);
    let begun = async {
        let Line { held } = request.map_err(|error| Refused::because(format!("not a request to sign in: {error}")))?;
        timeout(PATIENCE, answer(held))
            .await
            .unwrap_or_else(|_| Err(Refused::because("the login did not begin in time")))
    };
    let begun = tokio::select! {
        begun = begun => begun,
        // A login that has not begun before the other side goes never begins.
        () = gone(&mut input) => return Ok(()),
    };
    let told = output.write_all(format!("{}\n", replies::line_of(&begun)).as_bytes()).await;
    let login = match begun {
        Ok(SignInReply::Begun(begun)) => begun.login,
        Ok(SignInReply::BegunByCode(begun)) => begun.login,
        _ => return told,
    };
    if told.is_ok() {
        gone(&mut input).await;
    }
    // This has no effect if the login is over already.
    let _ = answer(SignIn::Abandon { login }).await;
    told
}

/// Waits until the other side closes the connection.
async fn gone(input: &mut (impl AsyncRead + Unpin)) {
    let mut piece = [0; 64];
    while input.read(&mut piece).await.is_ok_and(|read| read > 0) {}
}

/// The connection of a login that this process has begun at a daemon. The login ends when this is dropped, or when the
/// process ends, unless it is finished by then.
#[derive(Debug)]
pub struct HeldLogin {
    /// `None` if the daemon does not know such requests.
    _connection: Option<FeedReader>,
}

/// Begins a login at a daemon, with a request that begins one. Without a port, asks the only daemon. `T` is the type of the
/// reply, as [`SignInReply`] lists them.
///
/// ```no_run
/// # async fn example() -> Result<(), mcp_host::admin::AskError> {
/// use mcp_host::admin::{self, CodeBegun, SignIn};
///
/// let begin = SignIn::BeginByCode { server: "github".to_owned() };
/// if let Ok((CodeBegun { page, code, .. }, _held)) = admin::begin_login::<CodeBegun>(None, &begin).await? {
///     println!("go to {page} and enter {code}");
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn begin_login<T: DeserializeOwned>(
    port: Option<u16>,
    request: &SignIn,
) -> Result<Result<(T, HeldLogin), Refused>, AskError> {
    let (connection, first) = FeedReader::open(port, &replies::line(&Line { held: request })).await?;
    match replies::read(&first).map_err(AskError::Strange)? {
        Ok(reply) => Ok(Ok((reply, HeldLogin { _connection: Some(connection) }))),
        Err(refused) if refused.error.starts_with(super::UNKNOWN_REQUEST) => {
            Ok(sign_in(port, request).await?.map(|reply| (reply, HeldLogin { _connection: None })))
        }
        Err(refused) => Ok(Err(refused)),
    }
}
