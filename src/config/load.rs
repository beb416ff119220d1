//! From files to a [`Config`]: where they are looked for, and how several become one.

use std::path::{Path, PathBuf};

use super::contents::{Contents, Reads};
use super::expand::{Outcome, Scope};
use super::keyring::{Asked, Keyring};
use super::project::{self, Approved, NOT_APPROVED};
use super::report::{Error, Place, Report};
use super::syntax::{self, Node, Syntax};
use super::vars::Vars;
use super::{Config, Server, host, server, shape};

/// The largest config file that is read.
const FILE: u64 = 16 * 1024 * 1024;

/// What to load, and with which surroundings.
#[derive(Debug, Clone, Default)]
pub struct LoadRequest {
    /// Files that were named; the entry of a later one replaces that of an earlier one by the server's name.
    pub files: Vec<PathBuf>,
    /// The environment.
    pub vars: Vars,
    /// What has the secrets that servers name by `${keyring:…}`.
    pub keyring: Keyring,
    /// The home of the user.
    pub home: Option<PathBuf>,
    /// The folder that holds the `mcp-host` folder of the user's settings, such as `~/.config`.
    pub config_home: Option<PathBuf>,
    /// Where a project's config is looked for: a directory that somebody else may have filled.
    pub working_directory: Option<PathBuf>,
    /// Whether the files that are named were found there.
    pub project: bool,
    /// What the user has approved of configs of projects.
    pub approved: Approved,
    /// Settings of the host that stand over all others: path below `host`, and value as a variable would have it.
    pub flags: Vec<(String, String)>,
}

impl LoadRequest {
    /// A request with the surroundings of this process and no file named.
    pub fn from_process() -> Self {
        let vars = Vars::from_process();
        let absolute = |name: &str| vars.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
        let platform = if cfg!(windows) { absolute("APPDATA") } else { home.as_ref().map(|home| home.join(".config")) };
        let config_home = absolute("XDG_CONFIG_HOME").or(platform);
        let working_directory = std::env::current_dir().ok();
        Self { vars, home, config_home, working_directory, ..Self::default() }
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, file: impl Into<PathBuf>) -> Self {
        self.files.push(file.into());
        self
    }

    /// The files to read: those named, else the one of `MCP_HOST_CONFIG`, else that of the working directory, else the
    /// user's. Also whether they are a project's: what lies in the working directory is the word of whoever wrote it.
    fn find(&self) -> Result<(Vec<PathBuf>, bool), Error> {
        if !self.files.is_empty() {
            return Ok((self.files.clone(), self.project));
        }
        if let Some(file) = self.vars.get("MCP_HOST_CONFIG").filter(|file| !file.is_empty()) {
            return Ok((vec![PathBuf::from(file)], false));
        }
        let names = ["mcp-host.json", "mcp-host.toml"];
        let here: Vec<_> =
            self.working_directory.iter().flat_map(|folder| names.map(|name| folder.join(name))).collect();
        if let Some(file) = here.iter().find(|place| place.exists()) {
            return Ok((vec![file.clone()], true));
        }
        let mut folders: Vec<PathBuf> = self.config_home.iter().cloned().collect();
        if cfg!(target_os = "macos") {
            folders.extend(self.home.as_ref().map(|home| home.join("Library/Application Support")));
        }
        let names = ["mcp-host/config.json", "mcp-host/config.toml"];
        let users: Vec<_> = folders.iter().flat_map(|folder| names.map(|name| folder.join(name))).collect();
        match users.iter().find(|place| place.exists()) {
            Some(file) => Ok((vec![file.clone()], false)),
            None => Err(Error::NotFound { places: here.into_iter().chain(users).collect() }),
        }
    }
}

/// Finds, reads and checks the config.
///
/// # Errors
///
/// Fails when there is no file, and when anything is wrong with one: then with every problem of all files.
pub fn load(request: &LoadRequest) -> Result<Config, Error> {
    let mut loader = Loader::new(&request.vars, request.home.as_deref(), &request.keyring);
    let (files, project) = request.find()?;
    loader.approved = project.then_some(&request.approved);
    for file in files {
        if let Some(text) = loader.read_file(&file) {
            loader.add(&text, Syntax::of(&file), &file);
        }
        loader.files.push(file);
    }
    loader.finish(&request.flags)
}

