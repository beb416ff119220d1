//! Reads an object in a config field by field: each field is taken once and checked, and the user is told of fields
//! that nothing took.

use std::time::Duration;

use super::report::{Place, Report};
use super::syntax::{Member, Node, Origin, Value};
use super::units;
use crate::protocol::Theirs;
use crate::redact;

/// The fields of an object that have not been taken yet.
pub(super) struct Fields<'a> {
    path: String,
    left: Vec<&'a Member>,
}

/// One field: its value, its place, and its path.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) path: String,
    pub(super) at: Place,
    pub(super) node: &'a Node,
}

impl<'a> Fields<'a> {
    /// Opens the object at `path`. A duplicate key is a problem, because one of the two values would be lost.
    pub(super) fn open(node: &'a Node, path: &str, report: &mut Report) -> Option<Self> {
        let Some(members) = node.members() else {
            let problem = report.problem(node.at, path, format!("expected an object, found {}", node.kind()));
            if path.is_empty() {
                problem.help("write an object with `command`, a program to start, or `url`, an endpoint to connect to");
            }
            return None;
        };
        let fields = Self { path: path.to_owned(), left: members.iter().collect() };
        for (index, member) in members.iter().enumerate() {
            if let Some(first) = members[..index].iter().find(|first| first.key == member.key) {
                let message = format!("given twice, first on line {}", first.at.line);
                let problem = report.problem(member.at, &fields.path_of(&member.key), message);
                problem.help("remove one of the two");
            }
        }
        Some(fields)
    }

