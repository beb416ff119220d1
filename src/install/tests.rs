//! Entries with every member, old and new; values; commands; and entries that ask for more than they may get.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn manifest(entry: &Value) -> Result<Manifest, Error> {
    Manifest::parse(&entry.to_string())
}

fn of_package(package: &Value) -> Manifest {
    let entry =
        json!({ "name": "io.github.ada/files", "description": "Files.", "version": "1.2.3", "packages": [package] });
    manifest(&entry).unwrap()
}

fn npm(more: &Value) -> Manifest {
    let mut package = json!({ "registryType": "npm", "identifier": "@ada/files", "version": "1.2.3" });
    package.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    of_package(&package)
}

fn answers(pairs: &[(&str, &str)]) -> Answers {
    let mut answers = Answers::default();
    pairs.iter().for_each(|(key, value)| answers.add(key, value));
    answers
}

fn plan(manifest: &Manifest, pairs: &[(&str, &str)]) -> Result<Plan, Error> {
    manifest.choose(None)?.plan(&answers(pairs))
}

fn command(manifest: &Manifest, pairs: &[(&str, &str)]) -> String {
    plan(manifest, pairs).unwrap().server.command.join(" ")
}

fn error(result: Result<Plan, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn an_entry_is_read_with_all_that_a_registry_says_of_it() {
    let entry = json!({
        "server": {
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
            "name": "io.github.ada/files",
            "title": "Files",
            "description": "Reads files.",
            "version": "1.2.3",
            "repository": { "url": "https://example.com/ada/files", "source": "github", "subfolder": "a" },
            "websiteUrl": "https://example.com",
            "icons": [{ "src": "https://example.com/i.png" }],
            "postInstallInstructions": "Say hello.",
            "packages": [{
                "registryType": "oci", "identifier": "docker.io/ada/files:1.2.3", "fileSha256": "ab", "runtimeHint": "docker",
                "transport": { "type": "stdio" },
                "runtimeArguments": [{ "type": "named", "name": "--mount", "value": "type=bind,src={dir},dst=/data",
                    "variables": { "dir": { "format": "filepath", "isRequired": true, "description": "A folder." } } }],
                "packageArguments": [{ "type": "positional", "valueHint": "level", "default": "info", "choices": ["info", "debug"] }],
                "environmentVariables": [{ "name": "TOKEN", "isSecret": true, "isRequired": true }],
            }],
            "remotes": [{ "type": "sse", "url": "https://{team}.example.com/sse", "variables": { "team": { "default": "core" } },
                "headers": [{ "name": "Authorization", "value": "Bearer {token}", "isRequired": true, "isSecret": true }] }],
        },
        "_meta": { "io.modelcontextprotocol.registry/official":
            { "status": "deprecated", "statusMessage": "Use files2.", "publishedAt": "2026-01-02T03:04:05Z", "isLatest": true } },
    });
    let read = manifest(&entry).unwrap();
    assert_eq!((read.namespace(), read.short_name()), ("io.github.ada", "files"));
    assert_eq!((read.status, read.status_message.as_deref()), (Status::Deprecated, Some("Use files2.")));
    assert_eq!(read.published_at.as_deref(), Some("2026-01-02T03:04:05Z"));
    assert_eq!(read.repository.as_deref(), Some("https://example.com/ada/files"));
    assert_eq!(read.post_install.as_deref(), Some("Say hello."));
    assert_eq!(read.forms(), ["oci", "remote"]);
    assert_eq!(read.choose(None).unwrap().word(), "remote", "an image comes after an endpoint");
    let image = read.choose(Some("oci")).unwrap();
    let wanted = image.wanted().unwrap();
    let keys: Vec<_> =
        wanted.iter().map(|wanted| (wanted.key.as_str(), wanted.is_required, wanted.is_secret)).collect();
    assert_eq!(keys, [("TOKEN", true, true), ("dir", true, false), ("level", false, false)]);
    assert_eq!(image.plan(&Answers::default()).unwrap().missing, ["TOKEN", "dir"]);
    let plan =
        image.plan(&answers(&[("TOKEN", "${keyring:files/TOKEN}"), ("dir", "/srv"), ("level", "debug")])).unwrap();
    assert_eq!(
        plan.server.command.join(" "),
        "docker run -i --rm --mount type=bind,src=/srv,dst=/data -e TOKEN docker.io/ada/files:1.2.3 debug"
    );
    assert_eq!(plan.server.env, [("TOKEN".to_owned(), "${keyring:files/TOKEN}".to_owned())]);
    let remote = read.choose(Some("remote")).unwrap().plan(&answers(&[("token", "${env:T}")])).unwrap().server;
    assert_eq!(remote.url.as_deref(), Some("https://core.example.com/sse"));
    assert_eq!(remote.headers, [("Authorization".to_owned(), "Bearer ${env:T}".to_owned())]);
}

#[test]
fn older_entries_have_other_names() {
    let entry = json!({
        "name": "io.github.ada/old", "description": "Old.", "version_detail": { "version": "0.9.0" }, "status": "deleted",
        "packages": [{ "registry_name": "pypi", "name": "old-server", "version": "0.9.0", "runtime_hint": "uvx",
            "package_arguments": [{ "type": "named", "name": "--port", "value_hint": "port", "is_required": true, "format": "number" }],
            "environment_variables": [{ "name": "KEY", "is_required": true, "is_secret": true }] }],
        "remotes": [{ "transport_type": "streamable-http", "url": "https://example.com/mcp" }],
    });
    let read = manifest(&entry).unwrap();
    assert_eq!((read.version.as_str(), read.status), ("0.9.0", Status::Deleted));
    assert_eq!(command(&read, &[("KEY", "k"), ("port", "80")]), "uvx old-server==0.9.0 --port 80");
    assert_eq!(error(plan(&read, &[("KEY", "k"), ("port", "x")])), "port: the value is no number");
    let remote = read.choose(Some("remote")).unwrap().plan(&Answers::default()).unwrap().server;
    assert_eq!(remote.url.as_deref(), Some("https://example.com/mcp"));
}

#[test]
fn a_mistake_in_an_entry_names_its_member() {
    let wrong = |entry: &Value| manifest(entry).unwrap_err().to_string();
    let with = |key: &str, value: Value| json!({ "name": "a.b/c", "version": "1", key: value });
    assert_eq!(wrong(&json!([])), "its entry is wrong: the entry: is no object");
    assert_eq!(wrong(&json!({ "name": "a" })), "its entry is wrong: name: \"a\" is not of the form NAMESPACE/NAME");
    assert_eq!(wrong(&with("packages", json!({}))), "its entry is wrong: packages: is no list");
    assert_eq!(wrong(&with("packages", json!([{}]))), "its entry is wrong: packages[0].registryType: is missing");
    let package =
        json!([{ "registryType": "npm", "identifier": "a", "environmentVariables": [{ "isSecret": 1, "name": "A" }] }]);
    assert_eq!(
        wrong(&with("packages", package)),
        "its entry is wrong: packages[0].environmentVariables[0].isSecret: is neither true nor false"
    );
    assert_eq!(
        wrong(&with("description", json!("a".repeat(20_000)))),
        "its entry is wrong: description: has 20000 bytes; 16384 at most"
    );
    assert_eq!(
        wrong(&with("remotes", json!(vec![json!({}); 201]))),
        "its entry is wrong: remotes: has 201 members; 200 at most"
    );
    assert!(Manifest::parse("{").unwrap_err().to_string().starts_with("its entry is wrong: the file: no JSON"));
}

#[test]
fn each_kind_has_its_runner_and_an_exact_version() {
    assert_eq!(command(&npm(&json!({})), &[]), "npx -y @ada/files@1.2.3");
    let package = |kind: &str, more: &Value| {
        let mut package = json!({ "registryType": kind, "identifier": "files", "version": "1.2.3" });
        package.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        of_package(&package)
    };
    assert_eq!(command(&package("pypi", &json!({})), &[]), "uvx files==1.2.3");
    assert_eq!(command(&package("pypi", &json!({ "runtimeHint": "pipx" })), &[]), "pipx run files==1.2.3");
    assert_eq!(command(&package("pypi", &json!({ "runtimeHint": "/bin/sh" })), &[]), "uvx files==1.2.3");
    assert_eq!(command(&package("oci", &json!({})), &[]), "docker run -i --rm files:1.2.3");
    assert_eq!(command(&package("nuget", &json!({})), &[]), "dnx --yes files@1.2.3 --");
    for version in ["latest", "^1.2.3", "1.x || 2", ">=1", "", "1.2.3 --package evil", "git+ssh://x"] {
        let refused = error(plan(&npm(&json!({ "version": version })), &[]));
        assert_eq!(refused, "its entry is wrong: packages.version: is no exact version", "{version}");
    }
    for name in ["-c", "--yes", "../x", "https://example.com/x.tgz", "a b", "@a", "file:x"] {
        let refused = error(plan(&npm(&json!({ "identifier": name })), &[]));
        assert!(refused.contains("is no name of a package of npm"), "{refused}");
    }
    let elsewhere = error(plan(&npm(&json!({ "registryBaseUrl": "https://example.com" })), &[]));
    assert!(
        elsewhere.ends_with("https://example.com is not the usual registry of npm: its packages are not taken"),
        "{elsewhere}"
    );
    let none = of_package(&json!({ "registryType": "cargo", "identifier": "x", "version": "1.0.0" }));
    assert_eq!(error(plan(&none, &[])), "io.github.ada/files has nothing that can be started here; it has: cargo");
    let http = npm(&json!({ "transport": { "type": "streamable-http", "url": "http://localhost:1/mcp" } }));
    assert!(error(plan(&http, &[])).contains("start it, and add its URL"));
}

#[test]
fn arguments_are_words_and_never_more() {
    let files = npm(&json!({ "runtimeArguments": [{ "type": "positional", "value": "-y" }], "packageArguments": [
        { "type": "positional", "valueHint": "folder", "isRequired": true, "isRepeated": true },
        { "type": "named", "name": "--verbose", "format": "boolean", "default": "false" },
        { "type": "named", "name": "--level=", "default": "info" },
        { "type": "named", "name": "--extra" },
        { "type": "positional", "value": "{\"a\": 1}" },
    ] }));
    let given = [("folder", "/a b; rm -rf /"), ("folder", "$(id)"), ("verbose", "true")];
    let words = plan(&files, &given).unwrap().server.command;
    assert_eq!(
        words,
        ["npx", "-y", "@ada/files@1.2.3", "/a b; rm -rf /", "$(id)", "--verbose", "--level=info", "{\"a\": 1}"]
    );
    assert_eq!(plan(&files, &[]).unwrap().missing, ["folder"]);
    assert_eq!(error(plan(&files, &[("extra", "1"), ("extra", "2")])), "extra: it takes one value, and got several");
    assert!(error(plan(&files, &[("folder", "a\nb")])).contains("control character"));
    assert_eq!(error(plan(&files, &[("folder", "")])), "folder: the value is empty");
}

#[test]
fn an_entry_decides_neither_the_program_nor_where_packages_come_from() {
    let runtime = |kind: &str, argument: &Value| {
        let package =
            json!({ "registryType": kind, "identifier": "x", "version": "1.0.0", "runtimeArguments": [argument] });
        plan(&of_package(&package), &[]).map(|plan| plan.server.command.join(" "))
    };
    let named = |name: &str, value: &str| json!({ "type": "named", "name": name, "value": value });
    let refused = [
        runtime("npm", &named("--package", "evil")),
        runtime("npm", &named("-c", "sh")),
        runtime("npm", &json!({ "type": "positional", "value": "evil" })),
        runtime("pypi", &named("--from", "evil")),
        runtime("pypi", &named("--python", "/tmp/evil")),
        runtime("oci", &json!({ "type": "positional", "value": "evil" })),
        runtime("oci", &named("--privileged", "")),
        runtime("oci", &named("--entrypoint", "sh")),
        runtime("oci", &named("--init", "evil")),
        runtime("oci", &json!({ "type": "named", "name": "-v", "format": "boolean", "value": "true" })),
    ];
    for refused in refused {
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains("an entry may set")), "{refused:?}");
    }
    assert_eq!(runtime("pypi", &named("--python", "3.12")).unwrap(), "uvx --python 3.12 x==1.0.0");
    assert_eq!(runtime("oci", &named("--network", "none")).unwrap(), "docker run -i --rm --network none x:1.0.0");
    for name in ["PATH", "LD_PRELOAD", "npm_config_registry", "UV_INDEX_URL", "NODE_OPTIONS", "DOCKER_HOST"] {
        let refused = error(plan(&npm(&json!({ "environmentVariables": [{ "name": name, "value": "x" }] })), &[]));
        assert!(refused.ends_with("decides which program starts, and is not taken from a registry"), "{refused}");
    }
}

