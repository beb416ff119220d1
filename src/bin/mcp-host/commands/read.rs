//! `mcp-host read URI`: one resource.

use super::{answer, call_failed, only_server_failed};
use crate::args::{Common, Read};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{self, Wanted};
use crate::{payload, text};

pub(crate) async fn run(args: &Read, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let host = servers::start(common, args.demo.demo, Wanted::Uri(&args.uri), output).await?;
    let outcome = match only_server_failed(&host) {
        Some(failure) => Err(failure),
        None => answer(host.read_resource(&args.uri), output).await.map_err(|error| {
            let catalog = host.catalog();
            let uris: Vec<&str> = catalog.resources().iter().map(|resource| resource.name()).collect();
            call_failed(error, "resource", &args.uri, &uris, &host, output)
        }),
    };
    host.shutdown().await;
    let result = outcome?;
    if output.json {
        output.line(&text::json(result.as_str()))?;
    } else {
        output.lines(payload::resource(&result))?;
    }
    Ok(Exit::Ok)
}
