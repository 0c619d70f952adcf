//! Encoding and decoding of record values: framing, schemas, limits.
//!
//! A reader takes Avro single-object encoding and Confluent framing alike. Values written with another
//! known version of a schema are translated by Avro's rules of resolution. Whatever the bytes are,
//! decoding neither panics nor takes more memory than [`CodecLimits`] allow.
//!
//! A schema id that the codec does not know is [`DecodeError::UnknownSchemaId`]. Whoever can ask a schema
//! registry lets the codec [learn](Codec::learn) what the id stands for, and decodes again.

mod cursor;
mod default;
mod dialect;
mod error;
mod framing;
mod golden;
mod learned;
mod plan;
mod record;
mod schema;
mod survey;
mod translate;

pub use cursor::{Fault, Malformed};
pub use error::{DecodeError, EncodeError};
pub(crate) use framing::is_framed;
pub use golden::released_versions;
pub use plan::SchemaError;
pub use record::{Record, RecordKind};
pub use schema::{Fingerprint, schema_json};

use apache_avro::Schema;
use dialect::Dialect;
use framing::{FrameFault, SchemaName};
use golden::WriterSchema;
use learned::Learned;
use schema::Current;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, PoisonError, RwLock};
use survey::{Refused, survey};

/// What a codec spends on one value at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodecLimits {
    /// Largest record value that is read or written, framing included, in bytes. Default 8 MiB.
    pub max_bytes: usize,
    /// Most heap memory that decoding one value may hold at any moment, in bytes, beside the bytes
    /// themselves. It is checked against an upper bound before anything is allocated, up to six times
    /// what a value really takes. Default 64 MiB.
    pub max_memory: usize,
    /// Most schemas that are [learned](Codec::learn) and remembered; the one learned first is forgotten
    /// first. Default 256.
    pub max_schemas: usize,
}

impl Default for CodecLimits {
    fn default() -> Self {
        Self { max_bytes: 8 << 20, max_memory: 64 << 20, max_schemas: 256 }
    }
}

/// Encodes and decodes record values. Cheap to clone; one for a process is enough.
#[derive(Clone, Debug, Default)]
pub struct Codec {
    limits: CodecLimits,
    /// What the ids of a schema registry stand for, for good.
    ids: Arc<BTreeMap<i32, Origin>>,
    /// What else they stand for, as far as anybody wanted to know. Clones share it.
    learned: Arc<RwLock<Learned>>,
    /// Ids to write with; single-object encoding where there is none.
    write_ids: Arc<BTreeMap<RecordKind, i32>>,
    /// Schemas of other versions beside the released ones, by fingerprint.
    others: Arc<BTreeMap<Fingerprint, Arc<WriterSchema>>>,
    /// What is written, in single-object encoding, with another schema than the present one.
    dialects: Arc<BTreeMap<RecordKind, Dialect>>,
}

/// Which schema a value was written with.
#[derive(Clone, Debug)]
enum Origin {
    /// The present one of this kind.
    Current(RecordKind),
    /// Another version of it.
    Other(Arc<WriterSchema>),
}

impl Origin {
    fn kind(&self) -> RecordKind {
        match self {
            Origin::Current(kind) => *kind,
            Origin::Other(schema) => schema.kind,
        }
    }
}