/// Checks one text as if it were the file `name`. Neither a home nor other files are known.
///
/// # Errors
///
/// Fails with every problem of the text.
pub fn parse_str(text: &str, syntax: Syntax, name: impl AsRef<Path>, vars: &Vars) -> Result<Config, Error> {
    let none = Keyring::default();
    let mut loader = Loader::new(vars, None, &none);
    loader.add(text, syntax, name.as_ref());
    loader.files.push(name.as_ref().to_owned());
    loader.finish(&[])
}

/// Takes file after file, and puts together what they say.
struct Loader<'a> {
    vars: &'a Vars,
    home: Option<&'a Path>,
    keyring: Asked<'a>,
    /// What is approved, if the files are a project's.
    approved: Option<&'a Approved>,
    servers: Vec<Server>,
    hosts: Vec<Node>,
    files: Vec<PathBuf>,
    reads: Reads,
    report: Report,
}

impl<'a> Loader<'a> {
    fn new(vars: &'a Vars, home: Option<&'a Path>, keyring: &'a Keyring) -> Self {
        let (servers, hosts, files) = (Vec::new(), Vec::new(), Vec::new());
        let (reads, report) = (Reads::default(), Report::default());
        let keyring = Asked::new(keyring);
        Self { vars, home, keyring, approved: None, servers, hosts, files, reads, report }
    }

    fn read_file(&mut self, file: &Path) -> Option<String> {
        let error = match self.reads.text(file, FILE) {
            Ok(text) => return Some(text),
            Err(error) => error,
        };
        let at = Place { file: self.report.add_file(file), ..Place::default() };
        self.report.problem(at, "", format!("cannot be read: {error}"));
        None
    }

    /// Reads one file into what is there.
    fn add(&mut self, text: &str, syntax: Syntax, file: &Path) {
        let reads = std::mem::take(&mut self.reads);
        self.add_reading(text, syntax, file, &reads);
        self.reads = reads;
    }

    fn add_reading(&mut self, text: &str, syntax: Syntax, file: &Path, reads: &Reads) {
        let number = self.report.add_file(file);
        let Some(root) = syntax::parse(text, syntax, number, &mut self.report) else { return };
        let Some(shape) = shape::read(&root, file, &mut self.report) else { return };
        let dialect = super::expand::Dialect::Dollar;
        let scope =
            Scope { vars: self.vars, home: self.home, file, inputs: &shape.inputs, dialect, reads, keyring: None };
        match shape.host {
            Some(host) if self.approved.is_some() => {
                let note = self.report.note(host.at, "host", "a project's config does not set up the host, ignored");
                note.help("name the file with --config to have it count");
            }
            Some(host) => self.add_host(host, &scope),
            None => {}
        }
        let mut seen: Vec<(&str, Place)> = Vec::new();
        for entry in &shape.entries {
            self.report.enter(Some(&entry.name));
            if let Some((_, first)) = seen.iter().find(|(name, _)| *name == entry.name) {
                let first = self.report.place(*first);
                self.report.problem(entry.at, "", format!("given twice, first at {first}"));
                continue;
            }
            seen.push((&entry.name, entry.at));
            match server::switch(entry.node) {
                Some(enabled) => self.switch(entry, enabled),
                None => {
                    let own = if self.approved.is_some() { Reads::careful() } else { Reads::default() };
                    let scope = Scope { dialect: entry.flavor.dialect(), ..scope };
                    let keyring = self.may_ask(entry, file, scope).then_some(&self.keyring);
                    let scope = Scope { reads: &own, keyring, ..scope };
                    if let Some(server) = server::read(entry, scope, &mut self.report) {
                        let server = self.judged(server, entry, file, &own.contents());
                        self.put(server);
                    }
                    reads.take(&own);
                }
            }
        }
        self.report.enter(None);
        if self.report.has_note(number, server::WRITTEN_SECRET) && others_may_read(file) {
            let at = Place { file: number, ..Place::default() };
            self.report.note(at, "", "other users can read this file with its secrets").help("chmod 600");
        }
    }

