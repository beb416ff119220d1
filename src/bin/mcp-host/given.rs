//! Reads arguments from stdin and files: all of them for `-` and `@FILE`, one for `key=@FILE`.
//!
//! `key=@@text` is the text `@text`. Files are read once, before anything starts. Not here: what the words mean
//! (`parameters.rs`).

use std::io::IsTerminal as _;

use mcp_host::protocol::Raw;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text::quoted;

/// How many bytes to read at most: more than any server accepts as one message.
const MOST: u64 = 64 << 20;

/// Returns the words of the command line, with file names replaced by the text of the files.
pub(crate) async fn read(words: &[String], output: &Output) -> Result<Vec<String>, Failure> {
    if let [word] = words
        && let Some(source) = Source::of(word)
    {
        return Ok(vec![object(source, output).await?]);
    }
    let mut given = Vec::with_capacity(words.len());
    let mut stdin = false;
    for word in words {
        if Source::of(word).is_some() {
            return Err(Failure::new(
                Exit::Usage,
                format!("`{word}` gives all arguments at once, so nothing may stand beside it"),
            )
            .help("mcp-host call TOOL -, mcp-host call TOOL @FILE, or for one argument: key=@FILE"));
        }
        let value = word.split_once('=').filter(|(key, _)| !key.is_empty() && !word.trim_start().starts_with('{'));
        given.push(match value {
            Some((key, text)) if text.starts_with("@@") => format!("{key}={}", &text[1..]),
            Some((key, text)) if text.starts_with('@') => {
                let source = Source::of(text).unwrap_or(Source::File(""));
                if matches!(source, Source::Stdin) && std::mem::replace(&mut stdin, true) {
                    return Err(Failure::new(Exit::Usage, "stdin can be read for one argument only")
                        .help("put the values of the other arguments into files: key=@FILE"));
                }
                let literal = format!(
                    "{key}=@FILE reads a file; to pass a text that begins with @, write {}",
                    quoted(&format!("{key}=@{text}"))
                );
                format!("{key}={}", source.text(output).await.map_err(|failure| failure.or_help(literal))?)
            }
            _ => word.clone(),
        });
    }
    Ok(given)
}

/// Reads the JSON object with all arguments.
async fn object(source: Source<'_>, output: &Output) -> Result<String, Failure> {
    let usage = "mcp-host call TOOL @FILE takes all arguments from a file, as one JSON object";
    let text = source.text(output).await.map_err(|failure| failure.or_help(usage))?;
    let name = source.name();
    let wrong = |why: &str| Failure::new(Exit::Usage, format!("{name} {why}")).help("it must be one JSON object");
    match Raw::parse(&text.clone().into_bytes().into()) {
        Ok(raw) if raw.is_object() => Ok(text),
        Ok(_) => Err(wrong("is JSON, but not an object")),
        Err(error) => Err(wrong(&format!("is not valid JSON: {error}"))),
    }
}

/// Where a text comes from.
#[derive(Clone, Copy)]
enum Source<'a> {
    Stdin,
    File(&'a str),
}

impl<'a> Source<'a> {
    fn of(word: &'a str) -> Option<Self> {
        match word {
            "-" | "@-" => Some(Self::Stdin),
            word => word.strip_prefix('@').map(Self::File),
        }
    }

    fn name(self) -> String {
        match self {
            Self::Stdin => "stdin".to_owned(),
            Self::File(path) => format!("`{path}`"),
        }
    }

    async fn text(self, output: &Output) -> Result<String, Failure> {
        let failed = |why: String| Failure::new(Exit::Usage, format!("{} {why}", self.name()));
        let bytes = match self {
            Self::Stdin => {
                if std::io::stdin().is_terminal() {
                    output.remark("reading from the terminal; Ctrl-D ends it");
                }
                all(tokio::io::stdin()).await
            }
            Self::File(path) => match tokio::fs::File::open(path).await {
                Ok(file) => all(file).await,
                Err(error) => Err(error),
            },
        };
        let bytes = bytes.map_err(|error| {
            let why = error.to_string();
            // Few people know the error number.
            failed(format!("cannot be read: {}", why.split(" (os error ").next().unwrap_or_default().to_lowercase()))
        })?;
        if bytes.len() as u64 > MOST {
            return Err(failed("is larger than 64 MiB".to_owned()));
        }
        String::from_utf8(bytes).map_err(|_| {
            failed("is not UTF-8 text".to_owned())
                .help("where a tool takes bytes as base64, give it that: data=\"$(base64 -w0 FILE)\"")
        })
    }
}

async fn all(from: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MOST + 1).read_to_end(&mut bytes).await?;
    Ok(bytes)
}
