//! Systems without local sockets: everything says so.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::{AskError, Error};

/// There is none.
#[derive(Debug)]
pub(super) struct Socket(Infallible);

impl Socket {
    pub(super) fn open(_: &[PathBuf], _: SocketAddr) -> Result<Self, Error> {
        Err(Error::Unsupported)
    }

    pub(super) async fn serve<F>(&self, _: impl Fn(Vec<u8>) -> F, _: &CancellationToken)
    where
        F: Future<Output = String>,
    {
        match self.0 {}
    }
}

pub(super) fn serving(_: &[PathBuf], _: SocketAddr) -> Option<u32> {
    None
}

pub(super) fn directories() -> Vec<PathBuf> {
    Vec::new()
}

pub(super) async fn ask(_: &[PathBuf], _: Option<u16>, _: &str) -> Result<String, AskError> {
    Err(AskError::Unsupported)
}
