//! The server that the official conformance suite expects, on the crate's own in-process servers: its tools, resources,
//! and prompts have the names and contents of the suite's scenarios. `tests/conformance/run` starts it.
//!
//! `conformance_server --listen 127.0.0.1:8900` serves Streamable HTTP at `/mcp` and announces it on standard output;
//! without it the server speaks over standard input and output. `--era legacy` or `--era modern` speaks the revisions
//! of one era only. `--era both` is a different server in each era, at one URL: with a session it asks by requests and
//! announces changed resources, without one it asks only by results. For a client of the wrong era, some tools do not
//! work.

mod asks;
mod both;
mod changes;
mod contents;
mod prompts;
mod questions;
mod reports;
mod resources;
mod rounds;
mod ways;
mod words;

use std::io::Write as _;
use std::net::SocketAddr;

use mcp_host::{Eras, InProcess};
use tokio::net::TcpListener;

use ways::Ways;

const USAGE: &str = "usage: conformance_server [--listen ADDR:PORT] [--era legacy|modern|both]";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { listen, eras, apart } = Arguments::read(std::env::args().skip(1))?;
    let server = || server(Ways::Both).eras(eras);
    let Some(address) = listen else {
        return Ok(server().serve_stdio().await?);
    };
    let listener = TcpListener::bind(address).await?;
    writeln!(std::io::stdout(), "listening on http://{}/mcp", listener.local_addr()?)?;
    if apart {
        return Ok(both::serve(listener).await?);
    }
    Ok(server().serve_http(listener).await?)
}

fn server(ways: Ways) -> InProcess {
    let server = InProcess::new("conformance", env!("CARGO_PKG_VERSION"));
    let server = questions::add(reports::add(contents::add(server)), ways);
    changes::add(rounds::add(prompts::add(resources::add(server)), ways))
}

#[derive(Default)]
struct Arguments {
    listen: Option<SocketAddr>,
    eras: Eras,
    /// Whether it behaves differently in each era.
    apart: bool,
}

impl Arguments {
    fn read(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut read = Self::default();
        while let Some(argument) = args.next() {
            let (flag, value) = match argument.split_once('=') {
                Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
                None => (argument, args.next()),
            };
            match (flag.as_str(), value.as_deref()) {
                ("--listen", Some(value)) => {
                    let address = value.parse().map_err(|error| format!("--listen {value}: {error}"))?;
                    read.listen = Some(address);
                }
                ("--era", Some("legacy")) => read.eras = Eras::Legacy,
                ("--era", Some("modern")) => read.eras = Eras::Modern,
                ("--era", Some("both")) => read.apart = true,
                _ => return Err(format!("{flag} {}: not understood; {USAGE}", value.unwrap_or_default())),
            }
        }
        if read.apart && read.listen.is_none() {
            return Err(format!("--era both: a process speaks one era; add --listen; {USAGE}"));
        }
        Ok(read)
    }
}
