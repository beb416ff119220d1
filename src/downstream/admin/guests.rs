//! Clients that connect through the daemon's socket: their count, and the dialog that admits one.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use super::client::{self, Grounds, No, Refusal};
use super::platform::Arrival;
use crate::hex;

/// The number of connected clients. They count against `host.limits.connections`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guests(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    here: AtomicUsize,
    so_far: AtomicUsize,
}

/// The place of one connected client in the count; dropping it lowers the count.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Counts>);

impl Guests {
    pub(crate) fn count(&self) -> usize {
        self.0.here.load(Ordering::Relaxed)
    }

    /// Returns how many clients connected since the start, including those that left.
    pub(crate) fn so_far(&self) -> usize {
        self.0.so_far.load(Ordering::Relaxed)
    }

    /// Counts one more client.
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

/// A reply from the daemon, to a client's introduction or to its proofs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) client: ReplyBody,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum ReplyBody {
    Word(String),
    No { no: Refusal, why: String },
    Prove { boot: String, salt: String, compare: Vec<String> },
}

/// The digests of a client's environment variables, by name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct EnvProofs {
    pub(super) env: BTreeMap<String, String>,
}

/// A client that was admitted. From here on it speaks MCP.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) arrival: Arrival,
    /// The highest request id that an earlier host used for a question to this client.
    pub(crate) asked: u64,
    /// The view that it wants.
    pub(crate) view: Option<String>,
}

/// Runs the dialog with a new client, and admits or refuses it (`None`). `grounds` is called on the blocking pool.
///
/// # Errors
/// When the client disconnects or takes too long.
pub(crate) async fn receive(
    mut arrival: Arrival,
    boot: &str,
    grounds: Result<impl FnOnce() -> Grounds + Send + 'static, No>,
) -> io::Result<Option<Admitted>> {
    let client = arrival.introduction.clone();
    let (asked, view) = (client.asked_before(), client.wanted_view().map(str::to_owned));
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
    arrival
        .say(&Reply { client: ReplyBody::Prove { boot, salt: hex::encode(&salt), compare: wanted.clone() } })
        .await?;
    if !wanted.is_empty() {
        let line = arrival.line().await?;
        let proven: EnvProofs = serde_json::from_slice(&line).map_err(io::Error::other)?;
        if let Err(no) = client::same_values(&salt, &wanted, &proven.env, |name| std::env::var_os(name)) {
            return refuse(arrival, no).await;
        }
    }
    arrival.say(&Reply { client: ReplyBody::Word(OK.to_owned()) }).await?;
    Ok(Some(Admitted { arrival, asked, view }))
}

async fn refuse(mut arrival: Arrival, refusal: No) -> io::Result<Option<Admitted>> {
    let (no, why) = refusal;
    arrival.say(&Reply { client: ReplyBody::No { no, why } }).await?;
    Ok(None)
}

/// The reply that admits a client.
pub(super) const OK: &str = "ok";
