//! What the web page needs from a host: links that begin its sessions, and the actions of a person at the page.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::{Host, lock};
use crate::auth::Redirect;
use crate::config::edit::{self, Change};
use crate::config::{self, LoadRequest};
use crate::downstream::admin::{
    Act, ActAnswer, Acted, CodeBegun, LoginBegun, OpenRequest, PageAnswer, PageLink, PageReply, PageRequest, Refused,
    Revoked, SignedOut,
};
use crate::downstream::console::access::Access;
use crate::downstream::console::{Answer, Console, Deeds, Route, Switched};
use crate::downstream::http;
use crate::edits::{self, Edits};
use crate::keep;
use crate::manager::Reload;

/// Why the socket carries out no action for a process that a server has started.
const BELOW: &str = "a server of a running mcp-host has started this process, and no server may act as the user";
/// How often an edit is retried when another program changes the config at the same time.
const TRIES: usize = 20;

/// What is needed to edit entries of a host's config.
#[derive(Clone, Debug)]
pub(super) struct Editor {
    edits: Edits,
    request: LoadRequest,
}

impl Host {
    /// Lets a person at the web page switch servers of the user's own config on and off. `request` says how the config
    /// is loaded, and from which files. Later calls replace the earlier ones.
    ///
    /// ```no_run
    /// # fn allow(host: &mcp_host::Host, request: mcp_host::config::LoadRequest) {
    /// let edits = mcp_host::edits::Edits::of("/var/lib/my-agent".as_ref());
    /// host.allow_edits(edits, request);
    /// # }
    /// ```
    pub fn allow_edits(&self, edits: Edits, request: LoadRequest) {
        *lock(&self.0.editor) = Some(Editor { edits, request });
    }

    /// Makes a link to the page of the endpoint at that address.
    pub(super) fn page_link(
        &self,
        access: &Access,
        listen: SocketAddr,
        request: OpenRequest,
    ) -> Result<PageLink, Refused> {
        let page = self.0.manager.settings().page_at(listen).map_err(Refused::because)?;
        let made = access.code(request.read_only, request.shown);
        let (code, life) = made.map_err(|error| Refused::because(format!("no random bytes for a link: {error}")))?;
        Ok(PageLink::new(format!("{page}#k={code}"), listen.port(), life.as_secs()))
    }

    /// Answers a request about links to the page.
    pub(super) fn page(&self, access: &Access, listen: SocketAddr, request: PageRequest) -> PageAnswer {
        match request {
            PageRequest::Open(request) => self.page_link(access, listen, request).map(PageReply::Link),
            PageRequest::Revoke {} => Ok(PageReply::Revoked(Revoked { ended: access.end_all() })),
        }
    }

    /// Carries out a request of the page's API that came by the status socket.
    pub(super) async fn act(&self, console: &Console, request: Act) -> ActAnswer {
        let Act { name, body, is_below } = request;
        let route = Route::at_socket(&name)?;
        if is_below && !route.looks() {
            return Some(Err(Refused::because(BELOW)));
        }
        let answer = match http::page_identity(&self.0.manager.settings()) {
            Ok(identity) => console.serve_at_socket(route, identity, body).await,
            Err(no) => Err(no),
        };
        Some(match answer {
            Ok(Answer::Json(text)) => Ok(Acted::Line(text)),
            Ok(Answer::Lines(lines)) => Ok(Acted::Lines(lines)),
            Err(no) => Err(no.refused()),
        })
    }

