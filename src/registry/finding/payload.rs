//! Finds commands that are encoded in base64 or hexadecimal digits.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::Spot;
use crate::hex;

const WHAT: &str = "an encoded command";

/// The fewest characters that hide a command.
const LEAST: usize = 20;

/// Texts that show that a decoded text is a command.
const SIGNS: [&str; 20] = [
    "curl ",
    "wget ",
    "bash ",
    "| sh",
    "|sh",
    "/bin/sh",
    "/bin/bash",
    "powershell",
    "invoke-expression",
    "iex(",
    "/dev/tcp/",
    "nc -",
    "chmod ",
    "rm -rf",
    "eval(",
    "exec(",
    "os.system",
    "subprocess",
    "$(",
    "sudo ",
];

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::RequireNone);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

pub(super) fn spots(text: &str, found: &mut Vec<Spot>) {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    let bytes = text.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        let length = bytes[start..].iter().take_while(|byte| is_part(**byte)).count();
        if length >= LEAST && is_command(&bytes[start..start + length]) {
            return found.push((WHAT, true, start..start + length));
        }
        start += length + 1;
    }
}

fn is_command(run: &[u8]) -> bool {
    if run.iter().all(u8::is_ascii_hexdigit) {
        let mut bytes = vec![0; run.len() / 2];
        if hex::decode(&run[..run.len() / 2 * 2], &mut bytes).is_some() && is_shell(&bytes) {
            return true;
        }
    }
    // Characters before the command may belong to the run, such as a slash.
    (0..4).any(|skipped| {
        let run = &run[skipped.min(run.len())..];
        // A single character at the end encodes no whole byte.
        let run = if run.len() % 4 == 1 { &run[..run.len() - 1] } else { run };
        [&STANDARD, &URL].iter().any(|engine| engine.decode(run).is_ok_and(|bytes| is_shell(&bytes)))
    })
}

fn is_shell(bytes: &[u8]) -> bool {
    let is_printed = |byte: &&u8| (0x20..0x7f).contains(*byte) || matches!(byte, b'\t' | b'\n' | b'\r');
    let printed = bytes.iter().filter(is_printed).count();
    if printed * 10 < bytes.len() * 9 {
        return false;
    }
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    SIGNS.iter().any(|sign| memchr::memmem::find(text.as_bytes(), sign.as_bytes()).is_some())
}
