//! The `auth` key of a server entry, which gives a header or OAuth settings.

use url::Url;

use super::expand::Scope;
use super::fields::{Field, Fields};
use super::report::Report;
use super::secret::Secret;
use super::syntax::{Origin, Value};
use super::{Auth, Enterprise, Grant, OAuth, SecretSource};
use crate::loopback::is_loopback;

/// Keys that other clients store about a login and that mean nothing here.
const FOREIGN: [&str; 5] =
    ["oauth_resource", "authProviderType", "targetAudience", "targetServiceAccount", "oauthPublicClient"];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    OAuth,
    ApiKey,
    Basic,
    Bearer,
}

#[derive(Clone, Copy, PartialEq)]
enum GrantKind {
    Code,
    ClientCredentials,
    Workload,
    Enterprise,
}

/// How `auth` says that requests authenticate.
pub(super) enum AuthSetting {
    /// Every request carries this header, given as name and value.
    Header(String, Secret),
    /// Requests carry tokens that are obtained with these OAuth settings.
    OAuth(Box<OAuth>),
}

/// Reads OAuth settings under the keys that other clients use.
pub(super) fn foreign(fields: &mut Fields<'_>, report: &mut Report) -> Auth {
    for name in FOREIGN {
        if let Some(field) = fields.take(&[name], report) {
            report.note(field.at, &field.path, "not needed here: the server says what it wants");
        }
    }
    let mut oauth = OAuth::default();
    if let Some(field) = fields.take(&["scopes", "oauthScopes"], report) {
        oauth.scopes = scopes(&field, report);
    }
    let id = fields.take(&["oauthClientId"], report);
    oauth.client_id = id.and_then(|field| field.text(report)).map(str::to_owned);
    if let Some(field) = fields.take(&["oauth", "oauthClient"], report) {
        match field.node.value {
            // opencode and Gemini turn OAuth off this way.
            Value::Flag(false) => return Auth::Headers,
            Value::Flag(true) => {}
            _ => client(&field, &mut oauth, report),
        }
    }
    Auth::OAuth(Box::new(oauth))
}

/// Reads the OAuth client as which another program was registered. The other settings there concern only that program.
fn client(field: &Field<'_>, oauth: &mut OAuth, report: &mut Report) {
    let Some(mut fields) = field.fields(report) else { return };
    let mut text = |names: &[&str]| fields.take(names, report).and_then(|field| field.text(report).map(str::to_owned));
    oauth.client_id = text(&["clientId", "client_id", "CLIENT_ID"]);
    oauth.client_secret = text(&["clientSecret", "client_secret", "CLIENT_SECRET"]).map(Secret::new);
    if let Some(field) = fields.take(&["scopes", "scope", "oauthScopes"], report) {
        oauth.scopes = scopes(&field, report);
    }
}

/// Reads scopes from a list, or from a text separated by whitespace.
fn scopes(field: &Field<'_>, report: &mut Report) -> Vec<String> {
    match field.node.value {
        Value::List(_) => field.texts(report),
        _ => field.text(report).unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
    }
}