impl Codec {
    /// A codec with other limits than the default ones.
    #[must_use]
    pub fn new(limits: CodecLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Its limits.
    #[must_use]
    pub fn limits(&self) -> CodecLimits {
        self.limits
    }

    /// The same codec, which also reads Confluent framing: `known` are ids of a schema registry and the
    /// schemas as JSON that they stand for, each complete in itself.
    ///
    /// # Errors
    /// A schema is invalid, is of no kind of record that Starling has, or describes values that cannot
    /// be read as the present schema.
    pub fn with_confluent<'s>(
        mut self,
        known: impl IntoIterator<Item = (i32, &'s str)>,
    ) -> Result<Self, SchemaError> {
        let mut ids = BTreeMap::clone(&self.ids);
        for (id, json) in known {
            ids.insert(id, origin_of(json)?);
        }
        self.ids = Arc::new(ids);
        Ok(self)
    }

    /// Also reads, from now on, what is written under this `id` of a schema registry; so do all clones. The
    /// schema as JSON is complete in itself.
    ///
    /// # Errors
    /// As for [`Codec::with_confluent`].
    pub fn learn(&self, id: i32, json: &str) -> Result<(), SchemaError> {
        let origin = origin_of(json)?;
        let mut learned = self.learned.write().unwrap_or_else(PoisonError::into_inner);
        learned.insert(id, origin, self.limits.max_schemas);
        Ok(())
    }

    /// The schema id in the Confluent frame of `value`, if the codec does not know what it stands for.
    #[must_use]
    pub fn unknown_id(&self, value: &[u8]) -> Option<i32> {
        match framing::split(value) {
            Ok((SchemaName::Id(id), _)) => self.origin_of_id(id).is_none().then_some(id),
            _ => None,
        }
    }

    /// The same codec, which writes records of `kind` in Confluent framing, with the registry's `id` of
    /// the present schema ([`schema_json`]).
    #[must_use]
    pub fn writing_confluent(mut self, kind: RecordKind, id: i32) -> Self {
        Arc::make_mut(&mut self.ids).insert(id, Origin::Current(kind));
        Arc::make_mut(&mut self.write_ids).insert(kind, id);
        self
    }

    /// The same codec with other limits.
    #[must_use]
    pub fn within(mut self, limits: CodecLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The same codec, which also reads single-object encoding with these schemas of other versions, given as JSON,
    /// each complete in itself. Those of released versions are known to every codec.
    ///
    /// # Errors
    /// As for [`Codec::with_confluent`].
    pub fn knowing<'s>(mut self, schemas: impl IntoIterator<Item = &'s str>) -> Result<Self, SchemaError> {
        for json in schemas {
            let schema = Schema::parse_str(json).map_err(SchemaError::invalid)?;
            let other = WriterSchema::compile(golden::kind_of(&schema)?, &schema)?;
            Arc::make_mut(&mut self.others).insert(schema::fingerprint(&schema), Arc::new(other));
        }
        Ok(self)
    }

    /// The same codec, which writes single-object encoding with these schemas of another version, so that processes
    /// of that version can read it: what they do not know is left out. Kinds without one are written as before.
    ///
    /// # Errors
    /// A schema is invalid, is of no kind of record that Starling has, or cannot hold present values.
    pub fn writing_as<'s>(mut self, schemas: impl IntoIterator<Item = &'s str>) -> Result<Self, SchemaError> {
        for json in schemas {
            let (kind, dialect) = Dialect::compile(json)?;
            Arc::make_mut(&mut self.dialects).insert(kind, dialect);
        }
        Ok(self)
    }

    /// [`Codec::writing_as`] for the schemas of a [released version](released_versions).
    ///
    /// # Errors
    /// There is no such version.
    pub fn writing_version(self, version: &str) -> Result<Self, SchemaError> {
        if !released_versions().any(|released| released == version) {
            return Err(SchemaError::Unsupported(format!("version {version} was never released")));
        }
        self.writing_as(golden::of_version(version))
    }

    /// Whether `value` was written with a schema that the codec does not know, and not under an id of a registry.
    #[must_use]
    pub fn has_unknown_schema(&self, value: &[u8]) -> bool {
        match framing::split(value) {
            Ok((name @ SchemaName::Fingerprint(_), _)) => self.origin(name).is_err(),
            _ => false,
        }
    }

    /// The record's value.
    ///
    /// # Errors
    /// The value would be larger than [`CodecLimits::max_bytes`].
    pub fn encode<R: Record>(&self, record: &R) -> Result<Vec<u8>, EncodeError> {
        let current = Current::of(R::KIND);
        let name = match (self.write_ids.get(&R::KIND), self.dialects.get(&R::KIND)) {
            (Some(id), _) => SchemaName::Id(*id),
            (None, Some(dialect)) => {
                let present =
                    self.encode_framed(current, SchemaName::Fingerprint(current.fingerprint), record)?;
                return dialect.speak(R::KIND, &present, self.limits.max_bytes);
            }
            (None, None) => SchemaName::Fingerprint(current.fingerprint),
        };
        self.encode_framed(current, name, record)
    }

    fn encode_framed<R: Record>(
        &self,
        current: &Current,
        name: SchemaName,
        record: &R,
    ) -> Result<Vec<u8>, EncodeError> {
        let mut out = Bounded { bytes: Vec::with_capacity(512), limit: self.limits.max_bytes, full: false };
        framing::put(name, &mut out.bytes);
        match current.writer.write_ser(&mut out, record) {
            Ok(_) => Ok(out.bytes),
            Err(_) if out.full => Err(EncodeError::TooLarge { limit: self.limits.max_bytes }),
            Err(error) => Err(EncodeError::Unencodable { kind: R::KIND, reason: error.to_string() }),
        }
    }

