//! Tests the choice of a line with the output of real programs.

use super::*;

fn told(output: &str) -> Option<String> {
    let lines: Vec<String> = output.lines().map(str::to_owned).collect();
    Some(choose(&lines)?.of(|index| lines[index].clone()))
}

macro_rules! output {
    ($name:literal) => {
        include_str!(concat!("../../../tests/fixtures/stderr/", $name, ".txt"))
    };
}

/// Outputs of real programs, and the line chosen from each.
const OUTPUTS: &[(&str, &str)] = &[
    (
        output!("npx-missing"),
        "npm error 404 The requested resource 'no-such-server@*' could not be found or you do not have permission to \
         access it.",
    ),
    (
        output!("npx-self-signed"),
        "npm error request to https://localhost:8443/@scope%2fsome-server failed, reason: self-signed certificate",
    ),
    (
        output!("npx-unknown-authority"),
        "npm error request to https://localhost:8443/@scope%2fsome-server failed, reason: unable to verify the first \
         certificate",
    ),
    (
        output!("npx-refused"),
        "npm error FetchError: request to http://127.0.0.1:9/some-server-zz failed, reason: connect ECONNREFUSED \
         127.0.0.1:9",
    ),
    (output!("npx-no-program"), "npm error could not determine executable to run"),
    (
        output!("uvx-missing"),
        "error: No solution found when resolving tool dependencies: Because no-such-server was not found in the \
         package registry and you require no-such-server, we can conclude that your requirements are unsatisfiable.",
    ),
    (
        output!("uvx-unknown-authority"),
        "error: Failed to fetch: https://localhost:8443/simple/some-server/: invalid peer certificate: UnknownIssuer",
    ),
    (
        output!("uvx-self-signed"),
        "error: Failed to fetch: https://localhost:8443/simple/some-server/: invalid peer certificate: \
         Other(OtherError(CaUsedAsEndEntity))",
    ),
    (
        output!("uvx-no-version"),
        "error: No solution found when resolving tool dependencies: Because there is no version of cowsay==99.9 and \
         you require cowsay==99.9, we can conclude that your requirements are unsatisfiable.",
    ),
    (
        output!("uvx-0.4-missing"),
        "No solution found when resolving tool dependencies: Because no-such-server was not found in the package \
         registry and you require no-such-server, we can conclude that your requirements are unsatisfiable.",
    ),
    (
        output!("uvx-0.4-unknown-authority"),
        "error: Failed to fetch: `https://localhost:8443/simple/some-server/`: invalid peer certificate: UnknownIssuer",
    ),
    (
        output!("uvx-0.7-missing"),
        "No solution found when resolving tool dependencies: Because no-such-server was not found in the package \
         registry and you require no-such-server, we can conclude that your requirements are unsatisfiable.",
    ),
    (
        output!("uvx-0.7-unknown-authority"),
        "Failed to fetch: `https://localhost:8443/simple/some-server/`: invalid peer certificate: UnknownIssuer",
    ),
    (
        output!("uvx-0.7-no-version"),
        "No solution found when resolving tool dependencies: Because there is no version of cowsay==99.9 and you \
         require cowsay==99.9, we can conclude that your requirements are unsatisfiable.",
    ),
    (
        output!("uvx-no-project"),
        "error: Failed to resolve `--with` requirement: `/srv` does not appear to be a Python project, as neither \
         `pyproject.toml` nor `setup.py` are present in the directory",
    ),
    (output!("uvx-no-program"), "Package `six` does not provide any executables."),
    (output!("uv-run-missing"), "error: Failed to spawn: nothing.py: No such file or directory (os error 2)"),
    (
        output!("pip-self-signed"),
        "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection \
         broken by 'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: \
         self-signed certificate (_ssl.c:1006)'))': /simple/some-server/",
    ),
    (output!("pip-missing"), "ERROR: No matching distribution found for no-such-server"),
    (
        output!("docker-no-daemon"),
        "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    ),
    (output!("node-require"), "Error: Cannot find module 'nosuch-module-x'"),
    (
        output!("node-import"),
        "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'nosuch-module-x' imported from /srv/m.mjs",
    ),
    (output!("node-file"), "Error: Cannot find module '/srv/nosuch-file.js'"),
    (output!("node-throw"), "TypeError: bad config"),
    (output!("node-reject"), "Error: ECONNREFUSED to db"),
    (output!("node-fetch"), "TypeError: fetch failed: Error: getaddrinfo ENOTFOUND nosuch.invalid"),
    (output!("node-option"), "node: bad option: --badopt"),
    (output!("python-import"), "ModuleNotFoundError: No module named 'nosuch_x'"),
    (output!("python-module"), "/usr/bin/python3: No module named nosuch_x"),
    (output!("python-file"), "/usr/bin/python3: can't open file '/srv/nosuch.py': [Errno 2] No such file or directory"),
    (output!("python-chain"), "ValueError: cannot start"),
    (output!("python-key"), "KeyError: 'API_KEY'"),
    (output!("python-argument"), "server: error: the following arguments are required: --token"),
    (output!("python-log"), "ERROR:root:could not read /etc/x.conf"),
    (output!("rust-panic"), "no key is set"),
    (output!("env-missing"), "env: ‘nosuchcmd’: No such file or directory"),
    (output!("bash-missing"), "bash: line 1: nosuchcmd: command not found"),
];

#[test]
fn first_hour_h2_the_line_that_tells_is_chosen_from_real_outputs() {
    let wrong: Vec<_> = OUTPUTS
        .iter()
        .map(|(output, expected)| (told(output).unwrap_or_default(), *expected))
        .filter(|(told, expected)| told != expected)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn first_hour_h2_every_output_on_file_is_in_the_table() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/stderr")).unwrap();
    assert_eq!(files.count(), OUTPUTS.len());
}

#[test]
fn first_hour_h2_of_lines_without_meaning_the_last_is_told_and_epilogues_never() {
    assert_eq!(told("starting\nserver is up\n").as_deref(), Some("server is up"));
    assert_eq!(told("cannot read x\nshutting down\n").as_deref(), Some("cannot read x"));
    assert_eq!(told("no key\n\nNode.js v22.1.0\n").as_deref(), Some("no key"));
    assert_eq!(told("  Caused by: no key\n").as_deref(), Some("Caused by: no key"));
    for epilogue in
        ["", "Node.js v22.1.0", "npm error", "npm error code E404", "hint: use --native-tls", "    at f (x.js:1:2)"]
    {
        assert_eq!(told(epilogue), None, "{epilogue}");
    }
    // A log level counts more than the words after it.
    assert_eq!(told("x: no token\nINFO 404 pages are served\nWARNING: no cache found").as_deref(), Some("x: no token"));
}

#[test]
fn first_hour_h2_causes_are_listed_in_many_ways() {
    let anyhow = "Error: cannot start\n\nCaused by:\n    0: cannot read the config\n    1: No such file\n";
    assert_eq!(told(anyhow).as_deref(), Some("Error: cannot start: 1: No such file"));
    let java = "Exception in thread \"main\" java.lang.RuntimeException: no start\n\tat A.main(A.java:3)\nCaused by: java.net.ConnectException: refused\n\t... 5 more\n";
    assert_eq!(
        told(java).as_deref(),
        Some("Exception in thread \"main\" java.lang.RuntimeException: no start: java.net.ConnectException: refused")
    );
}
