//! Somebody who watches a host: a feed at its status socket that asks for everything, and a scrape of its metrics every
//! five seconds.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::interval;

use crate::host::Host;
use crate::process::loopback;

/// How often the metrics are read.
const SCRAPE: Duration = Duration::from_secs(5);

/// Watches until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    tasks: JoinSet<Result<()>>,
}

impl Watch {
    /// Begins to watch, and returns once the first events and the first metrics are read.
    pub(crate) async fn start(host: &Host) -> Result<Self> {
        let socket = host.home().join("mcp-host").join(format!("{}.sock", host.port));
        let mut feed =
            UnixStream::connect(&socket).await.with_context(|| format!("no feed at {}", socket.display()))?;
        feed.write_all(b"{\"feed\":{\"past\":100}}\n").await?;
        ensure!(feed.read(&mut [0; 4096]).await? > 0, "the feed ended");
        metrics(host.port).await?;
        let (mut tasks, port) = (JoinSet::new(), host.port);
        tasks.spawn(async move {
            let mut events = vec![0; 64 * 1024];
            while feed.read(&mut events).await? > 0 {}
            Ok(())
        });
        tasks.spawn(async move {
            let mut ticks = interval(SCRAPE);
            loop {
                ticks.tick().await;
                metrics(port).await?;
            }
        });
        Ok(Self { tasks })
    }

    /// Ends the watch.
    ///
    /// # Errors
    /// When it has ended before.
    pub(crate) fn end(mut self) -> Result<()> {
        match self.tasks.try_join_next() {
            Some(ended) => ended?.context("the watch ended early").and_then(|()| bail!("the feed ended early")),
            None => Ok(()),
        }
    }
}

/// Reads the metrics once.
pub(crate) async fn metrics(port: u16) -> Result<String> {
    let address = loopback(port);
    let mut stream = TcpStream::connect(address).await.context("a scrape")?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    ensure!(text.ends_with("# EOF\n") || text.contains("mcp_host_build_info"), "no metrics: {text:.200}");
    Ok(text)
}
