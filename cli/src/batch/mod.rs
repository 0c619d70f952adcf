//! A file of rows in, a file of outcomes out: each row is an intent.
//!
//! The id of a row's intent follows from the batch's name and the row, so a row that is submitted a second time, after a
//! crash, is the same intent, and the swarm does it once. What the output file has is not submitted again; what was under
//! way when the process died is found in the log of outcomes. So neither file nor swarm have anything twice, and nothing is
//! missing, however often the command is started.
//!
//! | question | file |
//! |---|---|
//! | which intent is a row? | `identity.rs` |
//! | how are rows read, and which are bad? | `input/`, `template.rs`, `wish.rs` |
//! | may another row be submitted now? | `gate.rs`, `budget.rs` |
//! | what does a line of the output say, and what is in the file already? | `line.rs`, `output.rs`, `settled.rs` |
//! | in which order are lines written? | `order.rs` |
//! | how are outcomes found? | `outcomes.rs` |
//! | what happens when? | `run.rs`, `flight.rs` |
//! | what would it take? | `rehearsal.rs` |

mod args;
mod budget;
mod flight;
mod gate;
mod identity;
mod input;
mod line;
mod order;
mod outcomes;
mod output;
mod progress;
mod rehearsal;
mod run;
mod settled;
mod summary;
mod template;
mod wish;

pub use args::{BatchArgs, RowFormat};
pub use gate::Stop;
pub use identity::BatchTag;
pub use input::Input;
pub use rehearsal::{Forecast, RehearsalArgs};
pub use run::{Batch, Outside};
pub use summary::Summary;
pub use template::GoalTemplate;
pub use wish::Wish;
