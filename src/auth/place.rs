//! Checks of authorization URLs: which page may be opened in a browser, and which resource covers which server; pure.

use url::Url;

use super::Error;

/// What messages call the page of a browser login.
pub(super) const AUTHORIZATION: &str = "the authorization endpoint";
/// The longest URL that a browser is sent to, in bytes.
const PAGE_BYTES: usize = 8 * 1024;

/// Checks the URL of a page to which the user may be sent: it must be https, or http on this machine, and contain
/// nothing that could make a program take it for anything but one URL (`docs/hazards.md` H67). Error messages call the
/// page `at`.
pub(super) fn page(at: &str, text: &str) -> Result<Url, Error> {
    let wrong = |what: &str| Err(Error::Metadata { at: at.to_owned(), what: what.to_owned() });
    if text.len() > PAGE_BYTES {
        return wrong("is longer than 8 KiB");
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return wrong("contains whitespace or control characters");
    }
    let Ok(url) = Url::parse(text) else { return wrong("is not a URL") };
    match url.scheme() {
        "https" if url.host().is_some() => {}
        "http" if crate::loopback::is_loopback(&url) => {}
        _ => return wrong("is neither https nor on this machine"),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong("contains a user or a password");
    }
    if url.fragment().is_some() {
        return wrong("has a fragment");
    }
    if url.as_str().len() > PAGE_BYTES {
        return wrong("is longer than 8 KiB");
    }
    Ok(url)
}

/// Reports whether a resource is the server at this URL or contains it: both have the same origin, and the segments of
/// the resource's path are the first segments of the server's path.
pub(super) fn covers(resource: &Url, server: &Url) -> bool {
    let within = server.path().strip_prefix(resource.path().trim_end_matches('/'));
    resource.origin() == server.origin()
        && matches!(resource.scheme(), "http" | "https")
        && resource.fragment().is_none()
        && within.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the resource identifier for a server that does not state its own: its URL without a fragment, and without
/// the path if that is only `/`.
pub(super) fn canonical(server: &Url) -> String {
    let mut url = server.clone();
    url.set_fragment(None);
    let text = url.to_string();
    if url.path() == "/" && url.query().is_none() { text.trim_end_matches('/').to_owned() } else { text }
}

/// Returns a well-known URL: `/.well-known/` and the suffix go between the host and the path of `base` (RFC 8414, RFC
/// 9728). The path is left out unless `with_path` is set.
pub(crate) fn well_known(base: &Url, suffix: &str, with_path: bool) -> Url {
    let mut url = base.clone();
    let path = if with_path { base.path().trim_end_matches('/') } else { "" };
    url.set_path(&format!("/.well-known/{suffix}{path}"));
    url.set_query(None);
    url.set_fragment(None);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn h67_only_one_clean_url_is_ever_a_page() {
        let long = format!("https://a.example/{}", "x".repeat(PAGE_BYTES));
        for text in [
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "vbscript:x",
            "ftp://a.example/",
            "http://a.example/authorize",
            "http://127.0.0.1.a.example/",
            "http:a.example",
            "https:",
            "https://",
            "//a.example/x",
            "/authorize",
            "a.example",
            "-a",
            "--new-window",
            "$(touch marker)",
            "`touch marker`",
            "https://user@a.example/",
            "https://user:pass@a.example/",
            "https://a.example/#x",
            "https://a.example/ $(touch marker)",
            "https://a.example/\ncalc.exe",
            "https://a.example/\u{1b}[2J",
            "https://a.example/\u{0}",
            " https://a.example/",
            "ms-msdt:/id",
            "search-ms:query=x",
            long.as_str(),
        ] {
            assert!(page("it", text).is_err(), "{text:?}");
        }
        for (text, want) in [
            ("https://a.example/authorize?x=y", "https://a.example/authorize?x=y"),
            ("http://127.0.0.1:9/authorize", "http://127.0.0.1:9/authorize"),
            ("http://[::1]:9/", "http://[::1]:9/"),
            ("http://localhost:9/", "http://localhost:9/"),
            // What a shell might interpret is percent-encoded where possible.
            ("https://a.example/\"><x>`|$(x)", "https://a.example/%22%3E%3Cx%3E%60|$(x)"),
        ] {
            assert_eq!(page("it", text).map(String::from), Ok(want.to_owned()));
        }
    }

    #[test]
    fn h69_a_resource_covers_what_is_under_it() {
        for (resource, server, want) in [
            ("https://a.example", "https://a.example/mcp", true),
            ("https://a.example/", "https://a.example/mcp", true),
            ("https://a.example/mcp", "https://a.example/mcp", true),
            ("https://a.example/mcp/", "https://a.example/mcp", true),
            ("https://a.example/mcp", "https://a.example/mcp/x?y", true),
            ("https://A.example:443/mcp", "https://a.example/mcp", true),
            ("https://a.example/mc", "https://a.example/mcp", false),
            ("https://a.example/mcp/x", "https://a.example/mcp", false),
            ("https://a.example.evil/mcp", "https://a.example/mcp", false),
            ("https://evil.example/mcp", "https://a.example/mcp", false),
            ("http://a.example/mcp", "https://a.example/mcp", false),
            ("https://a.example:444/mcp", "https://a.example/mcp", false),
            ("https://a.example/mcp#x", "https://a.example/mcp", false),
            ("urn:mcp", "https://a.example/mcp", false),
        ] {
            assert_eq!(covers(&url(resource), &url(server)), want, "{resource} {server}");
        }
    }

    #[test]
    fn identifiers_and_well_known_urls() {
        assert_eq!(canonical(&url("HTTPS://A.example/#x")), "https://a.example");
        assert_eq!(canonical(&url("https://a.example/mcp/")), "https://a.example/mcp/");
        let at = |path| String::from(well_known(&url("https://a.example/p/mcp/?q"), "oauth-protected-resource", path));
        assert_eq!(at(true), "https://a.example/.well-known/oauth-protected-resource/p/mcp");
        assert_eq!(at(false), "https://a.example/.well-known/oauth-protected-resource");
    }
}
