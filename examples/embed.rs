//! The crate in a program: lists the tools of a config's servers and calls one.
//! `cargo run --example embed -- mcp.json files__read_file '{"path": "notes.txt"}'`

use std::io::Write as _;
use std::time::Duration;

use mcp_host::Host;
use mcp_host::protocol::Raw;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Servers end with this program even if it is killed.
    mcp_host::guard();
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: embed CONFIG [TOOL [JSON]]")?;
    let host = Host::builder().config_file(file).start().await?;
    let done = run(&host, args).await;
    // In any case, leave no process behind.
    host.shutdown().await;
    done
}

async fn run(host: &Host, mut args: impl Iterator<Item = String>) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout();
    for tool in host.catalog_ready().await.tools() {
        writeln!(out, "{}", tool.name())?;
    }
    let Some(tool) = args.next() else { return Ok(()) };
    let arguments = Raw::parse(&args.next().unwrap_or_else(|| "{}".to_owned()).into())?;
    let result = host.call_tool(&tool, arguments).timeout(Duration::from_secs(30)).await?;
    writeln!(out, "{result}")?;
    Ok(())
}
