//! The `auth` of an entry, as far as it is a header.

use super::fields::{Field, Fields};
use super::report::Report;
use super::secret::Secret;

/// What a login of another client's is told: the server is used, and will say itself whether it minds.
const NO_LOGIN: &str = "this build has no login, the server is used without one";

/// Where other clients keep what they need for a login.
const FOREIGN: [&str; 7] =
    ["oauth", "oauthClient", "oauth_resource", "scopes", "authProviderType", "targetAudience", "targetServiceAccount"];
/// What other clients run to get headers.
const HELPERS: [&str; 2] = ["headersHelper", "http_headers_helper"];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    OAuth,
    ApiKey,
    Basic,
    Bearer,
}

/// Notes the logins of other clients, and what they would run for a header.
pub(super) fn foreign(fields: &mut Fields<'_>, report: &mut Report) {
    helpers(fields, report);
    for name in FOREIGN {
        if let Some(field) = fields.take(&[name], report) {
            // `"oauth": false` is how opencode says that there is nothing to do.
            if field.node.value != super::syntax::Value::Flag(false) {
                report.note(field.at, &field.path, NO_LOGIN);
            }
        }
    }
}

fn helpers(fields: &mut Fields<'_>, report: &mut Report) {
    for name in HELPERS {
        if let Some(field) = fields.take(&[name], report) {
            report.note(field.at, &field.path, "this build runs no program for headers, they are left out");
        }
    }
}

/// Reads `auth`: the header it stands for, if it is ours and complete.
pub(super) fn header(field: &Field<'_>, report: &mut Report) -> Option<(String, Secret)> {
    // Codex has `auth = "oauth"`, and Cursor an object with keys in capitals.
    if field.node.text().is_some() || field.node.get("CLIENT_ID").is_some() {
        report.note(field.at, &field.path, NO_LOGIN);
        return None;
    }
    let mut auth = field.fields(report)?;
    let Some(kind) = auth.take(&["type"], report) else {
        report.problem(field.at, &format!("{}.type", field.path), "is missing").help(KINDS);
        return None;
    };
    let kinds = [("oauth", Kind::OAuth), ("api-key", Kind::ApiKey), ("basic", Kind::Basic), ("bearer", Kind::Bearer)];
    let header = match kind.choice(&kinds, report)? {
        Kind::OAuth => {
            let message = "\"oauth\" is not possible, this build does not have this feature";
            report.problem(kind.at, &kind.path, message).help(KINDS);
            auth.skip(&["clientId", "clientSecret", "scope", "scopes"]);
            None
        }
        Kind::ApiKey => {
            let name = auth.take(&["header"], report).and_then(|field| field.text(report));
            let name = name.unwrap_or("X-API-Key").to_owned();
            secret(&mut auth, field, &["apiKey"], report).map(|key| (name, Secret::new(key)))
        }
        Kind::Bearer => {
            let token = secret(&mut auth, field, &["token", "apiKey"], report);
            token.map(|token| ("Authorization".to_owned(), Secret::new(format!("Bearer {token}"))))
        }
        Kind::Basic => {
            let username = secret(&mut auth, field, &["username"], report);
            let password = secret(&mut auth, field, &["password"], report);
            username.zip(password).map(|(username, password)| {
                let value = format!("Basic {}", base64(format!("{username}:{password}").as_bytes()));
                ("Authorization".to_owned(), Secret::new(value))
            })
        }
    };
    auth.finish(&["apiKey", "token", "header", "username", "password"], report);
    header
}

const KINDS: &str = "use \"bearer\" with token, \"api-key\" with apiKey, or \"basic\" with username and password";

fn secret<'a>(auth: &mut Fields<'a>, of: &Field<'_>, names: &[&str], report: &mut Report) -> Option<&'a str> {
    match auth.take(names, report) {
        Some(field) => field.text(report),
        None => {
            report.problem(of.at, &format!("{}.{}", of.path, names[0]), "is missing");
            None
        }
    }
}

/// Base64 with padding, which Basic authentication wants of two short texts.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if digit <= chunk.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_of_the_rfc() {
        for (text, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
