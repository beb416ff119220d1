//! Loads a [`Config`]: where to look for its files, and how to merge several of them.

use std::path::{Path, PathBuf};

use super::claude::{self, Shared, Stand};
use super::clients::Client;
use super::contents::{Contents, Reads, others_may_read};
use super::expand::{Outcome, Scope};
use super::keyring::{Keyring, Lookups};
use super::project::{self, Approved, NOT_APPROVED};
use super::report::{Error, Place, Report};
use super::secret::Secret;
use super::surroundings::Surroundings;
use super::syntax::{self, Node, Syntax};
use super::unusable::Unusable;
use super::vars::Vars;
use super::{Config, Lock, Locked, Server, host, inputs, locked, place, server, shape};

/// The largest config file that is read.
const FILE: u64 = 16 * 1024 * 1024;

/// Which config to load, and in which environment.
///
/// ```no_run
/// use mcp_host::config::{self, LoadRequest};
///
/// let config = config::load(&LoadRequest::from_process().file("mcp.json"))?;
/// # Ok::<_, config::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct LoadRequest {
    /// Files named by the user. An entry of a later file replaces an earlier entry with the same server name.
    pub files: Vec<PathBuf>,
    /// Texts to read in place of the files with these paths in `files`: for a config that is not written yet.
    pub texts: Vec<(PathBuf, String)>,
    /// The environment variables.
    pub vars: Vars,
    /// The source of secrets that servers name as `${keyring:…}`.
    pub keyring: Keyring,
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// The folder that holds the `mcp-host` folder with the user's settings, such as `~/.config`.
    pub config_home: Option<PathBuf>,
    /// The directory in which to look for a project's config; its content may come from others.
    pub working_directory: Option<PathBuf>,
    /// The directory of the project whose servers to take from Claude Code's own file. `None` means the project of the
    /// working directory.
    pub project_directory: Option<PathBuf>,
    /// The client whose file is edited, if the user named it; otherwise the path identifies it.
    pub client: Option<&'static Client>,
    /// Whether the files in `files` were found in the working directory, and so belong to a project.
    pub project: bool,
    /// Which servers of project configs the user has approved.
    pub approved: Approved,
    /// Whether not to read the lock, because it is about to be rewritten.
    pub without_lock: bool,
    /// Host settings that override all others: the path below `host`, and the value, written as in a variable.
    pub flags: Vec<(String, String)>,
}

impl LoadRequest {
    /// Returns a request with the environment of this process and no files.
    pub fn from_process() -> Self {
        let vars = Vars::from_process();
        let home = vars.path(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
        let config_home = vars.config_home();
        let working_directory = std::env::current_dir().ok();
        Self { vars, home, config_home, working_directory, ..Self::default() }
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, file: impl Into<PathBuf>) -> Self {
        self.files.push(file.into());
        self
    }

    /// Returns the files that [`load`] reads.
    ///
    /// # Errors
    /// Fails if no file is named and none is found.
    pub fn found(&self) -> Result<Vec<PathBuf>, Error> {
        self.find().map(|(files, _)| files)
    }

    /// Returns the files that [`load`] reads, and whether they belong to a project.
    ///
    /// # Errors
    /// Fails if no file is named and none is found.
    pub fn standing(&self) -> Result<(Vec<PathBuf>, bool), Error> {
        self.find()
    }

    /// Returns the files to read: the named files, else the file that `MCP_HOST_CONFIG` names, else the one in the
    /// working directory, else the user's own. Also returns whether they belong to a project: a file in the working
    /// directory comes from whoever wrote the project.
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
        let users = self.users();
        match users.iter().find(|place| place.exists()) {
            Some(file) => Ok((vec![file.clone()], false)),
            None => Err(Error::NotFound { places: here.into_iter().chain(users).collect() }),
        }
    }

    /// Returns the paths at which the user's own config may be.
    pub fn users(&self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = self.config_home.iter().cloned().collect();
        if cfg!(target_os = "macos") {
            folders.extend(self.home.as_ref().map(|home| home.join("Library/Application Support")));
        }
        let names = ["mcp-host/config.json", "mcp-host/config.toml"];
        folders.iter().flat_map(|folder| names.map(|name| folder.join(name))).collect()
    }
}

