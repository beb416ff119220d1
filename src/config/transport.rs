//! How to reach a server: by `command` or `url`, under the various names that clients use for these keys.

use std::io;
use std::path::Path;

use url::Url;

use super::fields::{Field, Fields, nearest};
use super::report::{Lack, Place, Report};
use super::secret::Secret;
use super::shape::Flavor;
use super::syntax::{Node, Origin, Value};
use super::{Auth, Package, Remote, Stdio, Transport};
use super::{auth, expand, habits, helper, inherit, place, sandbox, tls, vars};
use crate::loopback::is_loopback;
use crate::protocol::Theirs;

/// Our own config keys for the transport.
pub(super) const KEYS: [&str; 15] = [
    "args",
    "auth",
    "command",
    "cwd",
    "env",
    "envFile",
    "headers",
    "headersHelper",
    "inheritEnv",
    "insecureHttp",
    "package",
    "sandbox",
    "tls",
    "type",
    "url",
];

/// The keys that name a program; the first one present counts.
const COMMAND: [&str; 2] = ["command", "cmd"];
/// The keys that name an endpoint; the first one present counts.
const ENDPOINT: [&str; 5] = ["httpUrl", "url", "serverUrl", "uri", "baseUrl"];

/// Returns the endpoint that an entry names.
pub(super) fn endpoint(entry: &Node) -> Option<&str> {
    ENDPOINT.into_iter().find_map(|key| entry.get(key)?.text())
}

/// Keys that only apply to a server that is a process.
const STDIO_KEYS: [&str; 15] = [
    "command",
    "cmd",
    "args",
    "env",
    "envs",
    "environment",
    "env_vars",
    "env_keys",
    "envFile",
    "cwd",
    "working_directory",
    "workingDirectory",
    "bearer_token",
    "package",
    "sandbox",
];
/// Keys that only apply to a server with a URL.
const REMOTE_KEYS: [&str; 20] = [
    "url",
    "httpUrl",
    "serverUrl",
    "uri",
    "baseUrl",
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "requestOptions",
    "apiKey",
    "auth",
    "insecureHttp",
    "oauth",
    "oauthClientId",
    "oauthScopes",
    "oauthPublicClient",
    "headersHelper",
    "http_headers_helper",
    "tls",
];

const KINDS: &str = "use \"stdio\", \"http\" or \"sse\", or leave it out";
const NO_TRANSPORT: &str = "if the server has an http or https endpoint too, write that as `url` with \"type\": \"http\"; else set \"disabled\": true";

/// The largest `envFile`, in bytes.
const ENV_FILE: u64 = 1024 * 1024;

/// A stand-in for a URL that contains a variable without a value; nothing ever connects to it.
const PLACEHOLDER: &str = "https://unresolved.invalid/";

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Stdio,
    Http,
    Sse,
    Auto,
}

/// What reading a transport needs and yields, besides the fields of the entry.
pub(super) struct Reader<'a> {
    pub(super) flavor: Flavor,
    pub(super) scope: &'a expand::Scope<'a>,
    pub(super) outcome: &'a mut expand::Outcome,
    pub(super) report: &'a mut Report,
    /// The places and paths of fields that contain a secret in plain text.
    pub(super) written_secrets: Vec<(Place, String)>,
}

