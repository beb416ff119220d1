//! Requests of the page's API that come by the status socket: `{"NAME":{…}}`, with the members that the page sends.
//! What they do, and who may see what, is decided in `downstream/console`, as for the page's own requests.
//!
//! In: the line of a request. Out: one line, or many lines for a call. **Invariant:** a process that a host's server
//! has started may only read. A call whose reader goes away is cancelled. When the daemon stops, a call has as much
//! time to finish as other calls.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Refused, replies};

/// The beginning of the request that is answered by many lines.
pub(super) const CALL: &[u8] = br#"{"call""#;

/// A request.
#[derive(Debug)]
pub(crate) struct Act {
    pub(crate) name: String,
    /// The members of the request, in the form of the body that the page sends.
    pub(crate) body: Bytes,
    /// Whether a server of a host has started the process that asks.
    pub(crate) is_below: bool,
}

/// The answer to an [`Act`].
pub(crate) enum Acted {
    /// A JSON object.
    Line(Vec<u8>),
    /// Lines of JSON, as they come.
    Lines(BoxStream<'static, Bytes>),
}

/// The outcome of an [`Act`]; `None` if the API has no request of that name.
pub(crate) type ActAnswer = Option<Result<Acted, Refused>>;

impl Act {
    /// Reads a request.
    pub(crate) fn read(request: &[u8], is_below: bool) -> Option<Self> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_slice(request).ok()?;
        let mut members = members.into_iter();
        let (name, body) = members.next().filter(|_| members.len() == 0)?;
        Some(Self { name, body: Bytes::copy_from_slice(body.get().as_bytes()), is_below })
    }
}

/// Returns an answer as a line; `None` if there is no such request.
pub(super) fn line(answer: ActAnswer) -> Option<String> {
    match answer? {
        Ok(Acted::Line(text)) => Some(String::from_utf8_lossy(&text).into_owned()),
        Ok(Acted::Lines(_)) => None,
        Err(refused) => Some(replies::line(&refused)),
    }
}

/// Serves a call until its end, or until its reader is gone. After `stop` the call has `patience` to finish.
///
/// # Errors
/// When the connection fails.
pub(super) async fn serve(
    answer: impl Future<Output = Result<Acted, Refused>>,
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    (stop, patience): (&CancellationToken, Duration),
) -> io::Result<()> {
    let run = async {
        match answer.await {
            Ok(Acted::Lines(mut lines)) => {
                while let Some(line) = lines.next().await {
                    output.write_all(&line).await?;
                }
                Ok(())
            }
            Ok(Acted::Line(text)) => output.write_all(&[&text[..], b"\n"].concat()).await,
            Err(refused) => output.write_all(format!("{}\n", replies::line(&refused)).as_bytes()).await,
        }
    };
    let gone = async {
        let mut piece = [0; 64];
        while input.read(&mut piece).await? > 0 {}
        Ok(())
    };
    let late = async {
        stop.cancelled().await;
        sleep(patience).await;
    };
    tokio::select! {
        biased;
        ended = run => ended,
        gone = gone => gone,
        () = late => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_name_and_its_members() {
        let read = |request: &str| Act::read(request.as_bytes(), false).map(|act| (act.name, act.body));
        let body = Bytes::from_static(br#"{"tool":"a","arguments":{"n":1.0}}"#);
        let request = format!(r#"{{"call":{}}}"#, String::from_utf8_lossy(&body));
        assert_eq!(read(&request), Some(("call".to_owned(), body)));
        for wrong in ["", "status", "{}", "[]", r#"{"call":"#, r#"{"call":{},"cancel":{}}"#] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