/// Finds, reads and checks the config.
///
/// # Errors
///
/// Fails if there is no file. Otherwise fails with every problem of every file.
pub fn load(request: &LoadRequest) -> Result<Config, Error> {
    let mut loader = Loader::new(&request.vars, request.home.as_deref(), &request.keyring);
    let (files, project) = request.find()?;
    loader.approved = project.then_some(&request.approved);
    let (named, here) = (request.project_directory.as_deref().map(place::absolute), &request.working_directory);
    loader.stand = Stand { named: named.as_deref(), here: here.as_deref(), home: request.home.as_deref() };
    loader.lock_beside = files.first().filter(|_| !request.without_lock).cloned();
    loader.without_lock = request.without_lock;
    if project {
        // The lock's approvals are part of what the user approves for the project's servers.
        loader.read_lock(None);
    }
    for file in files {
        let text = request.texts.iter().find(|(named, _)| *named == file).map(|(_, text)| text.clone());
        if let Some(text) = text.or_else(|| loader.read_file(&file)) {
            loader.add(&text, Syntax::of(&file), &file);
        }
        loader.files.push(file);
    }
    if project && let Some(file) = request.users().into_iter().find(|place| place.exists()) {
        loader.read_host(&file);
    }
    loader.finish(&request.flags)
}

/// Checks one text as if it were the file `name`, without a home directory or other files.
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

/// Reads one config file after the other, and merges their content.
struct Loader<'a> {
    vars: &'a Vars,
    home: Option<&'a Path>,
    keyring: Lookups<'a>,
    /// The user's approvals, if the files belong to a project.
    approved: Option<&'a Approved>,
    /// The lock of the project.
    lock: Option<Lock>,
    /// The config file beside which to look for a lock; `None` for a text.
    lock_beside: Option<PathBuf>,
    without_lock: bool,
    stand: Stand<'a>,
    /// Those projects in the files that have servers, described in words.
    projects: Vec<String>,
    /// What the chosen projects say about servers of other files.
    shared: Vec<Shared>,
    servers: Vec<Server>,
    hosts: Vec<Node>,
    /// Secrets from variables in the host settings.
    hidden: Vec<Secret>,
    files: Vec<PathBuf>,
    reads: Reads,
    report: Report,
}

impl<'a> Loader<'a> {
    fn new(vars: &'a Vars, home: Option<&'a Path>, keyring: &'a Keyring) -> Self {
        let (servers, hosts, files, hidden) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (reads, report) = (Reads::default(), Report::default());
        let keyring = Lookups::new(keyring);
        let (approved, lock, lock_beside, without_lock, stand) = (None, None, None, false, Stand::default());
        let (projects, shared) = (Vec::new(), Vec::new());
        Self {
            vars,
            home,
            keyring,
            approved,
            lock,
            lock_beside,
            without_lock,
            stand,
            projects,
            shared,
            servers,
            hosts,
            hidden,
            files,
            reads,
            report,
        }
    }

    fn read_file(&mut self, file: &Path) -> Option<String> {
        let error = match self.reads.text(file, FILE) {
            Ok(text) => return Some(text),
            Err(error) => error,
        };
        let at = Place { file: self.report.add_file(file), ..Place::default() };
        let problem = self.report.problem(at, "", format!("cannot be read: {}", place::reason(&error)));
        problem.help = place::help(file, &error);
        None
    }

    /// Reads only the host settings of the user's own file. A project's config cannot turn them off.
    fn read_host(&mut self, file: &Path) {
        let Some(text) = self.read_file(file) else { return };
        let Some((_, root, file)) = self.parse(&text, Syntax::of(file), file) else { return };
        let file = &*file;
        let Some(shape) = shape::read(&root, file, self.stand, &mut self.report) else { return };
        let Some(host) = shape.host else { return };
        let reads = std::mem::take(&mut self.reads);
        let scope = Scope {
            vars: self.vars,
            home: self.home,
            file,
            base: None,
            inputs: &shape.inputs,
            dialect: super::dialect::Dialect::Dollar,
            reads: &reads,
            keyring: None,
        };
        self.add_host(host, &scope);
        self.reads = reads;
    }

    /// Reads the lock: the one that the config names, else the one beside its first file.
    fn read_lock(&mut self, named: Option<&Path>) {
        if self.without_lock {
            return;
        }
        let own = if self.approved.is_some() { Reads::careful() } else { Reads::default() };
        self.lock = locked::find(named, self.lock_beside.as_deref(), &own, &mut self.report);
        self.reads.take(&own);
    }

    /// Returns what the lock approves for the server with this alias.
    fn locked(&self, alias: &str) -> Option<&Locked> {
        self.lock.as_ref()?.servers.get(alias)
    }

