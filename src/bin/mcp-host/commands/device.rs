//! `mcp-host login SERVER --device`: signs in with a code that the user enters in a browser. The desk requests the
//! token; this command shows the page and the code, and polls until the login is done.

use std::time::Duration;

use mcp_host::admin::SignIn;
use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::desk::Desk;
use super::login::{announce, checked, open, signed_in};
use crate::args::{Common, Login};
use crate::opener;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::signals::Signals;
use crate::text;

/// The desk's answer to the request that begins a login.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    login: u64,
    page: String,
    complete: Option<String>,
    code: String,
    issuer: String,
    expires_in: u64,
}

/// The desk's answer to a poll.
#[derive(Deserialize)]
#[serde(untagged)]
enum Looked {
    Done { kept: String },
    Pending { pending: bool },
}

#[derive(Deserialize)]
struct Abandoned {}

/// How often to poll.
const AGAIN: Duration = Duration::from_secs(1);
/// Timeout for the cancellation when the user interrupts.
const PARTING: Duration = Duration::from_secs(3);

pub(super) async fn run(
    args: &Login,
    common: &Common,
    signals: &mut Signals,
    output: &Output,
) -> Result<Exit, Failure> {
    let desk = tokio::select! {
        desk = open(args, common, output) => desk?,
        _ = signals.next() => return Err(Failure::silent(Exit::Interrupted)),
    };
    let kept = sign_in(args, &desk, signals, output).await;
    let told = kept.and_then(|kept| signed_in(args, &kept, &desk, output));
    desk.close().await;
    told.map(|()| Exit::Ok)
}

async fn sign_in(args: &Login, desk: &Desk, signals: &mut Signals, output: &Output) -> Result<String, Failure> {
    let interrupted = || Err(Failure::silent(Exit::Interrupted));
    let begin = SignIn::BeginByCode { server: args.server.clone() };
    let (begun, _held) = tokio::select! {
        begun = desk.begin::<Begun>(&begin) => begun?,
        // The login, if it has begun, ends with this process.
        _ = signals.next() => return interrupted(),
    };
    tokio::select! {
        kept = show_and_wait(args, &begun, desk, output) => kept,
        _ = signals.next() => {
            let abandon = SignIn::Abandon { login: begun.login };
            // The login would also expire by itself.
            let _ = timeout(PARTING, desk.ask::<Abandoned>(&abandon)).await;
            interrupted()
        }
    }
}

async fn show_and_wait(args: &Login, begun: &Begun, desk: &Desk, output: &Output) -> Result<String, Failure> {
    show(args, begun, output)?;
    let mut ticks = interval(AGAIN);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match desk.ask(&SignIn::Look { login: begun.login }).await? {
            Looked::Done { kept } => return Ok(kept),
            Looked::Pending { pending: true } => {}
            Looked::Pending { pending: false } => {
                let strange = Failure::new(Exit::Failed, "the running mcp-host sent an unexpected answer");
                return Err(strange.help("it may be an older one: stop it, and start this one"));
            }
        }
    }
}

/// Shows the page and the code, and opens a browser.
fn show(args: &Login, begun: &Begun, output: &Output) -> Result<(), Failure> {
    let page = checked(&begun.page)?;
    let complete = begun.complete.as_deref().map(checked).transpose()?;
    let opened = complete.as_ref().unwrap_or(&page);
    announce(&args.server, opened, &begun.issuer, output);
    output.whole(&format!("go to {page} and enter {}", begun.code));
    if let Some(complete) = &complete {
        output.talk("or to this page, which has to show the same code:");
        output.page(complete);
    }
    let life = text::duration(begun.expires_in.saturating_mul(1000));
    output.talk(&format!("with a browser on any machine, within {life}"));
    if !args.no_browser
        && let Err(error) = opener::open(opened)
    {
        output.talk(&format!("no browser was started ({error}): open the page yourself"));
    }
    Ok(())
}
