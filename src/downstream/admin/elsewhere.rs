//! The stand-in for `unix.rs` on systems without local sockets: opening or asking a socket fails with `Unsupported`.
//! The types with an `Infallible` field never have a value.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::at::At;
use super::client::Introduction;
use super::{AskError, Error};

/// A socket, which never exists on these systems.
#[derive(Debug)]
pub(super) struct Socket(Infallible);

impl Socket {
    pub(super) fn open(_: &[PathBuf], _: &At, _: &str) -> Result<Self, Error> {
        Err(Error::Unsupported)
    }

    pub(super) async fn serve<F, E, G>(
        &self,
        _: impl Fn(Vec<u8>, Peer) -> F,
        _: impl Fn(Vec<u8>, Asker) -> E,
        _: impl Fn(Arrival) -> G,
        _: &CancellationToken,
    ) where
        F: Future<Output = String>,
        E: Future<Output = io::Result<()>>,
        G: Future<Output = ()>,
    {
        match self.0 {}
    }
}

/// The process that asked, which never exists on these systems.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(Infallible);

impl Peer {
    pub(super) async fn is_below_a_host(self) -> bool {
        match self.0 {}
    }
}

/// A process that asked for many lines, which never happens on these systems.
#[derive(Debug)]
pub(super) struct Asker(Infallible);

impl Asker {
    pub(super) fn peer(&self) -> Peer {
        match self.0 {}
    }

    pub(super) fn pipes(self) -> (tokio::io::Empty, tokio::io::Empty) {
        match self.0 {}
    }
}

/// A connection to a daemon, which never exists on these systems.
pub(super) type Feed = tokio::io::Empty;

pub(super) const ANSWER_BYTES: u64 = 0;

pub(super) async fn ask_for_feed(_: &[PathBuf], _: Option<u16>, _: &str) -> Result<(PathBuf, Feed), AskError> {
    Err(AskError::Unsupported)
}

/// A client's arrival, which never happens on these systems.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(super) introduction: Introduction,
    never: Infallible,
}

impl Arrival {
    pub(super) async fn say(&mut self, _: &impl serde::Serialize) -> io::Result<()> {
        match self.never {}
    }

    pub(super) async fn line(&mut self) -> io::Result<Vec<u8>> {
        match self.never {}
    }

    pub(crate) fn pipes(self) -> (tokio::io::Empty, tokio::io::Empty) {
        match self.never {}
    }
}

pub(super) fn serving(_: &[PathBuf], _: SocketAddr) -> Option<u32> {
    None
}

pub(super) fn directories_of(_: &At) -> Vec<PathBuf> {
    Vec::new()
}

pub(super) fn directories() -> Vec<PathBuf> {
    Vec::new()
}

pub(super) async fn ask(_: &[PathBuf], _: Option<u16>, _: &str) -> Result<String, AskError> {
    Err(AskError::Unsupported)
}
