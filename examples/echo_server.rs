//! A small MCP server over stdio, on the crate's own in-process servers: `cargo run --example echo_server`.
//! `mcp-host serve --demo` runs the same code as its child process.

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    mcp_host::demo::echo().serve_stdio().await?;
    Ok(())
}
