//! Looking at a whole encoded value before the Avro library does.
//!
//! The library reads what lengths and counts say: it allocates a string of the declared length before
//! it looks for its bytes, and a few bytes of input can become a hundred times as many in memory. So
//! each value is first walked without allocating, and its size in memory is bounded from above. What
//! passes is well-formed and cannot make the library fail other than by a value that a type refuses.

use super::cursor::{Cursor, Fault, Malformed};
use super::plan::{NodeId, Plan, Shape};

/// What a survey found to be wrong.
#[derive(Debug)]
pub(super) enum Refused {
    /// The bytes are no value of the schema.
    Malformed(Malformed),
    /// Its decoded form may need more memory than is allowed.
    TooCostly,
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Checks that `bytes` are exactly one value of the plan, whose decoded form takes at most `max_memory`
/// bytes of heap at any moment while it is built.
pub(super) fn survey(plan: &Plan, bytes: &[u8], max_memory: usize) -> Result<(), Refused> {
    let mut cursor = Cursor::new(bytes);
    let mut meter = Meter { held: 0, longest: 0, limit: max_memory };
    walk(plan, plan.root(), &mut cursor, &mut meter)?;
    match cursor.remaining() {
        0 => Ok(()),
        more => Ok(cursor.fault(Fault::TrailingBytes(more))?),
    }
}

/// Moves the cursor over one value of `node` without metering it.
pub(super) fn skip(plan: &Plan, node: NodeId, cursor: &mut Cursor<'_>) -> Result<(), Refused> {
    walk(plan, node, cursor, &mut Meter { held: 0, longest: 0, limit: usize::MAX })
}

/// Heap memory of a decoded value, from above.
struct Meter {
    held: usize,
    longest: usize,
    limit: usize,
}

impl Meter {
    /// A growing vector is copied into one of twice the size while the old one lives.
    const GROWTH: usize = 3;
    /// The counters of a reference-counted string.
    const STRING_HEAD: usize = 2 * size_of::<usize>();

    fn text(&mut self, length: usize) -> Result<(), Refused> {
        // One string at a time exists twice, when an owned one becomes a shared one.
        self.longest = self.longest.max(length);
        self.hold(length.saturating_add(Self::STRING_HEAD))
    }

    fn items(&mut self, count: usize, footprint: usize) -> Result<(), Refused> {
        self.hold(count.saturating_mul(footprint).saturating_mul(Self::GROWTH))
    }

    /// Entries of a map lie in nodes of eleven, of which the first may be nearly empty and others half empty.
    fn entries(&mut self, count: usize, footprint: usize) -> Result<(), Refused> {
        self.items(count, footprint)?;
        self.hold(footprint.saturating_mul(11))
    }

    fn hold(&mut self, bytes: usize) -> Result<(), Refused> {
        self.held = self.held.saturating_add(bytes);
        if self.held.saturating_add(self.longest) > self.limit { Err(Refused::TooCostly) } else { Ok(()) }
    }
}

/// Recursion is as deep as the schema, which does not contain itself.
fn walk(plan: &Plan, node: NodeId, cursor: &mut Cursor<'_>, meter: &mut Meter) -> Result<(), Refused> {
    match plan.shape(node) {
        Shape::Null => {}
        Shape::Boolean => {
            cursor.boolean()?;
        }
        Shape::Int => {
            cursor.int()?;
        }
        Shape::Long => {
            cursor.long()?;
        }
        Shape::Float => {
            cursor.take(4)?;
        }
        Shape::Double => {
            cursor.take(8)?;
        }
        Shape::Bytes => meter.text(cursor.bytes()?.len())?,
        Shape::String => meter.text(cursor.string()?.len())?,
        Shape::Fixed(size) => meter.text(cursor.take(*size)?.len())?,
        Shape::Enum { symbols, .. } => {
            cursor.symbol(symbols.len())?;
        }
        Shape::Array(item) => {
            let of_item = plan.node(*item);
            while let Some(block) = cursor.block(of_item.min_bytes)? {
                meter.items(block.items, of_item.footprint)?;
                for _ in 0..block.items {
                    walk(plan, *item, cursor, meter)?;
                }
                cursor.end_block(block)?;
            }
        }
        Shape::Map(value) => {
            let of_value = plan.node(*value);
            while let Some(block) = cursor.block(of_value.min_bytes + 1)? {
                meter.entries(block.items, of_value.footprint.saturating_add(4 * size_of::<usize>()))?;
                for _ in 0..block.items {
                    meter.text(cursor.string()?.len())?;
                    walk(plan, *value, cursor, meter)?;
                }
                cursor.end_block(block)?;
            }
        }
        Shape::Union(variants) => {
            let variant = cursor.variant(variants.len())?;
            walk(plan, variants[variant], cursor, meter)?;
        }
        Shape::Record { fields, .. } => {
            for field in fields {
                walk(plan, field.node, cursor, meter)?;
            }
        }
    }
    Ok(())
}
