//! How the texts of a config refer to variables, which differs by client; pure.

/// The syntax in which a file refers to variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `${X}`, `${X:-default}`, `${env:X}`, `${file:…}`, `${input:…}`, and variables of editors such as `${userHome}`.
    Dollar,
    /// [`Dialect::Dollar`] and `$X`; on Windows also `%X%`.
    Shell,
    /// [`Dialect::Shell`] and `$(…)`, which is never run.
    Commands,
    /// `{env:X}` and `{file:…}`.
    Braces,
    /// [`Dialect::Dollar`], `${{ secrets.X }}` and `${{ inputs.X }}`.
    Templates,
    /// No variables at all.
    None,
}

/// Finds the next reference to a variable. Returns the text before it, the reference, its body (the part between the
/// brackets), and the text after it.
pub(super) fn next(text: &str, dialect: Dialect) -> Option<(&str, &str, &str, &str)> {
    let found = |start: usize, open: usize, close: &str| {
        let length = text[start + open..].find(close)?;
        let end = start + open + length;
        let after = end + close.len();
        Some((&text[..start], &text[start..after], text[start + open..end].trim(), &text[after..]))
    };
    for (start, c) in text.char_indices() {
        let rest = &text[start..];
        let reference = match (c, dialect) {
            (_, Dialect::None) => return None,
            ('{', Dialect::Braces) if rest.starts_with("{env:") || rest.starts_with("{file:") => found(start, 1, "}"),
            ('$', Dialect::Templates) if rest.starts_with("${{") => found(start, 3, "}}"),
            ('$', Dialect::Commands) if rest.starts_with("$(") => command(text, start),
            ('$', Dialect::Dollar | Dialect::Shell | Dialect::Commands | Dialect::Templates)
                if rest.starts_with("${") =>
            {
                found(start, 2, "}")
            }
            ('$', Dialect::Shell | Dialect::Commands) => bare(text, start),
            ('%', Dialect::Shell) if cfg!(windows) => found(start, 1, "%").filter(|(_, _, body, _)| is_plain(body)),
            _ => None,
        };
        if reference.is_some() {
            return reference;
        }
    }
    None
}

/// Returns the parts of the `$(…)` at `start`, which may contain nested ones. Its body is the whole reference.
fn command(text: &str, start: usize) -> Option<(&str, &str, &str, &str)> {
    let mut open = 0usize;
    for (at, c) in text[start..].char_indices() {
        match c {
            '(' => open += 1,
            ')' if open == 1 => {
                let end = start + at + 1;
                return Some((&text[..start], &text[start..end], &text[start..end], &text[end..]));
            }
            ')' => open -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the parts of the `$NAME` at `start`.
fn bare(text: &str, start: usize) -> Option<(&str, &str, &str, &str)> {
    let body = &text[start + 1..];
    let length = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(body.len());
    let end = start + 1 + length;
    let name = &text[start + 1..end];
    let named = is_plain(name) && !name.starts_with(|c: char| c.is_ascii_digit());
    named.then(|| (&text[..start], &text[start..end], name, &text[end..]))
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
