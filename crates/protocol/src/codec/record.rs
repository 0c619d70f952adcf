//! What can be a record's value.

use crate::{Envelope, fleet::FleetBeat, state::StateRecord};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;

/// The kinds of records that Starling writes, each with a schema of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// [`Envelope`].
    Envelope,
    /// [`StateRecord`].
    StateRecord,
    /// [`FleetBeat`].
    FleetBeat,
}

impl RecordKind {
    /// All kinds.
    pub const ALL: [RecordKind; 3] = [RecordKind::Envelope, RecordKind::StateRecord, RecordKind::FleetBeat];

    /// The name of the schema file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RecordKind::Envelope => "Envelope",
            RecordKind::StateRecord => "StateRecord",
            RecordKind::FleetBeat => "FleetBeat",
        }
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A type that the codec reads and writes: [`Envelope`], [`StateRecord`] and [`FleetBeat`].
pub trait Record: Serialize + DeserializeOwned + sealed::Sealed {
    /// Which kind it is.
    const KIND: RecordKind;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! record {
    ($($name:ident),*) => {$(
        impl sealed::Sealed for $name {}
        impl Record for $name {
            const KIND: RecordKind = RecordKind::$name;
        }
    )*};
}

record!(Envelope, StateRecord, FleetBeat);
