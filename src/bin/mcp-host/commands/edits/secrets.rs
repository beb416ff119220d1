//! Secrets of a new server: either asked for without echo and stored in the keyring, or refused in plain text.

use console::Term;
use mcp_host::auth::keep_secret;
use mcp_host::config::Config;
use mcp_host::config::edit::NewServer;
use mcp_host::redact::looks_secret;

use crate::args::Add;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text::{self, quoted};

/// Adds a reference to the entry for each secret named by `--secret`.
///
/// # Errors
/// Fails if there is no terminal at which to ask for the values.
pub(super) fn refer(args: &Add, server: &mut NewServer, output: &Output) -> Result<(), Failure> {
    if let Some(key) = args.secret.first()
        && !output.interactive()
    {
        let error = format!("there is no terminal to ask for the value of {} on", text::line(key));
        let name = entry(&args.name, key);
        let help =
            format!("put it into the keyring as {name} of the service mcp-host-config, and give {}", reference(&name));
        return Err(Failure::new(Exit::Usage, error).help(help));
    }
    let pairs = if server.url.is_some() { &mut server.headers } else { &mut server.env };
    pairs.extend(args.secret.iter().map(|key| (key.clone(), reference(&entry(&args.name, key)))));
    Ok(())
}

/// Asks for these secrets, and stores them in the keyring.
pub(super) async fn ask(args: &Add, output: &Output) -> Result<(), Failure> {
    for key in &args.secret {
        output.ask(&format!("{key}:"));
        let typed = tokio::task::spawn_blocking(|| Term::stderr().read_secure_line()).await;
        let secret = match typed {
            Ok(Ok(secret)) if !secret.trim().is_empty() => secret.trim().to_owned(),
            Ok(Ok(_)) => {
                return Err(Failure::new(Exit::Usage, format!("no value was given for {}", text::line(key)))
                    .help("nothing was written; run it again"));
            }
            _ => return Err(Failure::silent(Exit::Interrupted)),
        };
        keep(&args.name, key, &secret).await.map_err(|failure| {
            let option = if args.url.is_some() { "-H" } else { "-e" };
            let sign = if args.url.is_some() { ": " } else { "=" };
            failure.help(format!("keep it in a variable, and give {option} '{}{sign}${{env:NAME}}'", text::line(key)))
        })?;
    }
    Ok(())
}

/// Stores a secret of a server in the keyring.
pub(in crate::commands) async fn keep(server: &str, key: &str, secret: &str) -> Result<(), Failure> {
    let (name, secret) = (entry(server, key), secret.to_owned());
    let stored = tokio::task::spawn_blocking(move || keep_secret(&name, &secret)).await;
    match stored.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(()) => Ok(()),
        Err(reason) => {
            Err(Failure::new(Exit::Failed, format!("the keyring cannot keep {}: {reason}", text::line(key))))
        }
    }
}

/// Returns the name of a server's secret in the keyring.
fn entry(server: &str, key: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    format!("{}/{}", server.chars().map(plain).collect::<String>(), key.chars().map(plain).collect::<String>())
}

/// Returns the reference to a secret of a server.
pub(in crate::commands) fn reference_to(server: &str, key: &str) -> String {
    reference(&entry(server, key))
}

fn reference(name: &str) -> String {
    format!("${{keyring:{name}}}")
}

/// Refuses secrets that would be written into the file in plain text.
pub(super) fn refuse_plain(server: &NewServer, name: &str, config: &Config) -> Result<(), Failure> {
    let is_literal = |value: &str| !value.contains("${") && looks_secret(value);
    let pairs = server.env.iter().chain(&server.headers);
    let mut found: Vec<String> = pairs.filter(|(_, value)| is_literal(value)).map(|(key, _)| key.clone()).collect();
    // A value that `check` reports as a written secret counts as one here, too.
    let written = config.notes.iter().filter(|note| note.server.as_deref() == Some(name));
    let written = written.filter(|note| note.message == "a secret is written in this file");
    for field in written.filter_map(|note| note.field.as_deref()).flat_map(|fields| fields.split(", ")) {
        let key = field.rsplit('.').next().unwrap_or(field).to_owned();
        if !found.contains(&key) {
            found.push(key);
        }
    }
    if let Some(key) = found.first() {
        let error = format!("the value of {} looks like a secret, and would stand in the file", text::line(key));
        let help = format!("--secret {} asks for it and keeps it in the keyring; --plain writes it", quoted(key));
        return Err(Failure::new(Exit::Usage, error).help(help));
    }
    let mut words = server.command.iter().skip(1);
    let in_url = |url: &String| url.split(['/', '?', '&', '=']).any(is_literal);
    if words.any(|word| is_literal(word)) || server.url.as_ref().is_some_and(in_url) {
        let error = "an argument looks like a secret, and would stand in the file";
        let help = "give it as a variable or a header with --secret; or keep it in a variable: '${env:NAME}'; --plain writes it";
        return Err(Failure::new(Exit::Usage, error).help(help));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_a_name_that_every_keyring_takes() {
        assert_eq!(entry("My files", "API_KEY"), "My-files/API_KEY");
        assert_eq!(reference(&entry("a", "Authorization")), "${keyring:a/Authorization}");
    }

    #[test]
    fn what_looks_like_a_secret_is_not_written() {
        let refused = |server: &NewServer| refuse_plain(server, "a", &Config::default()).is_err();
        let token = concat!("ghp_", "0123456789abcdefghijABCDEFGHIJ012345");
        let env = |value: &str| NewServer {
            env: vec![("X".to_owned(), value.to_owned())],
            ..NewServer::process("x", ["-y"])
        };
        assert!(refused(&env(token)) && !refused(&env("${keyring:a/X}")) && !refused(&env("debug")));
        assert!(refused(&NewServer::process("x", [token])) && !refused(&NewServer::process("x", ["/tmp"])));
        assert!(refused(&NewServer::at(format!("https://a.example/{token}/mcp"))));
        assert!(!refused(&NewServer::at("https://a.example/mcp?team=core")));
    }
}
