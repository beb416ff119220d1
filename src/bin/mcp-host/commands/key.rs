//! Without a keyring, the first login creates the key for the encrypted files: after a confirmation at the terminal,
//! and never over an existing file. Without a terminal, prints the commands for it.

use std::io;
use std::path::Path;

use mcp_host::auth::make_key_file;

use super::desk::Desk;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text::quoted;

/// Makes sure that a login will be kept. Otherwise the login would end with this command, unless a daemon handles it.
pub(super) async fn secure(desk: &Desk, server: &str, output: &Output) -> Result<(), Failure> {
    let keeping = desk.keeping(server).await?;
    if keeping.kept != "memory" {
        return Ok(());
    }
    let reason = keeping.reason.as_deref().unwrap_or("there is no keyring");
    let Some(path) = &keeping.key_file else { return nowhere(desk, server, reason, output) };
    if output.interactive() {
        output.talk(&format!("a login cannot be kept in a keyring here: {reason}"));
        let question = format!("keep logins in encrypted files, with a new key in {}? [y/N]", path.display());
        if super::agreed(&question, output).await {
            return made(path, output).await;
        }
    }
    if desk.is_here() {
        let error = format!("nowhere to keep the login of `{server}`: {reason}");
        return Err(
            Failure::new(Exit::Failed, error).help(format!("make a key for encrypted files: {}", commands(path)))
        );
    }
    output.talk(&format!("warning: the login is kept in memory, until the running mcp-host ends: {reason}"));
    output.talk(&format!("help: make a key for encrypted files: {}", commands(path)));
    Ok(())
}

/// Reports that a login could not be saved: neither the keyring nor a file can keep it.
fn nowhere(desk: &Desk, server: &str, reason: &str, output: &Output) -> Result<(), Failure> {
    if !desk.is_here() {
        output.remark(&format!("note: the login is kept in memory, until the running mcp-host ends: {reason}"));
        return Ok(());
    }
    let again = desk.again();
    let error = format!("nowhere to keep the login of `{server}`: {reason}");
    let help = format!("mcp-host serve{again} keeps it in memory: start it, then sign in");
    Err(Failure::new(Exit::Failed, error).help(help))
}

async fn made(path: &Path, output: &Output) -> Result<(), Failure> {
    match make_key_file(path).await {
        Ok(()) => output
            .talk(&format!("created the key {}; each mcp-host that you start reads it from there", path.display())),
        // Another login has created the file meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            let error = format!("cannot make {}: {error}", path.display());
            return Err(Failure::new(Exit::Failed, error).help(format!("make it by hand: {}", commands(path))));
        }
    }
    Ok(())
}

/// Returns the commands that create the file by hand: accessible to this user only, and never over an existing file.
pub(super) fn commands(path: &Path) -> String {
    let folder = path.parent().map(|folder| quoted(&folder.to_string_lossy())).unwrap_or_default();
    let path = quoted(&path.to_string_lossy());
    format!("(umask 077; set -C; mkdir -p {folder}; openssl rand -base64 32 > {path})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_for_a_shell() {
        let told = commands(Path::new("/a b/mcp-host/secret.key"));
        assert!(told.ends_with("openssl rand -base64 32 > '/a b/mcp-host/secret.key')"), "{told}");
    }
}
