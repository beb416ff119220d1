//! JSON pointers (RFC 6901) to the parts of definitions that pins leave out.

/// What a pin always covers: the members by which a definition is found, and what may be sent.
const COVERED: [&str; 3] = ["name", "uriTemplate", "inputSchema"];

/// A JSON pointer to a part of definitions that pins leave out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pointer(Vec<String>);

impl Pointer {
    /// Reads a pointer.
    ///
    /// # Errors
    /// With what is wrong: it is no pointer, or it names what a pin always covers.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("names the whole definition; name a member, as in \"/_meta/updatedAt\"".to_owned());
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("{text:?} is no JSON pointer: it begins with `/`, as in \"/_meta/updatedAt\""));
        };
        let tokens = rest.split('/').map(unescaped).collect::<Option<Vec<_>>>();
        let tokens = tokens
            .ok_or_else(|| format!("{text:?} is no JSON pointer: `~` is written as `~0`, and `/` in a name as `~1`"))?;
        match tokens.first() {
            Some(first) if COVERED.contains(&first.as_str()) => {
                Err(format!("{text:?} names `{first}`, which a pin always covers; leave it out"))
            }
            _ => Ok(Self(tokens)),
        }
    }

    /// Returns the names and indexes that lead to the part, outermost first.
    pub(crate) fn tokens(&self) -> &[String] {
        &self.0
    }
}

fn unescaped(token: &str) -> Option<String> {
    let mut parts = token.split('~');
    let mut out = parts.next()?.to_owned();
    for part in parts {
        let (character, rest) = match part.as_bytes().first()? {
            b'0' => ('~', &part[1..]),
            b'1' => ('/', &part[1..]),
            _ => return None,
        };
        out.push(character);
        out.push_str(rest);
    }
    Some(out)
}
