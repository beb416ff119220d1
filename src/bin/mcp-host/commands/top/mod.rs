//! `mcp-host top`: shows what the servers of a running daemon do, on the whole terminal.
//!
//! In: the feed of the daemon, and keys. Out: the screen. **Invariant:** the terminal is restored however this ends: by
//! a key, a signal, a failure, or a panic. `state.rs` has the data, `keys.rs` the meaning of keys, `view.rs` draws, and
//! `screen.rs` has the terminal.

mod keys;
mod screen;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::time::Duration;

use mcp_host::admin::{self, FeedRequest};
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::keys::Deed;
use self::screen::{Input, Screen};
use self::state::App;
use super::asked::DaemonQuery;
use super::feed::Feed;
use crate::args::{Common, Top};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::signals::Signals;

/// How many past calls and lines to start with.
const PAST: usize = 500;
/// The least time between two redraws.
const FRAME: Duration = Duration::from_millis(250);
/// How often to redraw even if nothing happens, because shown times change.
const SECOND: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &Top, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let again = common.again(false);
    let asked = DaemonQuery { command: "mcp-host top", listen: args.listen, again: &again };
    if output.json {
        let failure = Failure::new(Exit::Usage, "top is for people, and has no --json");
        return Err(failure.help("mcp-host status --watch --json prints what it reads"));
    }
    if !screen::is_terminal() {
        let failure = Failure::new(Exit::Usage, "top needs a terminal for its keys and its output");
        return Err(failure.help("mcp-host status --watch writes the same without one"));
    }
    let mut feed = Feed::open(&asked, &FeedRequest::default().past(PAST)).await?;
    // From here on signals no longer end the process directly: the terminal is restored first.
    let mut signals = Signals::listen()?;
    let mut quit = screen::quit()?;
    let mut app = App::new(output.paint().on);
    let (mut screen, mut input) = Screen::open()?;
    let mut second = interval(SECOND);
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut drawn = Instant::now();
    screen.draw(&mut app)?;
    loop {
        // Frequent changes are drawn together.
        let due = drawn + FRAME;
        let is_news = tokio::select! {
            key = input.next() => match key {
                Some(Input::Key(key)) => match app.key(key) {
                    Some(Deed::Quit) => return Ok(Exit::Ok),
                    Some(deed) => { act(&asked, deed, &mut app).await; true }
                    None => true,
                },
                Some(Input::Resized) => true,
                None => return Ok(Exit::Ok),
            },
            read = feed.next() => { let (event, raw) = read?; app.take(event, &raw); false }
            _ = second.tick() => { app.tick(); true }
            _ = signals.next() => return Ok(Exit::Interrupted),
            _ = quit.recv() => return Ok(Exit::Interrupted),
            () = tokio::time::sleep_until(due), if app.is_new => true,
        };
        if is_news || (app.is_new && Instant::now() >= due) {
            drawn = Instant::now();
            app.is_new = false;
            screen.draw(&mut app)?;
        }
    }
}

/// Does what a key asks for apart from changing the screen.
async fn act(asked: &DaemonQuery<'_>, deed: Deed, app: &mut App) {
    let port = asked.listen.map(|listen| listen.port());
    match deed {
        Deed::Quit => {}
        Deed::Restart(server) => {
            app.note = Some(match admin::restart(port, &server).await {
                Ok(Ok(_)) => format!("{server} restarts"),
                Ok(Err(refused)) => refused.error,
                Err(error) => error.to_string(),
            });
        }
        Deed::Open => {
            app.note = Some(match super::open::page(asked).await {
                Ok(page) => format!("opened {page} in your browser"),
                Err(why) => why,
            });
        }
    }
}
