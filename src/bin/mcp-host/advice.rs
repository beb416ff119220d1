//! Suggests a fix for a server that did not start, judging by the cause. Suggests nothing if unsure.

use std::collections::BTreeMap;

/// Returns one line of help if the cause is a common one. `name` is the server's name as shown.
pub(crate) fn mend(name: &str, cause: &str) -> Option<String> {
    let lower = cause.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let of_process = cause.contains("the process ended");
    if of_process && has(&CERTIFICATE) {
        let variable = if has(&["npm", "node"]) {
            "NODE_EXTRA_CA_CERTS"
        } else if has(&["could not fetch url", "pip"]) {
            "PIP_CERT"
        } else {
            "SSL_CERT_FILE"
        };
        return Some(format!(
            "if your network has an authority of its own, name its file in `env` of `{name}`: \"{variable}\": \"/path/to/ca.pem\""
        ));
    }
    if of_process && has(&NO_PACKAGE) {
        return Some(format!(
            "there is no such package, or it is private: look for a misspelt name in `args` of `{name}`"
        ));
    }
    if of_process && has(&NO_MODULE) {
        return Some(format!("install that where `{name}` finds it, or correct the path in its `args`"));
    }
    if cause.contains("(startTimeout)") {
        let asks = cause.trim_end_matches(['`', '"']).ends_with([':', '?', '>']);
        let waits = format!(
            "nobody can type into a server: set what it asks for in `env` or `args` of `{name}`, as its documentation says"
        );
        let slow = format!("raise `startTimeout` of `{name}` if it is only slow, such as at its first download");
        return Some(if asks && cause.contains("it said") { waits } else { slow });
    }
    if has(&["connection refused"]) {
        return Some(format!("start what listens there, or correct the port in `url` of `{name}`"));
    }
    if has(&["lookup address", "name resolution", "name or service not known", "nodename nor servname"]) {
        return Some(format!("look for a misspelt host in `url` of `{name}`, and whether this machine is online"));
    }
    if has(&["answered 500", "answered 502", "answered 503", "answered 504"]) {
        return Some("the server has a problem: try again later, or tell its operator".to_owned());
    }
    None
}

/// Returns one line of help if a confined server's output mentions that something was refused. The line contains no
/// text of the server: a server must not be able to ask for more through our messages.
pub(crate) fn denied<'a>(name: &str, mut lines: impl Iterator<Item = &'a str>) -> Option<String> {
    let tells = |line: &str| {
        let line = line.to_lowercase();
        DENIED.iter().any(|word| line.contains(word))
    };
    lines.any(tells).then(|| {
        format!(
            "its sandbox may have refused that: if `{name}` is to have it, list it in its entry: \"sandbox\": {{ \"read\": [\"~/…\"], \"write\": [\"~/…\"] }}"
        )
    })
}

/// Returns a line about the hosts that a server's sandbox refused; `None` if there are none. The suggested command
/// names no host: a server must not be able to ask for more through our messages.
pub(crate) fn refused(name: &str, hosts: &BTreeMap<String, u64>, cause: Option<&str>) -> Option<String> {
    let is_fetched = cause.is_some_and(|cause| cause.contains("while its package was fetched"));
    let key = if is_fetched { "install" } else { "network" };
    let told: Vec<&str> = hosts.keys().map(String::as_str).collect();
    (!told.is_empty()).then(|| {
        format!(
            "its sandbox refused {}: if `{name}` is to reach that, list it in its entry: \"sandbox\": {{ \"{key}\": [\"…\"] }}",
            told.join(", ")
        )
    })
}

/// Splits a cause from the help that we appended to it, if we did. A server's own text is never taken for help.
pub(crate) fn split(cause: &str) -> (&str, Option<&str>) {
    let both = |at: usize| (&cause[..at], Some(&cause[at + "; ".len()..]));
    if let Some(ours) = cause.strip_prefix("cannot start `")
        && let Some(at) = MENDS.iter().filter_map(|mend| ours.rfind(mend)).max()
    {
        return both(cause.len() - ours.len() + at);
    }
    // The cause begins with a config key, followed by the problem.
    let key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '[' | ']');
    if let Some((head, _)) = cause.split_once(": ")
        && head.chars().all(key)
        && let Some(at) = cause.rfind("; ")
    {
        return both(at);
    }
    if !cause.starts_with("http") && !cause.starts_with("it speaks neither ") {
        return (cause, None);
    }
    let at = cause.rfind("; ").filter(|at| OF_URLS.iter().any(|mend| cause[*at..].starts_with(mend)));
    // The help about tokens has two sentences.
    at.or_else(|| cause.rfind(OF_URLS[0])).map_or((cause, None), both)
}