    async fn switch_entry(&self, server: String, file: PathBuf, on: bool) -> Result<Switched, String> {
        let Some(Editor { edits, request }) = lock(&self.0.editor).clone() else {
            return Err("this host edits no config".to_owned());
        };
        let change = Change::Switch { name: server, on };
        let mut tries = 0;
        loop {
            tries += 1;
            let (of, how, what) = (file.clone(), request.clone(), change.clone());
            let seen = keep::done(move || preview(&of, &how, &what)).await?;
            match edits.make(file.clone(), seen, change.clone(), request.clone()).await {
                Ok(made) => {
                    let file = file.display().to_string();
                    return Ok(Switched { file, undo: format!("mcp-host undo {}", made.id) });
                }
                Err(edits::Error::Changed { .. }) if tries < TRIES => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Finishes a login in the background, for at most `life`.
    fn finish_login(
        &self,
        server: String,
        rest: impl Future<Output = Result<(), String>> + Send + 'static,
        life: Duration,
    ) {
        self.0.router.background().spawn(async move {
            match timeout(life, rest).await {
                Ok(Ok(())) => tracing::info!(server, "signed in at the page"),
                Ok(Err(error)) => tracing::warn!(server, "the login at the page failed: {error}"),
                Err(_) => tracing::info!(server, "nobody finished the login that was begun at the page"),
            }
        });
    }
}

/// Reads a config file, and checks that the config can still be read with an edit of it. Blocks.
fn preview(file: &std::path::Path, request: &LoadRequest, change: &Change) -> Result<Option<String>, String> {
    let seen = edits::read(file).map_err(|error| error.to_string())?;
    let text = seen.as_deref().unwrap_or_default();
    let edited = edit::edit(text, file, request, change).map_err(|refused| refused.to_string())?;
    let texts = vec![(file.to_owned(), edited.text)];
    match config::load(&LoadRequest { texts, ..request.clone() }) {
        Ok(_) => Ok(seen),
        Err(error) => Err(format!("nothing was written: the config could not be read with this edit: {error}")),
    }
}

impl Deeds for Host {
    fn reload(&self) -> BoxFuture<'_, Result<Reload, String>> {
        Box::pin(self.reload_now())
    }

    fn restart(&self, server: &str) -> bool {
        self.0.configured.restart(server)
    }

    fn login(&self, server: String) -> BoxFuture<'_, Result<LoginBegun, Refused>> {
        Box::pin(async move {
            let no_port =
                |error| Refused::because(format!("no port on this machine for the browser to come back to: {error}"));
            let redirect = Redirect::open().await.map_err(no_port)?;
            let back = url::Url::parse(&redirect.url()).map_err(|error| Refused::because(error.to_string()))?;
            let login = Self::login(self, &server, &back).await?;
            let (page, issuer) = (login.authorize_url().to_string(), login.issuer().to_owned());
            let begun = LoginBegun::new(0, page, issuer, login.could_be_by_code());
            let rest = async move {
                let url = redirect.hit().await;
                login.finish(&url).await.map(drop).map_err(|error| error.to_string())
            };
            self.finish_login(server, rest, self.0.router.limits().login);
            Ok(begun)
        })
    }

    fn login_by_code(&self, server: String) -> BoxFuture<'_, Result<CodeBegun, Refused>> {
        Box::pin(async move {
            let login = self.device_login(&server).await?;
            let life = login.expires_in();
            let begun = CodeBegun {
                login: 0,
                page: login.verification_uri().to_string(),
                complete: login.verification_uri_complete().map(ToString::to_string),
                code: login.user_code().to_owned(),
                issuer: login.issuer().to_owned(),
                expires_in: life.as_secs(),
            };
            let rest = async move { login.finish().await.map(drop).map_err(|error| error.to_string()) };
            self.finish_login(server, rest, life);
            Ok(begun)
        })
    }

    fn logout(&self, server: String) -> BoxFuture<'_, Result<SignedOut, Refused>> {
        Box::pin(async move { Ok(SignedOut { forgotten: Self::logout(self, &server).await? }) })
    }

    fn can_switch(&self) -> bool {
        lock(&self.0.editor).is_some()
    }

    fn switch(&self, server: String, file: PathBuf, on: bool) -> BoxFuture<'_, Result<Switched, String>> {
        Box::pin(self.switch_entry(server, file, on))
    }
}
