//! `mcp-host read URI`: one resource.

use mcp_host::protocol::Raw;

use crate::args::{Common, Read};
use crate::output::Output;
use crate::payload;
use crate::report::{Exit, Failure};
use crate::servers::Wanted;
use crate::session::{Asked, Session};

pub(crate) async fn run(args: &Read, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let session = Session::open(common, args.demo.demo, Wanted::Uri(&args.uri), output).await?;
    let outcome = read(args, &session).await;
    session.close().await;
    output.answer(&outcome?, payload::resource)?;
    Ok(Exit::Ok)
}

async fn read(args: &Read, session: &Session<'_>) -> Result<Raw, Failure> {
    let catalog = session.host.catalog();
    let known = catalog.resources().iter().map(|resource| resource.name()).collect();
    let call = session.host.read_resource(&args.uri);
    session.answer(call, &Asked { what: "resource", name: &args.uri, known }).await
}
