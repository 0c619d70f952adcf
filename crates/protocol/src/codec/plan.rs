//! Schemas compiled for walking over encoded values: references resolved, sizes known.
//!
//! The Avro library trusts a schema and an input more than a reader of untrusted bytes can. A plan is
//! what such a reader needs: a flat table of nodes without recursion, so that a walk is bounded by the
//! input's length and by the schema's depth.

use apache_avro::{Schema, schema::NamesRef, schema::ResolvedSchema, schema::UuidSchema};
use serde_json::Value;
use std::collections::BTreeMap;

/// Position of a node in its plan.
pub(super) type NodeId = usize;

/// A schema that this codec cannot work with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It is no Avro schema.
    #[error("not a valid Avro schema: {0}")]
    Invalid(String),
    /// It uses something that no schema of Starling uses, or that cannot be read within bounds.
    #[error("the schema cannot be used: {0}")]
    Unsupported(String),
    /// What it describes cannot be read as the present schema.
    #[error("values of this schema cannot be read: {0}")]
    Incompatible(String),
}

impl SchemaError {
    pub(super) fn invalid(error: impl ToString) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// A compiled schema.
#[derive(Debug)]
pub(super) struct Plan {
    nodes: Vec<Node>,
    root: NodeId,
}

/// One type of a schema.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) shape: Shape,
    /// The fewest bytes that a value of it is encoded in.
    pub(super) min_bytes: usize,
    /// At least the size of a Rust value of it, without what it owns on the heap.
    pub(super) footprint: usize,
}

/// What a node is.
#[derive(Debug, PartialEq)]
pub(super) enum Shape {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    Enum { name: String, symbols: Vec<String>, default: Option<String> },
    Array(NodeId),
    Map(NodeId),
    Union(Vec<NodeId>),
    Record { name: String, fields: Vec<Field> },
}

/// A field of a record.
#[derive(Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) node: NodeId,
    pub(super) default: Option<Value>,
}

impl Plan {
    /// Compiles a schema that is complete in itself.
    pub(super) fn compile(schema: &Schema) -> Result<Self, SchemaError> {
        let resolved = ResolvedSchema::try_from(schema).map_err(SchemaError::invalid)?;
        let mut compiler =
            Compiler { names: resolved.get_names(), nodes: Vec::new(), named: BTreeMap::new() };
        let root = compiler.node(schema)?;
        Ok(Self { nodes: compiler.nodes, root })
    }

    pub(super) fn root(&self) -> NodeId {
        self.root
    }

    /// The node at `id`, which must come from this plan.
    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// Its shape.
    pub(super) fn shape(&self, id: NodeId) -> &Shape {
        &self.nodes[id].shape
    }
}

struct Compiler<'s> {
    names: &'s NamesRef<'s>,
    nodes: Vec<Node>,
    /// Named types: `None` while one is being compiled.
    named: BTreeMap<String, Option<NodeId>>,
}

