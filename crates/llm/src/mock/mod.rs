//! A chat-completions endpoint on loopback that does what a script says, and counts.
//!
//! For tests, benchmarks and rehearsals, in this process ([`MockServer`]) or in one of its own ([`serve`]; then
//! `GET /_mock/stats`, `POST /_mock/release` and `POST /_mock/release-for-good` take the place of the
//! handle).

mod abilities;
pub mod chaos;
mod draw;
mod latency;
mod limits;
mod load;
mod prompt_cache;
mod rehearsal;
mod saturation;
mod schema;
pub mod scripts;
mod service;
mod stats;
mod wire;

pub use abilities::{Abilities, Formats, Streams, Tools};
pub use latency::{Latency, NoLatency};
pub use limits::MockLimits;
pub use load::{load, plain_load, question};
pub use rehearsal::{NoRehearsal, Rehearsal};
pub use saturation::MockSaturation;
pub use schema::reply_by_schema;
pub use stats::{ByPurpose, MockStats};

use crate::prompt::Prompt;
use crate::{Deeds, Purpose};
use axum::body::Bytes;
use axum::http::StatusCode;
use serde_json::Value;
use starling_protocol::Usage;
use stats::Counters;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Decides what happens to a call.
pub type Script = Arc<dyn Fn(&MockCall) -> MockAction + Send + Sync>;

/// How a mock endpoint behaves.
#[derive(Clone)]
pub struct MockOptions {
    /// How long a reply takes, unless its action says otherwise.
    pub latency: Duration,
    /// What it does.
    pub script: Script,
    /// Calls remembered to notice repeated ones; the memory is about 16 bytes a call. Default 1,000,000.
    pub max_remembered: usize,
    /// What it lets through; `None` lets all through.
    pub limits: Option<MockLimits>,
    /// How many calls it serves at once; `None` serves all.
    pub saturation: Option<MockSaturation>,
    /// The models that it says it has, at `/v1/models`; another one is unknown (404). Its replies call themselves
    /// `NAME (mock)`. An empty list knows every name, and is not shown. `None` does as well, and its replies call
    /// themselves by the name that was asked for.
    pub models: Option<Vec<String>>,
    /// Whether it counts prompts whole, and those of their blocks as cached that it has seen behind the same beginning
    /// before. Otherwise only the last question counts, and nothing is cached.
    pub prompt_cache: bool,
}

impl MockOptions {
    /// A script, without latency.
    #[must_use]
    pub fn new(script: Script) -> Self {
        MockOptions {
            latency: Duration::ZERO,
            script,
            max_remembered: 1_000_000,
            limits: None,
            saturation: None,
            models: None,
            prompt_cache: false,
        }
    }
}

/// A call, as the script sees it.
#[derive(Clone, Debug)]
pub struct MockCall {
    /// Counts from 1.
    pub number: u64,
    /// Guessed from the name of the JSON schema, else from the sections of the prompt.
    pub purpose: Purpose,
    /// The last user message that has the sections of a prompt, else the last one: after a reply that was no use, some
    /// clients say so and ask again.
    pub prompt: String,
    /// Whether the client wants a stream.
    pub streams: bool,
    /// What the reply says that the model is.
    pub model: String,
    /// Hash of the request body. Stays the same for as long as the standard library's hash does.
    pub fingerprint: u64,
    /// Calls before this one with the same body, as far as they are remembered.
    pub earlier: u32,
    /// The whole request body.
    pub body: Value,
    headers: axum::http::HeaderMap,
    prompt_tokens: prompt_cache::Counted,
}

impl MockCall {
    /// A request header, if it is there and is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the client wants JSON: it says so, or a plan or a verdict is JSON.
    #[must_use]
    pub fn wants_json(&self) -> bool {
        let kind = self.body.pointer("/response_format/type").and_then(Value::as_str);
        kind.is_some_and(|kind| kind != "text") || matches!(self.purpose, Purpose::Plan | Purpose::Judge)
    }

    /// The text of a section (`## Name`) of the prompt.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&str> {
        Prompt::parse(&self.prompt).section(name)
    }
}

/// What happens to a call.
#[derive(Clone, Debug)]
pub enum MockAction {
    /// A whole reply; one chunk if the client streams.
    Reply {
        /// What the model says.
        text: String,
        /// Tokens; `None` counts four characters a token.
        usage: Option<Usage>,
        /// Time until the reply; `None` takes [`MockOptions::latency`].
        delay: Option<Duration>,
    },
    /// A reply that calls tools; in pieces, all calls at once, if the client streams.
    Calls {
        /// What the model says beside that; may be empty.
        text: String,
        /// The calls, and what it thought.
        deeds: Deeds,
    },
    /// A reply in pieces, each after its delay; put together if the client does not stream.
    Stream {
        /// Delay before each piece, and the piece.
        chunks: Vec<(Duration, String)>,
    },
    /// A stream that breaks off after these pieces, without an end.
    CutStream {
        /// Delay before each piece, and the piece.
        chunks: Vec<(Duration, String)>,
    },
    /// A reply with this status.
    Status {
        /// HTTP status.
        code: u16,
        /// Headers, such as `retry-after`.
        headers: Vec<(String, String)>,
        /// Body, as it is.
        body: String,
    },
    /// A 200 with this body, as it is.
    RawBody {
        /// Such as `application/json` or `text/event-stream`.
        content_type: String,
        /// The bytes.
        body: Vec<u8>,
    },
    /// A 200 with these bytes, each after its delay; cut off behind them, if it is not complete.
    Bytes {
        /// Such as `application/json` or `text/event-stream`.
        content_type: &'static str,
        /// Delay before each piece, and the piece.
        chunks: Vec<(Duration, Bytes)>,
        /// Whether the body ends as it should.
        complete: bool,
    },
    /// Stays open until the next release, then does something else.
    Hold {
        /// What follows the release.
        then: Box<MockAction>,
    },
    /// Does something else, which is counted under this name.
    Marked {
        /// One of a few.
        mark: &'static str,
        /// What is done.
        then: Box<MockAction>,
    },
}

