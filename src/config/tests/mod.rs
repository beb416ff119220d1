//! Tests of what results from several files, variables and layers.

mod texts;

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn parse(text: &str, vars: &[(&str, &str)]) -> Result<Config, Error> {
    parse_str(text, Syntax::Json, "mcp.json", &Vars::from_iter(vars.iter().copied()))
}

fn good(text: &str, vars: &[(&str, &str)]) -> Config {
    parse(text, vars).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the lines of the report on a bad text.
fn bad(text: &str, syntax: Syntax) -> String {
    parse_str(text, syntax, "mcp", &Vars::default()).unwrap_err().to_string()
}

/// Returns a server with one argument, with that argument expanded.
fn argument(text: &str, vars: &[(&str, &str)]) -> Result<String, String> {
    let config = good(&format!("{{ \"s\": {{ \"command\": \"c\", \"args\": [{text:?}] }} }}"), vars);
    let Transport::Stdio(stdio) = &config.servers[0].transport else { panic!("not stdio") };
    config.servers[0].unusable.as_ref().map_or(Ok(stdio.args[0].clone()), |why| Err(why.to_string()))
}

#[test]
fn variables_by_the_table() {
    let vars = [("A", "a"), ("EMPTY", ""), ("NESTED", "${A}"), ("MCP_HOST_INPUT_MY_ID", "i")];
    for (text, expected) in [
        ("x", "x"),
        ("${A}", "a"),
        ("<${A}${A}>", "<aa>"),
        ("${env:A}", "a"),
        ("${B:-b}", "b"),
        ("${B:-}", ""),
        ("${env:B:-b}", "b"),
        ("${EMPTY:-e}", "e"),
        ("${EMPTY}", ""),
        ("${input:my-id}", "i"),
        ("${NESTED}", "${A}"),
        ("$A %A% {env:A} $$", "$A %A% {env:A} $$"),
        ("${what is this}", "${what is this}"),
        ("${B:-${A}}", "${B:-${A}}"),
        ("${A", "${A"),
        ("${}", "${}"),
        ("${1}", "${1}"),
    ] {
        assert_eq!(argument(text, &vars).as_deref(), Ok(expected), "{text}");
    }
    for (text, expected) in [
        ("${B}", "the variable B is not set; set it before mcp-host starts: export B=…"),
        ("${env:B}", "the variable B is not set; set it before mcp-host starts: export B=…"),
        ("${input:x.y}", "the input \"x.y\" has no value; set MCP_HOST_INPUT_X_Y"),
        ("${keyring:k}", "this build has no keyring to take \"k\" from; use ${env:NAME} or ${file:PATH}"),
        ("${cmd: ls}", "${cmd:…} would run a command, which a config may not do; use ${env:NAME}"),
        ("${config:a.b}", "only an editor knows its setting \"a.b\"; use ${env:NAME}"),
        ("${workspaceFolder}", "there is no open workspace for ${workspaceFolder}; write the path"),
    ] {
        assert_eq!(argument(text, &vars), Err(format!("args[0]: {expected}")), "{text}");
    }
}

#[test]
fn only_a_file_of_copilot_has_variables_without_braces() {
    let value = |file: &str, more: &str| {
        let text = format!(r#"{{ "mcpServers": {{ "s": {{ "command": "c", "args": ["ab$Cd"]{more} }} }} }}"#);
        let config = parse_str(&text, Syntax::Json, file, &Vars::from_iter([("Cd", "x")])).unwrap();
        let Transport::Stdio(stdio) = &config.servers[0].transport else { panic!("not stdio") };
        stdio.args[0].clone()
    };
    assert_eq!(value("/srv/mcp-config.json", ""), "ab$Cd");
    assert_eq!(value("/srv/.copilot/mcp-config.json", ""), "abx");
    assert_eq!(value("/srv/mcp-config.json", r#", "deferTools": "never""#), "abx");
}

#[test]
fn the_workspace_is_told_by_the_place_of_the_file() {
    let text = r#"{ "s": { "command": "${workspaceFolder}/x", "args": ["${workspaceFolderBasename}"] } }"#;
    for file in ["/src/shop/.vscode/mcp.json", "/src/shop/.mcp.json"] {
        let config = parse_str(text, Syntax::Json, file, &Vars::default()).unwrap();
        let Transport::Stdio(stdio) = &config.servers[0].transport else { panic!("not stdio") };
        assert_eq!((stdio.command.as_str(), stdio.args[0].as_str()), ("/src/shop/x", "shop"));
    }
}

#[test]
fn h92_a_missing_variable_concerns_one_server() {
    let text = r#"{ "mcpServers": {
        "url": { "url": "${A_URL}", "headers": { "Authorization": "Bearer ${B_TOKEN}" } },
        "off": { "command": "${C}", "disabled": true },
        "file": { "command": "c", "envFile": "not-there.env" },
        "fine": { "command": "c" } } }"#;
    let config = good(text, &[]);
    let why: Vec<_> = config.servers.iter().map(|server| server.unusable.as_ref().map(ToString::to_string)).collect();
    let url = "url: the variable A_URL is not set; set it before mcp-host starts: export A_URL=…; \
               headers.Authorization: the variable B_TOKEN is not set; set it before mcp-host starts: export B_TOKEN=…";
    assert_eq!(why[0].as_deref(), Some(url));
    assert_eq!(why[1], None);
    let named = |why: &String| why.starts_with("envFile: \"") && why.contains("/not-there.env\" cannot be read: ");
    assert!(why[2].as_ref().is_some_and(named), "{why:?}");
    assert_eq!(why[3], None);
}

#[test]
fn h92_no_type_of_the_config_shows_a_secret() {
    let text = r#"{ "mcpServers": {
        "a": { "command": "c", "args": ["--key", "${KEY}"], "env": { "K": "${KEY}", "API_TOKEN": "planted too" } },
        "b": { "url": "https://example.com/${KEY}?k=${KEY}", "headers": { "X": "${KEY}" } },
        "c": { "url": "https://example.com", "auth": { "type": "basic", "username": "u", "password": "${KEY}" } },
        "d": { "url": "https://example.com", "auth": { "type": "oauth", "clientId": "c", "clientSecret": "${KEY}",
               "grant": "enterprise", "idp": { "tokenEndpoint": "https://i.example/${KEY}", "clientId": "i",
               "clientSecret": "${KEY}", "idToken": "${KEY}" } } },
        "e": { "url": "https://example.com", "auth": { "type": "oauth", "clientId": "c", "privateKey": "${KEY}",
               "grant": "workload", "assertion": "${KEY}" } } } }"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mcp-host.json");
    fs::write(&file, text).unwrap();
    let vars = Vars::from_iter([("KEY", "planted")]);
    for project in [false, true] {
        let request = LoadRequest { files: vec![file.clone()], vars: vars.clone(), project, ..LoadRequest::default() };
        let config = load(&request).unwrap();
        assert_eq!(config.servers[0].project.is_some(), project);
        let shown = format!("{config:?} {config:#?} {request:?} {:?}", config.notes);
        assert!(!shown.contains("planted"), "{shown}");
    }
    let text = r#"{ "a": { "url": "${KEY}", "type": "${KEY}", "callTimeout": "${KEY}", "sharing": "${KEY}" },
                    "b": { "url": "https://example.com", "headers": { "X": "${KEY}" }, "rename": { "t": "${KEY}" } },
                    "host": { "listen": "${KEY}" } }"#;
    let error = parse(text, &[("KEY", "planted\n")]).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("planted"), "{error}");
}