    /// Takes the field with one of these names, which are aliases; if several are present, the earliest in `names`
    /// wins. A field whose value is `null` counts as absent.
    pub(super) fn take(&mut self, names: &[&str], report: &mut Report) -> Option<Field<'a>> {
        let mut found: Option<&Member> = None;
        for name in names {
            let Some(index) = self.left.iter().position(|member| member.key == *name) else { continue };
            let member = self.left.remove(index);
            self.left.retain(|other| other.key != *name);
            match found {
                _ if member.node.value == Value::Null => {}
                None => found = Some(member),
                Some(first) => {
                    report.note(member.at, &self.path_of(name), format!("ignored, `{}` says the same", first.key));
                }
            }
        }
        found.map(|member| Field { path: self.path_of(&member.key), at: member.at, node: &member.node })
    }

    /// Returns a field without taking it.
    pub(super) fn peek(&self, name: &str) -> Option<&'a Member> {
        self.left.iter().find(|member| member.key == name && member.node.value != Value::Null).copied()
    }

    /// Drops fields that only mean something to other programs.
    pub(super) fn skip(&mut self, names: &[&str]) {
        self.left.retain(|member| !names.contains(&member.key.as_str()));
    }

    /// Refuses fields that are our own but that this build does not support.
    pub(super) fn refuse(&mut self, names: &[&str], report: &mut Report) {
        for name in names {
            if let Some(field) = self.take(&[name], report) {
                field.lacking(report);
            }
        }
    }

    /// Takes all remaining fields.
    pub(super) fn rest(&mut self) -> Vec<Field<'a>> {
        let left = std::mem::take(&mut self.left);
        left.into_iter()
            .map(|member| Field { path: self.path_of(&member.key), at: member.at, node: &member.node })
            .collect()
    }

    /// Notes every field that was not taken as unknown, and suggests the most similar name in `known`.
    pub(super) fn finish(mut self, known: &[&str], report: &mut Report) {
        for field in self.rest() {
            let key = field.path.rsplit('.').next().unwrap_or_default();
            let help = nearest(key, known).map(|name| format!("did you mean `{name}`?"));
            report.unknown(field.at, &field.path, help);
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl<'a> Field<'a> {
    /// Refuses a config key of our own whose feature this build lacks.
    pub(super) fn lacking(&self, report: &mut Report) {
        report.problem(self.at, &self.path, "this build does not have this feature").help("remove the key");
    }

    /// Returns advice on how to write a text as a list of words. It shows the words unless one of them may be secret.
    fn as_list(&self) -> String {
        let words: Vec<&str> = self.node.text().unwrap_or_default().split_whitespace().collect();
        let secret = |word: &&str| redact::looks_secret(word) || redact::names_a_secret(word);
        if self.node.origin != Origin::Literal || words.is_empty() || words.iter().any(secret) {
            return "write a list with each word in its own quotes: [\"one\", \"two\"]".to_owned();
        }
        let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        format!("write a list with each word in its own quotes: [{}]", quoted.join(", "))
    }

    fn expected(&self, what: &str, report: &mut Report) {
        if self.node.origin != Origin::Missing {
            let found = self.node.kind();
            let problem = report.problem(self.at, &self.path, format!("expected {what}, found {found}"));
            problem.help = match (what, found) {
                ("a list", "a string") => Some(self.as_list()),
                ("true or false" | "a whole number", "a string") => Some("write it without quotes".to_owned()),
                ("a string", "a number" | "a boolean") => Some("put it in quotes".to_owned()),
                _ => None,
            };
        }
    }

    /// Quotes a text for a message. If the text comes from a variable or looks secret, returns a description instead.
    pub(super) fn quote(&self, text: &str) -> String {
        if self.node.origin != Origin::Literal {
            "the value of the variable".to_owned()
        } else if redact::looks_secret(text) {
            "the value".to_owned()
        } else {
            format!("{:?}", Theirs(text))
        }
    }

    /// Returns the text, with variables substituted.
    pub(super) fn text(&self, report: &mut Report) -> Option<&'a str> {
        let text = self.node.text();
        if text.is_none() {
            self.expected("a string", report);
        }
        text
    }

    /// Returns a text, or a number or boolean as text: other programs accept all of these as values of environment
    /// variables.
    pub(super) fn scalar(&self, report: &mut Report) -> Option<String> {
        match &self.node.value {
            Value::Text(text) | Value::Number(text) => Some(text.clone()),
            Value::Flag(flag) => Some(flag.to_string()),
            Value::Null | Value::List(_) | Value::Object(_) => {
                self.expected("a string", report);
                None
            }
        }
    }

    /// Reads `true` or `false`.
    pub(super) fn flag(&self, report: &mut Report) -> Option<bool> {
        match self.node.value {
            Value::Flag(flag) => Some(flag),
            _ => {
                self.expected("true or false", report);
                None
            }
        }
    }

    /// Reads a whole number, zero or more.
    pub(super) fn count(&self, report: &mut Report) -> Option<usize> {
        if let Value::Number(number) = &self.node.value {
            match number.parse() {
                Ok(count) => return Some(count),
                Err(_) => report.problem(self.at, &self.path, format!("{number} is not a whole number")),
            };
            return None;
        }
        self.expected("a whole number", report);
        None
    }

    /// Reads a whole number, one or more.
    pub(super) fn positive_count(&self, report: &mut Report) -> Option<usize> {
        let count = self.count(report)?;
        self.positive(count, report)
    }

    /// Reads the size of a pool of connections.
    pub(super) fn pool_size(&self, report: &mut Report) -> Option<usize> {
        const MOST: usize = 16;
        let count = self.positive_count(report)?;
        if count > MOST {
            report.problem(self.at, &self.path, format!("{count} connections: {MOST} at most"));
            return None;
        }
        Some(count)
    }

    /// Reads a nesting depth. It cannot exceed the depth to which this program reads any JSON.
    pub(super) fn nesting(&self, report: &mut Report) -> Option<usize> {
        let count = self.positive_count(report)?;
        if count > crate::protocol::DEPTH {
            let most = crate::protocol::DEPTH;
            report.problem(self.at, &self.path, format!("{count} levels: no message may nest deeper than {most}"));
            return None;
        }
        Some(count)
    }

    /// Reads the number of headers of a request, which is limited because each request allocates room for that many.
    pub(super) fn header_count(&self, report: &mut Report) -> Option<usize> {
        const MOST: usize = 4096;
        let count = self.positive_count(report)?;
        if count > MOST {
            report.problem(self.at, &self.path, format!("{count} headers: {MOST} at most"));
            return None;
        }
        Some(count)
    }

    fn positive<T: Default + PartialEq>(&self, value: T, report: &mut Report) -> Option<T> {
        if value == T::default() {
            report.problem(self.at, &self.path, "must be more than zero");
            return None;
        }
        Some(value)
    }

    /// Reads a duration with its unit.
    pub(super) fn time(&self, report: &mut Report) -> Option<Duration> {
        self.with_unit(units::time, "time", "write it with a unit: \"500ms\", \"1.5s\", \"2m\", \"1h\"", report)
    }

    /// Reads a duration with its unit, and refuses zero.
    pub(super) fn positive_time(&self, report: &mut Report) -> Option<Duration> {
        let time = self.time(report)?;
        self.positive(time, report)
    }

    /// Reads a size with its unit, and refuses zero.
    pub(super) fn positive_size(&self, report: &mut Report) -> Option<usize> {
        let size = self.size(report)?;
        self.positive(size, report)
    }

    /// Reads a size with its unit.
    pub(super) fn size(&self, report: &mut Report) -> Option<usize> {
        self.with_unit(units::size, "size", "write it with a unit: \"64KiB\", \"16MiB\"", report)
    }

    fn with_unit<T>(&self, read: fn(&str) -> Option<T>, what: &str, help: &str, report: &mut Report) -> Option<T> {
        let message = match &self.node.value {
            Value::Text(text) => match read(text) {
                Some(value) => return Some(value),
                None if self.node.origin == Origin::Missing => return None,
                None => format!("{} is not a {what}", self.quote(text)),
            },
            Value::Number(number) => format!("{number} has no unit"),
            _ => format!("expected a {what}, found {}", self.node.kind()),
        };
        let help = match &self.node.value {
            Value::Number(number) if what == "time" => {
                format!("write it with a unit: \"{number}s\" for seconds, or \"500ms\", \"2m\", \"1h\"")
            }
            _ => help.to_owned(),
        };
        report.problem(self.at, &self.path, message).help(help);
        None
    }

    /// Reads a duration as another client writes it: a number that counts units of `unit` seconds. Our own form works
    /// too.
    pub(super) fn foreign_time(&self, unit: f64, report: &mut Report) -> Option<Duration> {
        let Value::Number(number) = &self.node.value else { return self.positive_time(report) };
        let time = number.parse().ok().and_then(|number: f64| units::seconds_f64(number * unit));
        if time.is_none_or(|time| time.is_zero()) {
            report.problem(self.at, &self.path, format!("{number} is not a usable time"));
            return None;
        }
        time
    }

    /// Reads one of a few words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)], report: &mut Report) -> Option<T> {
        let text = self.text(report)?;
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(*choice);
        }
        if self.node.origin != Origin::Missing {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            let message = format!("{} is not one of {}", self.quote(text), names.join(", "));
            report.problem(self.at, &self.path, message);
        }
        None
    }

    /// Returns the items of a list, each as a field of its own.
    pub(super) fn items(&self, report: &mut Report) -> Vec<Self> {
        let Value::List(items) = &self.node.value else {
            self.expected("a list", report);
            return Vec::new();
        };
        let item =
            |(index, node): (usize, &'a Node)| Field { path: format!("{}[{index}]", self.path), at: node.at, node };
        items.iter().enumerate().map(item).collect()
    }

    /// Reads a list of texts.
    pub(super) fn texts(&self, report: &mut Report) -> Vec<String> {
        let items = self.items(report);
        items.iter().filter_map(|item| item.text(report).map(str::to_owned)).collect()
    }

    /// Returns the members of an object, each as a field with its key.
    pub(super) fn entries(&self, report: &mut Report) -> Vec<(&'a str, Self)> {
        let Some(mut fields) = self.fields(report) else { return Vec::new() };
        let members = self.node.members().unwrap_or_default();
        members.iter().map(|member| member.key.as_str()).zip(fields.rest()).collect()
    }

    /// Opens the object in this field.
    pub(super) fn fields(&self, report: &mut Report) -> Option<Fields<'a>> {
        Fields::open(self.node, &self.path, report)
    }
}

