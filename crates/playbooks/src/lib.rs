//! Playbooks: plan templates for known kinds of intents, as files, and the plans that are made with them.
//!
//! A playbook says which parameters it takes and which tasks it consists of; [`Playbook::expand`] makes a plan of it for
//! one intent, without a model, a clock or chance: the same intent gives the same plan wherever it is asked for. Texts are
//! templates. What an intent brings is material in them: it is put in quotes where a model will read it.

mod auto;
mod catalogue;
mod duration;
mod each;
mod expand;
mod fault;
mod file;
mod map;
mod parameter;
mod part;
mod playbook;
mod save;
mod template;
mod texts;

pub use auto::{MAX_SIMPLE_GOAL_BYTES, choose};
pub use catalogue::{Playbooks, PlaybooksError};
pub use expand::{Plan, Wish};
pub use fault::Fault;
pub use map::map;
pub use parameter::{Kind, Parameter};
pub use part::TextPart;
pub use playbook::Playbook;
pub use save::{Unsavable, as_playbook};