    /// The record in a record's value.
    ///
    /// # Errors
    /// The bytes are no record of that kind, or larger than the limits allow.
    pub fn decode<R: Record>(&self, bytes: &[u8]) -> Result<R, DecodeError> {
        if bytes.len() > self.limits.max_bytes {
            return Err(DecodeError::TooLarge { bytes: bytes.len(), limit: self.limits.max_bytes });
        }
        let (name, datum) = framing::split(bytes).map_err(|fault| match fault {
            FrameFault::Empty => DecodeError::Empty,
            FrameFault::Unknown => DecodeError::UnknownFraming { first: bytes.first().copied().unwrap_or(0) },
            FrameFault::Truncated => DecodeError::Malformed(Malformed { offset: 0, fault: Fault::Truncated }),
        })?;
        let current = Current::of(R::KIND);
        // Nearly every value is one of these; the tables are for the others.
        if name == SchemaName::Fingerprint(current.fingerprint) {
            return self.decode_current(current, datum, self.limits.max_memory);
        }
        let origin = self.origin(name)?;
        if origin.kind() != R::KIND {
            return Err(DecodeError::OtherRecord { expected: R::KIND, found: origin.kind() });
        }
        match origin {
            Origin::Current(_) => self.decode_current(current, datum, self.limits.max_memory),
            Origin::Other(schema) => {
                // A growing buffer takes three times its length for a moment.
                let translated = schema.translation.translate(datum, self.limits.max_memory / 4);
                let translated = translated.map_err(|refused| self.refused(refused))?;
                let memory = self.limits.max_memory.saturating_sub(translated.capacity());
                self.decode_current(current, &translated, memory)
            }
        }
    }

    fn decode_current<R: Record>(
        &self,
        current: &Current,
        datum: &[u8],
        max_memory: usize,
    ) -> Result<R, DecodeError> {
        survey(&current.plan, datum, max_memory).map_err(|refused| self.refused(refused))?;
        let mut rest = datum;
        current.reader.read_deser(&mut rest).map_err(|error| {
            let offset = datum.len() - rest.len();
            DecodeError::Malformed(Malformed { offset, fault: Fault::Value(error.to_string()) })
        })
    }

    fn origin(&self, name: SchemaName) -> Result<Origin, DecodeError> {
        match name {
            SchemaName::Id(id) => self.origin_of_id(id).ok_or(DecodeError::UnknownSchemaId { id }),
            SchemaName::Fingerprint(fingerprint) => {
                let current = RecordKind::ALL
                    .into_iter()
                    .find(|kind| Current::of(*kind).fingerprint == fingerprint)
                    .map(Origin::Current);
                current
                    .or_else(|| {
                        let other =
                            self.others.get(&fingerprint).or_else(|| golden::known().get(&fingerprint));
                        other.cloned().map(Origin::Other)
                    })
                    .ok_or(DecodeError::UnknownSchema { fingerprint })
            }
        }
    }

    fn origin_of_id(&self, id: i32) -> Option<Origin> {
        let learned = || self.learned.read().unwrap_or_else(PoisonError::into_inner).get(id);
        self.ids.get(&id).cloned().or_else(learned)
    }

    fn refused(&self, refused: Refused) -> DecodeError {
        match refused {
            Refused::Malformed(malformed) => DecodeError::Malformed(malformed),
            Refused::TooCostly => DecodeError::TooCostly { limit: self.limits.max_memory },
        }
    }
}

/// What a schema from a registry is to this program.
fn origin_of(json: &str) -> Result<Origin, SchemaError> {
    let schema = Schema::parse_str(json).map_err(SchemaError::invalid)?;
    let fingerprint = schema::fingerprint(&schema);
    if let Some(kind) = RecordKind::ALL.into_iter().find(|kind| Current::of(*kind).fingerprint == fingerprint)
    {
        return Ok(Origin::Current(kind));
    }
    let kind = golden::kind_of(&schema)?;
    Ok(Origin::Other(Arc::new(WriterSchema::compile(kind, &schema)?)))
}

/// Writes into memory up to a limit.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len().saturating_add(bytes.len()) > self.limit {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
