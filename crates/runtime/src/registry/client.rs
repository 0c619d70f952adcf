//! The four requests of Confluent's API that are needed, over HTTP.

use super::RegistryError;
use crate::settings::RegistrySettings;
use reqwest::{Method, Response, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{error::Error, time::Duration};

/// Largest answer that is read, in bytes. A schema of Starling has 20 KiB.
const MAX_ANSWER: usize = 4 << 20;
/// Longest message of the registry that is passed on, in characters.
const MAX_MESSAGE: usize = 1_000;
const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";
const ACCEPT: &str = "application/vnd.schemaregistry.v1+json, application/json";

/// Talks to one registry.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    user: Option<String>,
    password: Option<SecretString>,
}

/// Why a request was not answered as hoped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It may be answered later.
    Passing(String),
    /// What was asked for is not there.
    Missing,
    /// What was to be registered does not go with what is there.
    Conflict(String),
    /// Anything else that the registry, or whoever listens there, says.
    Refused(String),
}

/// What stands behind an id.
#[derive(Debug, Deserialize)]
pub(super) struct Found {
    /// The schema's own text.
    pub(super) schema: String,
    /// Absent for Avro.
    #[serde(rename = "schemaType")]
    pub(super) kind: Option<String>,
    /// Other schemas that it needs.
    pub(super) references: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct Identified {
    id: i32,
}

#[derive(Deserialize)]
struct Compatibility {
    is_compatible: bool,
    messages: Option<Vec<String>>,
    /// Apicurio's word for it.
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Complaint {
    error_code: Option<i64>,
    message: Option<String>,
}

impl Client {
    /// A client of the registry at `base`. Nothing is sent yet.
    pub(super) fn new(settings: &RegistrySettings, base: &Url) -> Result<Self, RegistryError> {
        // An error means that another part of the process has installed one, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .timeout(settings.timeout)
            .connect_timeout(settings.timeout)
            .pool_idle_timeout(Duration::from_secs(30))
            // A redirection would take the password to another place.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("starling/", env!("CARGO_PKG_VERSION")));
        let host = base.host_str().unwrap_or_default();
        if host == "localhost" || host == "[::1]" || host.starts_with("127.") {
            builder = builder.no_proxy();
        }
        builder = match (base.scheme(), settings.authorities.as_slice()) {
            // Plain HTTP must not fail for want of root certificates on the machine.
            ("http", _) => builder.tls_certs_only([]),
            (_, []) => builder,
            (_, authorities) => builder.tls_certs_merge(authorities.iter().cloned()),
        };
        let http = builder.build().map_err(|error| RegistryError::Client(root_cause(&error)))?;
        let (user, password) = (settings.user.clone(), settings.password.clone());
        Ok(Self { http, base: base.clone(), user, password })
    }

    /// Its address, for people: without user and password.
    pub(super) fn shown(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    /// The schema of an id.
    pub(super) async fn schema(&self, id: i32) -> Result<Found, Trouble> {
        self.call(Method::GET, &["schemas", "ids", &id.to_string()], None).await
    }

    /// The id of this very schema under `subject`.
    pub(super) async fn lookup(&self, subject: &str, schema: &str) -> Result<i32, Trouble> {
        let found: Identified = self.call(Method::POST, &["subjects", subject], Some(schema)).await?;
        Ok(found.id)
    }

    /// What speaks against registering this schema under `subject`; nothing for a new subject.
    pub(super) async fn objections(&self, subject: &str, schema: &str) -> Result<Option<String>, Trouble> {
        let path = ["compatibility", "subjects", subject, "versions", "latest"];
        match self.call::<Compatibility>(Method::POST, &path, Some(schema)).await {
            Ok(answer) if answer.is_compatible => Ok(None),
            Ok(answer) => {
                let messages = answer.messages.unwrap_or_default().into_iter().chain(answer.reason);
                Ok(Some(match self.tidy(&messages.collect::<Vec<_>>().join("; ")) {
                    nothing if nothing.is_empty() => "it does not say why".to_owned(),
                    messages => messages,
                }))
            }
            Err(Trouble::Missing) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// Registers the schema under `subject`; its id.
    pub(super) async fn register(&self, subject: &str, schema: &str) -> Result<i32, Trouble> {
        let path = ["subjects", subject, "versions"];
        let registered: Identified = self.call(Method::POST, &path, Some(schema)).await?;
        Ok(registered.id)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        schema: Option<&str>,
    ) -> Result<T, Trouble> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if path.first() == Some(&"compatibility") {
            url.set_query(Some("verbose=true"));
        }
        let mut request = self.http.request(method, url).header("accept", ACCEPT);
        if let Some(user) = &self.user {
            request = request.basic_auth(user, self.password.as_ref().map(|secret| secret.expose_secret()));
        }
        if let Some(schema) = schema {
            // The type of a schema is Avro where nothing is said, also for registries that know no other.
            let body = json!({ "schema": schema }).to_string();
            request = request.header("content-type", CONTENT_TYPE).body(body);
        }
        let response = request.send().await.map_err(|error| Trouble::Passing(self.failure(&error)))?;
        let status = response.status();
        let body = self.body(response).await?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|_| {
                Trouble::Refused(format!("it answers {status} with something that no registry says"))
            });
        }
        Err(self.trouble(status, &body))
    }

    async fn body(&self, mut response: Response) -> Result<Vec<u8>, Trouble> {
        let mut body = Vec::new();
        let broken = |error| Trouble::Passing(self.failure(&error));
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > MAX_ANSWER {
                return Err(Trouble::Refused(format!("its answer has more than {MAX_ANSWER} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn trouble(&self, status: StatusCode, body: &[u8]) -> Trouble {
        let Complaint { error_code, message } = serde_json::from_slice(body).unwrap_or_default();
        let message = self.tidy(&message.unwrap_or_default());
        let said = if message.is_empty() { status.to_string() } else { format!("{message} ({status})") };
        match (status, error_code) {
            // The code tells a registry that does not have it from a server that is no registry.
            (StatusCode::NOT_FOUND, Some(40_400..=40_499)) => Trouble::Missing,
            (StatusCode::CONFLICT, _) => Trouble::Conflict(said),
            (StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT, _) => Trouble::Passing(said),
            (status, _) if status.is_server_error() => Trouble::Passing(said),
            _ => Trouble::Refused(said),
        }
    }

    fn failure(&self, error: &reqwest::Error) -> String {
        let cause = if error.is_timeout() { "no answer in time".to_owned() } else { root_cause(error) };
        self.tidy(&cause)
    }

    /// A text from outside, for one line of a log: nothing secret, nothing endless.
    fn tidy(&self, text: &str) -> String {
        let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        line.retain(|c| !c.is_control());
        if let Some(password) = self.password.as_ref().map(|secret| secret.expose_secret())
            && !password.is_empty()
        {
            line = line.replace(password, "***");
        }
        match line.char_indices().nth(MAX_MESSAGE) {
            Some((at, _)) => format!("{}…", &line[..at]),
            None => line,
        }
    }
}

/// What is behind an error of the client, without the address, which stands beside it anyway.
fn root_cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    match error.url() {
        Some(url) => text.replace(url.as_str(), "the address"),
        None => text,
    }
}
