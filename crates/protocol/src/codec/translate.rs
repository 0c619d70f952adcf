//! Reading values that were written with another version of a schema.
//!
//! Avro's rules of schema resolution are compiled once into a table of actions, which rewrite the bytes
//! of one schema into those of another; these are then decoded like any others. So there is one way of
//! decoding, variants are matched by their names, and memory stays bounded.

use super::cursor::{Cursor, Fault};
use super::default::{encode_default, put_long};
use super::plan::{Field, NodeId, Plan, SchemaError, Shape};
use super::survey::{Refused, skip};
use std::collections::BTreeMap;

/// How values of a writer's schema become values of a reader's schema.
#[derive(Debug)]
pub(super) struct Translation {
    writer: Plan,
    actions: Vec<Action>,
    root: usize,
}

#[derive(Debug)]
enum Action {
    /// Both schemas encode it in the same way.
    Copy,
    /// An integer becomes a floating-point number of 4 or 8 bytes.
    IntegerToFloat { double: bool },
    /// A `float` becomes a `double`.
    FloatToDouble,
    /// The reader's symbol for each of the writer's; none if the reader does not know it.
    Symbols(Vec<Option<usize>>),
    /// Each item of an array, or each value of a map.
    Items { item: usize, of_map: bool },
    /// What to do for each of the writer's variants; nothing if the reader cannot take it.
    FromUnion(Vec<Option<usize>>),
    /// The value becomes this variant of the reader's union.
    IntoUnion { variant: usize, value: usize },
    /// The reader's fields in order.
    Record(Vec<Source>),
}

#[derive(Debug)]
enum Source {
    /// The writer's field at `position`.
    Written { position: usize, action: usize },
    /// The writer does not know the field: its default, encoded.
    Default(Vec<u8>),
}

impl Translation {
    /// Works out how to read what `writer` describes as what `reader` describes.
    ///
    /// # Errors
    /// No value of the writer's can be read: it says which part does not fit.
    pub(super) fn compile(writer: Plan, reader: &Plan) -> Result<Self, SchemaError> {
        let mut resolver = Resolver { writer: &writer, reader, actions: Vec::new(), known: BTreeMap::new() };
        let root = resolver.resolve(writer.root(), reader.root()).map_err(SchemaError::Incompatible)?;
        let actions = resolver.actions;
        Ok(Self { writer, actions, root })
    }

    /// The reader's encoding of a value in the writer's. It has at most `max_bytes` bytes.
    pub(super) fn translate(&self, bytes: &[u8], max_bytes: usize) -> Result<Vec<u8>, Refused> {
        let mut cursor = Cursor::new(bytes);
        let mut out = Output { bytes: Vec::new(), limit: max_bytes };
        self.run(self.root, self.writer.root(), &mut cursor, &mut out)?;
        match cursor.remaining() {
            0 => Ok(out.bytes),
            more => Ok(cursor.fault(Fault::TrailingBytes(more))?),
        }
    }

    fn run(
        &self,
        action: usize,
        node: NodeId,
        cursor: &mut Cursor<'_>,
        out: &mut Output,
    ) -> Result<(), Refused> {
        match (&self.actions[action], self.writer.shape(node)) {
            (Action::Copy, _) => {
                let start = cursor.offset();
                skip(&self.writer, node, cursor)?;
                out.put(cursor.since(start))
            }
            (Action::IntegerToFloat { double }, _) => {
                #[allow(clippy::cast_precision_loss)] // what the rules of resolution ask for
                let number = cursor.long()? as f64;
                #[allow(clippy::cast_possible_truncation)] // likewise
                if *double { out.put(&number.to_le_bytes()) } else { out.put(&(number as f32).to_le_bytes()) }
            }
            (Action::FloatToDouble, _) => {
                let bytes = cursor.take(4)?;
                let float = f32::from_le_bytes(bytes.try_into().unwrap_or_default());
                out.put(&f64::from(float).to_le_bytes())
            }
            (Action::Symbols(symbols), _) => match symbols[cursor.symbol(symbols.len())?] {
                Some(symbol) => out.put_count(symbol),
                None => newer(cursor, "a symbol of an enum"),
            },
            (Action::FromUnion(by_variant), Shape::Union(variants)) => {
                let variant = cursor.variant(variants.len())?;
                match by_variant[variant] {
                    Some(action) => self.run(action, variants[variant], cursor, out),
                    None => newer(cursor, "a variant of a union"),
                }
            }
            (Action::IntoUnion { variant, value }, _) => {
                out.put_count(*variant)?;
                self.run(*value, node, cursor, out)
            }
            (Action::Items { item, of_map }, Shape::Array(of) | Shape::Map(of)) => {
                self.items(*item, *of, *of_map, cursor, out)
            }
            (Action::Record(sources), Shape::Record { fields, .. }) => {
                self.record(sources, fields, cursor, out)
            }
            // An action is made for the shape of its node.
            (Action::FromUnion(_) | Action::Items { .. } | Action::Record(_), _) => {
                let what = "the value does not have the shape of its schema".to_owned();
                Ok(cursor.fault(Fault::Value(what))?)
            }
        }
    }

    fn items(
        &self,
        action: usize,
        of: NodeId,
        of_map: bool,
        cursor: &mut Cursor<'_>,
        out: &mut Output,
    ) -> Result<(), Refused> {
        while let Some(block) = cursor.block(self.writer.node(of).min_bytes)? {
            out.put_count(block.items)?;
            for _ in 0..block.items {
                if of_map {
                    let key = cursor.string()?;
                    out.put_count(key.len())?;
                    out.put(key.as_bytes())?;
                }
                self.run(action, of, cursor, out)?;
            }
            cursor.end_block(block)?;
        }
        out.put_count(0)
    }

