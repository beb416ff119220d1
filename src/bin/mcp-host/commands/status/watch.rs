//! `mcp-host status --watch`: redraws the status when something changes. Without a terminal it prints the status once,
//! and then a line for each change.

use mcp_host::Raw;
use mcp_host::admin::{self, FeedRequest, Part};
use tokio::time::{Duration, Instant, timeout_at};

use super::page;
use crate::commands::asked::{DaemonQuery, failed};
use crate::commands::feed::{Change, Event, Feed, clock};
use crate::output::Output;
use crate::paint::Tone;
use crate::report::{Exit, Failure};
use crate::text;

/// How long changes are collected before the page is redrawn.
const TOGETHER: Duration = Duration::from_millis(250);

pub(super) async fn run(asked: &DaemonQuery<'_>, output: &Output) -> Result<Exit, Failure> {
    let request = FeedRequest::default().parts([Part::Servers, Part::Config, Part::Approvals, Part::Asks]);
    let mut feed = Feed::open(asked, &request).await?;
    loop {
        let (event, raw) = feed.next().await?;
        match event {
            _ if output.json => output.line(&text::json(&raw))?,
            Event::Hello | Event::Beat => {}
            Event::Server(change) if !output.is_terminal() => output.line(&line(&change, output))?,
            Event::Snapshot(_) => draw(asked, output).await?,
            _ if output.is_terminal() => {
                let end = Instant::now() + TOGETHER;
                while let Ok(more) = timeout_at(end, feed.next()).await {
                    more?;
                }
                draw(asked, output).await?;
            }
            _ => {}
        }
    }
}

async fn draw(asked: &DaemonQuery<'_>, output: &Output) -> Result<(), Failure> {
    let said = admin::ask::<Raw>(asked.listen.map(|listen| listen.port())).await;
    let lines = page(said.map_err(|error| failed(asked, &error))?.as_str(), output)?;
    output.screen(&lines)?;
    Ok(())
}

fn line(change: &Change, output: &Output) -> String {
    let paint = output.paint();
    let Change { at, server, from, to, cause } = change;
    let cause = cause.as_deref().map(|cause| format!(": {cause}")).unwrap_or_default();
    let (server, from, to, cause) = (text::line(server), text::line(from), text::line(to), text::line(&cause));
    let to = paint.tone(Tone::of_state(&to), &to);
    format!("{}  {server}  {from} -> {to}{cause}", paint.tone(Tone::Dim, &clock(*at)))
}
