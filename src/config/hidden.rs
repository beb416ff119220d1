//! Which values of a config must never be printed.
//!
//! These are all credentials, and all headers but a few. In environment variables, arguments and URLs, they are the
//! values that are marked as secret by their name or by how they look.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Auth, Config, Grant, Helper, HostSettings, Remote, SecretSource, Server, Stdio, Transport};
use crate::redact::{Scrubber, looks_secret, names_a_secret};

/// Headers whose values are not secret.
const PLAIN_HEADERS: [&str; 5] = ["accept", "accept-language", "cache-control", "content-type", "user-agent"];

impl Config {
    /// Returns a scrubber for the secrets of all servers and for the key that encrypts stored tokens.
    #[must_use]
    pub fn scrubber(&self) -> Scrubber {
        let mut scrubber = Scrubber::default();
        self.servers.iter().for_each(|server| scrubber.join(&server.scrubber()));
        self.host.preset_secrets().for_each(|value| scrubber.know(value.expose()));
        let sent = self.host.otel.iter().flat_map(|otel| &otel.headers);
        sent.filter(|(name, _)| !is_plain(name)).for_each(|(_, value)| credential(value.expose(), &mut scrubber));
        let cluster = self.host.cluster.iter().flat_map(|cluster| &cluster.keys);
        cluster.for_each(|key| scrubber.know(key.written().expose()));
        self.host.secrets.key.iter().for_each(|key| scrubber.know(key.written().expose()));
        scrubber
    }
}

impl HostSettings {
    /// Returns a scrubber for the values that views preset arguments to.
    pub(crate) fn preset_scrubber(&self) -> Scrubber {
        let mut scrubber = Scrubber::default();
        self.preset_secrets().for_each(|value| scrubber.know(value.expose()));
        scrubber
    }
}

impl Server {
    /// Returns a scrubber for the secrets of this server.
    #[must_use]
    pub fn scrubber(&self) -> Scrubber {
        let mut scrubber = Scrubber::default();
        self.secrets.iter().chain(self.tools.secrets()).for_each(|value| scrubber.know(value.expose()));
        match &self.transport {
            Transport::Stdio(stdio) => process(stdio, &mut scrubber),
            Transport::Http(remote) | Transport::Sse(remote) | Transport::Auto(remote) => {
                self::remote(remote, &mut scrubber);
            }
        }
        scrubber
    }
}

impl Helper {
    /// Hides, from now on, the values of these headers, which the program has printed.
    pub(crate) fn learn<'a>(&self, headers: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut scrubber = Scrubber::default();
        for (_, value) in headers.into_iter().filter(|(name, _)| !is_plain(name)) {
            credential(value, &mut scrubber);
        }
        self.given.learn(&scrubber);
    }
}

fn is_plain(header: &str) -> bool {
    PLAIN_HEADERS.contains(&header.to_ascii_lowercase().as_str())
}

fn process(stdio: &Stdio, scrubber: &mut Scrubber) {
    for (name, value) in &stdio.env {
        named(name, value.expose(), scrubber);
    }
    arguments(&stdio.args, scrubber);
}

/// Adds the secrets among these arguments to the scrubber.
pub(super) fn arguments(arguments: &[String], scrubber: &mut Scrubber) {
    let mut telling = None;
    for argument in arguments {
        if let Some(name) = std::mem::take(&mut telling).filter(|_| !argument.starts_with('-')) {
            named(name, argument, scrubber);
        }
        match argument.split_once(['=', ':']) {
            Some((name, value)) if names_a_secret(name) => named(name, value.trim(), scrubber),
            _ => named("", argument, scrubber),
        }
        if argument.starts_with('-') && names_a_secret(argument) {
            telling = Some(argument.as_str());
        }
    }
}

