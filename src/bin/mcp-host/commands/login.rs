//! `mcp-host login SERVER`: signs in with a browser. The desk requests the token and keeps it; this command handles the
//! user, the browser, and the redirect.

use mcp_host::admin::SignIn;
use mcp_host::auth::Redirect;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _};
use url::Url;

use super::auth::place;
use super::desk::{Desk, Errand};
use super::key;
use crate::args::{Common, Login};
use crate::opener;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text::{self, quoted};

/// The desk's answer to the request that begins a login.
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

/// How many bytes a pasted address may have at most.
const PASTED: u64 = 16 * 1024;

pub(super) async fn run(args: &Login, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let desk = Box::pin(open(args, common, output)).await?;
    let kept = sign_in(args, &desk, output).await;
    let told = kept.and_then(|kept| signed_in(args, &kept, &desk, output));
    desk.close().await;
    told.map(|()| Exit::Ok)
}

/// Finds the handler of the login, and makes sure that the login will be kept.
pub(super) async fn open(args: &Login, common: &Common, output: &Output) -> Result<Desk, Failure> {
    let errand = Errand { command: "login", server: Some(&args.server), listen: args.listen };
    let desk = Box::pin(Desk::find(&errand, common, output)).await?;
    if let Err(failure) = key::secure(&desk, &args.server, output).await {
        desk.close().await;
        return Err(failure);
    }
    Ok(desk)
}

async fn sign_in(args: &Login, desk: &Desk, output: &Output) -> Result<String, Failure> {
    let redirect = Redirect::open().await.map_err(|error| {
        Failure::new(Exit::Failed, format!("no port on this machine for the browser to come back to: {error}"))
            .help(format!("mcp-host login {} --device needs none", quoted(&args.server)))
    })?;
    let begin = SignIn::Begin { server: args.server.clone(), redirect: redirect.url() };
    let (begun, _held) = desk.begin::<Begun>(&begin).await?;
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
        let (server, again) = (quoted(&args.server), desk.again());
        output.talk(&format!("if the browser is on another machine: mcp-host login {server} --device{again}"));
    }
    let url = tokio::select! {
        url = redirect.hit() => url,
        url = pasted(output.interactive()) => url,
    };
    let finish = SignIn::Finish { login: begun.login, url };
    let done: Done = desk.ask(&finish).await?;
    Ok(done.kept)
}

/// Checks that the page may be opened in a browser. The daemon has checked it, too.
pub(super) fn checked(page: &str) -> Result<Url, Failure> {
    let wrong = || {
        Failure::new(Exit::Failed, "the page to sign in at is not one that a browser may be sent to")
            .help("nothing was opened; ask whoever runs that server, or put a token into its `headers`")
    };
    opener::checked(page).ok_or_else(wrong)
}

/// Prints at which site the sign-in page comes next, and for which token issuer.
pub(super) fn announce(server: &str, page: &Url, issuer: &str, output: &Output) {
    output.talk(&format!("sign in to `{}` at {}", text::line(server), text::line(page.host_str().unwrap_or("?"))));
    output.talk(&format!("for {}:", text::line(issuer)));
}

/// Reports a finished login. A token in this process's memory is lost with it.
pub(super) fn signed_in(args: &Login, kept: &str, desk: &Desk, output: &Output) -> Result<(), Failure> {
    let server = text::line(&args.server);
    if desk.is_here() && kept == "memory" {
        let error = format!("the token of `{server}` could not be kept, so this login ends with this command");
        let again = desk.again();
        return Err(Failure::new(Exit::Failed, error).help(format!(
            "mcp-host login {}{again} -v tells why; mcp-host serve{again} holds logins in memory",
            quoted(&args.server)
        )));
    }
    output.talk(&format!("signed in to `{server}`; the token is kept in {}", place(kept)));
    Ok(())
}

/// Reads a line that the user pastes. Without a terminal, never returns.
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
