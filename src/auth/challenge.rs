//! Parses `WWW-Authenticate`, with several challenges in a header, several headers, and quoted strings (RFC 9110,
//! 11.6.1); pure.
//!
//! The parser reads what servers send, not what they should send: it accepts parameters without commas between them,
//! and values without the required quotes. It refuses anything ambiguous.

use std::fmt;

/// The largest total size of these headers in one response, in bytes.
#[cfg(any(test, feature = "fuzzing"))]
const BYTES: usize = 8 * 1024;
/// The largest number of challenges, and of parameters in one challenge.
const MOST: usize = 64;

/// One way to authenticate that a server offers.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Challenge {
    scheme: String,
    token: Option<String>,
    parameters: Vec<(String, String)>,
}

/// Why a server's challenges cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum MalformedChallenge {
    /// The headers of one response are larger than the limit.
    #[error("the challenge is too large (host.limits.oauthChallenge)")]
    TooLarge,
    /// There are more challenges, or parameters in one challenge, than anyone needs.
    #[error("the challenge has more than 64 parts")]
    TooMany,
    /// A parameter occurs twice in a challenge: readers would disagree on which value counts.
    #[error("the challenge has a duplicate parameter")]
    Twice,
    /// The grammar is violated, at this byte of a header, beyond what is tolerated.
    #[error("the challenge is malformed at byte {0}")]
    Grammar(usize),
}

impl Challenge {
    /// Returns the scheme in lower case: `bearer`, `dpop`, `basic`.
    #[must_use]
    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns the value of a parameter; names are case-insensitive.
    #[must_use]
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values come from the server, and may repeat what was sent to it.
        let names: Vec<_> = self.parameters.iter().map(|(name, _)| name).collect();
        f.debug_struct("Challenge").field("scheme", &self.scheme).field("parameters", &names).finish_non_exhaustive()
    }
}

/// Parses the values of all `WWW-Authenticate` headers of one response.
///
/// # Errors
/// Fails if they are larger than 8 KiB, repeat a parameter of a challenge, or cannot be parsed.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn challenges<'a>(
    headers: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<Challenge>, MalformedChallenge> {
    challenges_within(headers, BYTES)
}

/// Parses the values of all `WWW-Authenticate` headers of one response. Fails if they are larger than `cap` bytes in
/// total, repeat a parameter of a challenge, or cannot be parsed.
pub(super) fn challenges_within<'a>(
    headers: impl IntoIterator<Item = &'a [u8]>,
    cap: usize,
) -> Result<Vec<Challenge>, MalformedChallenge> {
    let (mut found, mut size) = (Vec::new(), 0);
    for header in headers {
        size += header.len();
        if size > cap {
            return Err(MalformedChallenge::TooLarge);
        }
        read(header, &mut found)?;
    }
    Ok(found)
}