impl Compiler<'_> {
    fn node(&mut self, schema: &Schema) -> Result<NodeId, SchemaError> {
        let schema = match schema {
            Schema::Ref { name } => self
                .names
                .get(name)
                .copied()
                .ok_or_else(|| SchemaError::Invalid(format!("{} is not defined", name.fullname(None))))?,
            other => other,
        };
        let Some(name) = schema.name().map(|name| name.fullname(None)) else {
            return self.add(schema);
        };
        match self.named.get(&name) {
            Some(Some(id)) => return Ok(*id),
            Some(None) => return Err(SchemaError::Unsupported(format!("{name} contains itself"))),
            None => {}
        }
        self.named.insert(name.clone(), None);
        let id = self.add(schema)?;
        self.named.insert(name, Some(id));
        Ok(id)
    }

    fn add(&mut self, schema: &Schema) -> Result<NodeId, SchemaError> {
        let shape = self.shape(schema)?;
        let (min_bytes, footprint) = self.sizes(&shape)?;
        self.nodes.push(Node { shape, min_bytes, footprint });
        Ok(self.nodes.len() - 1)
    }

    fn shape(&mut self, schema: &Schema) -> Result<Shape, SchemaError> {
        Ok(match schema {
            Schema::Null => Shape::Null,
            Schema::Boolean => Shape::Boolean,
            Schema::Int | Schema::Date | Schema::TimeMillis => Shape::Int,
            Schema::Long
            | Schema::TimeMicros
            | Schema::TimestampMillis
            | Schema::TimestampMicros
            | Schema::TimestampNanos
            | Schema::LocalTimestampMillis
            | Schema::LocalTimestampMicros
            | Schema::LocalTimestampNanos => Shape::Long,
            Schema::Float => Shape::Float,
            Schema::Double => Shape::Double,
            Schema::Bytes => Shape::Bytes,
            Schema::String | Schema::Uuid(UuidSchema::String) => Shape::String,
            Schema::Fixed(fixed) => Shape::Fixed(fixed.size),
            Schema::Enum(of) => Shape::Enum {
                name: of.name.fullname(None),
                symbols: of.symbols.clone(),
                default: of.default.clone(),
            },
            Schema::Array(array) => Shape::Array(self.item(&array.items)?),
            Schema::Map(map) => Shape::Map(self.item(&map.types)?),
            Schema::Union(union) => Shape::Union(
                union.variants().iter().map(|variant| self.node(variant)).collect::<Result<_, _>>()?,
            ),
            Schema::Record(record) => Shape::Record {
                name: record.name.fullname(None),
                fields: record
                    .fields
                    .iter()
                    .map(|field| {
                        Ok(Field {
                            name: field.name.clone(),
                            node: self.node(&field.schema)?,
                            default: field.default.clone(),
                        })
                    })
                    .collect::<Result<_, _>>()?,
            },
            other => {
                return Err(SchemaError::Unsupported(format!("the type {other} is not supported")));
            }
        })
    }

    /// Items that take no bytes would let a few bytes stand for any number of them.
    fn item(&mut self, schema: &Schema) -> Result<NodeId, SchemaError> {
        let id = self.node(schema)?;
        if self.nodes[id].min_bytes == 0 {
            return Err(SchemaError::Unsupported("the items of a collection take no bytes".into()));
        }
        Ok(id)
    }

    /// Fewest encoded bytes, and an upper bound of the size in memory: a word for everything small,
    /// which also pays for padding, three for what lies on the heap, one more for the variant of a union.
    fn sizes(&self, shape: &Shape) -> Result<(usize, usize), SchemaError> {
        const WORD: usize = size_of::<u64>();
        let node = |id: &NodeId| &self.nodes[*id];
        let (min_bytes, footprint) = match shape {
            Shape::Null => (Some(0), Some(0)),
            Shape::Boolean | Shape::Int | Shape::Long | Shape::Enum { .. } => (Some(1), Some(WORD)),
            Shape::Float => (Some(4), Some(WORD)),
            Shape::Double => (Some(8), Some(WORD)),
            Shape::Bytes | Shape::String | Shape::Array(_) => (Some(1), Some(3 * WORD)),
            Shape::Map(_) => (Some(1), Some(6 * WORD)),
            Shape::Fixed(size) => (Some(*size), Some(*size)),
            Shape::Union(variants) => (
                Some(1 + variants.iter().map(|id| node(id).min_bytes).min().unwrap_or(0)),
                (variants.iter().map(|id| node(id).footprint).max().unwrap_or(0)).checked_add(WORD),
            ),
            Shape::Record { fields, .. } => (
                fields.iter().try_fold(0_usize, |sum, f| sum.checked_add(node(&f.node).min_bytes)),
                fields.iter().try_fold(0_usize, |sum, f| sum.checked_add(node(&f.node).footprint)),
            ),
        };
        min_bytes.zip(footprint).ok_or_else(|| SchemaError::Unsupported("a value is too large".into()))
    }
}
