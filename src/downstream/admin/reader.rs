//! The other side of a feed: reads the lines that a daemon sends.

use std::path::PathBuf;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use super::feed::line;
use super::{AskError, FeedRequest, Refused, platform, replies};

/// A feed of a daemon, read line by line.
///
/// ```no_run
/// # async fn example() -> Result<(), mcp_host::admin::AskError> {
/// use mcp_host::admin::{self, FeedRequest, Part};
///
/// let request = FeedRequest::default().parts([Part::Calls]).past(10);
/// if let Ok(mut feed) = admin::feed(None, &request).await? {
///     while let Some(event) = feed.next().await? {
///         println!("{event}");
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct FeedReader {
    path: PathBuf,
    lines: BufReader<platform::Feed>,
    /// The first line, until it is read.
    first: Option<String>,
    /// The beginning of the next line.
    begun: Vec<u8>,
}

/// Asks a daemon for its feed. Without a port, asks the only daemon.
///
/// # Errors
/// When no daemon runs, several run and no port is given, or the daemon does not answer.
pub async fn feed(port: Option<u16>, request: &FeedRequest) -> Result<Result<FeedReader, Refused>, AskError> {
    let (mut reader, first) = FeedReader::open(port, &line(request)).await?;
    if let Err(refused) = replies::read::<serde_json::Value>(&first).map_err(AskError::Strange)? {
        return Ok(Err(refused));
    }
    reader.first = Some(first);
    Ok(Ok(reader))
}

impl FeedReader {
    /// Sends a request whose answer is lines. Returns the first line, too.
    pub(super) async fn open(port: Option<u16>, request: &str) -> Result<(Self, String), AskError> {
        let (path, stream) = platform::ask_for_feed(&platform::directories(), port, request).await?;
        let mut reader = Self { path, lines: BufReader::new(stream), first: None, begun: Vec::new() };
        match reader.read().await? {
            Some(first) => Ok((reader, first)),
            None => Err(AskError::Silent { path: reader.path, source: std::io::ErrorKind::UnexpectedEof.into() }),
        }
    }

    /// Returns the next event, a line of JSON; `None` once the daemon has ended.
    ///
    /// # Errors
    /// When the connection fails.
    ///
    /// # Cancel safety
    /// Dropping the wait loses nothing.
    pub async fn next(&mut self) -> Result<Option<String>, AskError> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.read().await,
        }
    }

    async fn read(&mut self) -> Result<Option<String>, AskError> {
        match (&mut self.lines).take(platform::ANSWER_BYTES).read_until(b'\n', &mut self.begun).await {
            // A line that lacks its end was cut off by the end of the daemon.
            Ok(_) if !self.begun.ends_with(b"\n") => Ok(None),
            Ok(_) => {
                let line = std::mem::take(&mut self.begun);
                Ok(Some(String::from_utf8_lossy(line.trim_ascii_end()).into_owned()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(None),
            Err(source) => Err(AskError::Silent { path: self.path.clone(), source }),
        }
    }
}
