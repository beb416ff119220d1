//! How far a mistake in a server's entry reaches; pure.
//!
//! Because of a mistake in a config key of our own, the whole file is refused: whoever wrote the key reads this
//! program's messages. A setting of another client may mean something that this program cannot do, so a mistake there
//! makes only that server `failed`. The functions that read keys report every mistake in the same way; only this file
//! decides how far the mistake reaches.

use super::Server;

/// How far a problem reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The server with this entry is `failed`, and the others run.
    Entry,
    /// The whole file is refused.
    File,
}

/// Keys in the [`Server`] table that other clients also have. All other keys in the table are ours alone.
const SHARED: [&str; 5] = ["description", "disabled", "excludeTools", "includeTools", "tags"];
/// Keys that are not in the [`Server`] table and that only this program has.
const OWN: [&str; 5] = ["inheritEnv", "insecureHttp", "sandbox", "sanitizeResults", "tls"];
/// Paths under `auth` that other clients use; all other keys under `auth` are ours.
const FOREIGN_AUTH: [&str; 3] = ["auth.CLIENT_ID", "auth.CLIENT_SECRET", "auth.scopes"];

/// Returns how far a problem in this field of an entry reaches. The field `None` means the entry as a whole.
pub(super) fn of(field: Option<&str>) -> Reach {
    let Some(field) = field else { return Reach::Entry };
    let key = field.split(['.', '[']).next().unwrap_or_default();
    let in_table = Server::keys().iter().any(|known| known == key) && !SHARED.contains(&key);
    // `tools` itself is shared: it may be a list of names. What is inside the object is ours.
    let own = in_table || OWN.contains(&key) || field.starts_with("tools.");
    let own_auth = field.starts_with("auth.") && !FOREIGN_AUTH.iter().any(|known| field.starts_with(known));
    if own || own_auth { Reach::File } else { Reach::Entry }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_ours_reaches_the_file_and_another_the_entry() {
        for field in ["callTimeout", "restart.maxDelay", "roots[0]", "tls.pin", "auth.grant", "auth.idp.clientId"] {
            assert_eq!(of(Some(field)), Reach::File, "{field}");
        }
        assert_eq!(["idleStop", "manifest"].map(|field| of(Some(field))), [Reach::File; 2]);
        let keys = Server::keys();
        assert!(SHARED.iter().all(|key| keys.iter().any(|known| known == key)), "{SHARED:?}");
        assert_eq!(SHARED.map(|field| of(Some(field))), [Reach::Entry; 5]);
        for field in
            ["url", "args[2]", "headers.X Team", "auth", "auth.CLIENT_ID", "timeout", "type", "startup_timeout_sec"]
        {
            assert_eq!(of(Some(field)), Reach::Entry, "{field}");
        }
        assert_eq!(of(None), Reach::Entry);
    }
}
