//! The definitions and certificates that wait for a person's approval, as the page and the status socket show them.
//! Both approve exactly what was shown, by its hash.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::Transport;
use crate::dial::Changed;
use crate::hex;
use crate::keep;
use crate::manager::Server;
use crate::pins::Waiting;
use crate::router::{OpenAsk, Router};

/// What waits for a person's approval.
#[derive(Debug, Serialize)]
pub(crate) struct Approvals {
    definitions: Vec<Definitions>,
    certificates: Vec<Certificate>,
    asks: Vec<OpenAsk>,
}

/// The definitions of one server that are not approved.
#[derive(Debug, Serialize)]
struct Definitions {
    server: String,
    /// The hash of all of them as they are shown here.
    hash: String,
    items: Vec<Waiting>,
}

/// A certificate that was trusted on first use and has changed.
#[derive(Debug, Serialize)]
struct Certificate {
    server: String,
    origin: String,
    known: String,
    /// The fingerprint that the server shows now.
    hash: String,
}

/// A person's approval of what was shown of one server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Approval {
    kind: ApprovalKind,
    server: String,
    hash: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ApprovalKind {
    Definitions,
    Certificate,
}

/// Why nothing was approved.
#[derive(Debug)]
pub(crate) enum NotApproved {
    /// The config has no server of that name.
    Unknown(String),
    /// What waits has changed since it was shown.
    Changed(String),
    /// A record cannot be read or written.
    Failed(String),
}

impl Approvals {
    /// Returns what waits for approval at this host.
    ///
    /// # Errors
    /// With one sentence, if a record cannot be read.
    pub(crate) async fn of(router: &Router) -> Result<Self, String> {
        let mut definitions: Vec<Definitions> = Vec::new();
        for item in waiting(router).await? {
            match definitions.iter_mut().find(|one| one.server == item.server) {
                Some(one) => one.items.push(item),
                None => {
                    let server = item.server.clone();
                    definitions.push(Definitions { server, hash: String::new(), items: vec![item] });
                }
            }
        }
        for one in &mut definitions {
            one.hash = hash(&one.items);
        }
        let asks = router.clients().asks().list();
        Ok(Self { definitions, certificates: certificates(router).await?, asks })
    }
}

impl Approval {
    /// Approves what was shown, if it still waits unchanged. Returns how many definitions or certificates were
    /// approved.
    ///
    /// # Errors
    /// If it has changed, or if a record cannot be written. Then nothing is approved.
    pub(crate) async fn give(&self, router: &Router) -> Result<usize, NotApproved> {
        let servers = router.manager().servers();
        let is_it =
            |server: &&Arc<Server>| server.config.name == self.server || server.config.alias.as_str() == self.server;
        let unknown = || NotApproved::Unknown(format!("no server is called {:?}", self.server));
        let server = servers.iter().find(is_it).ok_or_else(unknown)?;
        let name = &server.config.name;
        let changed = || NotApproved::Changed(format!("what waits of {name:?} is not what was shown"));
        match self.kind {
            ApprovalKind::Definitions => {
                let mut items = waiting(router).await.map_err(NotApproved::Failed)?;
                items.retain(|item| item.server == *name);
                if items.is_empty() || hash(&items) != self.hash {
                    return Err(changed());
                }
                let done = router.manager().approve(&items).await;
                match done.map_err(|error| NotApproved::Failed(error.to_string()))? {
                    0 => Err(changed()),
                    done => Ok(done),
                }
            }
            ApprovalKind::Certificate => {
                let Some(origin) = believed(&server.config.transport) else { return Err(changed()) };
                let kept = router.manager().certificates();
                let done = kept.accept(&origin, &self.hash).await;
                if !done.map_err(|error| NotApproved::Failed(error.to_string()))? {
                    return Err(changed());
                }
                // The server was given up when it showed the certificate.
                server.upstreams().iter().for_each(|upstream| upstream.retry());
                Ok(1)
            }
        }
    }
}

/// Returns the definitions that wait for a person. Servers with a lock have none: there the lock decides.
async fn waiting(router: &Router) -> Result<Vec<Waiting>, String> {
    let waiting = router.manager().unapproved().await.map_err(|error| error.to_string())?;
    let servers = router.manager().servers();
    let is_locked =
        |name: &str| servers.iter().any(|server| server.config.name == name && server.config.locked.is_some());
    Ok(waiting.into_iter().filter(|item| !is_locked(&item.server)).collect())
}

async fn certificates(router: &Router) -> Result<Vec<Certificate>, String> {
    let kept = router.manager().certificates();
    let changed = keep::done(move || kept.changed()).await.map_err(|error| error.to_string())?;
    let servers = router.manager().servers();
    let item = |server: &Arc<Server>| {
        let origin = believed(&server.config.transport)?;
        let Changed { known, shown, .. } = changed.iter().find(|changed| changed.origin == origin)?.clone();
        Some(Certificate { server: server.config.name.clone(), origin, known, hash: shown })
    };
    Ok(servers.iter().filter_map(item).collect())
}

/// Returns the origin of a server whose certificate is trusted on first use.
fn believed(transport: &Transport) -> Option<String> {
    let (Transport::Http(remote) | Transport::Sse(remote) | Transport::Auto(remote)) = transport else { return None };
    remote.tls.trust_on_first_use.then(|| remote.url.origin().ascii_serialization())
}

/// Returns a hash of what is shown of these definitions.
fn hash(items: &[Waiting]) -> String {
    let mut hash = Sha256::new();
    for Waiting { what, name, pin, .. } in items {
        hash.update(serde_json::json!([what, name, pin.to_string()]).to_string());
        hash.update(b"\n");
    }
    hex::encode(&hash.finalize())
}