    /// Reads one file and adds its content.
    fn add(&mut self, text: &str, syntax: Syntax, file: &Path) {
        let reads = std::mem::take(&mut self.reads);
        self.add_reading(text, syntax, file, &reads);
        self.reads = reads;
    }

    /// Parses a file. Returns its number in the report, its content, and its absolute path.
    fn parse(&mut self, text: &str, syntax: Syntax, file: &Path) -> Option<(usize, Node, PathBuf)> {
        let number = self.report.add_file(file);
        let root = syntax::parse(text, syntax, number, &mut self.report)?;
        Some((number, root, place::absolute(file)))
    }

    fn add_reading(&mut self, text: &str, syntax: Syntax, file: &Path, reads: &Reads) {
        let given = file;
        let Some((number, root, file)) = self.parse(text, syntax, file) else { return };
        let file = &*file;
        let Some(mut shape) = shape::read(&root, file, self.stand, &mut self.report) else { return };
        if self.approved.is_some() {
            inputs::forget_defaults(&mut shape.inputs);
        }
        self.projects.append(&mut shape.projects);
        self.shared.extend(shape.shared.take());
        let dialect = super::dialect::Dialect::Dollar;
        let scope = Scope {
            vars: self.vars,
            home: self.home,
            file,
            base: None,
            inputs: &shape.inputs,
            dialect,
            reads,
            keyring: None,
        };
        match shape.host {
            Some(host) if self.approved.is_some() => {
                let note = self.report.note(host.at, "host", "a project's config cannot configure the host, ignored");
                note.help("to use it, name the file with --config");
            }
            Some(host) => self.add_host(host, &scope),
            None => {}
        }
        let mut seen: Vec<(&str, Place)> = Vec::new();
        for entry in &shape.entries {
            self.report.enter(Some(&entry.name));
            if let Some((_, first)) = seen.iter().find(|(name, _)| *name == entry.name) {
                let first = self.report.place(*first);
                let problem = self.report.problem(entry.at, "", format!("given twice, first at {first}"));
                problem.help("rename one of them, or remove it");
                continue;
            }
            seen.push((&entry.name, entry.at));
            match server::switch(entry.node) {
                Some(enabled) => self.switch(entry, enabled),
                None => {
                    let own = if self.approved.is_some() { Reads::careful() } else { Reads::default() };
                    let scope = Scope { dialect: entry.flavor.dialect(), base: entry.base.as_deref(), ..scope };
                    let keyring = self.may_ask(entry, given, scope).then_some(&self.keyring);
                    let scope = Scope { reads: &own, keyring, ..scope };
                    if let Some(read) = server::read(entry, scope, &mut self.report) {
                        let server = self.judged(read, entry, given, &own.contents());
                        self.put(server);
                    }
                    reads.take(&own);
                }
            }
        }
        self.report.enter(None);
        if self.report.has_note(number, server::WRITTEN_SECRET) && others_may_read(file) {
            let at = Place { file: number, ..Place::default() };
            let note = self.report.note(at, "", "other users can read this file with its secrets");
            note.help(format!("chmod 600 {}", place::quoted(&given.to_string_lossy())));
        }
    }

    /// Reports whether the keyring may be asked for the values of an entry: only if its server is going to be started.
    /// To decide that, the entry is first read and judged without a keyring. If a project's entry names secrets in the
    /// user's keyring, the user must have approved it.
    fn may_ask(&self, entry: &shape::Entry<'_>, file: &Path, scope: Scope<'_>) -> bool {
        if server::keyring_names(entry).is_empty() {
            return false;
        }
        // A pipe can be read only once, and errors are reported by the real read.
        let reads = Reads::careful();
        let mut report = Report::default();
        let read = server::read(entry, Scope { reads: &reads, ..scope }, &mut report);
        read.is_some_and(|read| {
            let locked = self.locked(read.server.alias.as_str());
            read.server.disabled.is_none()
                && read.wrong.is_empty()
                && report.problems() == 0
                && self
                    .approved
                    .is_none_or(|approved| project::judge(entry, file, &reads.contents(), approved, locked).approved)
        })
    }

