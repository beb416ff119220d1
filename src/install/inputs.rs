//! What a user has to provide before a server can start, and what is made from it: variables, headers, arguments.
//!
//! **Invariant:** pure. A text of an entry never becomes a reference of our config (`${…}`), not even joined with other
//! texts: only the user's own values may refer to variables and secrets.

use std::collections::BTreeMap;

use super::Error;
use super::manifest::{Argument, Input, Named};

/// One value that a user has to provide, or may provide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its key: the name of the variable or header, or the word for the argument.
    pub key: String,
    /// What it is for.
    pub description: Option<String>,
    /// The value that is used if the user provides none.
    pub default: Option<String>,
    /// Whether the user must provide it.
    pub is_required: bool,
    /// Whether it is a secret.
    pub is_secret: bool,
    /// Its format: `string`, `number`, `boolean` or `filepath`.
    pub format: Option<String>,
    /// The allowed values; empty if any value is allowed.
    pub choices: Vec<String>,
    /// Whether it may be provided several times.
    pub is_repeated: bool,
}

/// The values that the user provides, by [`Wanted::key`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers(BTreeMap<String, Vec<String>>);

impl Answers {
    /// Adds a value.
    pub fn add(&mut self, key: &str, value: &str) {
        self.0.entry(key.to_owned()).or_default().push(value.to_owned());
    }

    /// Sets the value for a key, in place of all earlier ones.
    pub fn put(&mut self, key: &str, value: String) {
        self.0.insert(key.to_owned(), vec![value]);
    }

    /// Returns the values for a key.
    #[must_use]
    pub fn of(&self, key: &str) -> &[String] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    /// Returns the keys that have values.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl Wanted {
    fn of(key: &str, input: &Input, is_repeated: bool) -> Self {
        Self {
            key: key.to_owned(),
            description: input.description.clone(),
            default: input.default.clone(),
            is_required: input.is_required,
            is_secret: input.is_secret,
            format: input.format.clone(),
            choices: input.choices.clone(),
            is_repeated,
        }
    }

