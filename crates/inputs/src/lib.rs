//! What comes with an intent: files become texts, lists become items, and long texts become chunks that fit a
//! model's window. Plain functions from bytes to texts; who reads the files and where the chunks lie is told elsewhere.

mod chunk;
mod decode;
mod format;
mod html;
mod items;
mod pdf;
mod text;

pub use chunk::{Chunk, ChunkSize, Cut, chunks};
pub use format::Format;
pub use items::{ItemsFault, items_of};
pub use text::{Text, TextFault, TextLimits, text_of};