impl MockAction {
    /// A plain reply after the usual latency.
    #[must_use]
    pub fn reply(text: impl Into<String>) -> MockAction {
        MockAction::Reply { text: text.into(), usage: None, delay: None }
    }

    /// A plain reply after a latency of its own.
    #[must_use]
    pub fn reply_after(delay: Duration, text: impl Into<String>) -> MockAction {
        MockAction::Reply { text: text.into(), usage: None, delay: Some(delay) }
    }

    /// An error with an OpenAI-like body.
    #[must_use]
    pub fn error(code: u16, message: &str) -> MockAction {
        MockAction::Status {
            code,
            headers: vec![],
            body: serde_json::json!({"error": {"message": message, "code": code}}).to_string(),
        }
    }

    /// Holds the call, then replies.
    #[must_use]
    pub fn hold_then_reply(text: impl Into<String>) -> MockAction {
        MockAction::Hold { then: Box::new(MockAction::reply(text)) }
    }
}

/// Holds calls back.
#[derive(Clone, Copy, Default)]
struct Gate {
    /// Counts the releases.
    released: u64,
    /// Nothing is held any more.
    open: bool,
}

/// What the connections of a mock endpoint share.
struct Shared {
    options: MockOptions,
    counters: Arc<Counters>,
    prompts: Option<prompt_cache::PromptCache>,
    limiter: limits::Limiter,
    /// The status of all calls while the endpoint is down; 0 while it is not.
    down: AtomicU16,
    places: Option<saturation::Places>,
    gate: watch::Sender<Gate>,
}

impl Shared {
    fn new(options: MockOptions) -> Arc<Shared> {
        Arc::new(Shared {
            counters: Arc::new(Counters::new(options.max_remembered)),
            prompts: options.prompt_cache.then(|| prompt_cache::PromptCache::new(options.max_remembered)),
            limiter: limits::Limiter::new(options.limits),
            down: AtomicU16::new(0),
            places: options.saturation.map(saturation::Places::new),
            options,
            gate: watch::Sender::new(Gate::default()),
        })
    }

    /// With which status all calls are answered now, if the endpoint is down.
    fn is_down(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.down.load(Ordering::SeqCst)).ok()
    }

    fn open_gate(&self) {
        self.gate.send_modify(|gate| gate.open = true);
    }

    fn release(&self) {
        self.gate.send_modify(|gate| gate.released += 1);
    }
}

/// A mock endpoint on a thread of its own. Dropping it closes all connections.
pub struct MockServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MockServer {
    /// The name of its thread.
    pub const THREAD: &str = "mock-model";

    /// Starts on a free port of loopback. Ready when this returns.
    ///
    /// # Errors
    /// No socket or no thread to be had.
    pub fn start(options: MockOptions) -> std::io::Result<MockServer> {
        Self::bind((Ipv4Addr::LOCALHOST, 0), options)
    }

    /// Starts on this address; port 0 takes a free one. Ready when this returns.
    ///
    /// # Errors
    /// The address cannot be had, or no thread.
    pub fn bind(address: impl ToSocketAddrs, options: MockOptions) -> std::io::Result<MockServer> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Shared::new(options);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(Self::THREAD.to_owned()).spawn(move || {
            runtime.block_on(async {
                let serving = async {
                    let listener = tokio::net::TcpListener::from_std(listener)?;
                    service::serve(listener, served).await
                };
                tokio::select! {
                    outcome = serving => if let Err(error) = outcome {
                        tracing::error!(%error, "the mock model stopped");
                    },
                    // An error means that the handle is gone, which stops it as well.
                    _ = stopped => {}
                }
            });
        })?;
        Ok(MockServer { address, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// For [`crate::OpenAiOptions::base_url`].
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The counts so far.
    #[must_use]
    pub fn stats(&self) -> MockStats {
        self.shared.counters.snapshot()
    }

    /// Calls by the marks of what was done to them.
    #[must_use]
    pub fn marks(&self) -> BTreeMap<&'static str, u64> {
        self.shared.counters.marks()
    }

    /// From now on this is what it lets through, with a full bucket; `None` lets all through.
    pub fn limit(&self, limits: Option<MockLimits>) {
        self.shared.limiter.set(limits);
    }

    /// From now on every call is answered at once with this status and nothing else, and counted as one that came;
    /// `None` ends that.
    pub fn down(&self, status: Option<u16>) {
        self.shared.down.store(status.unwrap_or(0), Ordering::SeqCst);
    }

    /// Lets go of all calls that are held now.
    pub fn release(&self) {
        self.shared.release();
    }

    /// Lets go of all calls that are held, and holds none any more.
    pub fn release_for_good(&self) {
        self.shared.open_gate();
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves until the process ends: a mock endpoint as a process of its own.
///
/// # Errors
/// The listener broke.
pub async fn serve(listener: tokio::net::TcpListener, options: MockOptions) -> std::io::Result<()> {
    service::serve(listener, Shared::new(options)).await
}
