//! A collector of traces on loopback: it reads each request, and takes it.

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::process::loopback;

const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Takes requests until it is dropped.
#[derive(Debug)]
pub(crate) struct Collector {
    /// Its address, as `host.otel` names it.
    pub(crate) endpoint: String,
    _tasks: JoinSet<()>,
}

impl Collector {
    /// Starts one on a port of its own.
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind(loopback(0)).await.context("a collector")?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                // A host that ends closes its connection in the middle of a request.
                connections.spawn(async move { drop(take(stream).await) });
            }
        });
        Ok(Self { endpoint, _tasks: tasks })
    }
}

async fn take(stream: TcpStream) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length, mut body) = (String::new(), 0, Vec::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse()?,
            None if line == "\r\n" => {
                body.resize(length, 0);
                stream.read_exact(&mut body).await?;
                stream.write_all(TAKEN).await?;
            }
            _ => {}
        }
    }
}
