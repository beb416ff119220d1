//! Commands and URLs of servers in a form that may be shown: without the keys that they may contain.

use super::{Remote, Source, Transport};
use crate::redact::{self, MASK, looks_secret};

impl Transport {
    /// Returns the command or the URL, safe to show.
    ///
    /// ```
    /// use mcp_host::config::{Remote, Transport};
    ///
    /// let url = "https://example.com/mcp?api_key=hunter2".parse()?;
    /// assert_eq!(Transport::Auto(Remote::new(url)).shown(), "https://example.com/mcp?…");
    /// # Ok::<_, url::ParseError>(())
    /// ```
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Stdio(stdio) => words(&stdio.command, &stdio.args),
            Self::Http(remote) | Self::Sse(remote) | Self::Auto(remote) => url(remote),
        }
    }

    /// Returns the command that prints headers for the server, safe to show, if it has one.
    #[must_use]
    pub fn shown_helper(&self) -> Option<String> {
        match self {
            Self::Http(remote) | Self::Sse(remote) | Self::Auto(remote) => {
                remote.headers_helper.as_ref().map(|helper| words(&helper.program, &helper.args))
            }
            Self::Stdio(_) => None,
        }
    }
}

impl Source {
    /// Returns the file and the line; `None` if the entry comes from no file.
    ///
    /// ```
    /// use mcp_host::config::Source;
    ///
    /// let source = Source { file: "mcp.json".into(), line: Some(3) };
    /// assert_eq!(source.shown().as_deref(), Some("mcp.json:3"));
    /// assert_eq!(Source::default().shown(), None);
    /// ```
    #[must_use]
    pub fn shown(&self) -> Option<String> {
        let file = self.file.display().to_string();
        (!file.is_empty()).then(|| match self.line {
            Some(line) => format!("{file}:{line}"),
            None => file,
        })
    }
}

fn words(program: &str, args: &[String]) -> String {
    // A program name with blanks is often a whole command line.
    let words: Vec<String> = program.split(' ').map(str::to_owned).chain(args.iter().cloned()).collect();
    redact::arguments(&words).join(" ")
}

fn url(remote: &Remote) -> String {
    let origin = remote.url.origin().ascii_serialization();
    let path = remote.url.path().split('/').map(|part| if looks_secret(part) { MASK } else { part });
    let query = if remote.url.query().is_some() { "?…" } else { "" };
    format!("{origin}{}{query}", path.collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Stdio;

    fn shown(args: &[&str]) -> String {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        Transport::Stdio(Stdio { command: "npx".to_owned(), args, ..Stdio::default() }).shown()
    }

    #[test]
    fn keys_in_arguments_are_masked() {
        assert_eq!(
            shown(&["-y", "@modelcontextprotocol/server-filesystem", "/home/user/src"]),
            "npx -y @modelcontextprotocol/server-filesystem /home/user/src"
        );
        assert_eq!(shown(&["--api-key", "hunter2", "--port", "80"]), "npx --api-key *** --port 80");
        assert_eq!(shown(&["--token=hunter2", "Authorization: Basic eA"]), "npx --token=*** Authorization:***");
        assert_eq!(shown(&["a1b2c3d4e5f6a7b8", "sk-x", "0b9dd0a0-1d6c-4d8f-8f0e-0f4f5b6a7c8d"]), "npx *** *** ***");
    }

    #[test]
    fn keys_in_a_command_that_is_a_whole_line_are_masked() {
        let command = "npx -y server --api-key hunter2".to_owned();
        assert_eq!(Transport::Stdio(Stdio { command, ..Stdio::default() }).shown(), "npx -y server --api-key ***");
    }

    #[test]
    fn keys_in_urls_are_masked() {
        let url = "https://example.com/v1/a1b2c3d4e5f6a7b8c9/mcp?api_key=hunter2".parse().unwrap();
        let remote = Remote::new(url);
        assert_eq!(Transport::Auto(remote).shown(), "https://example.com/v1/***/mcp?…");
    }
}
