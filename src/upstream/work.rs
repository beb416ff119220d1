//! The work that a lease's task awaits beside events, one piece at a time.

use futures_util::future::BoxFuture;

use super::gate::Pass;
use super::listing::Listed;
use crate::sandbox::Ready;
use crate::transport::Error;

/// Work in progress, whose end the task awaits together with other events.
pub(super) enum Work {
    /// The check of each file of the server's locked tree, and the preparation of its sandbox.
    Look(BoxFuture<'static, Result<Ready, Error>>),
    /// The handshake and the first listing.
    Shake(BoxFuture<'static, Result<Listed, Error>>),
    /// A rereading of the lists.
    Refresh(BoxFuture<'static, Result<Listed, Error>>),
    /// The wait for permission to reconnect (`gate.rs`).
    Queue(BoxFuture<'static, Option<Pass>>),
    /// The orderly close of the connection.
    Close(BoxFuture<'static, ()>),
}

/// How a piece of work ended.
pub(super) enum Done {
    Looked(Box<Result<Ready, Error>>),
    Shaken(Result<Listed, Error>),
    Refreshed(Result<Listed, Error>),
    Admitted(Option<Pass>),
    Closed,
}

/// Waits for the end of the work; forever if there is none.
pub(super) async fn done(work: &mut Option<Work>) -> Done {
    match work {
        Some(Work::Look(look)) => Done::Looked(Box::new(look.await)),
        Some(Work::Shake(shake)) => Done::Shaken(shake.await),
        Some(Work::Refresh(refresh)) => Done::Refreshed(refresh.await),
        Some(Work::Queue(turn)) => Done::Admitted(turn.await),
        Some(Work::Close(close)) => {
            close.await;
            Done::Closed
        }
        None => std::future::pending().await,
    }
}
