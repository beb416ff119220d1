//! Certificates that were trusted on first use and have changed since (`docs/hazards.md` H33).

use mcp_host::Certificates;
use mcp_host::admin::{self, AskError};
use mcp_host::config::{Server, Transport};
use serde::Serialize;

use super::failed;
use crate::output::Output;
use crate::report::Failure;

/// One changed certificate, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Item<'a> {
    server: &'a str,
    origin: String,
    /// The trusted fingerprint.
    known: String,
    /// The fingerprint that the server showed last.
    shown: String,
    pub(super) approved: bool,
}

impl Item<'_> {
    pub(super) fn server(&self) -> &str {
        self.server
    }
}

/// Returns the changed certificates of these servers.
pub(super) fn of<'a>(servers: impl Iterator<Item = &'a Server>, kept: &Certificates) -> Result<Vec<Item<'a>>, Failure> {
    let changed = kept.changed().map_err(failed)?;
    let item = |server: &'a Server| {
        let origin = believed(server)?;
        let changed = changed.iter().find(|changed| changed.origin == origin)?;
        let (known, shown) = (changed.known.clone(), changed.shown.clone());
        Some(Item { server: &server.name, origin, known, shown, approved: false })
    };
    Ok(servers.filter_map(item).collect())
}

/// Returns the origin of a server's URL, if the server's certificate is trusted on first use.
fn believed(server: &Server) -> Option<String> {
    let (Transport::Http(remote) | Transport::Sse(remote) | Transport::Auto(remote)) = &server.transport else {
        return None;
    };
    remote.tls.trust_on_first_use.then(|| remote.url.origin().ascii_serialization())
}

/// Formats a changed certificate.
pub(super) fn lines(item: &Item<'_>) -> [String; 5] {
    let Item { server, origin, known, shown, .. } = item;
    [
        format!("server `{server}` shows another certificate than on first use ({origin}):"),
        format!("  - {known}"),
        format!("  + {shown}"),
        "  it may be an attacker's: compare it with the fingerprint that the owner of the server states".to_owned(),
        String::new(),
    ]
}

/// Trusts these certificates from now on, and makes a running daemon retry their servers.
pub(super) async fn accept(items: &mut [Item<'_>], kept: &Certificates, output: &Output) -> Result<(), Failure> {
    for item in items.iter_mut() {
        item.approved = kept.accept(&item.origin, &item.shown).await.map_err(failed)?;
        if !item.approved {
            let text = format!("`{}` has shown yet another certificate since: run this again", item.server);
            return Err(failed(text));
        }
    }
    if !items.is_empty() && matches!(admin::reload(None).await, Err(AskError::Several { .. })) {
        output.remark("help: to connect again, send SIGHUP to each running daemon: kill -HUP PID");
    }
    Ok(())
}