/// Reads `auth`. Reports what is missing or wrong, and returns `None` in that case.
pub(super) fn read(field: &Field<'_>, scope: &Scope<'_>, report: &mut Report) -> Option<AuthSetting> {
    // Codex has `auth = "oauth"`, and Cursor an object with keys in capitals.
    if field.node.text().is_some() || field.node.get("CLIENT_ID").is_some() {
        let mut oauth = OAuth::default();
        if field.node.text().is_none() {
            client(field, &mut oauth, report);
        }
        return Some(AuthSetting::OAuth(Box::new(oauth)));
    }
    let mut auth = field.fields(report)?;
    let Some(kind) = auth.take(&["type"], report) else {
        report.problem(field.at, &format!("{}.type", field.path), "is missing").help(KINDS);
        return None;
    };
    let kinds = [("oauth", Kind::OAuth), ("api-key", Kind::ApiKey), ("basic", Kind::Basic), ("bearer", Kind::Bearer)];
    let header = match kind.choice(&kinds, report)? {
        Kind::OAuth => {
            let oauth = oauth(&mut auth, field, scope, report);
            auth.finish(&OAUTH, report);
            return oauth.map(|oauth| AuthSetting::OAuth(Box::new(oauth)));
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
    header.map(|(name, value)| AuthSetting::Header(name, value))
}

const KINDS: &str =
    "use \"oauth\", \"bearer\" with token, \"api-key\" with apiKey, or \"basic\" with username and password";
const OAUTH: [&str; 13] = [
    "clientId",
    "clientSecret",
    "clientMetadataUrl",
    "privateKey",
    "privateKeyFile",
    "keyId",
    "issuer",
    "scopes",
    "scope",
    "grant",
    "assertion",
    "assertionFile",
    "idp",
];

fn oauth(auth: &mut Fields<'_>, of: &Field<'_>, scope: &Scope<'_>, report: &mut Report) -> Option<OAuth> {
    let mut oauth = OAuth::default();
    let text = |auth: &mut Fields<'_>, names: &[&str], report: &mut Report| {
        auth.take(names, report).and_then(|field| field.text(report).map(str::to_owned))
    };
    oauth.client_id = text(auth, &["clientId"], report);
    oauth.client_secret = text(auth, &["clientSecret"], report).map(Secret::new);
    oauth.key_id = text(auth, &["keyId"], report);
    oauth.issuer = text(auth, &["issuer"], report);
    oauth.private_key = source(auth, "privateKey", "privateKeyFile", scope, report);
    oauth.client_metadata_url = auth.take(&["clientMetadataUrl"], report).and_then(|field| https(&field, report));
    if let Some(field) = auth.take(&["scopes", "scope"], report) {
        oauth.scopes = scopes(&field, report);
    }
    let grants = [
        ("authorization-code", GrantKind::Code),
        ("client-credentials", GrantKind::ClientCredentials),
        ("workload", GrantKind::Workload),
        ("enterprise", GrantKind::Enterprise),
    ];
    let grant = auth.take(&["grant"], report).map_or(Some(GrantKind::Code), |field| field.choice(&grants, report));
    let assertion = source(auth, "assertion", "assertionFile", scope, report);
    let idp = auth.take(&["idp"], report);
    let mut missing = |name: &str| {
        report.problem(of.at, &format!("{}.{name}", of.path), "is missing");
    };
    let grant = grant?;
    if grant != GrantKind::Code && oauth.client_id.is_none() {
        missing("clientId");
        return None;
    }
    oauth.grant = match grant {
        GrantKind::Code => Grant::Code,
        GrantKind::ClientCredentials => {
            if oauth.client_secret.is_none() && oauth.private_key.is_none() {
                missing("clientSecret");
                return None;
            }
            Grant::ClientCredentials
        }
        GrantKind::Workload => match assertion {
            Some(source) => Grant::Workload(source),
            None => {
                missing("assertionFile");
                return None;
            }
        },
        GrantKind::Enterprise => match idp {
            Some(field) => Grant::Enterprise(Box::new(enterprise(&field, scope, report)?)),
            None => {
                missing("idp");
                return None;
            }
        },
    };
    Some(oauth)
}

/// Reads a secret, or the path of the file that holds it.
fn source(
    fields: &mut Fields<'_>,
    given: &str,
    file: &str,
    scope: &Scope<'_>,
    report: &mut Report,
) -> Option<SecretSource> {
    let path = fields.take(&[file], report).and_then(|field| field.text(report));
    let text = fields.take(&[given], report).and_then(|field| field.text(report));
    let path = path.map(|path| SecretSource::File(scope.path(path)));
    text.map(|text| SecretSource::Given(Secret::new(text))).or(path)
}

fn enterprise(field: &Field<'_>, scope: &Scope<'_>, report: &mut Report) -> Option<Enterprise> {
    let mut idp = field.fields(report)?;
    let endpoint = idp.take(&["tokenEndpoint"], report);
    let client = secret(&mut idp, field, &["clientId"], report);
    let client_secret = idp.take(&["clientSecret"], report).and_then(|field| field.text(report)).map(Secret::new);
    let id_token = source(&mut idp, "idToken", "idTokenFile", scope, report);
    idp.finish(&["tokenEndpoint", "clientId", "clientSecret", "idToken", "idTokenFile"], report);
    let (Some(endpoint), Some(id_token)) = (endpoint, id_token) else {
        report.problem(field.at, &field.path, "wants tokenEndpoint, clientId, and idToken or idTokenFile");
        return None;
    };
    let mut enterprise = Enterprise::new(https(&endpoint, report)?, client?, id_token);
    enterprise.client_secret = client_secret;
    Some(enterprise)
}

/// Reads an https URL, or an http URL on this machine.
fn https(field: &Field<'_>, report: &mut Report) -> Option<Url> {
    let url = Url::parse(field.text(report)?).ok();
    let url = url.filter(|url| url.scheme() == "https" || url.scheme() == "http" && is_loopback(url));
    if url.is_none() && field.node.origin != Origin::Missing {
        report.problem(field.at, &field.path, "is not an https URL");
    }
    url
}

fn secret<'a>(auth: &mut Fields<'a>, of: &Field<'_>, names: &[&str], report: &mut Report) -> Option<&'a str> {
    match auth.take(names, report) {
        Some(field) => field.text(report),
        None => {
            report.problem(of.at, &format!("{}.{}", of.path, names[0]), "is missing");
            None
        }
    }
}

/// Encodes bytes in base64 with padding, as Basic authentication requires.
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
