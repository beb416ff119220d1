//! What the page does to the host, beside calls: servers are started anew, switched, and signed in to; the config is read
//! again; what waits for a person is decided.
//!
//! **Invariant:** nothing here adds a program or changes what one is started with (`docs/hazards.md` H83). What is approved is
//! exactly what the page was shown, by its hash.

use futures_util::future::BoxFuture;
use http::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Answer, Console, No, Route, read};
use crate::config::Transport;
use crate::dial::Changed;
use crate::downstream::admin::{CodeBegun, LoginBegun, Refused, Reloaded, SignedOut};
use crate::hex;
use crate::keep;
use crate::manager::{Reload, Server};
use crate::pins::Waiting;
use crate::router::{Decided, OpenAsk};

/// What the daemon does on behalf of a person at the page. The face for embedders does it, one floor above.
pub(crate) trait Deeds: Send + Sync {
    /// Reads the config again.
    fn reload(&self) -> BoxFuture<'_, Result<Reload, String>>;

    /// Starts a server anew; calls in flight may end first. Returns false if there is no such server any more.
    fn restart(&self, server: &str) -> bool;

    /// Begins a login whose page leads the browser back to this machine, and finishes it once the browser is back.
    fn login(&self, server: String) -> BoxFuture<'_, Result<LoginBegun, Refused>>;

    /// Begins a login by a code, and finishes it once the code was entered.
    fn login_by_code(&self, server: String) -> BoxFuture<'_, Result<CodeBegun, Refused>>;

    /// Forgets the access token for a server.
    fn logout(&self, server: String) -> BoxFuture<'_, Result<SignedOut, Refused>>;

    /// Reports whether entries of this config can be switched.
    fn can_switch(&self) -> bool;

    /// Switches the entry of a server on or off in this config file.
    fn switch(&self, server: String, file: std::path::PathBuf, on: bool) -> BoxFuture<'_, Result<Switched, String>>;
}

