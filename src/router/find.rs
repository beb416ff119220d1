//! Whom a name belongs to. What is in no list yet may be of a server that is on its way: that one is waited for, as a call to
//! it would wait.

use std::sync::Arc;

use futures_util::future::join_all;

use super::Router;
use super::answer::Failure;
use super::client::Client;
use crate::answered::NoResult;
use crate::config::Prefix;
use crate::exposed::carries;
use crate::manager::Server;
use crate::protocol::{ErrorObject, Theirs};
use crate::registry::{Catalog, Resolution, Target};

/// Why a name leads nowhere.
pub(super) enum Lost {
    /// It is nobody's, or that of several.
    Error(ErrorObject),
    /// It is of a server that has never listed anything, and is not to be had.
    Down(Arc<Server>, Failure),
}

impl From<Lost> for NoResult {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Error(error) => error.into(),
            Lost::Down(server, failure) => failure.of(&server),
        }
    }
}

impl Router {
    /// Finds whom a name belongs to; a client that never listed waits for the servers as a list does.
    pub(super) async fn find(
        &self,
        client: &Arc<Client>,
        what: &str,
        name: &str,
        look: impl Fn(&Catalog) -> Resolution,
    ) -> Result<Target, Lost> {
        let mut found = look(&self.catalog(client));
        if found == Resolution::Unknown && !self.is_settled(client) {
            found = look(&*self.settled_catalog(client).await);
        }
        if found == Resolution::Unknown {
            found = look(&*self.manager().once_shown(&client.who_now()));
        }
        if found == Resolution::Unknown {
            let down = self.wait_for_owners(client, name).await;
            found = look(&self.look(client, self.is_settled(client)));
            if let (Resolution::Unknown, Some((server, failure))) = (&found, down) {
                return Err(Lost::Down(server, failure));
            }
        }
        match found {
            Resolution::Found(target) => Ok(target),
            Resolution::Unknown => {
                Err(Lost::Error(ErrorObject::invalid_params(format!("unknown {what}: {}", Theirs(name)))))
            }
            Resolution::Ambiguous(names) => {
                let text =
                    format!("several servers offer the {what} {}; use one of {}", Theirs(name), names.join(", "));
                Err(Lost::Error(ErrorObject::invalid_params(text)))
            }
        }
    }

    /// Waits for servers that may own the name and have not shown it to this client: one whose alias it carries as long as a
    /// call to it would wait, those that show names without one and never listed anything as long as a first list. Why the
    /// first is not to be had, if it is not.
    async fn wait_for_owners(&self, client: &Arc<Client>, name: &str) -> Option<(Arc<Server>, Failure)> {
        let who = client.who_now();
        let silent = self.manager().having_more(&who);
        let settings = self.manager().settings();
        let is_its = |server: &&Arc<Server>| {
            server.config.prefix != Prefix::Never && carries(&server.config.alias, name, &settings.naming)
        };
        if let Some(server) = silent.iter().find(is_its) {
            let failure = self.reached(client, server, None).await.err()?;
            return Some((server.clone(), failure));
        }
        // A name that tells nothing of its server opens no lease of the client's own at those whose lists are known.
        let silent = self.manager().never_listed(&who);
        let bare = silent.iter().filter(|server| server.config.prefix != Prefix::Always);
        let wait = self.manager().startup_wait();
        let all = join_all(bare.map(|server| self.reached(client, server, None)));
        // Whether they came is seen by what they list.
        let _ = tokio::time::timeout(wait, all).await;
        None
    }
}
