//! The schemas of `schemas/`, embedded, and what is derived from them.

use super::plan::{Plan, SchemaError};
use super::record::RecordKind;
use apache_avro::{
    Schema, rabin::Rabin, reader::datum::GenericDatumReader, writer::datum::GenericDatumWriter,
};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// CRC-64-AVRO over a schema's parsing canonical form, as it stands in a single-object header.
pub type Fingerprint = [u8; 8];

const NAMESPACE: &str = "dev.starling.";

macro_rules! embedded {
    ($($name:ident,)*) => {
        &[$((stringify!($name), include_str!(concat!("../../../../schemas/", stringify!($name), ".avsc")))),*]
    };
}

/// Every file of `schemas/`, by the name of what it defines.
pub(super) static FILES: &[(&str, &str)] = embedded![
    Allowance,
    Amount,
    AnswerSpec,
    BankAccount,
    BankEntity,
    BestAttempt,
    CallReport,
    Cancel,
    CancelledEntity,
    Charge,
    Content,
    Decision,
    Dependency,
    EndedEntity,
    EntityKey,
    EntityKind,
    Envelope,
    EpochStart,
    Failure,
    Fallback,
    Feedback,
    FleetBeat,
    IndexRange,
    Input,
    Intent,
    IntentEntity,
    Latency,
    LeaseGrant,
    LeaseRequest,
    Limits,
    LoggedEffect,
    LoggedHeader,
    ModelAsk,
    Outcome,
    OutcomeStatus,
    PartRange,
    PendingEffects,
    Phase,
    PlanEnd,
    PlanFragment,
    PlanRequest,
    Progress,
    PurseEntity,
    RecordRef,
    Rejection,
    RunEntity,
    Scored,
    SnapshotChunk,
    StateRecord,
    Task,
    TaskCounts,
    TaskEntity,
    TaskKind,
    TaskProgress,
    TaskReport,
    TaskResult,
    TaskSpec,
    TaskState,
    TaskTerms,
    TaskTurn,
    ToolCall,
    ToolOutput,
    ToolReply,
    ToolRequest,
    Unavailable,
    Unparseable,
    Unsettled,
    Usage,
    Verdict,
];

/// The schema of one kind of record, complete in itself: every named type is defined where it is used
/// first. This is what is registered with a schema registry and what is kept beside golden files.
#[must_use]
pub fn schema_json(kind: RecordKind) -> Value {
    let files: BTreeMap<&str, Value> =
        FILES.iter().map(|(name, text)| (*name, serde_json::from_str(text).unwrap_or(Value::Null))).collect();
    let root = files.get(kind.name()).cloned().unwrap_or(Value::Null);
    expand(&root, &files, &mut BTreeSet::new())
}

/// Replaces each first reference to a named type by its definition.
fn expand(schema: &Value, files: &BTreeMap<&str, Value>, defined: &mut BTreeSet<String>) -> Value {
    match schema {
        Value::String(name) => {
            let short = name.strip_prefix(NAMESPACE).unwrap_or(name);
            match files.get(short) {
                Some(_) if defined.contains(short) => Value::String(format!("{NAMESPACE}{short}")),
                Some(definition) => expand(definition, files, defined),
                None => schema.clone(), // a primitive type
            }
        }
        Value::Array(branches) => {
            Value::Array(branches.iter().map(|branch| expand(branch, files, defined)).collect())
        }
        Value::Object(object) => Value::Object(expand_object(object, files, defined)),
        other => other.clone(),
    }
}

fn expand_object(
    object: &Map<String, Value>,
    files: &BTreeMap<&str, Value>,
    defined: &mut BTreeSet<String>,
) -> Map<String, Value> {
    if let Some(Value::String(name)) = object.get("name") {
        defined.insert(name.clone());
    }
    let mut expanded = object.clone();
    if let Some(items) = object.get("items") {
        expanded.insert("items".into(), expand(items, files, defined));
    }
    if let Some(Value::Array(fields)) = object.get("fields") {
        let fields = fields.iter().map(|field| {
            let mut field = field.clone();
            if let Some(of_field) = field.get_mut("type") {
                *of_field = expand(of_field, files, defined);
            }
            field
        });
        expanded.insert("fields".into(), Value::Array(fields.collect()));
    }
    expanded
}

/// The fingerprint of a schema.
pub(super) fn fingerprint(schema: &Schema) -> Fingerprint {
    let mut bytes = Fingerprint::default();
    for (to, from) in bytes.iter_mut().zip(schema.fingerprint::<Rabin>().bytes) {
        *to = from;
    }
    bytes
}

/// The present schema of one kind of record with everything that encoding and decoding needs, built once.
pub(super) struct Current {
    pub(super) fingerprint: Fingerprint,
    pub(super) plan: Plan,
    pub(super) writer: GenericDatumWriter<'static>,
    pub(super) reader: GenericDatumReader<'static>,
}

impl Current {
    /// The one for `kind`.
    pub(super) fn of(kind: RecordKind) -> &'static Current {
        static ENVELOPE: LazyLock<Current> = LazyLock::new(|| Current::embedded(RecordKind::Envelope));
        static STATE: LazyLock<Current> = LazyLock::new(|| Current::embedded(RecordKind::StateRecord));
        static FLEET: LazyLock<Current> = LazyLock::new(|| Current::embedded(RecordKind::FleetBeat));
        match kind {
            RecordKind::Envelope => &ENVELOPE,
            RecordKind::StateRecord => &STATE,
            RecordKind::FleetBeat => &FLEET,
        }
    }

    #[allow(clippy::expect_used)] // the schemas are part of the program; every test of the codec runs this
    fn embedded(kind: RecordKind) -> Self {
        Self::build(kind).expect("the embedded schemas are valid")
    }

    fn build(kind: RecordKind) -> Result<Self, SchemaError> {
        let schema = Schema::parse(&schema_json(kind)).map_err(SchemaError::invalid)?;
        // Once for each kind in the life of the process: writer and reader borrow it for as long.
        let schema: &'static Schema = Box::leak(Box::new(schema));
        let writer = GenericDatumWriter::builder(schema).human_readable(false).build();
        let reader = GenericDatumReader::builder(schema).human_readable(false).build();
        Ok(Self {
            fingerprint: fingerprint(schema),
            plan: Plan::compile(schema)?,
            writer: writer.map_err(SchemaError::invalid)?,
            reader: reader.map_err(SchemaError::invalid)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_schema_file_is_embedded_and_used() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(".avsc").map(str::to_owned))
            .collect();
        let embedded: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(files, embedded);

        let mut used = BTreeSet::new();
        for kind in RecordKind::ALL {
            let files =
                FILES.iter().map(|(name, text)| (*name, serde_json::from_str(text).unwrap())).collect();
            expand(&Value::String(kind.name().into()), &files, &mut used);
        }
        used.insert("StateRecord".to_owned()); // a union, which has no name of its own
        assert_eq!(used, embedded);
    }
}