/// Refuses each field that was not taken, and suggests the most similar name in `known`.
pub(super) fn refuse_rest(mut fields: Fields<'_>, known: &[&str], report: &mut Report) {
    for field in fields.rest() {
        let key = field.path.rsplit('.').next().unwrap_or_default();
        let help = match nearest(key, known) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("the keys here are {}", known.join(", ")),
        };
        report.problem(field.at, &field.path, "unknown key").help(help);
    }
}

/// Returns the known name that differs from a key only in punctuation, in case, or in one or two letters.
pub(super) fn nearest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| -> Vec<u8> {
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).collect()
    };
    let key = plain(key);
    let close = |name: &&str| {
        let name = plain(name);
        distance(&key, &name) <= if name.len() > 5 { 2 } else { 1 } || is_swapped(&key, &name)
    };
    known.iter().copied().find(|name| key.len() > 2 && close(name))
}

/// Reports whether the texts differ only in two adjacent letters that are swapped, like `agrs` and `args`.
fn is_swapped(left: &[u8], right: &[u8]) -> bool {
    let Some(at) = left.iter().zip(right).position(|(a, b)| a != b) else { return false };
    let swapped = left.get(at..at + 2).is_some_and(|two| right.get(at..at + 2) == Some(&[two[1], two[0]]));
    swapped && left.get(at + 2..) == right.get(at + 2..)
}

/// Computes the Levenshtein distance, for keys of similar length.
fn distance(left: &[u8], right: &[u8]) -> usize {
    if left.len().abs_diff(right.len()) > 2 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in right.iter().enumerate() {
            let cost = corner + usize::from(a != b);
            corner = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(corner + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name() {
        let known = ["callTimeout", "start", "startTimeout", "env"];
        assert_eq!(nearest("call_timeout", &known), Some("callTimeout"));
        assert_eq!(nearest("calTimeuot", &known), None);
        assert_eq!(nearest("calTimeout", &known), Some("callTimeout"));
        assert_eq!(nearest("starts", &known), Some("start"));
        assert_eq!(nearest("evn", &known), Some("env"));
        assert_eq!(nearest("x", &known), None);
    }
}
