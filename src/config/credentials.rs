//! Decides whether the config gives a server credentials. The answers of such a server belong to one account and must
//! not be shared.
//!
//! **Invariant:** every type is destructured, so that a new field does not compile until this file says whether it
//! brings credentials. Not covered here: the OAuth token of a user who has signed in, which is not in the config.

use super::{Auth, Grant, OAuth, Remote, Server, Stdio, Tls, Transport, hidden};
use crate::redact::{Scrubber, looks_secret, names_a_secret};

impl Server {
    /// Reports whether its requests or its process carry credentials from the config.
    pub(crate) fn brings_credentials(&self) -> bool {
        let Self {
            transport,
            secrets,
            name: _,
            alias: _,
            source: _,
            sharing: _,
            start: _,
            idle_stop: _,
            manifest: _,
            required: _,
            era: _,
            start_timeout: _,
            call_timeout: _,
            max_call_time: _,
            max_concurrent: _,
            pool: _,
            queue_timeout: _,
            repeatable: _,
            trust_annotations: _,
            restart: _,
            include_tools: _,
            exclude_tools: _,
            rename: _,
            tags: _,
            validate: _,
            // A preset value from a variable is among the secrets already.
            tools: _,
            roots: _,
            prefix: _,
            pin_ignore: _,
            description: _,
            disabled: _,
            unusable: _,
            project: _,
            entry: _,
            locked: _,
            daemon: _,
        } = self;
        !secrets.is_empty() || transport.bring_credentials()
    }
}

impl Transport {
    fn bring_credentials(&self) -> bool {
        match self {
            Self::Stdio(stdio) => stdio.brings_credentials(),
            Self::Http(remote) | Self::Sse(remote) | Self::Auto(remote) => remote.brings_credentials(),
        }
    }
}

impl Stdio {
    fn brings_credentials(&self) -> bool {
        let Self { command: _, args, env, forward_env, cwd: _, package: _, sandbox: _ } = self;
        !env.is_empty() || !forward_env.is_empty() || hold_a_secret(args)
    }
}

impl Remote {
    fn brings_credentials(&self) -> bool {
        let Self { url, headers, headers_helper, insecure_http: _, tls, auth } = self;
        let in_query = url.query_pairs().any(|(name, value)| names_a_secret(&name) || looks_secret(&value));
        let in_path = url.path_segments().into_iter().flatten().any(looks_secret);
        let given = !headers.is_empty() || headers_helper.is_some() || in_query || in_path;
        given || tls.brings_credentials() || auth.brings_credentials()
    }
}

impl Tls {
    fn brings_credentials(&self) -> bool {
        let Self { ca: _, identity, only_tls13: _, pin: _, trust_on_first_use: _ } = self;
        identity.is_some()
    }
}

impl Auth {
    fn brings_credentials(&self) -> bool {
        match self {
            Self::Headers => false,
            Self::OAuth(oauth) => oauth.brings_credentials(),
        }
    }
}

impl OAuth {
    /// Reports whether these settings get tokens without a user who signs in, or hold a secret of the client.
    fn brings_credentials(&self) -> bool {
        let Self {
            grant,
            client_id: _,
            client_secret,
            client_metadata_url: _,
            private_key,
            key_id: _,
            issuer: _,
            scopes: _,
        } = self;
        let needs_no_user = match grant {
            Grant::Code => false,
            Grant::ClientCredentials | Grant::Workload(_) | Grant::Enterprise(_) => true,
        };
        needs_no_user || client_secret.is_some() || private_key.is_some()
    }
}

/// Reports whether any of these arguments looks like a secret, or follows the name of one.
fn hold_a_secret(arguments: &[String]) -> bool {
    let mut found = Scrubber::default();
    hidden::arguments(arguments, &mut found);
    found != Scrubber::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Enterprise, Helper, Secret, SecretSource};

    fn process(change: impl FnOnce(&mut Stdio)) -> Transport {
        let mut stdio = Stdio { command: "server".to_owned(), args: vec!["--verbose".to_owned()], ..Stdio::default() };
        change(&mut stdio);
        Transport::Stdio(stdio)
    }

    fn remote(change: impl FnOnce(&mut Remote)) -> Transport {
        let mut remote = Remote::new("https://one.example/mcp?format=short".parse().unwrap());
        change(&mut remote);
        Transport::Http(remote)
    }

    fn oauth(change: impl FnOnce(&mut OAuth)) -> Transport {
        let mut oauth = OAuth::default();
        change(&mut oauth);
        remote(|remote| remote.auth = Auth::OAuth(Box::new(oauth)))
    }

    fn brings(transport: Transport) -> bool {
        Server::new("one", transport).unwrap().brings_credentials()
    }

    fn pair() -> Vec<(String, Secret)> {
        vec![("Authorization".to_owned(), Secret::new("Bearer long-enough"))]
    }

    #[test]
    fn h63_each_way_to_bring_credentials_is_known() {
        let source = || SecretSource::File("assertion".into());
        let endpoint = "https://idp.example/token".parse().unwrap();
        let enterprise = Grant::Enterprise(Box::new(Enterprise::new(endpoint, "client", source())));
        let ways = [
            ("env", process(|stdio| stdio.env = pair())),
            ("forward_env", process(|stdio| stdio.forward_env = vec!["TOKEN".to_owned()])),
            ("an argument", process(|stdio| stdio.args.push("--api-key=long-enough".to_owned()))),
            ("headers", remote(|remote| remote.headers = pair())),
            ("headersHelper", remote(|remote| remote.headers_helper = Some(Helper::new("token")))),
            ("a client certificate", remote(|remote| remote.tls.identity = Some(("cert".into(), "key".into())))),
            ("the query", remote(|remote| remote.url.set_query(Some("api_key=long-enough")))),
            ("client credentials", oauth(|oauth| oauth.grant = Grant::ClientCredentials)),
            ("a workload", oauth(|oauth| oauth.grant = Grant::Workload(source()))),
            ("an enterprise", oauth(|oauth| oauth.grant = enterprise)),
            ("a client secret", oauth(|oauth| oauth.client_secret = Some(Secret::new("long-enough")))),
            ("a private key", oauth(|oauth| oauth.private_key = Some(source()))),
        ];
        for (way, transport) in ways {
            assert!(brings(transport), "{way}");
        }
        let mut server = Server::new("one", process(|_| {})).unwrap();
        server.secrets.push(Secret::new("long-enough"));
        assert!(server.brings_credentials(), "a variable somewhere in the entry");
    }

    #[test]
    fn h63_what_says_nothing_of_an_account_brings_none() {
        assert!(!brings(process(|_| {})));
        assert!(!brings(remote(|_| {})));
        assert!(!brings(remote(|remote| remote.auth = Auth::Headers)));
        assert!(!brings(remote(|remote| remote.tls.ca = Some("ca.pem".into()))));
        assert!(!brings(oauth(|oauth| oauth.client_id = Some("client".to_owned()))), "until somebody signs in");
    }
}
