//! `mcp-host check --needs`: asks the running host whether tools can be called. It calls and starts nothing.

use mcp_host::admin::{self, AskError, Need, Needed};

use super::asked::{DaemonQuery, failed};
use crate::args::{Check, Common};
use crate::nearest::question;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text::{self, quoted};

/// If several tools cannot be called, the first of these exit codes that applies is used.
const WORST: [Exit; 4] = [Exit::Usage, Exit::Denied, Exit::Unauthorized, Exit::Unreachable];

pub(crate) async fn run(args: &Check, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let (listen, again) = (args.listen, common.again(false));
    let said = admin::needs(listen.map(|listen| listen.port()), &args.needs, args.view.as_deref()).await;
    let said = said.map_err(|error| {
        let mut failure = failed(&DaemonQuery { command: "mcp-host check --needs", listen, again: &again }, &error);
        // No host is running that could have the tools.
        if matches!(error, AskError::NotRunning { .. }) {
            failure.exit = Exit::Usage;
        }
        failure
    })?;
    let needed = said.map_err(|refused| {
        let failure = Failure::new(Exit::Usage, refused.error);
        if refused.usage { failure } else { failure.help("it may be an older one: stop it, and start this one") }
    })?;
    if output.json {
        output.value(&needed)?;
    } else {
        output.lines(needed.iter().map(line).collect::<Vec<_>>())?;
    }
    let missing: Vec<Exit> = needed.iter().filter_map(|needed| exit(needed.need)).collect();
    let Some(worst) = WORST.into_iter().find(|exit| missing.contains(exit)) else { return Ok(Exit::Ok) };
    let error = format!("{} of {} cannot be called", missing.len(), text::count(needed.len(), "tool"));
    Err(Failure::new(worst, error))
}

fn exit(need: Need) -> Option<Exit> {
    match need {
        Need::Callable => None,
        Need::Withheld | Need::Denied => Some(Exit::Denied),
        Need::Login => Some(Exit::Unauthorized),
        Need::Down => Some(Exit::Unreachable),
        _ => Some(Exit::Usage),
    }
}

/// Describes whether one tool can be called, and what to do if not.
fn line(needed: &Needed) -> String {
    let server = needed.server.as_deref().map(quoted).unwrap_or_default();
    let why = needed.why.as_deref().map(|why| format!(": {}", text::headline(why))).unwrap_or_default();
    let said = match needed.need {
        Need::Callable => "callable".to_owned(),
        Need::Unknown => {
            let names: Vec<&str> = needed.nearest.iter().map(String::as_str).collect();
            format!("unknown; {}", question(&names).unwrap_or_else(|| "mcp-host tools lists what there is".to_owned()))
        }
        Need::Login => format!("needs a login: mcp-host login {server}"),
        Need::Down => format!("its server is down{why}; mcp-host status {server} says more"),
        Need::Withheld => format!("waits for approval: mcp-host approve {server}"),
        Need::Denied => format!("denied{why}"),
        _ => "cannot be called; the reason is newer than this mcp-host".to_owned(),
    };
    text::line(&format!("{}: {said}", needed.tool)).into_owned()
}