    fn record(
        &self,
        sources: &[Source],
        fields: &[Field],
        cursor: &mut Cursor<'_>,
        out: &mut Output,
    ) -> Result<(), Refused> {
        // The reader's order may be another one: find where each field begins first.
        let mut starts = Vec::with_capacity(fields.len());
        for field in fields {
            starts.push(*cursor);
            skip(&self.writer, field.node, cursor)?;
        }
        for source in sources {
            match source {
                Source::Written { position, action } => {
                    self.run(*action, fields[*position].node, &mut starts[*position], out)?;
                }
                Source::Default(bytes) => out.put(bytes)?,
            }
        }
        Ok(())
    }
}

fn newer(cursor: &Cursor<'_>, what: &'static str) -> Result<(), Refused> {
    Ok(cursor.fault(Fault::Newer(what))?)
}

/// What is written, up to a limit.
struct Output {
    bytes: Vec<u8>,
    limit: usize,
}

impl Output {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        if self.bytes.len().saturating_add(bytes.len()) > self.limit {
            return Err(Refused::TooCostly);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn put_count(&mut self, count: usize) -> Result<(), Refused> {
        let mut encoded = Vec::new();
        put_long(i64::try_from(count).unwrap_or(i64::MAX), &mut encoded);
        self.put(&encoded)
    }
}

struct Resolver<'p> {
    writer: &'p Plan,
    reader: &'p Plan,
    actions: Vec<Action>,
    known: BTreeMap<(NodeId, NodeId), usize>,
}

impl Resolver<'_> {
    /// The action for a pair of types, or why there is none.
    fn resolve(&mut self, writer: NodeId, reader: NodeId) -> Result<usize, String> {
        if let Some(action) = self.known.get(&(writer, reader)) {
            return Ok(*action);
        }
        let action = self.action(writer, reader)?;
        self.actions.push(action);
        self.known.insert((writer, reader), self.actions.len() - 1);
        Ok(self.actions.len() - 1)
    }

    fn action(&mut self, writer: NodeId, reader: NodeId) -> Result<Action, String> {
        use Shape::{
            Array, Boolean, Bytes, Double, Enum, Fixed, Float, Int, Long, Map, Null, Record, String, Union,
        };
        let (from, to) = (self.writer.shape(writer), self.reader.shape(reader));
        match (from, to) {
            (Union(variants), _) => {
                let resolved: Vec<_> =
                    variants.iter().map(|variant| self.resolve(*variant, reader)).collect();
                match resolved.iter().find_map(|r| r.as_ref().err()) {
                    Some(reason) if resolved.iter().all(Result::is_err) => Err(reason.clone()),
                    _ => Ok(Action::FromUnion(resolved.into_iter().map(Result::ok).collect())),
                }
            }
            (_, Union(variants)) => {
                let mut reason = "the reader's union is empty".to_owned();
                for (variant, of_reader) in variants.iter().enumerate() {
                    match self.resolve(writer, *of_reader) {
                        Ok(value) => return Ok(Action::IntoUnion { variant, value }),
                        Err(why) => reason = why,
                    }
                }
                Err(reason)
            }
            (Null, Null)
            | (Boolean, Boolean)
            | (Int, Int | Long)
            | (Long, Long)
            | (Float, Float)
            | (Double, Double)
            | (Bytes | String, Bytes | String) => Ok(Action::Copy),
            (Fixed(a), Fixed(b)) if a == b => Ok(Action::Copy),
            (Int | Long, Float) => Ok(Action::IntegerToFloat { double: false }),
            (Int | Long, Double) => Ok(Action::IntegerToFloat { double: true }),
            (Float, Double) => Ok(Action::FloatToDouble),
            (Enum { name, symbols, .. }, Enum { name: wanted, symbols: known, default })
                if name == wanted =>
            {
                let find = |symbol: &std::string::String| known.iter().position(|k| k == symbol);
                let fallback = default.as_ref().and_then(find);
                Ok(Action::Symbols(symbols.iter().map(|s| find(s).or(fallback)).collect()))
            }
            (Array(from), Array(to)) => Ok(Action::Items { item: self.resolve(*from, *to)?, of_map: false }),
            (Map(from), Map(to)) => Ok(Action::Items { item: self.resolve(*from, *to)?, of_map: true }),
            (Record { name, fields }, Record { name: wanted, fields: needed }) if name == wanted => {
                let sources = needed.iter().map(|field| self.source(name, fields, field));
                Ok(Action::Record(sources.collect::<Result<_, _>>()?))
            }
            (from, to) => Err(format!("{} cannot be read as {}", describe(from), describe(to))),
        }
    }

    fn source(&mut self, record: &str, written: &[Field], wanted: &Field) -> Result<Source, String> {
        let context = |reason: String| format!("{record}.{}: {reason}", wanted.name);
        if let Some(position) = written.iter().position(|field| field.name == wanted.name) {
            let action = self.resolve(written[position].node, wanted.node).map_err(context)?;
            return Ok(Source::Written { position, action });
        }
        let Some(default) = &wanted.default else {
            return Err(context("the field is missing and has no default".into()));
        };
        let mut bytes = Vec::new();
        encode_default(self.reader, wanted.node, default, &mut bytes).map_err(context)?;
        Ok(Source::Default(bytes))
    }
}

fn describe(shape: &Shape) -> String {
    match shape {
        Shape::Enum { name, .. } | Shape::Record { name, .. } => name.clone(),
        Shape::Array(_) => "array".into(),
        Shape::Map(_) => "map".into(),
        Shape::Union(_) => "union".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}
