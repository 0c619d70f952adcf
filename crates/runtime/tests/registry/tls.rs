//! A registry behind TLS, with a certificate of an authority that no system trusts.

use crate::world::{Registry, intent, reader, topics};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use starling_protocol::Envelope;
use starling_runtime::{registry::RegistryError, settings::RegistrySettings};
use std::{path::PathBuf, process::Command, sync::Arc};
use tempfile::TempDir;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

/// An authority, and a certificate of it for a server on the loopback address.
struct Authority(TempDir);

impl Authority {
    fn new() -> Self {
        let authority = Self(TempDir::new().unwrap());
        let extensions = "basicConstraints=critical,CA:FALSE\nsubjectAltName=IP:127.0.0.1\n";
        std::fs::write(authority.file("extensions"), extensions).unwrap();
        for arguments in [
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=Authority -keyout ca.key -out ca.pem",
            "req -newkey rsa:2048 -nodes -subj /CN=registry -keyout server.key -out server.csr",
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions \
             -out server.pem",
        ] {
            let mut openssl = Command::new("openssl");
            let made = openssl.args(arguments.split_whitespace()).current_dir(authority.0.path()).output();
            let made = made.expect("openssl is there: apt-get install -y openssl");
            assert!(made.status.success(), "{arguments}: {}", String::from_utf8_lossy(&made.stderr));
        }
        authority
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn acceptor(&self) -> TlsAcceptor {
        let certificate = CertificateDer::from_pem_file(self.file("server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.file("server.key")).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).unwrap()))
    }

    /// A door with this certificate in front of a server; gives its port.
    async fn door(&self, target: String) -> u16 {
        let acceptor = self.acceptor();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, target) = (acceptor.clone(), target.clone());
                tokio::spawn(async move {
                    // A client that does not trust it goes away.
                    let Ok(mut client) = acceptor.accept(client).await else { return };
                    let Ok(mut server) = TcpStream::connect(target).await else { return };
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        port
    }
}

async fn first_write(settings: &RegistrySettings) -> Result<Vec<u8>, RegistryError> {
    let schemas = reader(settings).writing(settings, &topics(1)).await?;
    Ok(schemas.codec().encode(&intent()).unwrap())
}

#[tokio::test]
async fn a_registry_behind_tls_is_believed_once_its_authority_is_named() {
    let Some(registry) = Registry::real().await else { return };
    let authority = Authority::new();
    let port = authority.door(registry.address()).await;
    let named = authority.file("ca.pem").display().to_string();
    let settings = |host: &str, ca_file: &str| {
        let url = registry.at(&format!("https://{host}:{port}"));
        registry.settings(&[("registry.url", url.as_str()), ("registry.ca_file", ca_file)]).registry
    };

    let believed = settings("127.0.0.1", &named);
    let value = first_write(&believed).await.unwrap();
    assert_eq!(value[0], 0, "Confluent framing");
    let read = reader(&believed).read::<Envelope>(&value).await;
    assert_eq!(read.unwrap(), intent(), "the schema of its id is asked for by the same way");

    // The system's authorities alone; another authority; another name than that in the certificate.
    let stranger = Authority::new();
    let other = stranger.file("ca.pem").display().to_string();
    for (host, ca_file) in [("127.0.0.1", ""), ("127.0.0.1", other.as_str()), ("localhost", named.as_str())] {
        let refused = first_write(&settings(host, ca_file)).await.unwrap_err();
        let RegistryError::Unreachable { reason, .. } = &refused else { panic!("{refused}") };
        assert!(reason.contains("certificate"), "{host}: {reason}");
    }
}
