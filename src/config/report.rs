//! All problems of a config at once, each with its place.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Source;
use super::reach::{self, Reach};
use crate::protocol::Theirs;

/// A problem or a note, with its place.
///
/// Displays as `file:line: server "name": field: message`, on one line; with the column if there is an excerpt.
///
/// ```
/// use mcp_host::config::{Syntax, Vars, parse_str};
///
/// let error = parse_str("{", Syntax::Json, "mcp.json", &Vars::default()).unwrap_err();
/// for problem in error.problems() {
///     println!("{problem}; {:?}", problem.help);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The file, or the environment variable or flag in its place.
    pub file: PathBuf,
    /// The line, counted from 1, if known.
    pub line: Option<usize>,
    /// The column in characters, counted from 1, if known.
    pub column: Option<usize>,
    /// The server by its name in the config.
    pub server: Option<String>,
    /// The field, as a path inside the server's entry or below the root.
    pub field: Option<String>,
    /// The message. It never contains the value of a variable or a secret.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The line itself, if the file cannot be parsed.
    pub excerpt: Option<Excerpt>,
}

/// A line of a file that cannot be parsed. Possible secrets in it are masked.
///
/// ```
/// # fn show(excerpt: &mcp_host::config::Excerpt) {
/// println!("{}\n{:>width$}", excerpt.line, "^", width = excerpt.caret + 1);
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Excerpt {
    /// The line, without its indentation, and shortened if it is long.
    pub line: String,
    /// The position of the problem in it, in characters.
    pub caret: usize,
}

/// Something that does not stop the host. It has the form of a [`Problem`].
///
/// ```
/// # fn show(config: &mcp_host::Config) {
/// config.notes.iter().for_each(|note| println!("note: {note}"));
/// # }
/// ```
pub type Note = Problem;

impl Problem {
    /// Adds advice on how to fix it.
    pub(super) fn help(&mut self, help: impl Into<String>) {
        self.help = Some(help.into());
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
            if let Some(column) = self.column.filter(|_| self.excerpt.is_some()) {
                write!(f, ":{column}")?;
            }
        }
        f.write_str(": ")?;
        if let Some(server) = &self.server {
            write!(f, "server {:?}: ", Theirs(server))?;
        }
        if let Some(field) = &self.field {
            write!(f, "{}: ", Theirs(field))?;
        }
        f.write_str(&self.message)
    }
}

/// Why there is no config.
///
/// ```no_run
/// use mcp_host::config::{self, Error, LoadRequest};
///
/// match config::load(&LoadRequest::from_process()) {
///     Ok(config) => println!("{} servers", config.servers.len()),
///     Err(Error::NotFound { places }) => println!("no file at {places:?}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No file was named, and none was found in the usual places.
    #[error("no config found; looked for {}", list(places))]
    NotFound {
        /// The places searched, in order.
        places: Vec<PathBuf>,
    },
    /// The config cannot be used. Holds every problem of every file, in the order of the files.
    #[error("{}", lines(problems))]
    Invalid {
        /// The problems, at least one.
        problems: Vec<Problem>,
    },
}

impl Error {
    /// Returns all problems; empty if there was no file.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::NotFound { .. } => &[],
            Self::Invalid { problems } => problems,
        }
    }

    /// Returns advice for the error as a whole, if there is one.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } => Some("name a file with --config FILE; the one of another MCP client will do"),
            Self::Invalid { .. } => None,
        }
    }
}

