//! The reading side of a connection over HTTP: a future for each request over Streamable HTTP, and a task that reads the
//! one stream of HTTP with SSE.
//!
//! Closing the response stream of a modern request cancels that request. If the stream breaks, its request is lost; the
//! router decides whether to resend it, as after every loss.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::connection::Connection;
use super::{listing, renew, resume};
use crate::protocol::{Frame, Message, Method, Raw, Response, code};
use crate::transport::{Error, Http, Reply, Sse, SseStream};

/// How long a stream of HTTP with SSE may be silent before the server is pinged. Many servers send no comments on it,
/// and many proxies end a stream after a silent minute.
const SILENT: Duration = Duration::from_secs(30);

/// Posts a legacy request and reads its response, which may be a stream that breaks and is resumed (2025-11-25,
/// transports).
pub(super) async fn request(connection: Arc<Connection>, http: Arc<Http>, id: u64, frame: Frame) {
    if let Err(error) = http.may_ask() {
        return connection.lose_one(id, error);
    }
    match http.post(frame).await {
        Ok(Reply::Json(body) | Reply::Refused { body, .. }) => match connection.read(&body) {
            Ok(message) => connection.receive(Some(id), message),
            Err(no_message) => {
                if let Err(reason) = connection.take_batch(Some(id), &body, no_message) {
                    return connection.lose_one(id, Error::Malformed(format!("the answer is {reason}")));
                }
            }
        },
        Ok(Reply::Stream(stream)) => resume::follow(&connection, &http, id, *stream).await,
        Ok(Reply::Accepted { status }) => return connection.lose_one(id, no_answer(status)),
        Err(error) => {
            connection.failed(&error);
            return connection.lose_one(id, error);
        }
    }
    connection.lose_one(id, Error::Malformed("its response to a request holds no answer".to_owned()));
}

/// A request to a modern server.
pub(super) struct Post {
    pub(super) frame: Frame,
    pub(super) method: Method,
    /// The params exactly as they are in the frame.
    pub(super) params: Raw,
}

/// Posts a modern request and reads its response. A stream that breaks loses the request (2026-07-28, transports).
/// Dropping the future closes the stream, which cancels the request.
pub(super) async fn modern_request(connection: Arc<Connection>, http: Arc<Http>, id: u64, post: Post) {
    if let Err(error) = http.may_ask() {
        return connection.lose_one(id, error);
    }
    let mut again = post.method == Method::ToolsCall;
    loop {
        let heads = connection.heads(&post.method, &post.params);
        let answer = match http.post_with(post.frame.clone(), Some(&heads)).await {
            // A server that answers 500 or above reveals nothing about its era.
            Ok(Reply::Refused { status: status @ 500.., .. }) if post.method == Method::Discover => {
                Err(http.status(status))
            }
            Ok(reply) => answer(&connection, id, reply, again).await,
            Err(error) => {
                connection.failed(&error);
                Err(error)
            }
        };
        match answer {
            Ok(PostOutcome::Taken) => return,
            // The tool list has changed since it was read: retry once, with the headers the server wants now.
            Ok(PostOutcome::Mismatch) => again = false,
            Err(error) => return connection.lose_one(id, error),
        }
        renew::headers(&connection).await;
    }
}

enum PostOutcome {
    /// The response reached its exchange.
    Taken,
    /// The server expects other headers.
    Mismatch,
}

async fn answer(connection: &Arc<Connection>, id: u64, reply: Reply, again: bool) -> Result<PostOutcome, Error> {
    let mut stream = match reply {
        Reply::Stream(stream) => stream,
        Reply::Accepted { status } => return Err(no_answer(status)),
        Reply::Json(body) | Reply::Refused { body, .. } => {
            let message = connection.read(&body).map_err(|why| Error::Malformed(format!("the answer is {why}")))?;
            let wrong = || Error::Malformed("its response does not answer the request".to_owned());
            return hear(connection, id, message, again)?.ok_or_else(wrong);
        }
    };
    while let Some(data) = stream.next().await? {
        match connection.read(&data) {
            Ok(message) => {
                if let Some(answer) = hear(connection, id, message, again)? {
                    return Ok(answer);
                }
            }
            Err(reason) => tracing::warn!(server = connection.label(), "an event is not an MCP message: {reason}"),
        }
    }
    Err(Error::Broken)
}

/// Handles one message in the reply to the POST of request `id`. Returns `None` if the message is not the response. A
/// response without an id counts as the answer: the server may have been unable to read the id.
fn hear(connection: &Arc<Connection>, id: u64, message: Message, again: bool) -> Result<Option<PostOutcome>, Error> {
    let Response { id: named, outcome } = match message {
        Message::Response(response) => response,
        other => {
            connection.receive(Some(id), other);
            return Ok(None);
        }
    };
    if named.is_some_and(|named| connection.answered(&named) != Some(id)) {
        return Err(Error::Malformed("it answered a different request than the one it was sent".to_owned()));
    }
    if again && outcome.as_ref().is_err_and(|error| error.code == code::HEADER_MISMATCH) {
        return Ok(Some(PostOutcome::Mismatch));
    }
    connection.settle(id, outcome);
    Ok(Some(PostOutcome::Taken))
}

fn no_answer(status: u16) -> Error {
    Error::Malformed(format!("it answered a request with status {status} and nothing else"))
}

/// Opens the stream of a server over HTTP with SSE; a task reads it from then on.
pub(super) async fn attach(connection: &Arc<Connection>, sse: &Sse) -> Result<(), Error> {
    let stream = sse.open().await?;
    connection.tasks().spawn(read_sse(connection.clone(), stream));
    Ok(())
}

/// Posts a request over HTTP with SSE. The POST runs in a task: the response may be on the stream before the server has
/// accepted the POST, and aborting the POST then would cost the HTTP connection.
pub(super) fn post(connection: &Arc<Connection>, sse: &Arc<Sse>, id: u64, frame: Frame) {
    let (task, sse, stop) = (connection.clone(), sse.clone(), connection.stop_token().clone());
    let post = async move { stop.run_until_cancelled(task.deliver(&sse, Some(id), frame)).await };
    connection.tasks().spawn(connection.say_in_time(post));
}

/// Reads the stream of a server over HTTP with SSE. The session ends with the stream: nothing can be resumed.
async fn read_sse(connection: Arc<Connection>, mut stream: SseStream) {
    let stop = connection.stop_token().clone();
    let ended = stop.run_until_cancelled(async {
        let mut asked = Instant::now();
        loop {
            let silent = stream.silent_for(SILENT).max(asked + SILENT);
            tokio::select! {
                next = stream.next() => match next {
                    Ok(Some(data)) => connection.take(None, &data),
                    Ok(None) => break Error::Broken,
                    Err(error) => break error,
                },
                () = tokio::time::sleep_until(silent) => {
                    // SSE comments may have arrived meanwhile.
                    if stream.silent_for(SILENT) <= Instant::now() {
                        asked = Instant::now();
                        ping(&connection);
                    }
                }
            }
        }
    });
    let error = ended.await.unwrap_or(Error::Closed);
    connection.lose(&error);
}

/// Pings the server so that no proxy takes the silent stream for dead. The answer does not matter; if the session is
/// gone, the POST reports it.
fn ping(connection: &Arc<Connection>) {
    if connection.peer().is_none() {
        return;
    }
    let (task, stop) = (connection.clone(), connection.stop_token().clone());
    connection.tasks().spawn(async move {
        let ping = tokio::time::timeout(SILENT, listing::ask(&task, &Method::Ping, None));
        stop.run_until_cancelled(ping).await;
    });
}
