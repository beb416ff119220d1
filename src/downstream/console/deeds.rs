//! The page's actions at the host, other than calls: it restarts servers, switches them on and off, signs in to them,
//! reloads the config, and decides what waits for a person.
//!
//! **Invariant:** nothing here adds a program or changes what one is started with (`docs/hazards.md` H83). What is approved is
//! exactly what the page was shown, by its hash.

use futures_util::future::BoxFuture;
use http::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Answer, Console, No, Route, read};
use crate::downstream::admin::{CodeBegun, LoginBegun, Refused, Reloaded, SignedOut};
use crate::downstream::approvals::{Approval, Approvals, NotApproved};
use crate::manager::{Reload, Server};
use crate::router::Decided;

/// The actions of the daemon for a person at the page. `host`, one floor above, carries them out.
pub(crate) trait Deeds: Send + Sync {
    /// Reloads the config.
    fn reload(&self) -> BoxFuture<'_, Result<Reload, String>>;

    /// Restarts a server; calls in flight may end first. Returns false if there is no such server any more.
    fn restart(&self, server: &str) -> bool;

    /// Begins a login whose page redirects the browser to this machine, and finishes it once the browser has come back.
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
    /// The command that undoes the change.
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

/// Reports whether any of these actions accepts this body.
#[cfg(feature = "fuzzing")]
pub(super) fn takes(body: &[u8]) -> bool {
    let of_server = read::<OfServer>(body).is_ok() || read::<Login>(body).is_ok() || read::<Approval>(body).is_ok();
    of_server || read::<Decision>(body).is_ok() || read::<Nothing>(body).is_ok()
}

impl Console {
    /// Carries out a request.
    pub(super) async fn act(&self, route: Route, body: &[u8]) -> Result<Answer, No> {
        // An embedding program may serve the page without these actions.
        let deeds = || self.deeds.as_deref().ok_or_else(|| No::unknown("this host does nothing for the page"));
        match route {
            Route::Approvals => Ok(Answer::of(&Approvals::of(&self.router).await.map_err(No::failed)?)),
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

    /// Reports whether the entry of a server can be switched: it must be in a file, and not in a project's.
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

    async fn approve(&self, approval: Approval) -> Result<Answer, No> {
        let approved = approval.give(&self.router).await.map_err(|why| match why {
            NotApproved::Unknown(why) => No::unknown(why),
            NotApproved::Changed(why) => No::new(StatusCode::CONFLICT, "changed", why).help("look at it again"),
            NotApproved::Failed(why) => No::failed(why),
        })?;
        Ok(Answer::of(&serde_json::json!({ "approved": approved })))
    }
}

impl From<OfServer> for String {
    fn from(of: OfServer) -> Self {
        of.server
    }
}

fn refused(refused: Refused) -> No {
    if refused.usage { No::unknown(refused.error) } else { No::failed(refused.error) }
}
