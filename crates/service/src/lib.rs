//! What every service is built with: its models, its reading of references, its deadlines.

mod agents;
mod cache_figures;
mod choice;
mod conversation;
mod deadline;
mod material;
mod model;
mod parts;
mod program;
mod rate;
#[cfg(feature = "testing")]
pub mod testing;
mod traced_model;
mod window;

pub use agents::AgentsInForce;
pub use cache_figures::CacheCollector;
pub use choice::{Choices, Chosen, FoundOllama, NoModel, choose_models, ollama_nearby};
pub use conversation::{ConversationLimits, Conversations};
pub use deadline::instant_of;
pub use material::{IntentTexts, RECORD_GONE, Unread, output_of};
pub use model::{AskedModel, cached, model_from, traced};
pub use parts::{outline, outlines, read_inputs, read_parts, without_stored};
pub use program::{Parts, library, load_agents, run_service};
pub use rate::{EndpointLimits, RateFigures, RateLimiter};
pub use traced_model::TracedModel;
pub use window::{Asked, Window};
