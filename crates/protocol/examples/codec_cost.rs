//! What encoding and decoding typical records cost:
//! `cargo run --release -p starling-protocol --example codec_cost`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/samples/mod.rs"]
mod samples;

use starling_protocol::codec::{Codec, Record};
use starling_protocol::headers::headers_of;
use starling_protocol::state::StateRecord;
use starling_protocol::{Body, fleet::FleetBeat};
use std::hint::black_box;
use std::time::Instant;

fn nanoseconds<T>(mut operation: impl FnMut() -> T) -> u128 {
    const ROUNDS: u32 = 20_000;
    for _ in 0..ROUNDS / 10 {
        black_box(operation());
    }
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(operation());
    }
    start.elapsed().as_nanos() / u128::from(ROUNDS)
}

fn measure<R: Record>(name: &str, record: &R) {
    let codec = Codec::default();
    let bytes = codec.encode(record).unwrap();
    let encode = nanoseconds(|| codec.encode(black_box(record)).unwrap());
    let decode = nanoseconds(|| codec.decode::<R>(black_box(&bytes)).unwrap());
    println!("{name:<10} {:>5} bytes  encode {encode:>6} ns  decode {decode:>6} ns", bytes.len());
}

fn main() {
    let task = samples::envelope(Body::Task(samples::task()));
    measure("Task", &task);
    measure("Verdict", &samples::envelope(Body::Verdict(samples::verdict())));
    measure("Decision", &StateRecord::Decision(samples::decision()));
    measure::<FleetBeat>("FleetBeat", &samples::fleet_beat());
    let headers = nanoseconds(|| headers_of(black_box(&task), None, None));
    println!("headers                 {headers:>6} ns");
}
