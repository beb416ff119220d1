//! Levels, hosts and paths as files say them.

use super::{Sandbox, SandboxNetwork};
use crate::config::{Config, Project, Syntax, Vars, parse_str};

fn parsed(text: &str) -> Result<Config, String> {
    parse_str(text, Syntax::Toml, "mcp.toml", &Vars::default()).map_err(|error| {
        let problems = error.problems().iter().map(|problem| {
            let help = problem.help.as_deref().unwrap_or_default();
            format!("{problem}; {help}")
        });
        problems.collect::<Vec<_>>().join("\n")
    })
}

fn of(config: &Config) -> Option<Sandbox> {
    config.servers[0].sandbox(config.host.sandbox.as_ref())
}

#[test]
fn a_level_that_this_version_lacks_is_refused_by_the_name_of_its_server() {
    for (text, expected) in [
        (
            "sandbox = \"full\"",
            "mcp.toml:3: server \"a\": sandbox: \"full\" is no level of this version; the levels are \"off\", \"default\", and \"strict\"",
        ),
        (
            "sandbox = { network = [\"https://a.example\"] }",
            "mcp.toml:3: server \"a\": sandbox.network[0]: \"https://a.example\" is a URL and not a host; write \"api.example.com\", \"*.example.com\", or \"db.example.com:5432\"",
        ),
        (
            "sandbox = { network = [] }",
            "mcp.toml:3: server \"a\": sandbox.network: the list names no host; name at least one",
        ),
        (
            "sandbox = { network = \"some\" }",
            "mcp.toml:3: server \"a\": sandbox.network: \"some\" is not one of open, none; ",
        ),
        (
            "sandbox = { cpu = 0 }",
            "mcp.toml:3: server \"a\": sandbox.cpu: 0 is not a number of processors from 0.01 to 4096; write 0.5 for half the time of one processor, 2.0 for two",
        ),
        (
            "sandbox = { cpu = \"2\" }",
            "mcp.toml:3: server \"a\": sandbox.cpu: expected a number of processors, found a string; ",
        ),
        (
            "sandbox = { container = \"--privileged\" }",
            "mcp.toml:3: server \"a\": sandbox.container: \"--privileged\" is no name of an image; write \"node:24\", or \"ghcr.io/owner/name:1.2\"",
        ),
        (
            "sandbox = { container = \"a\", network = [\"a.example\"] }",
            "mcp.toml:3: server \"a\": sandbox.container: a container reaches every host or none, and not those of a list; write \"network\": \"none\" or \"open\", or remove `container` and take the level \"strict\"",
        ),
        (
            "sandbox = { container = \"a\", weak = true }",
            "mcp.toml:3: server \"a\": sandbox.container: there is nothing in place of a container, so `weak` means nothing; remove `weak`, or `container`",
        ),
        (
            "sandbox = { container = \"a\", level = \"off\" }",
            "mcp.toml:3: server \"a\": sandbox.container: a container is no level \"off\"; remove `level`, or `container`",
        ),
        (
            "sandbox = { container = \"a\", unix = true }",
            "mcp.toml:3: server \"a\": sandbox.container: in a container `unix` means nothing; remove `unix`, and list the path of the socket in `write`",
        ),
        (
            "sandbox = { processes = 2 }",
            "mcp.toml:3: server \"a\": sandbox.processes: no program starts with less than 8 processes and threads; ",
        ),
        (
            "sandbox = { read = [\"src\"] }",
            "mcp.toml:3: server \"a\": sandbox.read[0]: \"src\" is not a whole path; write a path that begins with / or ~/",
        ),
        ("sandbox = { reads = [] }", "mcp.toml:3: server \"a\": sandbox.reads: unknown key; did you mean `read`?"),
    ] {
        let told = parsed(&format!("[mcpServers.a]\ncommand = \"x\"\n{text}\n")).unwrap_err();
        assert_eq!(told, expected);
    }
    let told = parsed("[mcpServers.a]\ncommand = \"x\"\n[host]\nsandbox = \"full\"\n").unwrap_err();
    let levels = "the levels are \"off\", \"default\", and \"strict\"";
    assert_eq!(told, format!("mcp.toml:4: host.sandbox: \"full\" is no level of this version; {levels}"));
    let text = "[mcpServers.a]\ncommand = \"x\"\n[host]\nsandbox = { container = \"a\" }\n";
    let expected =
        "mcp.toml:4: host.sandbox: not every server runs in one image; write `container` into the entries of servers";
    assert_eq!(parsed(text).unwrap_err(), expected);
    let package = "package = { type = \"npm\", name = \"a\", version = \"1.0.0\", digest = \"sha256:0000000000000000000000000000000000000000000000000000000000000000\" }";
    let text = format!("[mcpServers.a]\ncommand = \"x\"\n{package}\nsandbox = {{ container = \"a\" }}\n");
    // A mistake in a key that other clients have, too, makes that server alone `failed`.
    let config = parsed(&text).expect("a config");
    let why = config.servers[0].unusable.as_ref().map(ToString::to_string).expect("it cannot start");
    assert!(why.contains("not in the image of `sandbox.container`; remove `package`, or `container`"), "{why}");
}

