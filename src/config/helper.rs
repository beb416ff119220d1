//! The program that prints headers for a server behind a URL, as the config names it: a list of words, which no shell
//! ever reads.
//!
//! Other clients pass a text to a shell. Here the text is split if it consists only of words, and refused if a shell
//! would do more with it than split it. This happens before variables are substituted, so a variable's value never
//! becomes two words. Not here: how the program runs (`transport/helper.rs`).

use std::borrow::Cow;
use std::fmt;

use super::dialect::{self, Dialect};
use super::fields::Fields;
use super::report::Report;
use super::syntax::{Member, Node, Value};
use crate::redact::Learned;

/// The config key, and other clients' name for it.
pub(super) const KEYS: [&str; 2] = ["headersHelper", "http_headers_helper"];

/// A program that prints headers, as one JSON object of names and values. `Debug` shows no arguments.
///
/// ```
/// use mcp_host::config::{Helper, Remote};
///
/// let mut helper = Helper::new("print-headers");
/// helper.args = vec!["--for".to_owned(), "example.com".to_owned()];
/// let remote = Remote::new("https://example.com/mcp".parse()?).headers_helper(helper);
/// # Ok::<_, url::ParseError>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Helper {
    /// The program.
    pub program: String,
    /// Its arguments. No shell reads them.
    pub args: Vec<String>,
    /// Variables to pass on from our environment if they are set: names and globs.
    pub inherit_env: Vec<String>,
    /// Values that the program has printed so far, which must not be shown.
    pub(super) given: Learned,
}

impl Helper {
    /// Returns a program without arguments.
    #[must_use]
    pub fn new(program: impl Into<String>) -> Self {
        Self { program: program.into(), ..Self::default() }
    }
}

/// Compares only what the config says: values that the program has printed do not count.
impl PartialEq for Helper {
    fn eq(&self, other: &Self) -> bool {
        (&self.program, &self.args, &self.inherit_env) == (&other.program, &other.args, &other.inherit_env)
    }
}

impl Eq for Helper {}

impl fmt::Debug for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args = format_args!("[{} arguments]", self.args.len());
        f.debug_struct("Helper").field("program", &self.program).field("args", &args).finish_non_exhaustive()
    }
}

/// Reports whether only this program may set a header: the header frames an HTTP message, or MCP or HTTP defines its
/// value for each request.
pub(crate) fn is_own_header(name: &str) -> bool {
    const OWN: [&str; 18] = [
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let name = name.to_ascii_lowercase();
    OWN.contains(&name.as_str()) || name.starts_with("mcp-param-")
}

/// Splits the text of an entry's helper into a list of words, before variables are substituted.
pub(super) fn split<'a>(entry: Cow<'a, Node>, dialect: Dialect, report: &mut Report) -> Cow<'a, Node> {
    let is_text = |member: &Member| KEYS.contains(&member.key.as_str()) && member.node.text().is_some();
    let Some(members) = entry.members().filter(|members| members.iter().any(is_text)) else { return entry };
    let mut members = members.to_vec();
    for Member { key, node, .. } in members.iter_mut().filter(|member| is_text(member)) {
        let value = match words(node.text().unwrap_or_default(), dialect) {
            Ok(words) => Value::List(words.into_iter().map(|word| Node::new(node.at, Value::Text(word))).collect()),
            Err(what) => {
                let problem = report.problem(node.at, key, format!("no shell runs this program, and {what} needs one"));
                problem.help("write it as a list of words, or put it into a script and name that");
                Value::Null
            }
        };
        *node = Node::new(node.at, value);
    }
    Cow::Owned(Node::new(entry.at, Value::Object(members)))
}

/// Reads the words of the helper.
pub(super) fn read(fields: &mut Fields<'_>, report: &mut Report) -> Option<Helper> {
    let field = fields.take(&KEYS, report)?;
    let items = field.items(report);
    let mut words = Vec::with_capacity(items.len());
    for item in &items {
        let word = item.text(report)?;
        if word.contains('\0') {
            report.problem(item.at, &item.path, "contains a NUL character");
        }
        words.push(word.to_owned());
    }
    if matches!(field.node.value, Value::List(_)) && words.first().is_none_or(|word| word.trim().is_empty()) {
        report.problem(field.at, &field.path, "names no program");
        return None;
    }
    let mut words = words.into_iter();
    Some(Helper { program: words.next()?, args: words.collect(), ..Helper::default() })
}

#[derive(Clone, Copy, PartialEq)]
enum Quote {
    None,
    Single,
    Double,
}

/// The state while a text is split into words.
struct Words {
    done: Vec<String>,
    /// The current word; `None` between words. A quote starts a word, which may stay empty.
    word: Option<String>,
    quote: Quote,
    /// Whether the last character was a backslash that escapes the next.
    escaped: bool,
}