fn read(header: &[u8], found: &mut Vec<Challenge>) -> Result<(), MalformedChallenge> {
    let mut reader = Reader { bytes: header, at: 0 };
    // A parameter belongs to a challenge in the same header, so there must be one before it.
    let mut open = false;
    loop {
        reader.skip(|byte| is_blank(byte) || byte == b',');
        if reader.peek().is_none() {
            return Ok(());
        }
        let word = reader.word().ok_or(MalformedChallenge::Grammar(reader.at))?;
        let after = reader.at;
        reader.skip(is_blank);
        if let (true, Some(b'='), Some(challenge)) = (open, reader.peek(), found.last_mut()) {
            reader.at += 1;
            reader.skip(is_blank);
            let value = reader.value()?;
            if challenge.parameter(word).is_some() {
                return Err(MalformedChallenge::Twice);
            }
            if challenge.parameters.len() == MOST {
                return Err(MalformedChallenge::TooMany);
            }
            challenge.parameters.push((word.to_ascii_lowercase(), value));
            continue;
        }
        if !matches!(header.get(after), None | Some(b' ' | b'\t' | b',')) {
            return Err(MalformedChallenge::Grammar(after));
        }
        if found.len() == MOST {
            return Err(MalformedChallenge::TooMany);
        }
        let token = reader.token68();
        found.push(Challenge { scheme: word.to_ascii_lowercase(), token, parameters: Vec::new() });
        open = true;
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip(&mut self, what: impl Fn(u8) -> bool) {
        self.take(what);
    }

    /// Takes the longest run of matching bytes.
    fn take(&mut self, what: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| !what(*byte)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    /// Takes a word: what the HTTP grammar calls a `token`.
    fn word(&mut self) -> Option<&'a str> {
        let word = self.take(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
        std::str::from_utf8(word).ok().filter(|word| !word.is_empty())
    }

    /// Takes a `token68`, which a challenge may have in place of parameters. Returns `None`, and takes nothing, if
    /// there is none: only a comma or the end may follow it.
    fn token68(&mut self) -> Option<String> {
        let before = self.at;
        let run = self.take(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte));
        let padding = self.take(|byte| byte == b'=');
        let end = self.at;
        self.skip(is_blank);
        if run.is_empty() || !matches!(self.peek(), None | Some(b',')) {
            self.at = before;
            return None;
        }
        self.at = end;
        String::from_utf8([run, padding].concat()).ok()
    }

    /// Takes the value of a parameter.
    fn value(&mut self) -> Result<String, MalformedChallenge> {
        let start = self.at;
        let bytes = if self.peek() == Some(b'"') {
            self.at += 1;
            self.quoted()?
        } else {
            // Some servers send URLs without quotes.
            self.take(|byte| byte.is_ascii_graphic() && !matches!(byte, b',' | b'"')).to_vec()
        };
        String::from_utf8(bytes).map_err(|_| MalformedChallenge::Grammar(start))
    }

    /// Takes the rest of a quoted string whose first quote was taken.
    fn quoted(&mut self) -> Result<Vec<u8>, MalformedChallenge> {
        let mut text = Vec::new();
        loop {
            let mut byte = self.peek();
            self.at += 1;
            if byte == Some(b'"') {
                return Ok(text);
            }
            if byte == Some(b'\\') {
                byte = self.peek();
                self.at += 1;
            }
            match byte {
                Some(byte) if byte >= b' ' && byte != 0x7f || byte == b'\t' => text.push(byte),
                _ => return Err(MalformedChallenge::Grammar(self.at - 1)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(header: &str) -> Result<Vec<Challenge>, MalformedChallenge> {
        challenges([header.as_bytes()])
    }

    /// Formats schemes, tokens and parameters.
    fn shown(header: &str) -> String {
        let line = |challenge: Challenge| {
            let parameters = challenge.parameters.iter().map(|(name, value)| format!(" {name}={value:?}"));
            let token = challenge.token.iter().map(|token| format!(" <{token}>")).collect::<String>();
            challenge.scheme.clone() + &token + &parameters.collect::<String>()
        };
        match one(header) {
            Ok(all) => all.into_iter().map(line).collect::<Vec<_>>().join("; "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn h75_challenges_as_servers_send_them() {
        for (header, want) in [
            ("", ""),
            (" , ,", ""),
            ("Bearer", "bearer"),
            ("BEARER   realm=\"x\"", "bearer realm=\"x\""),
            (
                r#"Bearer resource_metadata="https://a/.well-known/x", scope="a b""#,
                r#"bearer resource_metadata="https://a/.well-known/x" scope="a b""#,
            ),
            (r#"Bearer realm="a, b=\"c\"\\""#, r#"bearer realm="a, b=\"c\"\\""#),
            (r#"Basic realm="x", DPoP algs="ES256",Bearer"#, r#"basic realm="x"; dpop algs="ES256"; bearer"#),
            ("Negotiate dG9rZW4=, Bearer", "negotiate <dG9rZW4=>; bearer"),
            ("Negotiate, Bearer Scope = a", r#"negotiate; bearer scope="a""#),
            ("Bearer error=invalid_token scope=x", r#"bearer error="invalid_token" scope="x""#),
            (
                "Bearer resource_metadata=https://a/b?c=d, scope=\"\"",
                r#"bearer resource_metadata="https://a/b?c=d" scope="""#,
            ),
            ("Bearer scope=\"\u{e9}\"", "bearer scope=\"\u{e9}\""),
            ("Bearer a=1, A=2", "the challenge has a duplicate parameter"),
            ("Bearer a=1, Bearer a=2", r#"bearer a="1"; bearer a="2""#),
            ("=x", "the challenge is malformed at byte 0"),
            ("\"Bearer\"", "the challenge is malformed at byte 0"),
            ("Bearer realm=\"open", "the challenge is malformed at byte 18"),
            ("Bearer realm=\"a\\", "the challenge is malformed at byte 16"),
            ("Bearer realm=\"a\u{1}\"", "the challenge is malformed at byte 15"),
            ("Bearer/x y=z", "the challenge is malformed at byte 6"),
        ] {
            assert_eq!(shown(header), want, "{header:?}");
        }
    }

    #[test]
    fn h75_bytes_that_are_no_text_and_several_headers() {
        assert_eq!(challenges([&b"Bearer scope=\"\xff\""[..]]), Err(MalformedChallenge::Grammar(13)));
        let two = challenges([&b"Basic realm=x"[..], b"Bearer scope=y"]).unwrap();
        assert_eq!(two.iter().map(Challenge::scheme).collect::<Vec<_>>(), ["basic", "bearer"]);
        // A parameter cannot belong to a challenge of another header.
        assert!(challenges([&b"Bearer scope=y"[..], b"error=x"]).is_err());
    }

    #[test]
    fn h75_caps() {
        let header = |length: usize| format!("Bearer scope=\"{}\"", "x".repeat(length - 15));
        for (length, fits) in [(BYTES - 1, true), (BYTES, true), (BYTES + 1, false)] {
            assert_eq!(one(&header(length)).is_ok(), fits, "{length}");
        }
        for (length, fits) in [(99, true), (100, true), (101, false)] {
            assert_eq!(challenges_within([header(length).as_bytes()], 100).is_ok(), fits, "{length}");
        }
        let half = header(BYTES / 2 + 1);
        assert_eq!(challenges([half.as_bytes(), half.as_bytes()]), Err(MalformedChallenge::TooLarge));
        let parameters =
            |count: usize| format!("Bearer {}", (0..count).map(|n| format!("a{n}=1,")).collect::<String>());
        assert_eq!([MOST - 1, MOST, MOST + 1].map(|count| one(&parameters(count)).is_ok()), [true, true, false]);
        let schemes = |count: usize| "Bearer,".repeat(count);
        assert_eq!([MOST - 1, MOST, MOST + 1].map(|count| one(&schemes(count)).is_ok()), [true, true, false]);
    }

    proptest! {
        #[test]
        fn h75_no_bytes_make_it_panic(header in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = challenges([&header[..]]);
        }

        #[test]
        fn h75_near_the_grammar_neither(header in "(Bearer|DPoP|a)?([ ,=\"\\\\\t]|[a-c]|\"[a,= \\\\]*\"){0,30}") {
            let _ = challenges([header.as_bytes()]);
        }

        /// Any header that follows the grammar is parsed as intended.
        #[test]
        fn h75_there_and_back(all in prop::collection::vec(
            ("[A-Za-z][a-z0-9-]{0,8}", prop::collection::btree_map("[a-z][a-z_]{0,8}", "[ -~\u{e4}]{0,20}", 1..5)), 0..6
        )) {
            let written = all.iter().map(|(scheme, parameters)| {
                let parameters = parameters.iter().map(|(name, value)| {
                    format!("{name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
                });
                format!("{scheme} {}", parameters.collect::<Vec<_>>().join(", "))
            });
            let header = written.collect::<Vec<_>>().join(", ");
            let read = challenges([header.as_bytes()]).unwrap();
            let want = all.into_iter().map(|(scheme, parameters)| Challenge {
                scheme: scheme.to_ascii_lowercase(), token: None, parameters: parameters.into_iter().collect(),
            });
            prop_assert_eq!(read, want.collect::<Vec<_>>());
        }
    }
}