#[test]
fn only_the_user_refers_to_variables_and_secrets() {
    let variable = |value: &Value| npm(&json!({ "environmentVariables": [value] }));
    let entries = [
        json!({ "name": "A", "value": "${env:HOME}" }),
        json!({ "name": "A", "value": "${keyring:github/TOKEN}" }),
        json!({ "name": "A", "default": "${env:HOME}" }),
        // Each half alone is harmless.
        json!({ "name": "A", "value": "{x}{y}", "variables": { "x": { "value": "$" }, "y": { "value": "{env:HOME}" } } }),
        json!({ "name": "A", "value": "{x}{y}", "variables": { "x": { "default": "$" }, "y": { "default": "{env:HOME}" } } }),
    ];
    for entry in entries {
        let refused = error(plan(&variable(&entry), &[]));
        assert!(refused.contains("holds `${`"), "{entry}: {refused}");
    }
    let half = variable(&json!({ "name": "A", "value": "${x}" }));
    assert!(error(plan(&half, &[("x", "{env:HOME}")])).contains("holds `${`"));
    let asked = variable(&json!({ "name": "A", "value": "Bearer {x}" }));
    assert_eq!(
        plan(&asked, &[("x", "${env:T}")]).unwrap().server.env,
        [("A".to_owned(), "Bearer ${env:T}".to_owned())]
    );
}