/// Splits a text into words. Fails with a description of what in it only a shell understands. A reference to a variable
/// never splits a word.
fn words(text: &str, dialect: Dialect) -> Result<Vec<String>, String> {
    let mut words = Words { done: Vec::new(), word: None, quote: Quote::None, escaped: false };
    let mut rest = text;
    while let Some((before, reference, _, after)) = dialect::next(rest, dialect) {
        before.chars().try_for_each(|c| words.take(c))?;
        if words.escaped || words.quote == Quote::Single {
            return Err("a variable that is not expanded".to_owned());
        }
        words.word.get_or_insert_default().push_str(reference);
        rest = after;
    }
    rest.chars().try_for_each(|c| words.take(c))?;
    if words.escaped || words.quote != Quote::None {
        return Err("an unterminated quote".to_owned());
    }
    words.done.extend(words.word);
    match words.done.first() {
        Some(first) if first.contains('=') => Err("a leading variable assignment".to_owned()),
        _ => Ok(words.done),
    }
}

impl Words {
    fn take(&mut self, c: char) -> Result<(), String> {
        let escaped = std::mem::take(&mut self.escaped);
        match (self.quote, c) {
            // Inside double quotes a backslash is literal before most characters.
            (Quote::Double, _) if escaped && !matches!(c, '"' | '\\' | '$' | '`') => self.push('\\').push(c),
            _ if escaped => self.push(c),
            // On Windows a backslash is part of paths.
            (Quote::None | Quote::Double, '\\') if !cfg!(windows) => {
                self.word.get_or_insert_default();
                self.escaped = true;
                self
            }
            (Quote::Single, '\'') | (Quote::Double, '"') => self.quoted(Quote::None),
            (Quote::None, '\'') => self.quoted(Quote::Single),
            (Quote::None, '"') => self.quoted(Quote::Double),
            (Quote::None | Quote::Double, '`') => return Err("a backtick".to_owned()),
            (Quote::None | Quote::Double, '$') => return Err("`$`".to_owned()),
            (Quote::None, ' ' | '\t') => {
                self.done.extend(self.word.take());
                self
            }
            (Quote::None, '~' | '#') if self.word.is_none() => return Err(format!("`{c}`")),
            (Quote::None, '|' | '&' | ';' | '<' | '>' | '(' | ')' | '*' | '?' | '[' | ']' | '{' | '}') => {
                return Err(format!("`{c}`"));
            }
            (Quote::None, c) if c.is_control() => return Err("a line break".to_owned()),
            (_, c) => self.push(c),
        };
        Ok(())
    }

    fn push(&mut self, c: char) -> &mut Self {
        self.word.get_or_insert_default().push(c);
        self
    }

    fn quoted(&mut self, quote: Quote) -> &mut Self {
        self.word.get_or_insert_default();
        self.quote = quote;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_as_a_shell_would() {
        for (text, expected) in [
            ("/opt/bin/headers.sh", &["/opt/bin/headers.sh"][..]),
            ("  a  b\tc ", &["a", "b", "c"]),
            (r#"a "b c" 'd e' f\ g"#, &["a", "b c", "d e", "f g"]),
            (r#"a '' "" x"y"'z'"#, &["a", "", "", "xyz"]),
            (r#"a "q\"q" "b\n" '\' \\"#, &["a", "q\"q", "b\\n", "\\", "\\"]),
            (r#"a 'x | y; $(z) *' "p > q""#, &["a", "x | y; $(z) *", "p > q"]),
            (r#"a ${X:-b c} "${Y}/d e" f=${Z}"#, &["a", "${X:-b c}", "${Y}/d e", "f=${Z}"]),
            ("a b~c d#e x=y", &["a", "b~c", "d#e", "x=y"]),
            ("", &[]),
        ] {
            let words = words(text, Dialect::Dollar);
            assert_eq!(
                words.as_deref(),
                Ok(&expected.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()[..]),
                "{text}"
            );
        }
    }

    #[test]
    fn h17_what_only_a_shell_understands_is_refused() {
        for text in [
            "a | b",
            "a; b",
            "a & b",
            "a && b",
            "a > f",
            "a < f",
            "a $(b)",
            "a `b`",
            "a *",
            "a b?",
            "a [bc]",
            "a {b,c}",
            "a ~/b",
            "~/b",
            "(a)",
            "a $HOME",
            "a \"$(b)\"",
            "a \"`b`\"",
            "a \"$HOME\"",
            "a\nb",
            "X=1 a",
            "a 'b",
            "a \"b",
            "a b\\",
            "a # b",
            "a '${X}'",
            "a \\${X}",
        ] {
            assert!(words(text, Dialect::Dollar).is_err(), "{text}");
        }
        // In a file without variables, a dollar belongs to the shell.
        assert!(words("a ${X}", Dialect::None).is_err());
        assert_eq!(words("a $X", Dialect::Shell), Ok(vec!["a".to_owned(), "$X".to_owned()]));
    }
}
