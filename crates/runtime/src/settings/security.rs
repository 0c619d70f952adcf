//! `[kafka.security]`: who this process is to Kafka, and whether others may listen in.

use super::reader::Reader;
use starling_bus::{KafkaIdentity, KafkaLogin, KafkaSecurity, KafkaTls, SaslMechanism};
use std::path::PathBuf;

#[derive(Clone, Copy, Default)]
struct Protocol {
    tls: bool,
    login: bool,
}

const PROTOCOL: &str = "kafka.security.protocol";

/// Reads the section. What the protocol does not use must be empty: it would give a false feeling of safety.
pub(super) fn read(r: &mut Reader) -> KafkaSecurity {
    let protocol = r.choice(
        PROTOCOL,
        &[
            ("plaintext", Protocol::default()),
            ("ssl", Protocol { tls: true, login: false }),
            ("sasl_plaintext", Protocol { tls: false, login: true }),
            ("sasl_ssl", Protocol { tls: true, login: true }),
        ],
    );
    let (tls, login) = (tls(r, protocol.tls), login(r, protocol.login));
    KafkaSecurity { tls: tls.filter(|_| protocol.tls), login: login.filter(|_| protocol.login) }
}

fn tls(r: &mut Reader, wanted: bool) -> Option<KafkaTls> {
    let ca_file = file(r, "kafka.security.ca_file");
    let certificate_file = file(r, "kafka.security.certificate_file");
    let key_file = file(r, "kafka.security.key_file");
    let key_password = r.secret_or_file("kafka.security.key_password");
    let given =
        ca_file.is_some() || certificate_file.is_some() || key_file.is_some() || key_password.is_some();
    if given && !wanted {
        r.complain(
            PROTOCOL,
            "ssl or sasl_ssl, as certificates are given",
            "a protocol without TLS",
            "the settings",
        );
    }
    let identity = match (certificate_file, key_file) {
        (Some(certificate_file), Some(key_file)) => {
            Some(KafkaIdentity { certificate_file, key_file, key_password })
        }
        (None, None) if key_password.is_none() => None,
        _ => {
            r.complain(
                "kafka.security.certificate_file",
                "a certificate and its key, both or neither",
                "one without the other",
                "the settings",
            );
            None
        }
    };
    Some(KafkaTls { ca_file, identity })
}

fn login(r: &mut Reader, wanted: bool) -> Option<KafkaLogin> {
    let mechanism = r.choice(
        "kafka.security.mechanism",
        &[
            ("SCRAM-SHA-512", SaslMechanism::ScramSha512),
            ("SCRAM-SHA-256", SaslMechanism::ScramSha256),
            ("PLAIN", SaslMechanism::Plain),
        ],
    );
    let username = r.optional("kafka.security.username");
    let password = r.secret_or_file("kafka.security.password");
    match (username, password) {
        (Some(username), Some(password)) => {
            if !wanted {
                r.complain(
                    PROTOCOL,
                    "sasl_ssl or sasl_plaintext, as a username is given",
                    "a protocol without SASL",
                    "the settings",
                );
            }
            Some(KafkaLogin { mechanism, username, password })
        }
        (username, password) => {
            if wanted || username.is_some() || password.is_some() {
                r.complain(
                    "kafka.security.username",
                    "a username and its password (password or password_file) for a protocol with SASL",
                    "not both",
                    "the settings",
                );
            }
            None
        }
    }
}

/// A file that is there now: a client would only say much later, and not as clearly, that it is not.
fn file(r: &mut Reader, path: &str) -> Option<PathBuf> {
    let file = PathBuf::from(r.optional(path)?);
    if let Err(error) = std::fs::File::open(&file) {
        r.complain(path, "a readable file", &format!("{}: {error}", file.display()), "the settings");
    }
    Some(file)
}