fn remote(remote: &Remote, scrubber: &mut Scrubber) {
    for (name, value) in &remote.headers {
        if !is_plain(name) {
            credential(value.expose(), scrubber);
        }
    }
    if let Some(helper) = &remote.headers_helper {
        arguments(&helper.args, scrubber);
        scrubber.follow(&helper.given);
    }
    if let Auth::OAuth(oauth) = &remote.auth {
        let mut sources: Vec<_> = oauth.private_key.iter().collect();
        oauth.client_secret.iter().for_each(|secret| credential(secret.expose(), scrubber));
        match &oauth.grant {
            Grant::Code | Grant::ClientCredentials => {}
            Grant::Workload(assertion) => sources.push(assertion),
            Grant::Enterprise(idp) => {
                idp.client_secret.iter().for_each(|secret| credential(secret.expose(), scrubber));
                sources.push(&idp.id_token);
            }
        }
        for source in sources {
            if let SecretSource::Given(secret) = source {
                credential(secret.expose(), scrubber);
            }
        }
    }
    for (name, value) in remote.url.query_pairs() {
        named(&name, &value, scrubber);
    }
    if let Some(query) = remote.url.query() {
        scrubber.know(query);
    }
    for part in remote.url.path_segments().into_iter().flatten().filter(|part| looks_secret(part)) {
        scrubber.know(part);
    }
}

/// Adds a value to the scrubber if its name or its look marks it as secret, and any secrets in it if it is a URL.
fn named(name: &str, value: &str, scrubber: &mut Scrubber) {
    if names_a_secret(name) || looks_secret(value) {
        credential(value, scrubber);
    }
    // Databases are often given as a URL with a password.
    if let Ok(url) = url::Url::parse(value) {
        scrubber.know(url.password().unwrap_or_default());
        url.query_pairs().filter(|(name, value)| names_a_secret(name) || looks_secret(value)).for_each(|(_, value)| {
            scrubber.know(&value);
        });
    }
}

/// Adds a credential to the scrubber, and its parts that are secret by themselves: the text after the scheme, and the
/// password in `Basic` credentials.
fn credential(value: &str, scrubber: &mut Scrubber) {
    scrubber.know(value);
    let Some((scheme, credential)) = value.split_once(' ') else { return };
    scrubber.know(credential);
    if scheme.eq_ignore_ascii_case("basic")
        && let Ok(pair) = STANDARD.decode(credential.trim())
        && let Ok(pair) = String::from_utf8(pair)
        && let Some((_, password)) = pair.split_once(':')
    {
        scrubber.know(password);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Syntax, Vars, parse_str};

    #[test]
    fn h97_what_is_secret_in_a_config_is_known() {
        let text = r#"{ "mcpServers": {
            "a": { "command": "x", "env": { "API_KEY": "secret-1", "DB": "postgres://u:secret-2@h/d", "MODE": "no-secret-a",
                                            "ODD": "f00ba4f00ba4f00ba4" },
                   "args": ["--token", "secret-3", "--password=secret-4", "${P_TOKEN}", "${HOME}", "no-secret-b"] },
            "b": { "url": "https://example.com/k3yk3yk3yk3yk3yk3y/mcp?api_key=secret-6",
                   "headers": { "X-Anything": "secret-7", "User-Agent": "no-secret-c" },
                   "auth": { "type": "basic", "username": "ada", "password": "secret-8" } },
            "c": { "url": "https://example.com/mcp", "auth": { "type": "bearer", "token": "secret-9" } } } }"#;
        let vars = Vars::from_iter([("P_TOKEN", "secret-5"), ("HOME", "/home/ada")]);
        let config = parse_str(text, Syntax::Json, "mcp.json", &vars).unwrap();
        let scrubber = config.scrubber();
        for number in 1..=9 {
            let text = format!("said secret-{number} there");
            assert_eq!(scrubber.without_known(&text), "said *** there");
        }
        for text in ["f00ba4f00ba4f00ba4", "k3yk3yk3yk3yk3yk3y"] {
            assert_eq!(scrubber.without_known(text), "***");
        }
        let plain = "no-secret-a no-secret-b no-secret-c /home/ada";
        assert_eq!(scrubber.without_known(plain), plain);
    }
}