/// An entry that was switched.
#[derive(Debug, Serialize)]
pub(crate) struct Switched {
    /// The file that was changed.
    pub(crate) file: String,
    /// The command that takes it back.
    pub(crate) undo: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfServer {
    server: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    server: String,
    #[serde(default)]
    device: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    ask: u64,
    verdict: Decided,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Approval {
    kind: ApprovalKind,
    server: String,
    hash: String,
}

/// Reports whether any deed takes this body.
#[cfg(feature = "fuzzing")]
pub(super) fn takes(body: &[u8]) -> bool {
    let of_server = read::<OfServer>(body).is_ok() || read::<Login>(body).is_ok() || read::<Approval>(body).is_ok();
    of_server || read::<Decision>(body).is_ok() || read::<Nothing>(body).is_ok()
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ApprovalKind {
    Definitions,
    Certificate,
}

/// What waits for a person.
#[derive(Serialize)]
struct Approvals {
    definitions: Vec<Definitions>,
    certificates: Vec<Certificate>,
    asks: Vec<OpenAsk>,
}

/// The definitions of one server that are not approved.
#[derive(Serialize)]
struct Definitions {
    server: String,
    /// Stands for all of them, as they are shown here.
    hash: String,
    items: Vec<Waiting>,
}

/// A certificate that was trusted on first use and has changed.
#[derive(Serialize)]
struct Certificate {
    server: String,
    origin: String,
    known: String,
    /// The fingerprint that the server shows now.
    hash: String,
}

impl Console {
    /// Does what a request asks for.
    pub(super) async fn act(&self, route: Route, body: &[u8]) -> Result<Answer, No> {
        // An embedding program may serve the door without them.
        let deeds = || self.deeds.as_deref().ok_or_else(|| No::unknown("this host does nothing for the page"));
        match route {
            Route::Approvals => Ok(Answer::of(&self.approvals().await?)),
            Route::Decide => {
                let Decision { ask, verdict } = read(body)?;
                if !self.router.clients().asks().decide(ask, verdict) {
                    return Err(No::unknown(format!("nothing with the number {ask} waits for a decision")));
                }
                Ok(Answer::of(&serde_json::json!({ "decided": ask })))
            }
            Route::Approve => self.approve(read(body)?).await,
            Route::Reload => {
                let Nothing {} = read(body)?;
                Ok(Answer::of(&Reloaded::from(deeds()?.reload().await)))
            }
            Route::Restart => {
                let server = self.server_of::<OfServer>(body)?;
                if !deeds()?.restart(&server.config.name) {
                    return Err(No::unknown(format!("no server is called {:?}", server.config.name)));
                }
                Ok(Answer::of(&serde_json::json!({ "restarted": server.config.name })))
            }
            Route::Enable | Route::Disable => self.switch(body, route == Route::Enable).await,
            Route::Login => {
                let Login { server, device } = read(body)?;
                let name = self.named(&server)?.config.name.clone();
                match device {
                    true => Ok(Answer::of(&deeds()?.login_by_code(name).await.map_err(refused)?)),
                    false => Ok(Answer::of(&deeds()?.login(name).await.map_err(refused)?)),
                }
            }
            Route::Logout => {
                let name = self.server_of::<OfServer>(body)?.config.name.clone();
                Ok(Answer::of(&deeds()?.logout(name).await.map_err(refused)?))
            }
            _ => Err(No::unknown("there is no such request")),
        }
    }

    fn server_of<T: DeserializeOwned + Into<String>>(&self, body: &[u8]) -> Result<std::sync::Arc<Server>, No> {
        self.named(&read::<T>(body)?.into())
    }

    /// Reports whether the entry of a server can be switched: it is in a file, and not one of a project.
    pub(super) fn can_edit(&self, server: &Server) -> bool {
        let (source, project) = (&server.config.source, &server.config.project);
        self.deeds.as_ref().is_some_and(|deeds| deeds.can_switch())
            && !source.file.as_os_str().is_empty()
            && project.is_none()
    }

    async fn switch(&self, body: &[u8], on: bool) -> Result<Answer, No> {
        let server = self.server_of::<OfServer>(body)?;
        let word = if on { "enable" } else { "disable" };
        let Some(deeds) = self.deeds.as_deref().filter(|_| self.can_edit(&server)) else {
            let text = format!("{:?} is not an entry of your own config", server.config.name);
            return Err(No::failed(text).help(format!("mcp-host {word} {}", server.config.name)));
        };
        let (name, file) = (server.config.name.clone(), server.config.source.file.clone());
        Ok(Answer::of(&deeds.switch(name, file, on).await.map_err(No::failed)?))
    }

    async fn approvals(&self) -> Result<Approvals, No> {
        let mut definitions: Vec<Definitions> = Vec::new();
        for item in self.waiting().await? {
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
        let asks = self.router.clients().asks().list();
        Ok(Approvals { definitions, certificates: self.certificates().await?, asks })
    }

    /// Returns the definitions that wait for a person. Where a lock decides, no person does.
    async fn waiting(&self) -> Result<Vec<Waiting>, No> {
        let waiting = self.router.manager().unapproved().await.map_err(|error| No::failed(error.to_string()))?;
        let servers = self.router.manager().servers();
        let is_locked =
            |name: &str| servers.iter().any(|server| server.config.name == name && server.config.locked.is_some());
        Ok(waiting.into_iter().filter(|item| !is_locked(&item.server)).collect())
    }

    async fn certificates(&self) -> Result<Vec<Certificate>, No> {
        let kept = self.router.manager().certificates();
        let changed = keep::done(move || kept.changed()).await.map_err(|error| No::failed(error.to_string()))?;
        let servers = self.router.manager().servers();
        let item = |server: &std::sync::Arc<Server>| {
            let origin = believed(&server.config.transport)?;
            let Changed { known, shown, .. } = changed.iter().find(|changed| changed.origin == origin)?.clone();
            Some(Certificate { server: server.config.name.clone(), origin, known, hash: shown })
        };
        Ok(servers.iter().filter_map(item).collect())
    }

    async fn approve(&self, Approval { kind, server, hash: wanted }: Approval) -> Result<Answer, No> {
        let server = self.named(&server)?;
        let name = &server.config.name;
        let changed = || {
            let text = format!("what waits of {name:?} is not what was shown");
            No::new(StatusCode::CONFLICT, "changed", text).help("look at it again")
        };
        let approved = match kind {
            ApprovalKind::Definitions => {
                let mut items = self.waiting().await?;
                items.retain(|item| item.server == *name);
                if items.is_empty() || hash(&items) != wanted {
                    return Err(changed());
                }
                let done = self.router.manager().approve(&items).await;
                let done = done.map_err(|error| No::failed(error.to_string()))?;
                if done == 0 {
                    return Err(changed());
                }
                done
            }
            ApprovalKind::Certificate => {
                let Some(origin) = believed(&server.config.transport) else { return Err(changed()) };
                let kept = self.router.manager().certificates();
                let done = kept.accept(&origin, &wanted).await.map_err(|error| No::failed(error.to_string()))?;
                if !done {
                    return Err(changed());
                }
                // The server was given up when it showed the certificate.
                server.upstreams().iter().for_each(|upstream| upstream.retry());
                1
            }
        };
        Ok(Answer::of(&serde_json::json!({ "approved": approved })))
    }
}

impl From<OfServer> for String {
    fn from(of: OfServer) -> Self {
        of.server
    }
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

fn refused(refused: Refused) -> No {
    if refused.usage { No::unknown(refused.error) } else { No::failed(refused.error) }
}