    /// Checks a value against what the entry states about it.
    ///
    /// # Errors
    /// Fails if the value does not fit, or contains characters that no value may have.
    pub fn check(&self, value: &str) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Value { input: self.key.clone(), why });
        if value.chars().any(|c| c.is_control()) {
            return wrong("the value holds a line break or a control character".to_owned());
        }
        if value.is_empty() && self.is_required {
            return wrong("the value is empty".to_owned());
        }
        // The value of a reference is known only when the server starts.
        if value.contains("${") {
            return Ok(());
        }
        if !self.choices.is_empty() && !self.choices.iter().any(|choice| choice == value) {
            return wrong(format!("the value is not one of {}", self.choices.join(", ")));
        }
        match self.format.as_deref() {
            Some("number") if value.parse::<f64>().is_err() => wrong("the value is no number".to_owned()),
            Some("boolean") if !["true", "false"].contains(&value) => {
                wrong("the value is not true or false".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// A text in parts, each from the entry or from the user.
#[derive(Default)]
struct Text(Vec<Part>);

enum Part {
    Theirs(String),
    Users(String),
}

impl Text {
    /// Joins the parts. Refuses a text in which a part from the entry contributes to a reference.
    fn join(&self, field: &str) -> Result<String, Error> {
        let (mut text, mut users) = (String::new(), Vec::new());
        for part in &self.0 {
            let from = text.len();
            match part {
                Part::Theirs(part) => text.push_str(part),
                Part::Users(part) => {
                    text.push_str(part);
                    users.push(from..text.len());
                }
            }
        }
        let is_users = |at: usize| users.iter().any(|range| range.contains(&at) && range.contains(&(at + 1)));
        if text.match_indices("${").any(|(at, _)| !is_users(at)) {
            let why = "holds `${`: an entry of a registry may not refer to variables and secrets of yours";
            return Err(Error::Entry { field: field.to_owned(), why: why.to_owned() });
        }
        if text.chars().any(char::is_control) {
            return Err(Error::Entry { field: field.to_owned(), why: "holds a control character".to_owned() });
        }
        Ok(text)
    }
}

/// Walks through an entry's inputs, either to collect what is wanted or to build texts from the answers. One walk
/// serves both, so the user is never asked for a value that is not used.
pub(super) struct Walk<'a> {
    answers: &'a Answers,
    wanted: Vec<Wanted>,
    /// The keys of required inputs that have no value.
    pub(super) missing: Vec<String>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(answers: &'a Answers) -> Self {
        Self { answers, wanted: Vec::new(), missing: Vec::new() }
    }

    /// Returns what the user is to be asked for.
    pub(super) fn wanted(self) -> Vec<Wanted> {
        self.wanted
    }

    /// Builds the value of a variable or a header; `None` leaves it out.
    pub(super) fn named(&mut self, named: &Named) -> Result<Option<(String, String)>, Error> {
        let values = self.values(&named.name, &named.input, false)?;
        Ok(values.into_iter().next().map(|value| (named.name.clone(), value)))
    }

    /// Builds the words of an argument.
    pub(super) fn argument(&mut self, argument: &Argument, number: usize) -> Result<Vec<String>, Error> {
        let Some(flag) = &argument.flag else {
            let key = argument.hint.clone().unwrap_or_else(|| format!("argument{number}"));
            return self.values(&key, &argument.input, argument.is_repeated);
        };
        let flag = Text(vec![Part::Theirs(flag.clone())]).join("the name of an argument")?;
        let input = &argument.input;
        let is_switch = input.format.as_deref() == Some("boolean");
        let key = flag.trim_start_matches('-').trim_end_matches('=').to_owned();
        let mut words = Vec::new();
        for value in self.values(&key, input, argument.is_repeated)? {
            match (is_switch, value.as_str()) {
                (true, "false") => {}
                (true, "true") | (_, "") => words.push(flag.clone()),
                _ if flag.ends_with('=') => words.push(format!("{flag}{value}")),
                _ => words.extend([flag.clone(), value]),
            }
        }
        Ok(words)
    }

    /// Builds the URL of an endpoint.
    pub(super) fn url(&mut self, url: &str, variables: &[Named]) -> Result<String, Error> {
        let input =
            Input { value: Some(url.to_owned()), is_required: true, variables: variables.to_vec(), ..Input::default() };
        Ok(self.values("url", &input, false)?.into_iter().next().unwrap_or_default())
    }

    fn values(&mut self, key: &str, input: &Input, is_repeated: bool) -> Result<Vec<String>, Error> {
        if input.value.is_some() {
            return Ok(match self.template(input)? {
                Some(text) => vec![text.join(key)?],
                None => Vec::new(),
            });
        }
        self.said(key, input, is_repeated)?.into_iter().map(|part| Text(vec![part]).join(key)).collect()
    }

    /// Fills the variables of a given value. `None` leaves the value out, because a variable has no value.
    fn template(&mut self, input: &Input) -> Result<Option<Text>, Error> {
        let (mut text, mut is_whole) = (Text::default(), true);
        for piece in pieces(input.value.as_deref().unwrap_or_default()) {
            let name = match piece {
                Piece::Plain(plain) => {
                    text.0.push(Part::Theirs(plain.to_owned()));
                    continue;
                }
                Piece::Variable(name) => name,
            };
            let declared = input.variables.iter().find(|variable| variable.name == name);
            let mut variable = declared
                .map_or_else(|| Input { is_required: true, ..Input::default() }, |variable| variable.input.clone());
            // A part of a secret is a secret, too.
            variable.is_secret |= input.is_secret;
            if variable.value.is_some() {
                // The reader of the entry bounds the depth.
                match self.template(&variable)? {
                    Some(inner) => text.0.extend(inner.0),
                    None => is_whole = false,
                }
                continue;
            }
            match self.said(name, &variable, false)?.into_iter().next() {
                Some(part) => text.0.push(part),
                None => is_whole = false,
            }
        }
        Ok((is_whole || input.is_required).then_some(text))
    }

    /// Returns the answers for an input, else its default.
    fn said(&mut self, key: &str, input: &Input, is_repeated: bool) -> Result<Vec<Part>, Error> {
        let wanted = Wanted::of(key, input, is_repeated);
        match self.wanted.iter_mut().find(|known| known.key == key) {
            Some(known) => {
                known.is_required |= wanted.is_required;
                known.is_secret |= wanted.is_secret;
            }
            None => self.wanted.push(wanted.clone()),
        }
        let said = self.answers.of(key);
        for value in said {
            wanted.check(value)?;
        }
        if let [_, _, ..] = said
            && !is_repeated
        {
            return Err(Error::Value { input: key.to_owned(), why: "it takes one value, and got several".to_owned() });
        }
        if !said.is_empty() {
            return Ok(said.iter().cloned().map(Part::Users).collect());
        }
        match &input.default {
            Some(default) => Ok(vec![Part::Theirs(default.clone())]),
            None => {
                if input.is_required && !self.missing.iter().any(|known| known == key) {
                    self.missing.push(key.to_owned());
                }
                Ok(Vec::new())
            }
        }
    }
}

enum Piece<'a> {
    Plain(&'a str),
    Variable(&'a str),
}

/// Splits a value at its variables. Braces that hold no name are plain text, as in JSON.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut pieces, mut from) = (Vec::new(), 0);
    for (at, _) in text.match_indices('{') {
        let Some(length) = text[at + 1..].find('}') else { break };
        let name = &text[at + 1..at + 1 + length];
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        if !is_name || at < from {
            continue;
        }
        if from < at {
            pieces.push(Piece::Plain(&text[from..at]));
        }
        pieces.push(Piece::Variable(name));
        from = at + length + 2;
    }
    if from < text.len() {
        pieces.push(Piece::Plain(&text[from..]));
    }
    pieces
}
