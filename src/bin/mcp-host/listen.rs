//! `--listen`: an address of this machine and a port, in any common notation.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use mcp_host::admin::At;

/// The default port.
pub(crate) const PORT: u16 = 8808;

/// Parses `127.0.0.1:8808`, `[::1]:8808`, `localhost:8808`, `:8808`, `8808`, or an address without a port. The default
/// address is loopback: opening the port to other machines takes a decision.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    if text.contains('/') {
        return Err("it takes an address and a port, without a scheme or a path".to_owned());
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => ("", Some(text)),
        None => (text, None),
    };
    let ip = host_ip(host)?;
    let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| format!("`{port}` is not a port: 0 to 65535")))?;
    Ok(SocketAddr::new(ip, port))
}

/// Parses the address of a daemon, or the name of a daemon that has no port.
pub(crate) fn daemon(text: &str) -> Result<At, String> {
    At::config(text).map_or_else(|| Ok(At::Port(address(text)?.port())), Ok)
}

fn host_ip(host: &str) -> Result<IpAddr, String> {
    match host {
        "" | "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        "*" => Err("`*` is not an address; 0.0.0.0 listens on all addresses of this machine".to_owned()),
        _ => host.parse().map_err(|_| {
            format!(
                "`{host}` is a name; it takes an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them"
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_understood_as_people_write_it() {
        for (text, meant) in [
            ("127.0.0.1:9000", "127.0.0.1:9000"),
            ("8808", "127.0.0.1:8808"),
            (":8809", "127.0.0.1:8809"),
            ("localhost:8809", "127.0.0.1:8809"),
            ("localhost", "127.0.0.1:8808"),
            ("0.0.0.0", "0.0.0.0:8808"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("[::1]:1", "[::1]:1"),
            ("::1", "[::1]:8808"),
            ("[::1]", "[::1]:8808"),
        ] {
            assert_eq!(address(text), Ok(meant.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_told() {
        for (text, why) in [
            ("example.com:80", "`example.com` is a name"),
            ("*:8808", "0.0.0.0"),
            ("http://127.0.0.1:8808/mcp", "without a scheme"),
            ("127.0.0.1:66000", "`66000` is not a port"),
            ("localhost:", "`` is not a port"),
            ("99999", "`99999` is not a port"),
        ] {
            let told = address(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
