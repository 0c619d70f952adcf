//! Files become texts and items, texts become chunks.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod chunks;
mod formats;
mod items;
mod pages;
