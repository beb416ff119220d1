//! Which server a record is about: its name in the config, and how it is reached (`docs/hazards.md` H85).

use sha2::{Digest as _, Sha256};

use crate::config::{Remote, Server, Transport};
use crate::hex;

/// Returns the two parts of the file name for a server. The first comes from the server's name. The second comes from
/// its URL, or from its command, arguments, and names of variables. Values of variables and headers do not count: a
/// server stays the same when these change.
pub(super) fn identity(server: &Server) -> (String, String) {
    let mut parts = Parts(Sha256::new());
    match &server.transport {
        Transport::Stdio(stdio) => {
            parts.add("stdio", [&*stdio.command]);
            parts.add("args", stdio.args.iter().map(String::as_str));
            let mut names: Vec<&str> = stdio.env.iter().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            parts.add("env", names);
        }
        Transport::Http(remote) | Transport::Sse(remote) | Transport::Auto(remote) => parts.remote(remote),
    }
    let name = Sha256::digest(&server.name);
    (hex::encode(&name[..8]), hex::encode(&parts.0.finalize()[..16]))
}

/// Hashes texts unambiguously: each with its length, each group with its count.
struct Parts(Sha256);

impl Parts {
    fn add<'a>(&mut self, what: &str, texts: impl IntoIterator<Item = &'a str>) {
        let mut count = 0_u64;
        self.text(what);
        for text in texts {
            self.text(text);
            count += 1;
        }
        self.0.update(u64::MAX.to_be_bytes());
        self.0.update(count.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_be_bytes());
        self.0.update(text);
    }

    fn remote(&mut self, remote: &Remote) {
        self.add("url", [remote.url.as_str()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Secret, Stdio};

    fn stdio(change: impl FnOnce(&mut Stdio)) -> (String, String) {
        let mut stdio = Stdio { command: "server".into(), args: vec!["a".into(), "b".into()], ..Stdio::default() };
        change(&mut stdio);
        identity(&Server::new("files", Transport::Stdio(stdio)).unwrap())
    }

    #[test]
    fn what_is_started_makes_the_identity_and_no_value_of_a_variable() {
        let plain = stdio(|_| {});
        let secret = |value: &str| vec![("TOKEN".to_owned(), Secret::new(value))];
        assert_eq!(stdio(|stdio| stdio.env = secret("one")), stdio(|stdio| stdio.env = secret("two")));
        let others = [
            stdio(|stdio| stdio.env = secret("one")),
            stdio(|stdio| stdio.command = "other".into()),
            stdio(|stdio| stdio.args = vec!["ab".into()]),
        ];
        for other in others {
            assert_eq!(other.0, plain.0, "the name is the same");
            assert_ne!(other.1, plain.1);
        }
    }
}
