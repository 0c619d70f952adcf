//! A real registry, and values that other versions of the program write.

use crate::support;
use apache_avro::{
    Schema, reader::datum::GenericDatumReader, types::Value as Avro, writer::datum::GenericDatumWriter,
};
use serde_json::{Value, json};
use starling_protocol::{
    Body, Codec, Envelope, EnvelopeId, Intent, IntentId, Role, Tag, Timestamp,
    codec::{RecordKind, schema_json},
};
use starling_runtime::{
    Schemas,
    settings::{RegistrySettings, Settings},
};
use std::time::{Duration, Instant};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// How long a registry may take to start, on a machine that builds meanwhile.
const START: Duration = Duration::from_secs(240);

/// A registry that many tests share, each with subjects of its own.
pub(crate) struct Registry {
    url: String,
    http: reqwest::Client,
}

impl Registry {
    /// `None` if only what runs in memory is to be tested. Waits for one that is still starting.
    pub(crate) async fn real() -> Option<Self> {
        if std::env::var("STARLING_TEST_MEMORY_ONLY").is_ok_and(|value| value == "1") {
            return None;
        }
        let url = std::env::var("STARLING_TEST_REGISTRY").expect(
            "STARLING_TEST_REGISTRY is not set: run `make test`, which brings up a schema registry, \
             or set STARLING_TEST_MEMORY_ONLY=1 to leave it out",
        );
        let _ = rustls::crypto::ring::default_provider().install_default();
        let registry = Self { url, http: reqwest::Client::builder().no_proxy().build().unwrap() };
        let began = Instant::now();
        while !registry.answers().await {
            assert!(began.elapsed() < START, "nobody answers at {}", registry.url);
            tokio::time::sleep(Duration::from_millis(200)).await; // polls what has no event
        }
        Some(registry)
    }

    async fn answers(&self) -> bool {
        let answer = self.http.get(format!("{}/subjects", self.url)).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// Settings of a process that uses it.
    pub(crate) fn settings(&self, changes: &[(&str, &str)]) -> Settings {
        settings(&self.url, changes)
    }

    /// Registers a schema, as somebody else might.
    pub(crate) async fn put(&self, subject: &str, schema: &Value) -> i32 {
        let answer = self.send(reqwest::Method::POST, &format!("subjects/{subject}/versions"), schema).await;
        i32::try_from(answer["id"].as_i64().unwrap_or_else(|| panic!("{answer}"))).unwrap()
    }

    /// From now on new versions of the subject must be able to read the latest one.
    pub(crate) async fn demand_compatibility(&self, subject: &str) {
        let body = json!({ "compatibility": "BACKWARD" });
        let put = self.http.put(format!("{}/config/{subject}", self.url)).body(body.to_string());
        let answer = put.header("content-type", "application/json").send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    async fn send(&self, method: reqwest::Method, path: &str, schema: &Value) -> Value {
        let body = json!({ "schema": schema.to_string() }).to_string();
        let request = self.http.request(method, format!("{}/{path}", self.url)).body(body);
        let answer = request.header("content-type", "application/vnd.schemaregistry.v1+json").send().await;
        serde_json::from_str(&answer.unwrap().text().await.unwrap()).unwrap()
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> String {
        let url = reqwest::Url::parse(&self.url).unwrap();
        format!("{}:{}", url.host_str().unwrap(), url.port_or_known_default().unwrap())
    }

    /// Its URL for those who reach it at `origin`.
    pub(crate) fn at(&self, origin: &str) -> String {
        format!("{origin}{}", reqwest::Url::parse(&self.url).unwrap().path())
    }

    /// A way to it that can be shut.
    pub(crate) async fn gate(&self) -> Gate {
        let target = self.address();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = self.at(&format!("http://{}", listener.local_addr().unwrap()));
        let (open, opened) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (target, mut opened) = (target.clone(), opened.clone());
                tokio::spawn(async move {
                    if !*opened.borrow() {
                        return; // the connection breaks
                    }
                    let Ok(mut server) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = opened.wait_for(|open| !*open) => {}
                    }
                });
            }
        });
        Gate { url, open }
    }
}

/// A way to the registry.
pub(crate) struct Gate {
    url: String,
    open: watch::Sender<bool>,
}

impl Gate {
    pub(crate) fn shut(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    pub(crate) fn settings(&self, changes: &[(&str, &str)]) -> Settings {
        settings(&self.url, changes)
    }
}

/// Settings of a process that uses the registry at `url`.
pub(crate) fn settings(url: &str, changes: &[(&str, &str)]) -> Settings {
    let url = [("registry.url", url), ("registry.connect_timeout", "1s")];
    support::settings(&url.iter().chain(changes).copied().collect::<Vec<_>>())
}

/// Topics that no other test has.
pub(crate) fn topics(count: usize) -> Vec<String> {
    let prefix = format!("t{:016x}", rand::random::<u64>());
    (0..count).map(|n| format!("{prefix}.{n}")).collect()
}

/// Reads with that registry's help.
pub(crate) fn reader(settings: &RegistrySettings) -> Schemas {
    Schemas::reading(settings, Codec::default()).unwrap()
}

/// An intent with items.
pub(crate) fn intent() -> Envelope {
    Envelope {
        id: EnvelopeId::derive("test", &["intent"]),
        intent_id: IntentId::from_string("i"),
        tag: Tag::role(Role::Intake),
        hop: 0,
        created_at: Timestamp(1),
        deadline: Timestamp(2),
        tenant: "t".into(),
        body: Body::Intent(Intent {
            goal: "Count".into(),
            strategy: "llm".into(),
            items: vec!["one".into(), "two".into()],
            ..Intent::default()
        }),
    }
}

/// The present schema of the envelope, with the fields of its intent changed.
pub(crate) fn schema_with(change: impl FnOnce(&mut Vec<Value>)) -> Value {
    let mut schema = schema_json(RecordKind::Envelope);
    let body = schema["fields"].as_array_mut().unwrap().last_mut().unwrap();
    change(body["type"][0]["fields"].as_array_mut().unwrap());
    schema
}

/// The envelope as a program writes it that has that schema under `id`, and so an intent with other fields.
pub(crate) fn written_with(
    schema: &Value,
    id: i32,
    envelope: &Envelope,
    change: impl FnOnce(&mut Vec<(String, Avro)>),
) -> Vec<u8> {
    let present = Schema::parse(&schema_json(RecordKind::Envelope)).unwrap();
    let encoded = Codec::default().encode(envelope).unwrap();
    let reader = GenericDatumReader::builder(&present).build().unwrap();
    let mut value = reader.read_value(&mut &encoded[10..]).unwrap();
    let Avro::Record(fields) = &mut value else { panic!("{value:?}") };
    let Some((_, Avro::Union(_, body))) = fields.last_mut() else { panic!("no body") };
    let Avro::Record(fields) = &mut **body else { panic!("no intent") };
    change(fields);
    let other = Schema::parse(schema).unwrap();
    let writer = GenericDatumWriter::builder(&other).build().unwrap();
    let mut out = [&[0][..], &id.to_be_bytes()].concat();
    writer.write_value_ref(&mut out, &value).unwrap();
    out
}
