//! `run_script`: runs a script that calls tools, for a client (`host.catalog.mode = "code"`).
//!
//! In: a call of `run_script`. Out: what the script returned, and its log. The script runs in a process of its own
//! (`crate::script`), which mcp-host does not trust: this file starts it, ends it, and enforces every limit but those
//! of memory and CPU time. `inner.rs` makes its calls, each as the client would. **Invariant:** a script does nothing
//! that its client could not do by calls of its own, and nothing of it is left once its request is over.

mod inner;
mod line;
mod outcome;
mod run;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use self::line::Line;
use self::outcome::{Ending, answer};
use self::run::{Caller, run};
use super::client::Client;
use super::route::OwnTool;
use super::{Mailbox, Router, search};
use crate::answered::Answered;
use crate::config::Code;
use crate::protocol::Raw;
use crate::registry::search::RUN;
use crate::script::Start;

/// The most bytes of a script.
const SCRIPT: usize = 256 * 1024;

/// Returns `run_script` as a tool of mcp-host.
pub(super) fn own() -> Arc<dyn OwnTool> {
    Arc::new(RunScript)
}

#[derive(Debug)]
struct RunScript;

impl OwnTool for RunScript {
    fn name(&self) -> &str {
        RUN
    }

    fn call<'a>(
        &'a self,
        router: &'a Router,
        client: &'a Arc<Client>,
        params: Raw,
        leg: &'a Arc<Mailbox>,
    ) -> BoxFuture<'a, Answered> {
        Box::pin(async move {
            let Router(inner) = router;
            let settings = inner.manager.settings();
            let code = settings.catalog_of(client.who.view.name.name(&settings)).code.clone();
            let start = match read(&params, &code, leg.limits().body) {
                Ok(start) => start,
                Err(text) => return Ok(search::failed(&format!("{RUN}: {text}"))),
            };
            let place = match inner.scripts.enter(code.scripts, code.time).await {
                Ok(place) => place,
                Err(full) => return Ok(search::failed(&format!("{RUN}: {full}"))),
            };
            let caller = Caller::new(router, client, leg, &params, code);
            let Ending { log, end } = run(&caller, &start).await;
            drop(place);
            Ok(answer(&end, &log, &caller.code))
        })
    }
}

/// The scripts that run and wait in this process.
pub(super) type Scripts = Line;

/// Reads the arguments.
fn read(params: &Raw, code: &Code, body: usize) -> Result<Start, String> {
    let arguments = params.member("arguments").unwrap_or_else(Raw::empty_object);
    let members = arguments.distinct(["script", "input"]);
    let [script, input] = members.map_err(|name| format!("the arguments hold `{name}` twice"))?;
    let script = script.as_ref().and_then(Raw::string);
    let script = script.ok_or("`script` is missing: the body of an async function, in JavaScript")?.into_owned();
    if script.len() > SCRIPT {
        return Err(format!("the script has {} bytes; {SCRIPT} at most: give data as `input`", script.len()));
    }
    let input = input.unwrap_or_else(Raw::null);
    if input.as_bytes().len() > code.memory / 2 {
        let (bytes, most) = (input.as_bytes().len(), code.memory / 2);
        return Err(format!("`input` has {bytes} bytes; {most} at most (half of host.catalog.code.memory)"));
    }
    let input: Box<RawValue> = input.as_value().to_owned();
    Ok(Start { script, input, memory: code.memory, cpu: code.cpu, output: code.output, arguments: body })
}
