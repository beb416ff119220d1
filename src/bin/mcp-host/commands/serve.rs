//! `mcp-host serve`: the daemon.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use mcp_host::admin::OpenRequest;
use mcp_host::config::{Console, HostAuth};
use mcp_host::edits::Edits;
use mcp_host::{Host, HttpEndpoint, admin};
use tokio::net::TcpListener;

use super::serving;
use super::watch::{self, Watch};
use crate::args::{Common, Serve};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{Plan, state_directory};
use crate::signals::Signals;
#[cfg(unix)]
use crate::supervised;

pub(crate) async fn run(
    args: &Serve,
    common: &Common,
    signals: &mut Signals,
    output: &Output,
) -> Result<Exit, Failure> {
    let plan = Plan::load(common, args.demo, args.listen)?;
    plan.tell_notes(output);
    Host::check_endpoint(&plan.config.host)?;
    let (auth, console) = (plan.config.host.auth.clone(), plan.config.host.console);
    let scheme = if plan.config.host.tls.is_some() { "https" } else { "http" };
    // The address is opened first: if it is taken, no server needs to start.
    #[cfg(unix)]
    let given = supervised::listener()?;
    #[cfg(not(unix))]
    let given = None;
    let listener = match given {
        Some(listener) => TcpListener::from_std(listener)?,
        None => bind(plan.config.host.listen).await?,
    };
    let address = listener.local_addr()?;
    let (follow, request) = (plan.again(), plan.same_files());
    let begun = Instant::now();
    let host = plan.builder()?.start().await?;
    // Everything is open before the line about the endpoint is printed.
    let endpoint = host.open_http(listener)?;
    watch::listening(&url(scheme, address), output);
    let page = page_line(&endpoint, address, console, output);
    let mut watch = Watch::new(&host, begun, common.again(args.demo), output);
    if !args.demo {
        host.follow_config(follow);
        if let Some(state) = state_directory() {
            host.allow_edits(Edits::of(&state), request);
        }
    }
    #[cfg(unix)]
    let supervisor = supervised::Supervisor::from_process();
    #[cfg(unix)]
    let beating = supervised::ready(supervisor.as_ref(), || host.turn());
    #[cfg(not(unix))]
    let beating = std::future::pending::<std::convert::Infallible>();
    let serving = serving::until_told(&host, serving::Kind::Daemon, endpoint.serve(), signals, output);
    let starting = async {
        watch.start().await;
        if args.demo {
            hints(scheme, address, page.as_deref(), output);
        } else if !output.json {
            next_steps(&auth, &url(scheme, address), (&listen_flag(address), page.as_deref()), output);
        }
        watch.follow().await
    };
    let outcome = tokio::select! {
        outcome = serving => outcome,
        never = starting => match never {},
        never = beating => match never {},
    };
    if outcome.is_ok() {
        watch::stopped(output);
    }
    outcome
}

async fn bind(listen: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(listen).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => match admin::serving(listen) {
            Some(pid) => Failure::new(
                Exit::Failed,
                format!("another mcp-host, process {pid}, serves {listen} already"),
            )
            .help(format!("mcp-host status --listen {listen} shows its state; --listen 127.0.0.1:0 takes a free port")),
            None => Failure::new(Exit::Failed, format!("{listen} is in use already"))
                .help("it is not one of your mcp-hosts; --listen 127.0.0.1:0 takes a free port"),
        },
        _ => Failure::new(Exit::Failed, format!("cannot listen on {listen}: {error}"))
            .help("--listen 127.0.0.1:0 takes a free port"),
    })
}

/// Returns the endpoint's URL. Clients on this machine cannot connect to `0.0.0.0`, so that becomes loopback.
fn url(scheme: &str, mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { [127, 0, 0, 1].into() } else { [0, 0, 0, 0, 0, 0, 0, 1].into() });
    }
    format!("{scheme}://{address}/mcp")
}

/// Returns the line that says how to open the page: on a terminal with a link that works once. `None` if there is no
/// page.
fn page_line(endpoint: &HttpEndpoint, address: SocketAddr, console: Console, output: &Output) -> Option<String> {
    let is_reachable = console == Console::On || address.ip().is_loopback() || address.ip().is_unspecified();
    if output.json || output.is_quiet() || console == Console::Off || !is_reachable {
        return None;
    }
    let command = format!("mcp-host open{}", listen_flag(address));
    if !output.live() {
        return Some(format!("open the web page   {command}"));
    }
    let link = endpoint.page_link(OpenRequest::default().shown()).ok()?;
    let (url, minutes) = (link.url, link.expires_in / 60);
    Some(format!("open the web page   {url}   (good once, for {minutes} minutes; later: {command})"))
}

/// Prints commands to try with the demo.
fn hints(scheme: &str, address: SocketAddr, page: Option<&str>, output: &Output) {
    output.remark("");
    output.remark(&format!("connect a client    claude mcp add --transport http demo {}", url(scheme, address)));
    output.remark(&format!("see the servers     mcp-host status{}", listen_flag(address)));
    page.inspect(|page| output.whole(page));
    output.remark("see progress        mcp-host call --demo echo__countdown from=3");
    output.remark("answer a question   mcp-host call --demo echo__ask");
    output.remark("stop                Ctrl-C");
}

/// Prints commands that connect a client.
fn next_steps(auth: &HostAuth, url: &str, (listen, page): (&str, Option<&str>), output: &Output) {
    let header = match auth {
        HostAuth::Bearer(_) => " --header \"Authorization: Bearer TOKEN\"",
        _ => "",
    };
    output.remark("");
    output.remark(&format!("connect a client    claude mcp add --transport http mcp-host {url}{header}"));
    if !header.is_empty() {
        output.remark("a token for it      mcp-host token NAME");
    }
    output.remark(&format!(
        "any other client    {{ \"mcpServers\": {{ \"mcp-host\": {{ \"type\": \"http\", \"url\": \"{url}\" }} }} }}"
    ));
    page.inspect(|page| output.whole(page));
    output.remark(&format!("see what goes on    mcp-host status{listen}"));
}

/// Returns the `--listen` flag with which other commands find this daemon; empty if they need none.
fn listen_flag(address: SocketAddr) -> String {
    if address.port() == DEFAULT_PORT { String::new() } else { format!(" --listen {address}") }
}

const DEFAULT_PORT: u16 = 8808;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_one_that_works() {
        assert_eq!(url("http", "0.0.0.0:80".parse().unwrap()), "http://127.0.0.1:80/mcp");
        assert_eq!(url("https", "[::]:80".parse().unwrap()), "https://[::1]:80/mcp");
        assert_eq!(url("http", "127.0.0.1:8808".parse().unwrap()), "http://127.0.0.1:8808/mcp");
    }
}
