//! `mcp-host read URI`: one resource.

use mcp_host::protocol::Raw;
use mcp_host::registry::Kind;

use crate::args::{Common, Read};
use crate::output::Output;
use crate::payload::{self, Notes};
use crate::report::{Exit, Failure};
use crate::save::{self, Target};
use crate::servers::Selection;
use crate::session::{Lookup, Session};

pub(crate) async fn run(args: &Read, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let target = args.out.as_deref().map(Target::of).transpose()?;
    let session = Box::pin(Session::open(common, args.demo.demo, Selection::Uri(&args.uri), output)).await?;
    let outcome = read(args, &session).await;
    session.close().await;
    let result = outcome?;
    let mut notes = Notes::Hint("--out FILE saves it");
    let mut unsaved = None;
    if let Some(target) = target {
        let saved = save::all(payload::media_of_resource(&result), "resource", target).await;
        saved.tell(output);
        notes = Notes::Each(saved.notes.into_iter());
        unsaved = saved.failure;
    }
    output.answer(&result, |result| payload::resource(result, notes))?;
    unsaved.map_or(Ok(Exit::Ok), Err)
}

async fn read(args: &Read, session: &Session<'_>) -> Result<Raw, Failure> {
    let catalog = session.host.catalog();
    let known = session.entries(Kind::Resources, &catalog).into_iter().map(|resource| resource.name()).collect();
    let call = session.host.read_resource(&args.uri);
    session.answer(call, &Lookup { what: "resource", name: &args.uri, known }).await
}
