//! The clients that came to the socket of the daemon: how many there are, and the talk by which one is let in.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use super::client::{self, Grounds, No, Refusal};
use super::platform::Arrival;
use crate::hex;

/// How many there are. They count among `host.limits.connections`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guests(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    here: AtomicUsize,
    so_far: AtomicUsize,
}

/// A place among them, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Counts>);

impl Guests {
    pub(crate) fn count(&self) -> usize {
        self.0.here.load(Ordering::Relaxed)
    }

    /// How many there were since the start, those that left included.
    pub(crate) fn so_far(&self) -> usize {
        self.0.so_far.load(Ordering::Relaxed)
    }

    /// One more.
    pub(crate) fn seat(&self) -> Seat {
        self.0.here.fetch_add(1, Ordering::Relaxed);
        self.0.so_far.fetch_add(1, Ordering::Relaxed);
        Seat(self.0.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.here.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the daemon answers to it, and to the values.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) client: Said,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Said {
    Word(String),
    No { no: Refusal, why: String },
    Prove { boot: String, salt: String, compare: Vec<String> },
}

/// What the client proves of its variables.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Proven {
    pub(super) env: BTreeMap<String, String>,
}

/// A client that was let in says MCP from now on.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) arrival: Arrival,
    /// The highest id of a question that was put to it before.
    pub(crate) asked: u64,
}

/// Talks with a client that has come, and lets it in or not. `grounds` is asked where blocking is fine.
///
/// # Errors
/// When the client breaks off or dawdles.
pub(crate) async fn receive(
    mut arrival: Arrival,
    boot: &str,
    grounds: Result<impl FnOnce() -> Grounds + Send + 'static, No>,
) -> io::Result<Option<Admitted>> {
    let client = arrival.introduction.clone();
    let asked = client.asked_before();
    let judged = match grounds {
        Ok(grounds) => tokio::task::spawn_blocking(move || grounds().judge(&client)).await.map_err(io::Error::other)?,
        Err(no) => Err(no),
    };
    let wanted = match judged {
        Ok(wanted) => wanted,
        Err(no) => return refuse(arrival, no).await,
    };
    let mut salt = [0u8; 16];
    getrandom::fill(&mut salt).map_err(io::Error::other)?;
    let boot = boot.to_owned();
    arrival.say(&Reply { client: Said::Prove { boot, salt: hex::encode(&salt), compare: wanted.clone() } }).await?;
    if !wanted.is_empty() {
        let line = arrival.line().await?;
        let proven: Proven = serde_json::from_slice(&line).map_err(io::Error::other)?;
        if let Err(no) = client::same_values(&salt, &wanted, &proven.env, |name| std::env::var_os(name)) {
            return refuse(arrival, no).await;
        }
    }
    arrival.say(&Reply { client: Said::Word(OK.to_owned()) }).await?;
    Ok(Some(Admitted { arrival, asked }))
}

async fn refuse(mut arrival: Arrival, (no, why): No) -> io::Result<Option<Admitted>> {
    arrival.say(&Reply { client: Said::No { no, why } }).await?;
    Ok(None)
}

/// The word that lets a client in.
pub(super) const OK: &str = "ok";