#[test]
fn an_endpoint_is_reached_by_https() {
    let at = |url: &str| {
        manifest(&json!({ "name": "a.b/c", "remotes": [{ "type": "streamable-http", "url": url }] })).unwrap()
    };
    assert_eq!(plan(&at("https://a.example/mcp"), &[]).unwrap().server.url.as_deref(), Some("https://a.example/mcp"));
    assert!(plan(&at("http://127.0.0.1:1/mcp"), &[]).is_ok());
    assert!(error(plan(&at("http://a.example/mcp"), &[])).ends_with("remotes.url: is no https URL"));
    assert!(error(plan(&at("file:///etc/passwd"), &[])).ends_with("remotes.url: is no https URL"));
    assert_eq!(plan(&at("https://{host}/mcp"), &[]).unwrap().missing, ["host"]);
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z{}$/:-]{0,8}".prop_map(Value::from),
    ];
    let keys = prop_oneof![
        Just("name"),
        Just("version"),
        Just("packages"),
        Just("remotes"),
        Just("url"),
        Just("type"),
        Just("value"),
        Just("variables"),
        Just("registryType"),
        Just("identifier"),
        Just("packageArguments"),
        Just("runtimeArguments"),
        Just("environmentVariables"),
        Just("headers"),
        Just("_meta"),
        Just("server"),
        Just("default"),
        Just("choices"),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys.clone(), inner), 0..6)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_is_an_entry_or_a_mistake(value in json_value()) {
        if let Ok(manifest) = manifest(&value) && let Ok(choice) = manifest.choose(None) {
            let _ = choice.plan(&Answers::default());
        }
    }

    #[test]
    fn a_command_begins_with_a_runner_and_has_no_reference_of_the_entry(
        value in ".{0,20}", default in ".{0,20}", hint in "[a-z]{0,5}", flag in ".{0,6}",
    ) {
        let files = npm(&json!({ "packageArguments": [
            { "type": "positional", "value": value },
            { "type": "positional", "default": default, "valueHint": hint },
            { "type": "named", "name": format!("-{flag}"), "value": value },
        ] }));
        if let Ok(plan) = plan(&files, &[]) {
            prop_assert_eq!(&plan.server.command[..3], ["npx", "-y", "@ada/files@1.2.3"]);
            let is_clean = !plan.server.command.iter().any(|word| word.contains("${"));
            prop_assert!(is_clean);
        }
    }
}