    /// Whether the keyring may be asked for an entry: its server is one to be started. So the entry is read without a keyring
    /// before, and judged. What a project names of the user's keyring is for the user to grant.
    fn may_ask(&self, entry: &shape::Entry<'_>, file: &Path, scope: Scope<'_>) -> bool {
        if server::keyring_names(entry).is_empty() {
            return false;
        }
        // A pipe can be read once, and what is wrong is told when the entry is read for good.
        let reads = Reads::careful();
        let server = server::read(entry, Scope { reads: &reads, ..scope }, &mut Report::default());
        server.is_some_and(|server| server.disabled.is_none())
            && self.approved.is_none_or(|approved| project::judge(entry, file, &reads.contents(), approved).approved)
    }

    /// A server of a project waits for the user to approve it.
    fn judged(&self, mut server: Server, entry: &shape::Entry<'_>, file: &Path, reads: &Contents) -> Server {
        let Some(approved) = self.approved else { return server };
        let project = project::judge(entry, file, reads, approved);
        if !project.approved {
            server.disabled.get_or_insert_with(|| NOT_APPROVED.to_owned());
            server.unusable = None;
        }
        server.project = Some(project);
        server
    }

    fn add_host(&mut self, host: &Node, scope: &Scope<'_>) {
        let mut outcome = Outcome::default();
        let host = scope.expand(host, "host", &mut outcome, &mut self.report);
        // There is no server to fail alone, so here a missing variable is a problem.
        for missing in outcome.missing {
            self.report.problem(host.at, "", missing);
        }
        self.hosts.push(host);
    }

    /// The whole entry of a later file takes the place of an earlier one.
    fn put(&mut self, server: Server) {
        match self.servers.iter_mut().find(|known| known.name == server.name) {
            Some(known) => *known = server,
            None => self.servers.push(server),
        }
    }

    fn switch(&mut self, entry: &shape::Entry<'_>, enabled: bool) {
        match self.servers.iter_mut().find(|known| known.name == entry.name) {
            Some(known) => known.disabled = (!enabled).then(|| "disabled in the config".to_owned()),
            None => {
                self.report.note(entry.at, "", "turns a server on or off that no earlier file has, ignored");
            }
        }
    }

    /// Two servers of one alias could not be told apart.
    fn unique_aliases(&mut self) {
        for (index, server) in self.servers.iter().enumerate() {
            let Some(first) = self.servers[..index].iter().find(|first| first.alias == server.alias) else { continue };
            let line = first.source.line.map_or(String::new(), |line| format!(":{line}"));
            let place = format!("{}{line}", first.source.file.display());
            let message =
                format!("both this and {:?} at {place} become the alias {:?}", first.name, server.alias.as_str());
            self.report.enter(Some(&server.name));
            let at = self.report.place_of(&server.source);
            self.report.problem(at, "", message).help("give one of them another name");
        }
        self.report.enter(None);
    }

    fn finish(mut self, flags: &[(String, String)]) -> Result<Config, Error> {
        self.unique_aliases();
        let host = host::read(std::mem::take(&mut self.hosts), self.vars, flags, &mut self.report);
        let Self { servers, files, reads, report, approved, .. } = self;
        let (problems, notes) = report.finish();
        if !problems.is_empty() {
            return Err(Error::Invalid { problems });
        }
        let mut contents = reads.contents();
        if let Some(file) = approved.and_then(|approved| approved.file.clone()) {
            contents.watch(file);
        }
        // Read where the endpoint opens; renewed, they are read there again.
        for file in host.tls.iter().flat_map(|tls| [&tls.cert, &tls.key]) {
            contents.watch(file.clone());
        }
        Ok(Config { servers, host, notes, files, contents, project: approved.is_some() })
    }
}

#[cfg(unix)]
pub(super) fn others_may_read(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o044 != 0)
}

#[cfg(not(unix))]
pub(super) fn others_may_read(_: &Path) -> bool {
    false
}
