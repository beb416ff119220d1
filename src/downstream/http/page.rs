//! The page that a browser gets at `/`: one sentence, and how to connect a client. The page names no server and holds
//! no token.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, Uri};

/// A content security policy for a page that loads nothing, runs nothing, and cannot be framed.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the response headers and the page, which shows the URL by which the browser reached us.
pub(super) fn page(is_tls: bool, uri: &Uri, headers: &HeaderMap) -> ([(HeaderName, &'static str); 5], String) {
    // The guard has admitted only our own host names, so both sources can be trusted.
    let host = uri.authority().map(|host| host.as_str());
    let host = host.or_else(|| headers.get(HOST)?.to_str().ok()).unwrap_or("127.0.0.1");
    let url = escaped(&format!("{}://{host}/mcp", if is_tls { "https" } else { "http" }));
    let body = format!(
        r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>mcp-host</title>
<h1>mcp-host</h1>
<p>This is mcp-host, one MCP endpoint for many servers. Connect an MCP client to <code>{url}</code>:</p>
<pre>{{ "mcpServers": {{ "host": {{ "type": "http", "url": "{url}" }} }} }}</pre>
<pre>claude mcp add --transport http host {url}</pre>
</html>
"#
    );
    let head = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (head, body)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_url_by_which_it_was_asked_for_and_nothing_of_it_is_markup() {
        let headers = HeaderMap::from_iter([(HOST, "a<b>\"'&:8808".parse().unwrap())]);
        let (head, body) = page(true, &Uri::from_static("/"), &headers);
        assert!(body.contains(r#""url": "https://a&lt;b&gt;&quot;&#39;&amp;:8808/mcp" }"#), "{body}");
        assert!(head.contains(&(CONTENT_SECURITY_POLICY, POLICY)));
        let (_, body) = page(false, &Uri::from_static("http://box.example/"), &HeaderMap::new());
        assert!(body.contains("<code>http://box.example/mcp</code>"), "{body}");
    }
}