impl Reader<'_> {
    /// Reads the transport of the entry at `at`.
    pub(super) fn read(&mut self, fields: &mut Fields<'_>, at: Place) -> Option<Transport> {
        let Some(kind) = self.kind(fields, at) else {
            // Without a kind, it is unknown which of these keys belong to the entry.
            fields.skip(&STDIO_KEYS);
            fields.skip(&REMOTE_KEYS);
            return None;
        };
        let transport = match kind {
            Kind::Stdio => self.stdio(fields, at).map(Transport::Stdio),
            Kind::Http => self.remote(fields, at).map(Transport::Http),
            Kind::Sse => self.remote(fields, at).map(Transport::Sse),
            Kind::Auto => self.remote(fields, at).map(Transport::Auto),
        };
        let (others, message) = match kind {
            Kind::Stdio => (&REMOTE_KEYS[..], "only a server with a url has this"),
            _ => (&STDIO_KEYS[..], "only a server with a command has this"),
        };
        for name in others {
            let Some(field) = fields.take(&[name], self.report) else { continue };
            // Codex refuses these keys, so no working file has them.
            if self.flavor == Flavor::Codex {
                self.report.problem(field.at, &field.path, message);
            } else {
                self.report.note(field.at, &field.path, format!("{message}, ignored"));
            }
        }
        transport
    }

    /// Returns the transport that the entry names, else the one that its keys imply.
    fn kind(&mut self, fields: &mut Fields<'_>, at: Place) -> Option<Kind> {
        if let Some(field) = fields.take(&["tcp"], self.report) {
            let message = "MCP has no WebSocket transport, so this server cannot be used";
            self.report.problem(field.at, "tcp", message).help(NO_TRANSPORT);
            return None;
        }
        if let Some(field) = fields.take(&["type", "transport", "transportType"], self.report) {
            return self.named_kind(&field);
        }
        let command = COMMAND.into_iter().find_map(|name| fields.peek(name));
        let url = ENDPOINT.into_iter().find_map(|name| fields.peek(name));
        match (command, url) {
            (Some(command), Some(url)) => {
                let message =
                    format!("`{}` (line {}) and `{}` (line {})", command.key, command.at.line, url.key, url.at.line);
                let problem = self.report.problem(url.at, &url.key, format!("both {message} are given"));
                problem.help("keep one, or say which is meant with \"type\"");
                None
            }
            (Some(_), None) => Some(Kind::Stdio),
            (None, Some(url)) => Some(match self.flavor {
                Flavor::Codex | Flavor::Zed | Flavor::Goose => Kind::Http,
                Flavor::Gemini if url.key == "httpUrl" => Kind::Http,
                Flavor::Cline => {
                    self.report.note(url.at, &url.key, "taken for an SSE server, as Cline does without a type");
                    Kind::Sse
                }
                _ => Kind::Auto,
            }),
            (None, None) => {
                let problem = self.report.problem(at, "", "neither `command` nor `url` is given");
                problem.help("give `command`, a program to start, or `url`, an endpoint to connect to");
                None
            }
        }
    }

    fn named_kind(&mut self, field: &Field<'_>) -> Option<Kind> {
        let (message, help) = match field.text(self.report)? {
            "stdio" | "local" => return Some(Kind::Stdio),
            "http" | "streamable" | "streamable-http" | "streamableHttp" | "streamable_http" => {
                return Some(Kind::Http);
            }
            "sse" => return Some(Kind::Sse),
            "remote" | "auto" => return Some(Kind::Auto),
            _ if field.node.origin == Origin::Missing => return None,
            other @ ("ws" | "websocket" | "tcp" | "unix" | "pipe") => {
                (format!("{other:?} is not an MCP transport and cannot be used"), NO_TRANSPORT)
            }
            other => (format!("unknown transport {}", field.quote(other)), KINDS),
        };
        self.report.problem(field.at, &field.path, message).help(help);
        None
    }

    fn stdio(&mut self, fields: &mut Fields<'_>, at: Place) -> Option<Stdio> {
        let mut stdio = Stdio::default();
        let Some(command) = fields.take(&COMMAND, self.report) else {
            self.report.problem(at, "command", "is missing");
            return None;
        };
        // opencode writes the program and its arguments as one list.
        let mut words = match &command.node.value {
            Value::List(_) => command.items(self.report),
            _ => vec![command.clone()],
        };
        if let Some(args) = fields.take(&["args"], self.report) {
            words.extend(args.items(self.report));
        }
        let mut words = words.iter().filter_map(|word| Some((word, word.scalar(self.report)?))).collect::<Vec<_>>();
        for (word, text) in &words {
            if text.contains('\0') {
                self.report.problem(word.at, &word.path, "contains a NUL character");
            }
        }
        if words.is_empty() || words[0].1.trim().is_empty() {
            self.report.problem(command.at, &command.path, "is empty");
            return None;
        }
        stdio.command = words.remove(0).1;
        stdio.args = words.into_iter().map(|(_, text)| text).collect();
        if stdio.args.iter().any(|arg| arg == "mcp-remote" || arg.starts_with("mcp-remote@")) {
            let message = "mcp-remote is not needed here; give its URL as `url`";
            self.report.note(command.at, &command.path, message);
        }
        let cwd = fields.take(&["cwd", "working_directory", "workingDirectory"], self.report);
        stdio.cwd = cwd.and_then(|field| field.text(self.report)).map(|path| self.scope.path(path));
        self.environment(fields, &mut stdio);
        stdio.package = fields.take(&["package"], self.report).and_then(|field| Package::read(&field, self.report));
        let is_foreign = fields.peek(sandbox::KEY).is_none_or(|member| sandbox::is_of_another(&member.node));
        let field = fields.take(&[sandbox::KEY], self.report);
        let enabled = fields.take(&["sandboxEnabled"], self.report);
        stdio.sandbox = if is_foreign {
            let whole = |path: &str| self.scope.path(path);
            sandbox::read_foreign(enabled.as_ref(), field.as_ref(), whole, self.report)
        } else {
            field.and_then(|field| sandbox::read(&field, self.report))
        };
        if stdio.is_contained() && stdio.package.as_ref().is_some_and(|package| package.digest.is_some()) {
            let message = "a locked tree is on this machine, and not in the image of `sandbox.container`";
            self.report.problem(command.at, &command.path, message).help("remove `package`, or `container`");
        }
        Some(stdio)
    }

    fn environment(&mut self, fields: &mut Fields<'_>, stdio: &mut Stdio) {
        if let Some(file) = fields.take(&["envFile"], self.report)
            && let Some(path) = file.text(self.report).filter(|_| file.node.origin != Origin::Missing)
        {
            let path = self.scope.path(path);
            match self.scope.reads.text(&path, ENV_FILE) {
                Ok(text) => set_all(&mut stdio.env, vars::dotenv(&text)),
                Err(error) => self.unread(&file, &path, &error),
            }
        }
        let env = fields.take(&["env", "envs", "environment"], self.report);
        for (name, field) in env.map(|field| field.entries(self.report)).unwrap_or_default() {
            if name.is_empty() || name.contains(['=', '\0']) {
                self.report.problem(field.at, &field.path, "is not the name of a variable");
            } else if field.node.value == Value::Null {
                // In VS Code `null` means "not set", in every other client "inherit". A child inherits nothing by
                // default.
                if self.flavor != Flavor::VsCode {
                    stdio.forward_env.push(name.to_owned());
                }
            } else if let Some(value) = field.scalar(self.report) {
                if value.contains('\0') {
                    self.report.problem(field.at, &field.path, "contains a NUL character");
                }
                self.watch(&field, name, &value);
                set_all(&mut stdio.env, [(name.to_owned(), value)]);
            }
        }
        for names in [[inherit::KEY], ["env_vars"], ["env_keys"]] {
            if let Some(field) = fields.take(&names, self.report) {
                stdio.forward_env.extend(inherit::read(&field, self.report));
                self.goose_keys(&field, stdio);
            }
        }
        self.outcome.secrets.extend(inherit::secrets(&stdio.forward_env, self.scope.vars));
    }

    /// Reports variables that Goose keeps in its own store, which no other program reads, and that are not set here.
    /// Goose itself does not start the server without them either.
    fn goose_keys(&mut self, field: &Field<'_>, stdio: &Stdio) {
        let Value::List(items) = &field.node.value else { return };
        if self.flavor != Flavor::Goose {
            return;
        }
        for name in items.iter().filter_map(Node::text) {
            if self.scope.vars.get(name).is_none() && !stdio.env.iter().any(|(known, _)| known == name) {
                let help = format!("goose keeps it in a store of its own: set {name} before the host starts");
                self.lack(field, format!("the variable {name} is not set"), Some(help));
            }
        }
    }

    /// Reports a file that the entry names but that cannot be read. A path with variables is shown as written, without
    /// their values.
    fn unread(&mut self, field: &Field<'_>, path: &Path, error: &io::Error) {
        let (name, help) = match self.outcome.written(&field.path) {
            Some(written) if field.node.origin != Origin::Literal => (written.to_owned(), None),
            _ => (path.display().to_string(), place::help(path, error)),
        };
        let message = format!("{name:?} cannot be read: {}", place::reason(error));
        let help = help.or_else(|| Some("create the file, or remove the key".to_owned()));
        self.lack(field, message, help);
    }

    fn lack(&mut self, field: &Field<'_>, message: String, help: Option<String>) {
        self.outcome.missing.push(Lack { at: field.at, field: field.path.clone(), message, help });
    }

    fn remote(&mut self, fields: &mut Fields<'_>, at: Place) -> Option<Remote> {
        if self.flavor == Flavor::Goose {
            // These list the variables for its headers, which are already substituted.
            fields.skip(&["envs", "env_keys"]);
        }
        let insecure_http = fields.take(&["insecureHttp"], self.report).and_then(|field| field.flag(self.report));
        let insecure_http = insecure_http.unwrap_or(false);
        let url = fields.take(&ENDPOINT, self.report);
        if url.is_none() {
            self.report.problem(at, "url", "is missing");
        }
        let url = url.and_then(|field| self.url(&field, insecure_http));
        let mut headers = Vec::new();
        if let Some(field) = fields.take(&["headers", "http_headers"], self.report) {
            self.headers(&field, &mut headers);
        }
        if let Some(mut options) = fields.take(&["requestOptions"], self.report).and_then(|f| f.fields(self.report)) {
            if let Some(field) = options.take(&["headers"], self.report) {
                self.headers(&field, &mut headers);
            }
            habits::request_options(options, self.report);
        }
        self.codex_headers(fields, &mut headers);
        if self.flavor == Flavor::Continue
            && let Some(field) = fields.take(&["apiKey"], self.report)
        {
            let key = field.text(self.report).unwrap_or_default();
            self.watch(&field, "apiKey", key);
            self.header(&field, "Authorization", format!("Bearer {key}"), &mut headers);
        }
        if fields.peek("apiKey").is_some_and(|member| member.node.members().is_some())
            && let Some(field) = fields.take(&["apiKey"], self.report)
            && let Some((name, value)) = habits::api_key(&field, self.report)
        {
            self.header(&field, name, value, &mut headers);
        }
        let mut headers_helper = helper::read(fields, self.report);
        if let Some(field) = fields.take(&[inherit::KEY], self.report) {
            match &mut headers_helper {
                Some(helper) => {
                    helper.inherit_env = inherit::read(&field, self.report);
                    self.outcome.secrets.extend(inherit::secrets(&helper.inherit_env, self.scope.vars));
                }
                None => {
                    let message = "there is no program here that could inherit variables, ignored";
                    self.report.note(field.at, &field.path, message);
                }
            }
        }
        let logins = ["oauth", "oauthClient", "oauthClientId", "scopes", "oauthScopes"]
            .iter()
            .any(|name| fields.peek(name).is_some());
        let mut sign_in = auth::foreign(fields, self.report);
        if headers_helper.is_some() && !logins {
            sign_in = Auth::Headers;
        }
        if let Some(field) = fields.take(&["auth"], self.report) {
            match auth::read(&field, self.scope, self.report) {
                // Codex gives the kind of login under `auth`, and the other settings of the login next to it.
                Some(auth::AuthSetting::OAuth(_))
                    if field.node.text().is_some() && matches!(sign_in, Auth::OAuth(_)) => {}
                Some(auth::AuthSetting::Header(name, value)) => {
                    self.header(&field, &name, value.expose().to_owned(), &mut headers);
                    sign_in = Auth::Headers;
                }
                Some(auth::AuthSetting::OAuth(oauth)) => sign_in = Auth::OAuth(oauth),
                None => {}
            }
        }
        if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("Authorization")) {
            sign_in = Auth::Headers;
        }
        let tls = fields.take(&["tls"], self.report);
        let tls = tls.map(|field| tls::read(&field, |path| self.scope.path(path), self.report)).unwrap_or_default();
        Some(Remote { url: url?, headers, headers_helper, insecure_http, tls, auth: sign_in })
    }

    fn url(&mut self, field: &Field<'_>, insecure_http: bool) -> Option<Url> {
        let text = field.text(self.report)?;
        if field.node.origin == Origin::Missing {
            return Some(Url::parse(PLACEHOLDER).expect("the placeholder is a URL"));
        }
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(error) => {
                let problem = self.report.problem(field.at, &field.path, format!("not a URL: {error}"));
                problem.help("write the full URL, like \"https://example.com/mcp\"");
                return None;
            }
        };
        let literal = field.node.origin == Origin::Literal;
        let meant = |scheme: &str| {
            let rest = text.split_once(':').map(|(_, rest)| rest).unwrap_or_default();
            let url = format!("{scheme}:{rest}");
            format!("did you mean {}?", crate::redact::Scrubber::default().scrub(&url))
        };
        let (message, help) = match url.scheme() {
            "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
                ("user and password do not belong in the URL".to_owned(), "use \"auth\": { \"type\": \"basic\", … }")
            }
            "http" if !is_loopback(&url) && !insecure_http => {
                let message = "plain http beyond this machine can be read and changed on the way".to_owned();
                (message, "use https, or add \"insecureHttp\": true to this entry if you trust the network in between")
            }
            "http" | "https" => return Some(url),
            _ if !literal => {
                ("the value of the variable is not an http or https URL".to_owned(), "use an http or https URL")
            }
            other => {
                let help = match nearest(other, &["https", "http"]) {
                    Some(scheme) => meant(scheme),
                    None => NO_TRANSPORT.to_owned(),
                };
                let message = format!("{other:?} is not an MCP transport and cannot be used");
                self.report.problem(field.at, &field.path, message).help(help);
                return None;
            }
        };
        self.report.problem(field.at, &field.path, message).help(help);
        // Nothing connects to this URL, but the user is still shown where it leads.
        let known = matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
        known.then_some(url)
    }

    fn headers(&mut self, field: &Field<'_>, headers: &mut Vec<(String, Secret)>) {
        for (name, field) in field.entries(self.report) {
            if field.node.value != Value::Null
                && let Some(value) = field.scalar(self.report)
            {
                self.watch(&field, name, &value);
                habits::placeholder(&field, &value, self.report);
                self.header(&field, name, value, headers);
            }
        }
    }

    /// Reads the keys with which Codex takes the values of headers from variables.
    fn codex_headers(&mut self, fields: &mut Fields<'_>, headers: &mut Vec<(String, Secret)>) {
        if let Some(field) = fields.take(&["bearer_token"], self.report) {
            let problem = self.report.problem(field.at, &field.path, "a token may not be written here");
            problem.help("name its variable in bearer_token_env_var");
        }
        if let Some(field) = fields.take(&["bearer_token_env_var"], self.report)
            && let Some(token) = self.variable(&field)
        {
            self.header(&field, "Authorization", format!("Bearer {token}"), headers);
        }
        let named = fields.take(&["env_http_headers"], self.report);
        for (name, field) in named.map(|field| field.entries(self.report)).unwrap_or_default() {
            if let Some(value) = self.variable(&field) {
                self.header(&field, name, value, headers);
            }
        }
    }

    fn variable(&mut self, field: &Field<'_>) -> Option<String> {
        let name = field.text(self.report)?;
        let value = self.scope.vars.get(name);
        if value.is_none() {
            self.lack(field, format!("the variable {name} is not set"), Some(expand::set_it(name)));
        }
        value.map(str::to_owned)
    }

    fn header(&mut self, field: &Field<'_>, name: &str, value: String, headers: &mut Vec<(String, Secret)>) {
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(token) {
            self.report.problem(field.at, &field.path, format!("{:?} is not a valid header name", Theirs(name)));
        } else if value.chars().any(|c| c.is_control() && c != '\t') {
            self.report.problem(field.at, &field.path, "the value holds a line break or control character");
        } else if helper::is_own_header(name) {
            self.report.note(field.at, &field.path, "mcp-host sets this header for each request, ignored");
        } else if headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            self.report.problem(field.at, &field.path, format!("the header {} is given twice", Theirs(name)));
        } else {
            headers.push((name.to_owned(), Secret::new(value)));
        }
    }

    /// Remembers the field if its name and value look like a secret in plain text.
    fn watch(&mut self, field: &Field<'_>, name: &str, value: &str) {
        let name = name.to_ascii_uppercase();
        let telling = ["TOKEN", "SECRET", "PASSWORD", "APIKEY", "API_KEY", "API-KEY", "AUTHORIZATION"];
        if habits::is_placeholder(value) {
            return;
        }
        if field.node.origin == Origin::Literal && value.len() >= 8 && telling.iter().any(|part| name.contains(part)) {
            self.written_secrets.push((field.at, field.path.clone()));
        }
    }
}

fn set_all(env: &mut Vec<(String, Secret)>, values: impl IntoIterator<Item = (String, String)>) {
    for (name, value) in values {
        env.retain(|(known, _)| *known != name);
        env.push((name, Secret::new(value)));
    }
}
