//! `mcp-host open`: opens the page of a running daemon in the user's browser, by a link that works once.

use mcp_host::admin::{self, OpenRequest, PageLink, Refused};
use url::Url;

use super::asked::{DaemonQuery, failed};
use crate::args::{Common, Open};
use crate::opener;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text;

pub(super) async fn run(args: &Open, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let again = common.again(false);
    let asked = DaemonQuery { command: "mcp-host open", listen: args.listen, again: &again };
    let port = args.listen.map(|listen| listen.port());
    if args.revoke {
        let ended =
            admin::revoke(port).await.map_err(|error| failed(&asked, &error))?.map_err(|no| refused(&no))?.ended;
        if output.json {
            output.value(&serde_json::json!({ "ended": ended }))?;
        } else {
            output.line(&format!("ended {}", text::count(ended, "session")))?;
        }
        return Ok(Exit::Ok);
    }
    let request = OpenRequest::default();
    let request = if args.read_only { request.read_only() } else { request };
    if args.no_browser || output.json {
        return print(&link(&asked, request.shown()).await?, output);
    }
    let page = checked(&link(&asked, request).await?)?;
    match opener::open(&page) {
        Ok(()) => {
            let mut shown = page;
            shown.set_fragment(None);
            output.remark(&format!("opened {shown} in your browser"));
            Ok(Exit::Ok)
        }
        Err(error) => {
            output.talk(&format!("warning: no browser could be started: {error}"));
            print(&link(&asked, request.shown()).await?, output)
        }
    }
}

/// Opens the page for a command that stays on the terminal. Returns the page's address, or why it cannot be opened.
#[cfg(feature = "top")]
pub(super) async fn page(asked: &DaemonQuery<'_>) -> Result<String, String> {
    let port = asked.listen.map(|listen| listen.port());
    let link = admin::open(port, &OpenRequest::default()).await.map_err(|error| error.to_string())?;
    let page = Url::parse(&link.map_err(|refused| refused.error)?.url).map_err(|error| error.to_string())?;
    opener::open(&page).map_err(|error| format!("no browser could be started: {error}"))?;
    let mut shown = page;
    shown.set_fragment(None);
    Ok(shown.to_string())
}

/// Asks the daemon for a link.
async fn link(asked: &DaemonQuery<'_>, request: OpenRequest) -> Result<PageLink, Failure> {
    let link = admin::open(asked.listen.map(|listen| listen.port()), &request).await;
    link.map_err(|error| failed(asked, &error))?.map_err(|no| refused(&no))
}

/// Prints a link, and how a browser on another machine can use it.
fn print(link: &PageLink, output: &Output) -> Result<Exit, Failure> {
    if output.json {
        output.value(link)?;
        return Ok(Exit::Ok);
    }
    let url = checked(link)?;
    output.line(url.as_str())?;
    output.remark(&format!("it works once, and within {} minutes", link.expires_in / 60));
    output.remark(&format!("from another machine, run first: ssh -L {0}:127.0.0.1:{0} THIS-MACHINE", link.port));
    Ok(Exit::Ok)
}

/// Checks a link from a daemon: the browser must get a URL and nothing else.
fn checked(link: &PageLink) -> Result<Url, Failure> {
    let url = Url::parse(&link.url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.path() == "/");
    url.ok_or_else(|| Failure::new(Exit::Failed, "the running mcp-host gave no link to its page"))
}

fn refused(refused: &Refused) -> Failure {
    let help = "host.console in its config decides who gets the page: \"local\", \"on\" or \"off\"";
    Failure::new(Exit::Failed, text::line(&refused.error)).help(help)
}
