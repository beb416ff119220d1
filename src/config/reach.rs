//! How far a mistake in a server's entry reaches; pure.
//!
//! A mistake in a key of ours refuses the whole file: whoever wrote the key reads this program's messages. A setting of
//! another client may mean something that this program cannot do, so a mistake there makes only that server `failed`.
//! Readers of keys report every mistake in the same way; its reach is decided here and nowhere else.

use super::Server;

/// How far a problem reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The server of the entry fails, and the others run.
    Entry,
    /// The whole file is refused.
    File,
}

/// Keys of the [`Server`] table that other clients also have. All others are ours alone.
const SHARED: [&str; 4] = ["description", "disabled", "excludeTools", "includeTools"];
/// Keys outside of that table that only this program has.
const OWN: [&str; 4] = ["inheritEnv", "insecureHttp", "sanitizeResults", "tls"];
/// Keys of other clients under `auth`; all others there are ours.
const FOREIGN_AUTH: [&str; 3] = ["auth.CLIENT_ID", "auth.CLIENT_SECRET", "auth.scopes"];

/// Returns the reach of a problem in this field of an entry. `None` means the entry as a whole.
pub(super) fn of(field: Option<&str>) -> Reach {
    let Some(field) = field else { return Reach::Entry };
    let key = field.split(['.', '[']).next().unwrap_or_default();
    let in_table = Server::keys().iter().any(|known| known == key) && !SHARED.contains(&key);
    let own = in_table || OWN.contains(&key);
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
        assert_eq!(SHARED.map(|field| of(Some(field))), [Reach::Entry; 4]);
        for field in
            ["url", "args[2]", "headers.X Team", "auth", "auth.CLIENT_ID", "timeout", "type", "startup_timeout_sec"]
        {
            assert_eq!(of(Some(field)), Reach::Entry, "{field}");
        }
        assert_eq!(of(None), Reach::Entry);
    }
}
