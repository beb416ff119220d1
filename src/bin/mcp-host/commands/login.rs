//! `mcp-host login SERVER`: signs in by a browser. The daemon asks for the token and keeps it; here is only the user, the
//! browser, and the place that it comes back to.

use mcp_host::admin::{self, SignIn};
use mcp_host::auth::Redirect;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _};
use url::Url;

use super::auth::place;
use super::status;
use crate::args::Login;
use crate::opener;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text;

/// The daemon's answer to the beginning of a login.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    login: u64,
    page: String,
    issuer: String,
    #[serde(default)]
    by_code: bool,
}

#[derive(Deserialize)]
struct Done {
    kept: String,
}

#[derive(Deserialize)]
struct Refused {
    error: String,
    /// It was asked for what there is not.
    #[serde(default)]
    usage: bool,
}

/// What a person pastes is no longer.
const PASTED: u64 = 16 * 1024;

pub(super) async fn run(args: &Login, output: &Output) -> Result<Exit, Failure> {
    let redirect = Redirect::open().await.map_err(|error| {
        Failure::new(Exit::Failed, format!("no port on this machine for the browser to come back to: {error}"))
    })?;
    let begin = SignIn::Begin { server: args.server.clone(), redirect: redirect.url() };
    let begun: Begun = ask(args.listen, &begin).await?;
    let page = checked(&begun.page)?;
    announce(&args.server, &page, &begun.issuer, output);
    output.page(&page);
    if args.no_browser {
        output.talk("");
    } else if let Err(error) = opener::open(&page) {
        output.talk(&format!("no browser was started ({error}): open the page yourself"));
    }
    if output.interactive() {
        output.talk("if the browser is on another machine, paste the address that it ends at here:");
    } else if args.no_browser && begun.by_code {
        output.talk("if the browser is on another machine: mcp-host login SERVER --device");
    }
    let url = tokio::select! {
        url = redirect.hit() => url,
        url = pasted(output.interactive()) => url,
    };
    let finish = SignIn::Finish { login: begun.login, url };
    let done: Done = ask(args.listen, &finish).await?;
    signed_in(&args.server, &done.kept, output);
    Ok(Exit::Ok)
}

/// A page that a browser may be sent to. The daemon has judged it; a browser is started for nothing else all the same.
pub(super) fn checked(page: &str) -> Result<Url, Failure> {
    let wrong = || Failure::new(Exit::Failed, "the page to sign in at is not one that a browser may be sent to");
    opener::checked(page).ok_or_else(wrong)
}

/// Whose page comes next, and what for.
pub(super) fn announce(server: &str, page: &Url, issuer: &str, output: &Output) {
    output.talk(&format!("sign in to `{}` at {}", text::line(server), text::line(page.host_str().unwrap_or("?"))));
    output.talk(&format!("for {}:", text::line(issuer)));
}

pub(super) fn signed_in(server: &str, kept: &str, output: &Output) {
    output.talk(&format!("signed in to `{}`; the token is kept in {}", text::line(server), place(kept)));
}

/// A line that a person enters; without one there is nobody to wait for.
async fn pasted(interactive: bool) -> String {
    if interactive {
        let mut line = String::new();
        let mut input = tokio::io::BufReader::new(tokio::io::stdin().take(PASTED));
        while input.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            if !line.trim().is_empty() {
                return line.trim().to_owned();
            }
        }
    }
    std::future::pending().await
}

/// Asks the daemon, whose no is a failure.
pub(super) async fn ask<T: DeserializeOwned>(
    listen: Option<std::net::SocketAddr>,
    request: &SignIn,
) -> Result<T, Failure> {
    let answer = admin::sign_in(listen.map(|listen| listen.port()), request).await;
    let line = answer.map_err(|error| status::failed(listen, &error))?;
    if let Ok(refused) = serde_json::from_str::<Refused>(&line) {
        let exit = if refused.usage { Exit::Usage } else { Exit::Unauthorized };
        return Err(Failure::new(exit, text::line(&refused.error).into_owned()));
    }
    serde_json::from_str(&line).map_err(|_| Failure::new(Exit::Failed, "the daemon answered something else"))
}
