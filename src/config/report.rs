//! Collects all problems of a config, so that they are reported at once, each with its place in a file.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Source;
use super::reach::{self, Reach};
use crate::protocol::Theirs;

/// A problem or a note, with its place.
///
/// Displays as `file:line: server "name": field: message`, on one line. If there is an excerpt, the column follows the
/// line number.
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
    /// The file; for a setting from elsewhere, the name of the environment variable or flag.
    pub file: PathBuf,
    /// The line, counted from 1, if known.
    pub line: Option<usize>,
    /// The column in characters, counted from 1, if known.
    pub column: Option<usize>,
    /// The server's name in the config, if the problem is about one server.
    pub server: Option<String>,
    /// The path of the field inside the server's entry, or inside the file if there is no server.
    pub field: Option<String>,
    /// The message. It never contains the value of a variable or a secret.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The text of the line, if the file cannot be parsed.
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

/// A remark about something that does not stop the host. It has the same form as a [`Problem`].
///
/// ```
/// # fn show(config: &mcp_host::Config) {
/// config.notes.iter().for_each(|note| println!("note: {note}"));
/// # }
/// ```
pub type Note = Problem;

impl Problem {
    /// Adds advice on how to fix the problem.
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
        /// The paths that were searched, in order.
        places: Vec<PathBuf>,
    },
    /// The config cannot be used.
    #[error("{}", lines(problems))]
    Invalid {
        /// The problems, at least one: all problems of all files, in the order of the files.
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

/// A place in one of the files of a [`Report`], given by the file's number there. Line or column 0 means unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) file: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A value that is missing, and the place in the config that needs it.
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
    /// Adds a file, and returns its number for [`Place::file`].
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

    /// Looks at the problems from this index on, and removes and returns those that only affect their server entry.
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

    /// Gives all problems from this index on the same advice.
    pub(super) fn advise(&mut self, from: usize, help: &str) {
        self.problems[from..].iter_mut().for_each(|problem| problem.help = Some(help.to_owned()));
    }

    /// Discards the problems from this index on.
    pub(super) fn drop_from(&mut self, from: usize) {
        self.problems.truncate(from);
    }

    /// Adds an excerpt of the file to each problem from this index on.
    pub(super) fn show_lines(&mut self, from: usize, excerpt: impl Fn(usize, usize) -> Option<Excerpt>) {
        for problem in self.problems.iter_mut().skip(from) {
            problem.excerpt = problem.line.zip(problem.column).and_then(|(line, column)| excerpt(line, column));
        }
    }

    /// Turns a missing value into a problem, and returns it without adding it to the report.
    pub(super) fn lack(&self, lack: Lack) -> Problem {
        Problem { help: lack.help, ..self.make(lack.at, &lack.field, lack.message) }
    }

    /// Sets the server that later problems and notes are about.
    pub(super) fn enter(&mut self, server: Option<&str>) {
        self.server = server.map(str::to_owned);
    }

    /// Records a problem. The config is refused unless the problem is later removed from the report.
    pub(super) fn problem(&mut self, at: Place, field: &str, message: impl Into<String>) -> &mut Problem {
        let problem = self.make(at, field, message.into());
        push(&mut self.problems, problem)
    }

    /// Records a note.
    pub(super) fn note(&mut self, at: Place, field: &str, message: impl Into<String>) -> &mut Note {
        let note = self.make(at, field, message.into());
        push(&mut self.notes, note)
    }

    /// Notes a config key that has no meaning here, unless this file already has a note about it.
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

    /// Formats a place as `file:line`, for a message that mentions a second place.
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
