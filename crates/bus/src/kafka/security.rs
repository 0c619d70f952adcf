//! How clients prove who they are, and who may listen in.

use std::{fmt, path::PathBuf};

/// Encryption and identity of all clients of a bus.
#[derive(Clone, Debug, Default)]
pub struct KafkaSecurity {
    /// Encryption; `None` is plain text.
    pub tls: Option<KafkaTls>,
    /// Name and password; `None` leaves the identity to the TLS certificate, or to nobody.
    pub login: Option<KafkaLogin>,
}

/// Encryption, and the identity of this side if it has a certificate.
#[derive(Clone, Debug, Default)]
pub struct KafkaTls {
    /// Certificates (PEM) of the authorities that may vouch for a broker; `None` takes the system's.
    pub ca_file: Option<PathBuf>,
    /// This side's certificate, for mutual TLS.
    pub identity: Option<KafkaIdentity>,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct KafkaIdentity {
    /// The certificate chain (PEM).
    pub certificate_file: PathBuf,
    /// The private key (PEM).
    pub key_file: PathBuf,
    /// Password of the key.
    pub key_password: Option<String>,
}

/// A name and its password.
#[derive(Clone)]
pub struct KafkaLogin {
    /// How they are proved.
    pub mechanism: SaslMechanism,
    /// The name.
    pub username: String,
    /// Never printed.
    pub password: String,
}

/// How a password is proved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SaslMechanism {
    /// By a challenge; the password is not sent.
    #[default]
    ScramSha512,
    /// The same with a shorter hash.
    ScramSha256,
    /// By sending it: only sensible with TLS.
    Plain,
}

impl SaslMechanism {
    /// The name in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::Plain => "PLAIN",
        }
    }
}

impl fmt::Debug for KafkaIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaIdentity")
            .field("certificate_file", &self.certificate_file)
            .field("key_file", &self.key_file)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for KafkaLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaLogin")
            .field("mechanism", &self.mechanism)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

impl KafkaSecurity {
    /// What it means to librdkafka.
    pub(super) fn properties(&self) -> Vec<(&'static str, String)> {
        let mut properties = vec![("security.protocol", self.protocol().to_owned())];
        if let Some(tls) = &self.tls {
            // An OpenSSL that was compiled in looks for authorities in a folder of its own, which is empty; the
            // client, told to, looks where systems keep them.
            let authorities =
                tls.ca_file.as_ref().map_or_else(|| "probe".to_owned(), |file| file.display().to_string());
            properties.push(("ssl.ca.location", authorities));
            if let Some(identity) = &tls.identity {
                properties
                    .push(("ssl.certificate.location", identity.certificate_file.display().to_string()));
                properties.push(("ssl.key.location", identity.key_file.display().to_string()));
                if let Some(password) = &identity.key_password {
                    properties.push(("ssl.key.password", password.clone()));
                }
            }
        }
        if let Some(login) = &self.login {
            properties.push(("sasl.mechanism", login.mechanism.name().to_owned()));
            properties.push(("sasl.username", login.username.clone()));
            properties.push(("sasl.password", login.password.clone()));
        }
        properties
    }

    fn protocol(&self) -> &'static str {
        match (&self.tls, &self.login) {
            (None, None) => "PLAINTEXT",
            (Some(_), None) => "SSL",
            (None, Some(_)) => "SASL_PLAINTEXT",
            (Some(_), Some(_)) => "SASL_SSL",
        }
    }

    /// Who the brokers see, as far as that is known here: for messages about missing rights.
    pub(super) fn user(&self) -> String {
        match (&self.login, &self.tls) {
            (Some(login), _) => format!("user {:?}", login.username),
            (None, Some(KafkaTls { identity: Some(identity), .. })) => {
                format!("the owner of the certificate {}", identity.certificate_file.display())
            }
            _ => "this client".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_the_authorities_are_those_of_the_system() {
        let security = KafkaSecurity { tls: Some(KafkaTls::default()), login: None };
        assert!(security.properties().contains(&("ssl.ca.location", "probe".to_owned())));
    }

    #[test]
    fn passwords_are_not_printed() {
        let login =
            KafkaLogin { mechanism: SaslMechanism::Plain, username: "u".into(), password: "geheim".into() };
        let identity = KafkaIdentity {
            certificate_file: "c".into(),
            key_file: "k".into(),
            key_password: Some("geheim".into()),
        };
        let tls = Some(KafkaTls { ca_file: None, identity: Some(identity) });
        let security = KafkaSecurity { tls, login: Some(login) };
        assert!(!format!("{security:?}").contains("geheim"));
        assert_eq!(security.properties()[0], ("security.protocol", "SASL_SSL".to_owned()));
    }
}
