//! `[registry]`: the schema registry, if there is one.

use super::reader::Reader;
use reqwest::{Certificate, Url};
use secrecy::SecretString;
use std::{ops::RangeInclusive, time::Duration};

const ORIGIN: &str = "the settings";
const WAIT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// `[registry]`
#[derive(Clone, Debug)]
pub struct RegistrySettings {
    /// Where it is, without user and password; `None` if there is none.
    pub url: Option<Url>,
    /// How the schemas of this version get an id.
    pub mode: RegistryMode,
    /// User, for basic authentication.
    pub user: Option<String>,
    /// Password of that user.
    pub password: Option<SecretString>,
    /// Certificate authorities to trust beside those of the system.
    pub authorities: Vec<Certificate>,
    /// Longest time of one request.
    pub timeout: Duration,
    /// How long to look for it at the start.
    pub connect_timeout: Duration,
    /// Schemas of others that are remembered.
    pub cache: usize,
    /// How long records with a schema id wait where there is no registry to ask.
    pub patience: Duration,
}

/// How the schemas of this version get an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegistryMode {
    /// The process registers them if they are not there.
    #[default]
    Register,
    /// Somebody else has registered them.
    Lookup,
}

/// Reads the section.
pub(super) fn read(r: &mut Reader) -> RegistrySettings {
    let (url, login) = address(r);
    let (user, password) = (r.optional("registry.user"), r.secret_or_file("registry.password"));
    let (user, password) = match login {
        // What is set by its own name wins over what is in the address.
        Some((name, word)) if user.is_none() => (Some(name), password.or(word)),
        _ => (user, password),
    };
    if user.is_none() && password.is_some() {
        r.complain("registry.user", "the user of that password", "none", ORIGIN);
    }
    RegistrySettings {
        url,
        mode: r.choice(
            "registry.mode",
            &[("register", RegistryMode::Register), ("lookup", RegistryMode::Lookup)],
        ),
        user,
        password: password.map(SecretString::from),
        authorities: authorities(r),
        timeout: r.duration("registry.timeout", Duration::from_millis(100)..=Duration::from_secs(300)),
        connect_timeout: r.duration("registry.connect_timeout", WAIT),
        cache: r.integer("registry.cache", 1..=1_000_000),
        patience: r.duration("registry.patience", Duration::ZERO..=Duration::from_secs(7 * 24 * 3600)),
    }
}

type Login = (String, Option<String>);

/// The address, and user and password if it holds them: a fault never shows it.
fn address(r: &mut Reader) -> (Option<Url>, Option<Login>) {
    let Some(text) = r.secret("registry.url") else { return (None, None) };
    let mut refuse = |found: &str| {
        let found = format!("{found} (not shown: it may hold a password)");
        r.complain("registry.url", "one http:// or https:// address without a query", &found, ORIGIN);
        (None, None)
    };
    let Ok(mut url) = Url::parse(text.trim()) else { return refuse("no address") };
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() || text.contains(',') {
        return refuse("another address");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refuse("an address with more");
    }
    let plain = |text: &str| percent_decoded(text);
    let login = (!url.username().is_empty()).then(|| (plain(url.username()), url.password().map(plain)));
    // Both fail only for addresses without a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    (Some(url), login)
}

/// What stands for `%40` and the like in the user and the password of an address.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn authorities(r: &mut Reader) -> Vec<Certificate> {
    let Some(path) = r.optional("registry.ca_file") else { return Vec::new() };
    let read = std::fs::read(&path).map_err(|error| error.to_string());
    let read = read.and_then(|pem| Certificate::from_pem_bundle(&pem).map_err(|error| error.to_string()));
    match read {
        Ok(authorities) if !authorities.is_empty() => authorities,
        other => {
            let found = other.err().unwrap_or_else(|| "no certificate".to_owned());
            let expected = "a file of certificates in PEM form";
            r.complain("registry.ca_file", expected, &format!("{path:?}: {found}"), ORIGIN);
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::percent_decoded;

    #[test]
    fn escapes_in_an_address_are_undone() {
        assert_eq!(percent_decoded("p%40ss%3Aw%C3%B6rd"), "p@ss:wörd");
        assert_eq!(percent_decoded("100%"), "100%");
        assert_eq!(percent_decoded("%zz%4"), "%zz%4");
    }
}
