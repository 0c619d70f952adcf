//! The dead letters of an installation: finding, showing, replaying and dropping them.
//!
//! Nothing can be taken out of the middle of a Kafka topic. What is settled is said by marks, small records among the
//! dead letters themselves, each in the partition of what it settles; so it is remembered as long as the letters are,
//! and by everybody.

mod args;
mod letter;
mod replay;
mod selection;
mod settle;
mod settled;
mod show;

pub use args::{DlqCommand, FilterArgs, ListArgs, SettleArgs, ShowArgs};
pub use letter::{Contents, Found, Letter, LetterId};
pub use replay::Replay;
pub use selection::{DeadLetters, Letters, Selection, Survey};
pub use settle::{How, Sum, Told, What};
pub use settled::Settlements;
pub use show::{Row, clean, json, text};