    /// Returns the server that was read, and stores in it what keeps it from starting. A project's server waits for the
    /// user's approval. The mistakes of a disabled server are kept until all files are read, because a later file may
    /// enable it.
    fn judged(&self, read: server::Read, entry: &shape::Entry<'_>, file: &Path, reads: &Contents) -> Server {
        let server::Read { mut server, wrong, missing } = read;
        server.entry = Some(locked::entry_hash(entry.node));
        if let Some(approved) = self.approved {
            let project = project::judge(entry, file, reads, approved, self.locked(server.alias.as_str()));
            if !project.approved {
                server.disabled.get_or_insert_with(|| NOT_APPROVED.to_owned());
            }
            server.project = Some(project);
        }
        server.unusable = Unusable::new(wrong, missing);
        server
    }

    fn add_host(&mut self, host: &Node, scope: &Scope<'_>) {
        let mut outcome = Outcome::default();
        let host = scope.expand(host, "host", &mut outcome, &mut self.report);
        // In a server's entry, a missing variable makes only that server fail. Here it concerns the whole host, so it
        // is a problem of the config.
        for lack in outcome.missing {
            let problem = self.report.lack(lack);
            self.report.put_back([problem]);
        }
        self.hidden.extend(outcome.secrets);
        self.hosts.push(host);
    }

    /// Adds a server. It replaces a server with the same name from an earlier file as a whole.
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

    /// Applies what Claude Code's own file says about servers of other files, and refuses a named project that does not
    /// exist.
    fn apply_projects(&mut self) {
        for server in &mut self.servers {
            let off = self.shared.iter().find_map(|shared| shared.turns_off(&server.name, &server.source.file));
            if let Some(why) = off {
                server.disabled.get_or_insert(why);
            }
        }
        for shared in &self.shared {
            shared.tell_unread(&self.files, &mut self.report);
        }
        if let Some(named) = self.stand.named.filter(|_| self.shared.is_empty()) {
            claude::refuse(named, &self.projects, &mut self.report);
        }
    }

    /// Refuses two servers with the same alias, which could not be told apart.
    fn unique_aliases(&mut self) {
        for (index, server) in self.servers.iter().enumerate() {
            let Some(first) = self.servers[..index].iter().find(|first| first.alias == server.alias) else { continue };
            let line = first.source.line.map_or(String::new(), |line| format!(":{line}"));
            let place = format!("{}{line}", first.source.file.display());
            let message =
                format!("both this and {:?} at {place} become the alias {:?}", first.name, server.alias.as_str());
            self.report.enter(Some(&server.name));
            let at = self.report.place_of(&server.source);
            self.report.problem(at, "", message).help("rename one of them");
        }
        self.report.enter(None);
    }

    fn finish(mut self, flags: &[(String, String)]) -> Result<Config, Error> {
        self.unique_aliases();
        self.apply_projects();
        // A server that does not start need not be correct.
        for server in self.servers.iter_mut().filter(|server| server.disabled.is_some()) {
            server.unusable = None;
        }
        let mut host = host::read(std::mem::take(&mut self.hosts), self.vars, flags, &mut self.report);
        host.hidden = std::mem::take(&mut self.hidden);
        if self.approved.is_none() {
            self.read_lock(host.lock.as_deref());
        }
        for server in &mut self.servers {
            let locked = self.lock.as_ref().and_then(|lock| lock.servers.get(server.alias.as_str()));
            server.locked = locked.filter(|locked| server.entry.as_ref() == Some(&locked.entry)).cloned();
        }
        let by_project = !self.projects.is_empty() || !self.shared.is_empty();
        let Self { servers, files, reads, mut report, approved, stand, lock, .. } = self;
        // If the config is refused, report everything in its files that needs fixing.
        if report.problems() > 0 {
            report.put_back(
                servers
                    .iter()
                    .filter_map(|server| server.unusable.as_ref())
                    .flat_map(|unusable| unusable.wrong().to_vec()),
            );
        }
        let (problems, notes) = report.finish();
        if !problems.is_empty() {
            return Err(Error::Invalid { problems });
        }
        let mut contents = reads.contents();
        if let Some(file) = approved.and_then(|approved| approved.file.clone()) {
            contents.watch(file);
        }
        // The certificate files are read when the endpoint opens, and again after the certificate was renewed.
        for file in host.tls.iter().flat_map(|tls| [&tls.cert, &tls.key]) {
            contents.watch(file.clone());
        }
        let scope = if by_project { stand.named.or(stand.here).map(Path::to_owned) } else { None };
        let surroundings = Surroundings::new(reads.names(), scope, &servers, &host);
        Ok(Config { servers, host, notes, files, contents, project: approved.is_some(), surroundings, lock })
    }
}