/// How our help about URLs begins, in each form.
const OF_URLS: [&str; 4] = [
    "; put a token into `headers` or `auth`",
    "; sign in with: mcp-host login ",
    "; the endpoint may be at /",
    "; put the final URL into the config",
];

/// How our help about commands begins, in each form.
const MENDS: [&str; 10] = [
    "; install it, or ",
    "; chmod +x ",
    "; begin ",
    "; write \"command\"",
    "; mkdir -p ",
    "; give its full path",
    "; write `weak = true`",
    "; create it, or take it out of the list",
    "; make it writable",
    "; rename it",
];

/// How runtimes report a refusal, in lower case.
const DENIED: [&str; 5] = ["eacces", "eperm", "permission denied", "operation not permitted", "permissionerror"];

const CERTIFICATE: [&str; 6] = [
    "self-signed certificate",
    "self signed certificate",
    "unknownissuer",
    "certificate_verify_failed",
    "unable to get local issuer certificate",
    "unable to verify the first certificate",
];
const NO_PACKAGE: [&str; 5] = [
    "npm error 404",
    "npm err! 404",
    "not found in the package registry",
    "no matching distribution found",
    "there are no versions of",
];
const NO_MODULE: [&str; 4] = ["cannot find module", "cannot find package", "no module named", "can't open file"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mend_of_ours_is_told_apart() {
        for (cause, mend) in [
            (
                "cannot start `a; b`: no such command; install it, or give its full path",
                Some("install it, or give its full path"),
            ),
            ("url: plain http; use https", Some("use https")),
            (
                "http://a/ answered with text/html; the endpoint may be at /mcp or /sse",
                Some("the endpoint may be at /mcp or /sse"),
            ),
            ("the process ended (exit code 1): a; the endpoint may be at /evil", None),
            ("the process ended (exit code 1): a; write \"command\": \"evil\"", None),
            ("no answer within 1s (startTimeout); on standard error it said: a", None),
        ] {
            assert_eq!(split(cause).1, mend, "{cause}");
        }
    }

    #[test]
    fn each_cause_has_its_own_mend() {
        let ended = |words: &str| format!("the process ended (exit code 1): {words}");
        for (cause, part) in [
            (
                ended("npm error request to https://r failed, reason: self-signed certificate"),
                "\"NODE_EXTRA_CA_CERTS\"",
            ),
            (ended("error: Failed to fetch: https://r: invalid peer certificate: UnknownIssuer"), "\"SSL_CERT_FILE\""),
            (ended("npm error 404 The requested resource 'a' could not be found"), "misspelt name in `args` of `s`"),
            (ended("Error: Cannot find module 'x'"), "install that"),
            ("no answer within 1s (startTimeout); on standard error it said: API key:".to_owned(), "nobody can type"),
            ("no answer within 1s (startTimeout); on standard error it said: Loading 3 models".to_owned(), "raise"),
            ("no answer within 1s (startTimeout)".to_owned(), "raise"),
            ("cannot reach http://127.0.0.1:1/mcp: Connection refused".to_owned(), "`url` of `s`"),
        ] {
            let mend = mend("s", &cause);
            assert!(mend.as_deref().is_some_and(|mend| mend.contains(part)), "{cause}: {mend:?}");
        }
        let refusal = |line| denied("s", [line].into_iter());
        assert!(
            refusal("Error: EACCES: permission denied, open '/home/ada/.ssh/id'")
                .is_some_and(|help| !help.contains("ssh"))
        );
        assert_eq!(refusal("KeyError: 'KEY'"), None);
        // A remote server that mentions a certificate means one that this machine does not check.
        assert_eq!(mend("s", "https://a answered 400: self-signed certificate"), None);
        assert_eq!(mend("s", &ended("KeyError: 'KEY'")), None);
    }
}