fn list(places: &[PathBuf]) -> String {
    if places.is_empty() {
        return "nothing, because this user has no home directory".to_owned();
    }
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// A place in one of the files of a [`Report`]. Line 0 means unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) file: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A missing value, and the place that needs it.
#[derive(Debug)]
pub(super) struct Lack {
    pub(super) at: Place,
    pub(super) field: String,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// Collects problems and notes while files are read.
#[derive(Debug, Default)]
pub(super) struct Report {
    files: Vec<PathBuf>,
    server: Option<String>,
    problems: Vec<Problem>,
    notes: Vec<Note>,
}

impl Report {
    /// Numbers a file for [`Place::file`].
    pub(super) fn add_file(&mut self, file: &Path) -> usize {
        self.files.push(file.to_owned());
        self.files.len() - 1
    }

    /// Returns the file with this number.
    pub(super) fn file(&self, file: usize) -> &Path {
        self.files.get(file).map_or(Path::new(""), PathBuf::as_path)
    }

    /// Returns the number of problems so far.
    pub(super) fn problems(&self) -> usize {
        self.problems.len()
    }

    /// Removes and returns the problems that only affect their entry, starting at this index.
    pub(super) fn take_local(&mut self, from: usize) -> Vec<Problem> {
        let reported = self.problems.split_off(from.min(self.problems.len()));
        let is_local = |problem: &Problem| reach::of(problem.field.as_deref()) == Reach::Entry;
        let (mut local, whole): (Vec<_>, Vec<_>) = reported.into_iter().partition(is_local);
        self.problems.extend(whole);
        local.sort_by_key(|problem| problem.line);
        local
    }

    /// Adds problems that were removed earlier.
    pub(super) fn put_back(&mut self, problems: impl IntoIterator<Item = Problem>) {
        self.problems.extend(problems);
    }

    /// Discards the problems starting at this index.
    pub(super) fn drop_from(&mut self, from: usize) {
        self.problems.truncate(from);
    }

    /// Adds an excerpt of the file to each problem starting at this index.
    pub(super) fn show_lines(&mut self, from: usize, excerpt: impl Fn(usize, usize) -> Option<Excerpt>) {
        for problem in self.problems.iter_mut().skip(from) {
            problem.excerpt = problem.line.zip(problem.column).and_then(|(line, column)| excerpt(line, column));
        }
    }

    /// Turns a missing value into a problem, without recording it.
    pub(super) fn lack(&self, lack: Lack) -> Problem {
        Problem { help: lack.help, ..self.make(lack.at, &lack.field, lack.message) }
    }

    /// Sets the server that later problems and notes are about.
    pub(super) fn enter(&mut self, server: Option<&str>) {
        self.server = server.map(str::to_owned);
    }

    /// Records a problem, which makes the config unusable.
    pub(super) fn problem(&mut self, at: Place, field: &str, message: impl Into<String>) -> &mut Problem {
        let problem = self.make(at, field, message.into());
        push(&mut self.problems, problem)
    }

    /// Records a note.
    pub(super) fn note(&mut self, at: Place, field: &str, message: impl Into<String>) -> &mut Note {
        let note = self.make(at, field, message.into());
        push(&mut self.notes, note)
    }

    /// Notes a key that has no meaning here, unless the same file has that note already.
    pub(super) fn unknown(&mut self, at: Place, field: &str, help: Option<String>) {
        let file = self.file(at.file);
        let known = |note: &&Note| note.file == file && note.field.as_deref() == Some(field);
        if !self.notes.iter().any(|note| known(&note)) {
            self.note(at, field, "unknown key, ignored").help = help;
        }
    }

    /// Reports whether a file has a note with this message.
    pub(super) fn has_note(&self, file: usize, message: &str) -> bool {
        self.notes.iter().any(|note| note.message == message && note.file == self.file(file))
    }

    /// Returns all problems and notes, in the order of the files and their lines.
    pub(super) fn finish(self) -> (Vec<Problem>, Vec<Note>) {
        let Self { files, mut problems, mut notes, .. } = self;
        let place = |problem: &Problem| (files.iter().position(|file| *file == problem.file), problem.line);
        problems.sort_by_key(place);
        notes.sort_by_key(place);
        (problems, notes)
    }

    /// Formats a place as `file:line`, for a second place in a message.
    pub(super) fn place(&self, at: Place) -> String {
        let file = self.file(at.file).display();
        if at.line > 0 { format!("{file}:{}", at.line) } else { file.to_string() }
    }

    /// Returns the place of a server that was read earlier.
    pub(super) fn place_of(&self, source: &Source) -> Place {
        let file = self.files.iter().position(|file| *file == source.file).unwrap_or_default();
        Place { file, line: source.line.unwrap_or_default(), column: 0 }
    }

    fn make(&self, at: Place, field: &str, message: String) -> Problem {
        let known = |number: usize| (number > 0).then_some(number);
        Problem {
            file: self.file(at.file).to_owned(),
            line: known(at.line),
            column: known(at.column),
            server: self.server.clone(),
            field: (!field.is_empty()).then(|| field.to_owned()),
            message,
            help: None,
            excerpt: None,
        }
    }
}

fn push(list: &mut Vec<Problem>, problem: Problem) -> &mut Problem {
    list.push(problem);
    list.last_mut().expect("something was pushed")
}
