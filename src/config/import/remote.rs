//! `mcp-remote`, a bridge that connects clients which only start programs to a server with a URL: finds that URL; pure.
//!
//! If an option is unknown here, the entry keeps starting the bridge, which works as before.

use crate::config::Stdio;
use crate::config::syntax::Writer;

/// The server to which a bridge leads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Bridged {
    url: String,
    kind: Option<&'static str>,
    headers: Vec<(String, String)>,
    is_insecure: bool,
    /// The tools that the bridge leaves out.
    pub(super) excluded: Vec<String>,
}

impl Bridged {
    pub(super) fn write(&self, entry: &mut Writer) {
        entry.some("type", self.kind);
        entry.text("url", &self.url);
        entry.pairs("headers", self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        if self.is_insecure {
            entry.flag("insecureHttp", true);
        }
    }
}

/// Returns the server to which a program leads, if the program is this bridge.
pub(super) fn of(stdio: &Stdio) -> Option<Bridged> {
    let program = stdio.command.rsplit(['/', '\\']).next()?;
    let program = program.trim_end_matches(".exe").trim_end_matches(".cmd");
    let mut words = stdio.args.iter().map(String::as_str).peekable();
    match program {
        "mcp-remote" => {}
        "npx" | "bunx" | "pnpx" => {
            while words.next_if(|word| matches!(*word, "-y" | "--yes" | "--")).is_some() {}
            words.next_if(|word| is_bridge(word))?;
        }
        "pnpm" | "yarn" => {
            words.next_if_eq(&"dlx")?;
            words.next_if(|word| is_bridge(word))?;
        }
        _ => return None,
    }
    let url = words
        .next()
        .filter(|url| url.starts_with("http://") || url.starts_with("https://") || url.starts_with("${"))?;
    let mut bridged = Bridged { url: url.to_owned(), ..Bridged::default() };
    while let Some(word) = words.next() {
        match word {
            "--header" => {
                let (name, value) = words.next()?.split_once(':')?;
                bridged.headers.push((name.trim().to_owned(), filled(value.trim(), stdio)?));
            }
            "--transport" => {
                bridged.kind = match words.next()? {
                    "http-only" => Some("http"),
                    "sse-only" => Some("sse"),
                    "http-first" | "sse-first" => None,
                    _ => return None,
                }
            }
            "--ignore-tool" => bridged.excluded.push(words.next()?.to_owned()),
            "--allow-http" => bridged.is_insecure = true,
            // These say where it waits for a login, how long, and how much it logs.
            "--host" | "--auth-timeout" => drop(words.next()?),
            "--debug" | "--silent" => {}
            port if port.parse::<u16>().is_ok() => {}
            _ => return None,
        }
    }
    Some(bridged)
}

fn is_bridge(word: &str) -> bool {
    word == "mcp-remote" || word.strip_prefix("mcp-remote@").is_some_and(|version| !version.is_empty())
}

/// Returns a value with the variables substituted that the program itself would substitute: those that its entry sets.
fn filled(value: &str, stdio: &Stdio) -> Option<String> {
    let (mut out, mut rest) = (String::new(), value);
    while let Some((before, behind)) = rest.split_once("${") {
        let (name, after) = behind.split_once('}')?;
        out.push_str(before);
        match stdio.env.iter().find(|(known, _)| known == name) {
            Some((_, value)) => out.push_str(value.expose()),
            None => out.push_str(&format!("${{{name}}}")),
        }
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bridge(args: &[&str]) -> Option<Bridged> {
        of(&Stdio::new("npx").args(args.iter().copied()).env("AUTH", "Bearer x"))
    }

    #[test]
    fn a_bridge_becomes_its_url() {
        let url = "https://a.example/mcp";
        assert_eq!(bridge(&["-y", "mcp-remote", url]), Some(Bridged { url: url.to_owned(), ..Bridged::default() }));
        let all = ["mcp-remote@latest", url, "3334", "--header", "Authorization:${AUTH}", "--header", "X-T: ${TEAM}"];
        let more = ["--transport", "sse-only", "--ignore-tool", "rm", "--debug", "--allow-http"];
        let wanted = Bridged {
            url: url.to_owned(),
            kind: Some("sse"),
            headers: vec![
                ("Authorization".to_owned(), "Bearer x".to_owned()),
                ("X-T".to_owned(), "${TEAM}".to_owned()),
            ],
            is_insecure: true,
            excluded: vec!["rm".to_owned()],
        };
        assert_eq!(bridge(&[&all[..], &more].concat()), Some(wanted));
    }

    #[test]
    fn a_bridge_with_options_that_are_unknown_stays_a_program() {
        for args in [
            &["-y", "mcp-remote", "https://a.example", "--static-oauth-client-info", "{}"][..],
            &["-y", "mcp-remote", "https://a.example", "--header"],
            &["-y", "mcp-remote"],
            &["-y", "mcp-remote-2", "https://a.example"],
            &["-y", "files", "mcp-remote", "https://a.example"],
        ] {
            assert_eq!(bridge(args), None, "{args:?}");
        }
        assert_eq!(of(&Stdio::new("node").args(["mcp-remote", "https://a.example"])), None);
    }
}
