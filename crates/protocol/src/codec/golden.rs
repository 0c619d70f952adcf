//! The schemas of released versions: what older and newer processes of the same installation write.

use super::plan::{Plan, SchemaError};
use super::record::RecordKind;
use super::schema::{Current, Fingerprint, fingerprint};
use super::translate::Translation;
use apache_avro::Schema;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// A schema other than the present one, and how its values are read.
#[derive(Debug)]
pub(super) struct WriterSchema {
    pub(super) kind: RecordKind,
    pub(super) translation: Translation,
}

impl WriterSchema {
    pub(super) fn compile(kind: RecordKind, schema: &Schema) -> Result<Self, SchemaError> {
        let translation = Translation::compile(Plan::compile(schema)?, &Current::of(kind).plan)?;
        Ok(Self { kind, translation })
    }
}

macro_rules! released {
    ($($version:literal),*) => {
        &[$(($version, [
            (RecordKind::Envelope, include_str!(concat!("../../../../schemas/golden/", $version, "/Envelope.avsc"))),
            (RecordKind::StateRecord, include_str!(concat!("../../../../schemas/golden/", $version, "/StateRecord.avsc"))),
            (RecordKind::FleetBeat, include_str!(concat!("../../../../schemas/golden/", $version, "/FleetBeat.avsc"))),
        ])),*]
    };
}

/// The schemas of every released version. The test of the golden files fails for a version that is not
/// here and whose schemas are not the present ones.
static RELEASED: &[(&str, [(RecordKind, &str); 3])] = released!["0.1.0"];

/// The versions whose schemas this one knows, the oldest first.
pub fn released_versions() -> impl Iterator<Item = &'static str> {
    RELEASED.iter().map(|(version, _)| *version)
}

/// The schemas of a released version, each complete in itself; empty if there is no such version.
pub(super) fn of_version(version: &str) -> impl Iterator<Item = &'static str> {
    RELEASED.iter().filter(move |(name, _)| *name == version).flat_map(|(_, of)| of).map(|(_, json)| *json)
}

/// Released schemas that differ from the present ones, by fingerprint.
pub(super) fn known() -> &'static BTreeMap<Fingerprint, Arc<WriterSchema>> {
    static KNOWN: LazyLock<BTreeMap<Fingerprint, Arc<WriterSchema>>> = LazyLock::new(|| {
        RELEASED
            .iter()
            .flat_map(|(_, schemas)| schemas)
            .filter_map(|(kind, json)| {
                let schema = Schema::parse_str(json).ok()?;
                // A test reads every released schema, so that none is left out here.
                let readable = WriterSchema::compile(*kind, &schema).ok()?;
                Some((fingerprint(&schema), Arc::new(readable)))
            })
            .collect()
    });
    &KNOWN
}

/// Which kind of record a schema describes, by its name or by the names of its variants.
pub(super) fn kind_of(schema: &Schema) -> Result<RecordKind, SchemaError> {
    let name = match schema {
        Schema::Union(union) => match union.variants().first().and_then(Schema::name) {
            Some(name) if name.name() == "EpochStart" => "StateRecord",
            _ => "",
        },
        named => named.name().map_or("", |name| name.name()),
    };
    RecordKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
        SchemaError::Unsupported("it describes neither Envelope, StateRecord nor FleetBeat".into())
    })
}
