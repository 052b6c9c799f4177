//! Resolves the target once and refuses everything that is not loopback or private.

use std::net::{IpAddr, SocketAddr};

use hyper::Uri;
use hyper::header::HeaderValue;
use tokio::net::lookup_host;

use crate::config::{LoadConfig, LoadError};

/// A checked target; the only address that is ever connected to.
#[derive(Debug, Clone)]
pub struct Target {
    /// Where to connect.
    pub address: SocketAddr,
    /// The `Host` header.
    pub host: HeaderValue,
    /// The path of the chat endpoint.
    pub path: Uri,
}

impl Target {
    /// Takes the configuration apart, resolves its host and checks every address of it.
    pub async fn resolve(config: &LoadConfig) -> Result<Self, LoadError> {
        let bad = |what: &str| LoadError::Target(format!("{what}: {}", config.base_url));
        let url: Uri = config.base_url.parse().map_err(|_| bad("not a URL"))?;
        if url.scheme_str() != Some("http") {
            return Err(bad("only http:// is supported"));
        }
        let authority = url.authority().ok_or_else(|| bad("no host"))?;
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        let address = first_private(name, authority.port_u16().unwrap_or(80)).await?;
        let host = if config.host.is_empty() { authority.as_str() } else { &config.host };
        let host = host.parse().map_err(|_| LoadError::Target(format!("not a host header: {host}")))?;
        let path = format!("{}/v1/chat/completions", url.path().trim_end_matches('/'));
        let path = path.parse().map_err(|_| bad("not a path"))?;
        Ok(Self { address, host, path })
    }
}

/// The first address of a name, provided that all of them may be sent to.
async fn first_private(name: &str, port: u16) -> Result<SocketAddr, LoadError> {
    let failed = |error| LoadError::Resolve(name.to_owned(), error);
    let addresses: Vec<SocketAddr> = lookup_host((name, port)).await.map_err(failed)?.collect();
    if let Some(public) = addresses.iter().find(|address| !may_send_to(address.ip())) {
        return Err(LoadError::Public(public.ip()));
    }
    addresses.first().copied().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))
}

/// Loopback, the private ranges of IPv4 (RFC 1918) and the unique local ones of IPv6 (RFC 4193).
/// Link-local is left out on purpose: clouds serve credentials there.
fn may_send_to(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_private(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_and_private_addresses_pass() {
        for good in ["127.0.0.1", "10.99.0.2", "172.16.0.1", "172.31.255.255", "192.168.1.1", "::1", "fd00::1"] {
            assert!(may_send_to(good.parse().unwrap()), "{good}");
        }
        let mapped = "::ffff:8.8.8.8";
        let public = ["8.8.8.8", "172.32.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"];
        for bad in public.into_iter().chain([mapped, "2001:db8::1", "fe80::1", "::"]) {
            assert!(!may_send_to(bad.parse().unwrap()), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_base_url_becomes_an_address_a_host_and_a_path() {
        let target = Target::resolve(&LoadConfig::new("http://10.99.0.2/", "bot.example")).await.unwrap();
        assert_eq!(target.address, "10.99.0.2:80".parse().unwrap());
        assert_eq!((target.host.to_str().unwrap(), target.path.path()), ("bot.example", "/v1/chat/completions"));
        let target = Target::resolve(&LoadConfig::new("http://[::1]:8080/bot/", "")).await.unwrap();
        assert_eq!(target.address, "[::1]:8080".parse().unwrap());
        assert_eq!((target.host.to_str().unwrap(), target.path.path()), ("[::1]:8080", "/bot/v1/chat/completions"));
    }

    #[tokio::test]
    async fn public_addresses_and_other_schemes_are_refused() {
        for url in ["http://192.0.2.1/", "http://[2001:db8::1]/"] {
            let refused = Target::resolve(&LoadConfig::new(url, "")).await;
            assert!(matches!(refused, Err(LoadError::Public(_))), "{refused:?}");
        }
        for url in ["https://10.0.0.1/", "10.0.0.1", "/only/a/path"] {
            let refused = Target::resolve(&LoadConfig::new(url, "")).await;
            assert!(matches!(refused, Err(LoadError::Target(_))), "{refused:?}");
        }
    }
}