#[cfg(unix)]
#[test]
fn h92_a_written_secret_is_told_and_so_is_who_may_read_it() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mcp.json");
    let notes = |text: &str, mode: u32| {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let config = load(&LoadRequest { files: vec![file.clone()], ..LoadRequest::default() }).unwrap();
        config.notes.iter().map(|note| note.message.clone()).collect::<Vec<_>>()
    };
    let written = r#"{ "a": { "command": "c", "env": { "API_TOKEN": "planted too" } } }"#;
    let (literal, others) = ("a secret is written in this file", "other users can read this file with its secrets");
    assert_eq!(notes(written, 0o600), [literal]);
    let mut both = notes(written, 0o644);
    both.sort();
    assert_eq!(both, [literal, others]);
    assert_eq!(notes(r#"{ "a": { "command": "c" } }"#, 0o644), Vec::<String>::new());
}

/// Reads a server's `auth` and the OAuth settings of other clients.
fn sign_in(fields: &str) -> Auth {
    let config = good(&format!(r#"{{ "s": {{ "url": "https://example.com", {fields} }} }}"#), &[("S", "secret")]);
    match &config.servers[0].transport {
        Transport::Auto(remote) => remote.auth.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn logins_of_our_own_and_of_other_clients() {
    let client = |id: &str, scopes: &[&str]| OAuth {
        client_id: Some(id.to_owned()),
        client_secret: Some(Secret::new("secret")),
        scopes: scopes.iter().map(ToString::to_string).collect(),
        ..OAuth::default()
    };
    for fields in [
        r#""auth": { "type": "oauth", "clientId": "c", "clientSecret": "${S}", "scopes": ["a", "b"] }"#,
        r#""auth": { "type": "oauth", "clientId": "c", "clientSecret": "${S}", "scope": "a b" }"#,
        r#""oauth": { "clientId": "c", "clientSecret": "${S}", "scopes": "a b", "callbackPort": 1 }"#,
        r#""oauth": { "client_id": "c", "client_secret": "${S}", "scope": "a b" }"#,
        r#""auth": { "CLIENT_ID": "c", "CLIENT_SECRET": "${S}", "scopes": ["a", "b"] }"#,
    ] {
        assert_eq!(sign_in(fields), Auth::OAuth(Box::new(client("c", &["a", "b"]))), "{fields}");
    }
    for fields in [r#""prefix": "always""#, r#""auth": "oauth""#, r#""auth": { "type": "oauth" }"#, r#""oauth": true"#]
    {
        assert_eq!(sign_in(fields), Auth::default(), "{fields}");
    }
    for fields in [
        r#""oauth": false"#,
        r#""headers": { "authorization": "Bearer ${S}" }"#,
        r#""auth": { "type": "bearer", "token": "${S}" }"#,
        r#""auth": { "type": "api-key", "apiKey": "${S}" }"#,
    ] {
        assert_eq!(sign_in(fields), Auth::Headers, "{fields}");
    }
    let grant = |fields: &str| match sign_in(&format!(r#""auth": {{ "type": "oauth", "clientId": "c", {fields} }}"#)) {
        Auth::OAuth(oauth) => oauth.grant,
        Auth::Headers => panic!("no login"),
    };
    let given = || SecretSource::Given(Secret::new("secret"));
    assert_eq!(grant(r#""grant": "client-credentials", "clientSecret": "${S}""#), Grant::ClientCredentials);
    assert_eq!(grant(r#""grant": "workload", "assertion": "${S}""#), Grant::Workload(given()));
    let idp = Enterprise::new("https://i.example/token".parse().unwrap(), "i", given());
    let fields = r#""grant": "enterprise", "idp": { "tokenEndpoint": "https://i.example/token", "clientId": "i", "idToken": "${S}" }"#;
    assert_eq!(grant(fields), Grant::Enterprise(Box::new(idp)));
}

#[test]
fn a_login_that_cannot_work_is_refused() {
    let refused =
        |auth: &str| bad(&format!(r#"{{ "s": {{ "url": "https://e.example", "auth": {auth} }} }}"#), Syntax::Json);
    for (auth, problem) in [
        (r#"{ "type": "oauth", "grant": "client-credentials", "clientSecret": "s" }"#, "auth.clientId: is missing"),
        (r#"{ "type": "oauth", "grant": "client-credentials", "clientId": "c" }"#, "auth.clientSecret: is missing"),
        (r#"{ "type": "oauth", "grant": "workload", "clientId": "c" }"#, "auth.assertionFile: is missing"),
        (r#"{ "type": "oauth", "grant": "enterprise", "clientId": "c" }"#, "auth.idp: is missing"),
        (r#"{ "type": "oauth", "grant": "magic" }"#, "auth.grant"),
        (r#"{ "type": "oauth", "clientMetadataUrl": "http://e.example/x" }"#, "is not an https URL"),
    ] {
        let report = refused(auth);
        assert!(report.contains(problem), "{auth}: {report}");
    }
}

/// 32 bytes in base64.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

#[test]
fn the_environment_stands_over_files_and_flags_over_both() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let one = file(
        "one.toml",
        "[host]\nlisten = '127.0.0.1:1'\nallowedHosts = ['a', 'b']\n[host.naming]\nmaxLength = 50\nseparator = '_'\n\
         [host.audit]\nfile = 'a.jsonl'\nmaxSize = '1KiB'\n[host.metrics]\ntools = ['x__*']\n\
         [host.registry]\nurl = 'http://127.0.0.1:1/r'\nheaders = { X-Team = 'core' }",
    );
    let two = file(
        "two.json",
        r#"{ "host": { "startupWait": "1s", "allowedHosts": ["c"], "naming": { "maxLength": 60 } } }"#,
    );
    let vars = [
        ("MCP_HOST_NAMING__MAX_LENGTH", "70"),
        ("MCP_HOST_STARTUP_WAIT", "2s"),
        ("MCP_HOST_HEARTBEAT", "0s"),
        ("MCP_HOST_CONSOLE", "on"),
        ("MCP_HOST_ALLOWED_ORIGINS", "[\"https://a.example\"]"),
        ("MCP_HOST_LIMITS__LEASES_PER_SERVER", "7"),
        ("MCP_HOST_TASKS", "false"),
        ("MCP_HOST_PARAM_HEADERS", "true"),
        ("MCP_HOST_APPROVAL_STRICT", "true"),
        ("MCP_HOST_SSE", "false"),
        ("MCP_HOST_SESSION_LIFE", "0s"),
        ("MCP_HOST_AUDIT__KEEP", "3"),
        ("MCP_HOST_METRICS__ENABLED", "false"),
        ("MCP_HOST_CONFIG", "not looked at"),
        ("MCP_HOST_INPUT_X", "no setting"),
        ("MCP_HOST_SECRET_KEY", KEY),
        ("MCP_HOST_SECRETS__STORE", "file"),
        ("MCP_HOST_NO_SUCH", "1"),
        ("MCP_HOST_THREADS", "4"),
    ];
    let vars = Vars::from_iter(vars);
    let flags = vec![("listen".to_owned(), "127.0.0.1:2".to_owned())];
    let config = load(&LoadRequest { files: vec![one, two], vars, flags, ..LoadRequest::default() }).unwrap();
    let expected = HostSettings {
        listen: "127.0.0.1:2".parse().unwrap(),
        startup_wait: Duration::from_secs(2),
        heartbeat: Duration::ZERO,
        auth: HostAuth::None,
        tls: None,
        insecure_http: false,
        allowed_hosts: vec!["c".to_owned()],
        allowed_origins: vec!["https://a.example".to_owned()],
        sse: false,
        session_life: Duration::ZERO,
        naming: crate::exposed::Naming {
            max_length: 70,
            separator: "_".to_owned(),
            ..crate::exposed::Naming::default()
        },
        param_headers: true,
        approval_strict: true,
        tasks: false,
        audit: Some(Audit { file: folder.path().join("a.jsonl"), max_size: 1024, keep: 3 }),
        metrics: Metrics::off().tools(["x__*"]),
        registry: Registry::at("http://127.0.0.1:1/r".parse().unwrap()).header("X-Team", "core"),
        console: Console::On,
        threads: Some(4),
        secrets: Secrets { store: StoreKind::File, key: SecretKey::parse(KEY), key_file: None },
        limits: Limits { leases_per_server: 7, ..Limits::default() },
        ..HostSettings::default()
    };
    assert_eq!(config.host, expected);
    let notes: Vec<_> = config.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["environment variable MCP_HOST_NO_SUCH: host.noSuch: unknown key, ignored"]);
}

#[test]
fn a_bad_setting_is_found_in_its_layer() {
    let vars = Vars::from_iter([
        ("MCP_HOST_NAMING__MAX_LENGTH", "7"),
        ("MCP_HOST_LISTEN", "[::]:80"),
        ("MCP_HOST_AUTH__TYPE", "open"),
    ]);
    let error = parse_str("{ \"host\": {\n \"startupWait\": 1 } }", Syntax::Json, "f.json", &vars).unwrap_err();
    insta::assert_snapshot!(error, @r#"
    f.json:2: host.startupWait: 1 has no unit
    environment variable MCP_HOST_AUTH__TYPE: host.auth.type: "open" is not one of none, bearer, oauth
    environment variable MCP_HOST_NAMING__MAX_LENGTH: host.naming.maxLength: 7 is not between 40 and 128
    "#);
}

#[test]
fn files_are_found_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let settings = home.join(".config/mcp-host");
    fs::create_dir_all(&settings).unwrap();
    let write =
        |path: &Path, name: &str| fs::write(path, format!("{{ \"{name}\": {{ \"command\": \"c\" }} }}")).unwrap();
    let mut request = LoadRequest { config_home: Some(home.join(".config")), ..LoadRequest::default() };
    let name = |request: &LoadRequest| load(request).map(|config| config.servers[0].name.clone());

    let Err(Error::NotFound { places }) = name(&request) else { panic!("there is nothing") };
    assert_eq!(places[..2], [settings.join("config.json"), settings.join("config.toml")]);
    fs::write(settings.join("config.toml"), "[mcpServers.toml]\ncommand = 'c'").unwrap();
    assert_eq!(name(&request).as_deref(), Ok("toml"));
    write(&settings.join("config.json"), "json");
    assert_eq!(name(&request).as_deref(), Ok("json"));
    write(&home.join("named.json"), "variable");
    request.vars = Vars::from_iter([("MCP_HOST_CONFIG", home.join("named.json").to_string_lossy())]);
    assert_eq!(name(&request).as_deref(), Ok("variable"));
    write(&home.join("flag.json"), "flag");
    assert_eq!(name(&request.clone().file(home.join("flag.json"))).as_deref(), Ok("flag"));

    let missing = home.join("missing.json");
    let error = load(&request.file(&missing)).unwrap_err();
    assert!(error.to_string().starts_with(&format!("{}: cannot be read: ", missing.display())), "{error}");
}

#[test]
fn a_later_file_replaces_whole_entries() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        (
            "1.json",
            r#"{ "a": { "command": "one", "env": { "K": "1" } }, "b": { "command": "b" }, "c": { "command": "c" } }"#,
        ),
        (
            "2.json",
            r#"{ "mcp": { "a": { "command": ["two"] }, "b": { "enabled": false }, "d": { "type": "local", "command": ["d"] } } }"#,
        ),
    ];
    let write = |(name, text): (&str, &str)| -> PathBuf {
        fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    let config = load(&LoadRequest { files: files.map(write).to_vec(), ..LoadRequest::default() }).unwrap();
    let names: Vec<_> = config.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    let expected = Transport::Stdio(Stdio { command: "two".to_owned(), ..Stdio::default() });
    assert_eq!(config.servers[0].transport, expected);
    assert_eq!(config.servers[1].disabled.as_deref(), Some("disabled in the config"));
    assert_eq!(config.files.len(), 2);
}

#[test]
fn a_broken_entry_that_a_later_file_turns_on_is_not_started() {
    let folder = tempfile::tempdir().unwrap();
    let load = |texts: &[&str]| {
        let mut request = LoadRequest::default();
        for (number, text) in texts.iter().enumerate() {
            let file = folder.path().join(format!("{number}.json"));
            fs::write(&file, text).unwrap();
            request = request.file(file);
        }
        let server = load(&request).unwrap().servers.remove(0);
        (server.disabled, server.unusable.map(|why| why.to_string()))
    };
    let on = r#"{ "mcpServers": { "a": { "enabled": true } } }"#;
    let off = r#"{ "mcpServers": { "a": { "enabled": false } } }"#;
    for entry in [r#""url": "https://h/", "headers": { "Authorization": "Bearer ${T}" }"#, r#""url": "no URL""#] {
        let disabled = format!(r#"{{ "mcpServers": {{ "a": {{ {entry}, "disabled": true }} }} }}"#);
        let enabled = format!(r#"{{ "mcpServers": {{ "a": {{ {entry} }} }} }}"#);
        for (texts, starts) in [(vec![&*disabled, on], true), (vec![&*enabled, off], false), (vec![&*disabled], false)]
        {
            let (disabled, unusable) = load(&texts);
            assert_eq!((disabled.is_none(), unusable.is_some()), (starts, starts), "{texts:?}: {unusable:?}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_readable_file_with_secrets_is_noted() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mcp.json");
    fs::write(&file, r#"{ "a": { "command": "c", "env": { "API_KEY": "0123456789" } } }"#).unwrap();
    for (mode, expected) in [(0o644, 2), (0o600, 1)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let config = load(&LoadRequest::default().file(&file)).unwrap();
        assert_eq!(config.notes.len(), expected, "{:?}", config.notes);
    }
}

#[test]
fn same_as_knows_no_places() {
    let one = good(r#"{ "a": { "command": "c" } }"#, &[]);
    let two = good("{\n\"a\": { \"command\": \"c\", \"callTimeout\": \"60s\" } }", &[]);
    let three = good(r#"{ "a": { "command": "c", "callTimeout": "61s" } }"#, &[]);
    assert!(one.servers[0].same_as(&two.servers[0]));
    assert!(!one.servers[0].same_as(&three.servers[0]));
}

#[test]
fn unknown_keys_are_noted_once() {
    let text = r#"{ "mcpServers": {
        "a": { "command": "c", "call_timeout": "1s", "frobnicate": 1 },
        "b": { "command": "c", "frobnicate": 2, "restart": { "maxRetrys": 1 }, "timeout": 60 } } }"#;
    let notes = good(text, &[]).notes;
    let notes: Vec<_> = notes.iter().map(|note| format!("{note} ({})", note.help.as_deref().unwrap_or("-"))).collect();
    insta::assert_snapshot!(notes.join("\n"), @r#"
    mcp.json:2: server "a": call_timeout: unknown key, ignored (did you mean `callTimeout`?)
    mcp.json:2: server "a": frobnicate: unknown key, ignored (-)
    mcp.json:3: server "b": restart.maxRetrys: unknown key, ignored (did you mean `maxRetries`?)
    mcp.json:3: server "b": timeout: 60 ms; were seconds meant? (write 60000 for 60 seconds)
    "#);
}
