//! One mistake: a folder with a home in it, what the user typed there, and everything that followed.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::plain;

/// A test that waits longer has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The scene of one mistake. `HOME` is shown as `/home/ada`; commands run in `~/work`, where relative paths begin.
pub(super) struct Scene {
    folder: tempfile::TempDir,
    /// Where commands are looked up, after `~/bin`.
    path: String,
    /// Texts that differ from run to run, and their replacements.
    hidden: Vec<(String, String)>,
    /// Everything, as the reviewer reads it.
    transcript: String,
    /// The program's output, without what the user wrote.
    said: String,
    /// Broken expectations, which hold regardless of the snapshots.
    wrong: Vec<String>,
    /// Whether servers here are tools whose words differ by version. The transcript omits those.
    pub(super) is_foreign: bool,
    /// A tool that this machine lacks.
    pub(super) lacks: Option<&'static str>,
}

impl Scene {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["home/work", "home/bin", "run"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::set_permissions(root.join("run"), Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mcp-host"), root.join("home/bin/mcp-host")).unwrap();
        let mut scene = Self {
            folder,
            path: "/usr/bin:/bin".to_owned(),
            hidden: Vec::new(),
            transcript: String::new(),
            said: String::new(),
            wrong: Vec::new(),
            is_foreign: false,
            lacks: None,
        };
        scene.hide(env!("CARGO_BIN_EXE_mcp-host"), "/home/ada/bin/mcp-host");
        scene.hide(root.join("home").to_str().unwrap(), "/home/ada");
        scene.hide(root.to_str().unwrap(), "/tmp");
        scene
    }

    fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    pub(super) fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// Returns a path in `~/work`, or one that begins with `~/`.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        match name.strip_prefix("~/") {
            Some(rest) => self.home().join(rest),
            None => self.home().join("work").join(name),
        }
    }

    /// Shows `name` in place of `text`.
    pub(super) fn hide(&mut self, text: &str, name: &str) {
        self.hidden.push((text.to_owned(), name.to_owned()));
        // Longer texts go first, since they may contain others.
        self.hidden.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
    }

    /// Also looks up commands in this folder.
    pub(super) fn looks_in(&mut self, folder: &Path) {
        let folder = folder.to_str().unwrap();
        if !self.path.split(':').any(|known| known == folder) {
            self.path = format!("{folder}:{}", self.path);
            self.hide(folder, "/tools");
        }
    }

    /// Looks up commands in `~/bin` only.
    pub(super) fn finds_only_what_is_in_home(&mut self) {
        self.path.clear();
    }

    /// Writes a file and shows it.
    pub(super) fn file(&mut self, name: &str, text: &str) {
        self.write(name, text);
        let shown = self.plain(text);
        writeln!(self.transcript, "--- {name}\n{}", shown.trim_end()).unwrap();
    }

    /// Writes a file that is not worth showing.
    pub(super) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Writes a program.
    pub(super) fn program(&self, name: &str, text: &str) {
        let path = self.write(name, text);
        std::fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
    }

    /// Runs a line like a shell does, to its end, and records its output.
    pub(super) fn types(&mut self, line: &str) -> Shown {
        let program = self.begins(line);
        self.ends(program)
    }

    /// Starts a line that runs until something ends it.
    pub(super) fn begins(&mut self, line: &str) -> Running {
        self.typed(line);
        self.begins_quietly(line)
    }

    /// Records what the user types.
    pub(super) fn typed(&mut self, line: &str) {
        let line = self.plain(line);
        writeln!(self.transcript, "$ {line}").unwrap();
    }

    pub(super) fn begins_quietly(&self, line: &str) -> Running {
        // The shell replaces itself, so that signals reach the program.
        let line = if line.starts_with("mcp-host") { format!("exec {line}") } else { line.to_owned() };
        let mut command = self.command("/bin/sh");
        command.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::start(command)
    }

    /// A program with this home and no other environment.
    pub(super) fn command(&self, program: &str) -> Command {
        let (root, home) = (self.root(), self.home());
        let mut command = Command::new(program);
        command.env_clear().current_dir(home.join("work")).env("HOME", &home).env("XDG_RUNTIME_DIR", root.join("run"));
        command.env("PATH", format!("{}:{}", home.join("bin").display(), self.path).trim_end_matches(':'));
        command
    }

    /// Waits for the end of a program and records its output.
    pub(super) fn ends(&mut self, mut program: Running) -> Shown {
        let status = program.end();
        let [out, err] = program.said.clone();
        let shown = Shown { exit: status.code(), out: self.plain(&out), err: self.plain(&err), told: err };
        let text = shown.text();
        self.note(&text);
        if !matches!(shown.exit, Some(0 | 130)) && !text.contains("help: ") {
            self.wrong.push(format!("ends with {:?} and does not say what to do", shown.exit));
        }
        shown
    }

    /// Adds program output.
    pub(super) fn note(&mut self, text: &str) {
        let text = self.plain(text);
        let shown = if self.is_foreign { plain::without_words_of_servers(&text) } else { text.clone() };
        writeln!(self.transcript, "{}", shown.trim_end()).unwrap();
        writeln!(self.said, "{}", text.trim_end()).unwrap();
    }

    /// Adds a remark to the transcript only.
    pub(super) fn remark(&mut self, text: &str) {
        writeln!(self.transcript, "({text})").unwrap();
    }

    /// Records a fault unless `holds`.
    pub(super) fn expect(&mut self, holds: bool, what: &str) {
        if !holds {
            self.wrong.push(what.to_owned());
        }
    }

    /// Returns the text without what differs from run to run.
    pub(super) fn plain(&self, text: &str) -> String {
        plain::plain(text, &self.hidden)
    }

    /// Returns the transcript, and everything that is wrong with it; nothing if it could not happen.
    pub(super) fn judged(mut self, says: &[&str], never: &[&str]) -> (String, Vec<String>) {
        if self.lacks.is_some() {
            return (self.transcript, Vec::new());
        }
        let lower = self.said.to_lowercase();
        let missing = says.iter().filter(|words| !self.said.contains(**words));
        self.wrong.extend(missing.map(|words| format!("does not say: {words}")));
        let astray = never.iter().chain(&["panicked", "backtrace", "unwrap"]);
        let astray = astray.filter(|words| lower.contains(&words.to_lowercase()));
        self.wrong.extend(astray.map(|words| format!("leads astray: {words}")));
        if self.said.contains('\u{1b}') {
            self.wrong.push("holds an escape character".to_owned());
        }
        (self.transcript, self.wrong)
    }
}