#[test]
fn the_servers_own_word_counts_before_that_of_the_host() {
    let server = "[mcpServers.a]\ncommand = \"x\"\n";
    let (off, on) = ("sandbox = \"off\"\n", "sandbox = \"default\"\n");
    for (text, expected) in [
        (server.to_owned(), None),
        (format!("{server}{off}[host]\n{on}"), None),
        (format!("{server}[host]\n{on}"), Some(Sandbox::on())),
        (format!("{server}{on}[host]\n{off}"), Some(Sandbox::on())),
        (format!("{server}sandbox = {{ write = [\"~/src\"] }}\n"), Some(Sandbox::on().write("~/src"))),
    ] {
        assert_eq!(of(&parsed(&text).unwrap()), expected, "{text}");
    }
    let mut config = parsed(server).unwrap();
    let (hash, shown) = (String::new(), Vec::new());
    config.servers[0].project = Some(Project { hash, shown, approved: true });
    assert_eq!(of(&config), Some(Sandbox::on().weak()));
    config.host.sandbox = Some(Sandbox::default());
    assert_eq!(of(&config), None, "the user said off");
}

#[test]
fn the_sandbox_of_vs_code_counts_only_where_it_is_enabled() {
    let text = "[mcpServers.a]\ncommand = \"x\"\nsandbox = { filesystem = { allowWrite = [] } }\n";
    let config = parsed(text).unwrap();
    assert_eq!((of(&config), config.notes.len()), (None, 1), "{:?}", config.notes);
}

#[test]
fn a_strict_server_has_no_network_unless_its_entry_says_so() {
    let hosts = ["a.example", "*.b.example:22"].map(|host| host.parse().unwrap());
    for (text, expected) in [
        ("\"strict\"", Sandbox::strict()),
        ("{ level = \"strict\" }", Sandbox::strict()),
        ("{ network = \"none\", level = \"strict\" }", Sandbox::strict()),
        ("{ level = \"strict\", network = \"open\" }", Sandbox { network: SandboxNetwork::Open, ..Sandbox::strict() }),
        (
            "{ level = \"strict\", network = [\"a.example\", \"*.b.example:22\"] }",
            Sandbox::strict().hosts(hosts.clone()),
        ),
        ("{ network = [\"a.example\", \"*.b.example:22\"] }", Sandbox::on().hosts(hosts)),
        ("{ network = \"none\" }", Sandbox::on().without_network()),
        ("{ level = \"strict\", install = \"auto\" }", Sandbox::strict()),
        (
            "{ level = \"strict\", install = [\"a.example\"] }",
            Sandbox { install: Some(vec!["a.example".parse().unwrap()]), ..Sandbox::strict() },
        ),
    ] {
        let config = parsed(&format!("[mcpServers.a]\ncommand = \"x\"\nsandbox = {text}\n")).unwrap();
        assert_eq!(of(&config), Some(expected), "{text}");
    }
}

#[test]
fn the_sandbox_of_vs_code_is_read_as_it_is() {
    let read = |text: &str| {
        let text = format!("{{\"servers\": {{\"a\": {{\"command\": \"x\", {text}}}}}}}");
        let config = parse_str(&text, Syntax::Json, "mcp.json", &Vars::default()).expect("a config");
        let notes: Vec<String> = config.notes.iter().map(ToString::to_string).collect();
        (of(&config), notes)
    };
    let files = "\"filesystem\": {\"allowWrite\": [\"/srv/a\", \"/srv/b\"], \"denyRead\": [\"/home\"]}";
    let network =
        "\"network\": {\"allowedDomains\": [\"*.example.com\", \"a.example\"], \"deniedDomains\": [\"b.example\"]}";
    let hosts = ["*.example.com", "a.example"].map(|host| host.parse().expect("a host"));
    let both = Sandbox::on().write("/srv/a").write("/srv/b").hosts(hosts);
    let enabled = "\"sandboxEnabled\": true";
    for (text, expected) in [
        (format!("{enabled}, \"sandbox\": {{{files}, {network}}}"), Some(both)),
        (enabled.to_owned(), Some(Sandbox::on().without_network())),
        (format!("{enabled}, \"sandbox\": {{\"network\": {{\"allowedDomains\": [\"*\"]}}}}"), Some(Sandbox::on())),
        (format!("\"sandboxEnabled\": false, \"sandbox\": {{{files}, {network}}}"), None),
    ] {
        assert_eq!(read(&text), (expected, vec![]), "{text}");
    }
    // A setting that cannot be applied is reported.
    let part = "\"filesystem\": {\"allowWrite\": [\"/srv/a\"], \"denyWrite\": [\"/srv/a/.git\"]}";
    let domains =
        "\"network\": {\"allowedDomains\": [\"*.example.com\", \"a b\"], \"deniedDomains\": [\"b.example.com\"]}";
    let (_, notes) = read(&format!("{enabled}, \"sandbox\": {{{part}, {domains}}}"));
    let stays = "this host cannot keep a part of what is allowed, so it stays allowed; allow less instead";
    let expected = [
        format!("sandbox.filesystem.denyWrite[0]: {stays}"),
        "sandbox.network.allowedDomains[1]: \"a b\" is no name of a host, so it is not allowed".to_owned(),
        format!("sandbox.network.deniedDomains[0]: {stays}"),
    ];
    assert_eq!(notes.len(), expected.len(), "{notes:?}");
    for (note, expected) in notes.iter().zip(expected) {
        assert!(note.ends_with(&expected), "{note}");
    }
}

#[test]
fn a_container_has_an_image_and_limits() {
    let text =
        "sandbox = { container = \"ghcr.io/a/b:1@sha256:00\", level = \"strict\", cpu = 1.5, memory = \"1MiB\" }";
    let config = parsed(&format!("[mcpServers.a]\ncommand = \"x\"\n{text}\n")).unwrap();
    let expected = Sandbox::strict().container("ghcr.io/a/b:1@sha256:00");
    assert_eq!(of(&config), Some(Sandbox { cpu: Some(1500), memory: Some(1 << 20), ..expected }));
}
