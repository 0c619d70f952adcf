//! Writing values with the schema of another version, for processes that do not know the present one.

use super::error::EncodeError;
use super::framing::{self, SchemaName};
use super::golden::kind_of;
use super::plan::{Plan, SchemaError};
use super::record::RecordKind;
use super::schema::{Fingerprint, fingerprint, schema_json};
use super::survey::Refused;
use super::translate::Translation;
use apache_avro::Schema;
use std::sync::Arc;

/// Another version's schema, and how present values become values of it: by the same rules by which that version
/// would read them if it knew the present schema.
#[derive(Clone, Debug)]
pub(super) struct Dialect {
    fingerprint: Fingerprint,
    translation: Arc<Translation>,
}

impl Dialect {
    /// The one of a schema that is complete in itself, and the kind of record that it describes.
    pub(super) fn compile(json: &str) -> Result<(RecordKind, Self), SchemaError> {
        let schema = Schema::parse_str(json).map_err(SchemaError::invalid)?;
        let kind = kind_of(&schema)?;
        let present = Schema::parse(&schema_json(kind)).map_err(SchemaError::invalid)?;
        let translation = Translation::compile(Plan::compile(&present)?, &Plan::compile(&schema)?)?;
        Ok((kind, Self { fingerprint: fingerprint(&schema), translation: Arc::new(translation) }))
    }

    /// The same value in this schema, framed. `present` is framed with a fingerprint.
    pub(super) fn speak(
        &self,
        kind: RecordKind,
        present: &[u8],
        max_bytes: usize,
    ) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(present.len());
        framing::put(SchemaName::Fingerprint(self.fingerprint), &mut out);
        let datum = present.get(out.len()..).unwrap_or_default();
        let translated = self.translation.translate(datum, max_bytes.saturating_sub(out.len()));
        out.extend(translated.map_err(|refused| match refused {
            Refused::TooCostly => EncodeError::TooLarge { limit: max_bytes },
            Refused::Malformed(malformed) => EncodeError::Unencodable {
                kind,
                reason: format!("it cannot be said in the schema of the other version: {malformed}"),
            },
        })?);
        Ok(out)
    }
}