/// A program's output, and how it ended.
pub(super) struct Shown {
    pub(super) exit: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
    /// Its stderr, with usable paths.
    pub(super) told: String,
}

impl Shown {
    fn text(&self) -> String {
        let exit = self.exit.map_or_else(|| "a signal".to_owned(), |exit| exit.to_string());
        let streams = [("stdout", &self.out), ("stderr", &self.err)];
        let streams = streams.into_iter().filter(|(_, text)| !text.is_empty());
        let streams = streams.map(|(name, text)| format!("[{name}]\n{}\n", text.trim_end()));
        format!("{}[exit {exit}]", streams.collect::<String>())
    }
}

/// A running program; killed when dropped.
pub(super) struct Running {
    pub(super) child: Child,
    said: [String; 2],
    pieces: Receiver<(usize, Vec<u8>)>,
    begun: Instant,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (sender, pieces) = channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let streams: [Box<dyn Read + Send>; 2] = [Box::new(out), Box::new(err)];
        for (number, mut stream) in streams.into_iter().enumerate() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    if sender.send((number, buffer[..read].to_vec())).is_err() {
                        break;
                    }
                }
            });
        }
        Self { child, said: [String::new(), String::new()], pieces, begun: Instant::now() }
    }

    /// Waits until it has printed a line with these words, and returns the line.
    pub(super) fn hears(&mut self, words: &str) -> String {
        loop {
            let mut lines = self.said.iter().flat_map(|text| text.split_inclusive('\n'));
            if let Some(line) = lines.find(|line| line.contains(words) && line.ends_with('\n')) {
                return line.trim_end().to_owned();
            }
            assert!(self.listen(), "not heard: {words:?}; but: {:#?}", self.said);
        }
    }

    /// Takes the next piece; false at the end of both streams.
    fn listen(&mut self) -> bool {
        let left = PATIENCE.saturating_sub(self.begun.elapsed());
        match self.pieces.recv_timeout(left) {
            Ok((number, bytes)) => self.said[number].push_str(&String::from_utf8_lossy(&bytes)),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => panic!("it goes on without end: {:#?}", self.said),
        }
        true
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        while self.listen() {}
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
