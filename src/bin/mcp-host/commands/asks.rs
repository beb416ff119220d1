//! `mcp-host asks`: shows the calls that wait for a person's permission, and decides on them.

use mcp_host::admin::{self, OpenAsks};
use mcp_host::{Decided, OpenAsk, pins};

use super::asked::{DaemonQuery, failed};
use crate::args::{Asks, Common};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text;

pub(super) async fn run(args: &Asks, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let again = common.again(false);
    let asked = DaemonQuery { command: "mcp-host asks", listen: args.listen, again: &again };
    let port = args.listen.map(|listen| listen.port());
    let decided = match (args.yes, args.remember, args.no) {
        (true, ..) => Some(Decided::Once),
        (_, true, _) => Some(Decided::Remember),
        (.., true) => Some(Decided::No),
        _ => None,
    };
    if let (Some(number), Some(decided)) = (args.number, decided) {
        if pins::is_below_a_host() {
            let error = "a server of a running mcp-host has started this, and no server may allow anything";
            return Err(Failure::new(Exit::Denied, error).help("run it in a terminal of your own"));
        }
        let said = admin::decide(port, number, decided).await.map_err(|error| failed(&asked, &error))?;
        said.map_err(|refused| {
            Failure::new(Exit::Usage, refused.to_string()).help("`mcp-host asks` shows what waits")
        })?;
        let done = if decided == Decided::No { "refused" } else { "allowed" };
        output.line(&format!("{number}: {done}"))?;
        return Ok(Exit::Ok);
    }
    let OpenAsks { mut asks, .. } = admin::open_asks(port).await.map_err(|error| failed(&asked, &error))?;
    if let Some(number) = args.number {
        asks.retain(|ask| ask.id == number);
        if asks.is_empty() {
            let error = format!("nothing with the number {number} waits for a decision");
            return Err(Failure::new(Exit::Usage, error).help("`mcp-host asks` shows what waits"));
        }
    }
    if output.json {
        output.value(&asks)?;
        return Ok(Exit::Ok);
    }
    if asks.is_empty() {
        output.remark("nothing waits for your permission");
        return Ok(Exit::Ok);
    }
    output.lines(asks.iter().flat_map(|ask| shown(ask, args.number.is_some())))?;
    Ok(Exit::Ok)
}

/// How many characters of the arguments a line shows.
const BRIEF: usize = 160;

/// Describes one call in three lines. All its text comes from others.
fn shown(ask: &OpenAsk, whole: bool) -> [String; 3] {
    let OpenAsk { id, server, name, rule, principal, .. } = ask;
    let who = ask.client.as_deref().map(|client| format!(" ({client})")).unwrap_or_default();
    let waits = match ask.waits_secs {
        0 => "just now".to_owned(),
        secs => format!("{} ago", text::duration(secs.saturating_mul(1000))),
    };
    let left = ask.arguments.chars().count().saturating_sub(BRIEF);
    let arguments = match left {
        left if whole || left == 0 => ask.arguments.clone(),
        left => {
            let brief: String = ask.arguments.chars().take(BRIEF).collect();
            format!("{brief}… ({left} more characters: mcp-host asks {id})")
        }
    };
    let remember = match ask.remember_secs {
        Some(time) => format!(" | --remember ({})", text::duration(time.saturating_mul(1000))),
        None => String::new(),
    };
    let line = |line: String| text::line(&line).into_owned();
    [
        line(format!("{id}: {} {name} of {server}, for {principal}{who}, rule {rule}, {waits}", ask.method)),
        line(format!("   {arguments}")),
        line(format!("   mcp-host asks {id} --yes{remember} | --no")),
    ]
}
