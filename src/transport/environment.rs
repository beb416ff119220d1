//! The part of our environment that a child process inherits: the variables in a fixed list, and those that the config
//! names (`docs/hazards.md` H16).

use std::ffi::OsString;

use crate::config;
use crate::glob;

/// Variables that a program needs to find its files, language, and terminal.
const NAMES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TMPDIR",
    "TZ",
    // Windows
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// Proxy settings. Each also passes in lower case.
const PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"];

/// Trust settings: files of certificate authorities, and whether the system's authorities count. None of them disables
/// a check.
const AUTHORITIES: &[&str] = &[
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "NODE_USE_ENV_PROXY",
    "NODE_USE_SYSTEM_CA",
    "npm_config_cafile",
    "npm_config_https_proxy",
    "npm_config_noproxy",
    "npm_config_proxy",
    "DENO_CERT",
    "DENO_TLS_CA_STORE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "PIP_PROXY",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "AWS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
];

/// Variables that a program may miss but gets only if the config names them: they carry credentials, or change what
/// code it loads.
const MISSED: &[&str] = &[
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "GPG_TTY",
    "KUBECONFIG",
    "DOCKER_*",
    "CONTAINER_HOST",
    "AWS_*",
    "AZURE_*",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "CLOUDSDK_*",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GITLAB_TOKEN",
    "VAULT_*",
    "CONSUL_*",
    "DATABASE_URL",
    "PGHOST",
    "PGPASSWORD",
    "PGSERVICE",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "JAVA_HOME",
    "VIRTUAL_ENV",
    "NODE_PATH",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "NPM_CONFIG_*",
    "npm_config_registry",
    "PIP_INDEX_URL",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "CHROME_PATH",
    "PLAYWRIGHT_BROWSERS_PATH",
    "PUPPETEER_EXECUTABLE_PATH",
];

/// Returns those of our variables that a child inherits; `forward` holds further names and globs from the config.
pub(super) fn inherited(forward: &[String]) -> impl Iterator<Item = (OsString, OsString)> + '_ {
    std::env::vars_os()
        .filter(move |(name, _)| name.to_str().is_some_and(|name| passes(name, forward)))
        .chain([("TERM".into(), "dumb".into())])
}

/// Returns the names of variables that are set here and commonly wanted, but not passed to the program of `settings`.
pub(crate) fn withheld(settings: &config::Stdio) -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    missing(names, settings)
}

fn missing(set: impl Iterator<Item = String>, settings: &config::Stdio) -> Vec<String> {
    let wanted = |name: &str| MISSED.iter().any(|missed| glob::is_match(missed, name));
    let given = |name: &str| passes(name, &settings.forward_env) || settings.env.iter().any(|(known, _)| known == name);
    let mut names: Vec<String> = set.filter(|name| wanted(name) && !given(name)).collect();
    names.sort();
    names
}

/// Whether every child inherits our variable of that name, whatever the config says.
#[cfg_attr(not(all(unix, feature = "server")), expect(dead_code, reason = "only a daemon is started with it"))]
pub(crate) fn is_inherited(name: &str) -> bool {
    passes(name, &[])
}

fn passes(name: &str, forward: &[String]) -> bool {
    NAMES.contains(&name)
        || name.starts_with("LC_")
        || name.starts_with("XDG_")
        || PROXIES.iter().any(|proxy| *proxy == name || proxy.to_ascii_lowercase() == name)
        || AUTHORITIES.contains(&name)
        || config::inherits(forward, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    #[test]
    fn first_hour_h6_proxies_and_authorities_pass_in_both_cases() {
        for name in ["HTTPS_PROXY", "https_proxy", "no_proxy", "ALL_PROXY", "SSL_CERT_DIR", "UV_NATIVE_TLS", "PIP_CERT"]
        {
            assert!(passes(name, &[]), "{name}");
        }
        for name in
            ["Https_Proxy", "NODE_TLS_REJECT_UNAUTHORIZED", "NODE_OPTIONS", "AWS_PROFILE", "KUBECONFIG", "MCP_HOST_X"]
        {
            assert!(!passes(name, &[]), "{name}");
        }
    }

    #[test]
    fn first_hour_h6_what_a_program_may_miss_is_named() {
        let set = [
            "PATH",
            "KUBECONFIG",
            "AWS_REGION",
            "AWS_PROFILE",
            "DISPLAY",
            "MY_TOKEN",
            "MCP_HOST_SECRET_KEY",
            "AWS_CA_BUNDLE",
        ];
        let missed = |settings: &config::Stdio| missing(set.iter().map(|&name| name.to_owned()), settings);
        let settings = config::Stdio::default();
        assert_eq!(missed(&settings), ["AWS_PROFILE", "AWS_REGION", "DISPLAY", "KUBECONFIG"]);
        let settings = config::Stdio {
            forward_env: vec!["AWS_*".to_owned()],
            env: vec![("DISPLAY".to_owned(), Secret::new(":1"))],
            ..settings
        };
        assert_eq!(missed(&settings), ["KUBECONFIG"]);
    }
}
