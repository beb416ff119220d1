//! Variables that a confined server does not inherit, and those by which it finds its proxy. Pure.

/// Reports whether a variable leads to folders, sockets, or agents of the user.
pub(super) fn leads_out(name: &str) -> bool {
    ["XDG_", "DBUS_"].iter().any(|prefix| name.starts_with(prefix)) || LEADS_OUT.contains(&name)
}

/// Reports whether a variable is a setting of proxies.
pub(super) fn is_of_proxy(name: &str) -> bool {
    PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name))
}

/// Returns the variables by which programs find the proxy at this URL.
pub(super) fn proxies(url: &str) -> impl Iterator<Item = (String, String)> {
    let each = |name: &&str| [(*name).to_owned(), name.to_ascii_lowercase()].map(|name| (name, url.to_owned()));
    // Without it, Node does not read the others.
    let node = ("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].iter().flat_map(each).chain([node]).collect::<Vec<_>>().into_iter()
}

/// Settings of proxies, in any case.
const PROXIES: [&str; 8] = [
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "PIP_PROXY",
    "npm_config_https_proxy",
    "npm_config_noproxy",
    "npm_config_proxy",
];

const LEADS_OUT: [&str; 6] =
    ["DOCKER_HOST", "GPG_AGENT_INFO", "SSH_AGENT_PID", "SSH_AUTH_SOCK", "CONTAINER_HOST", "KUBECONFIG"];
