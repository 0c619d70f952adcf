//! Encoding the defaults of fields, which a schema gives as JSON.

use super::plan::{NodeId, Plan, Shape};
use serde_json::Value;

/// Appends the encoding of `default` as a value of `node`.
///
/// # Errors
/// The default is no value of that type.
pub(super) fn encode_default(
    plan: &Plan,
    node: NodeId,
    default: &Value,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    match (plan.shape(node), default) {
        (Shape::Null, Value::Null) => {}
        (Shape::Boolean, Value::Bool(value)) => out.push(u8::from(*value)),
        (Shape::Int | Shape::Long, Value::Number(number)) if number.is_i64() => {
            put_long(number.as_i64().unwrap_or_default(), out);
        }
        #[allow(clippy::cast_possible_truncation)] // the schema's author chose a float
        (Shape::Float, Value::Number(number)) => {
            out.extend((number.as_f64().unwrap_or_default() as f32).to_le_bytes());
        }
        (Shape::Double, Value::Number(number)) => {
            out.extend(number.as_f64().unwrap_or_default().to_le_bytes());
        }
        (Shape::String, Value::String(text)) => put_bytes(text.as_bytes(), out),
        // In a default, a byte is written as the character of that number.
        (Shape::Bytes, Value::String(text)) => match text.chars().map(|c| u8::try_from(c).ok()).collect() {
            Some::<Vec<u8>>(bytes) => put_bytes(&bytes, out),
            None => return Err("the default has characters that are no bytes".into()),
        },
        (Shape::Enum { symbols, .. }, Value::String(text)) => {
            match symbols.iter().position(|symbol| symbol == text) {
                Some(position) => put_count(position, out),
                None => return Err(format!("the default {text:?} is no symbol of the enum")),
            }
        }
        (Shape::Array(item), Value::Array(items)) => {
            if !items.is_empty() {
                put_count(items.len(), out);
            }
            for value in items {
                encode_default(plan, *item, value, out)?;
            }
            out.push(0);
        }
        (Shape::Union(variants), _) => {
            for (position, variant) in variants.iter().enumerate() {
                let mut encoded = Vec::new();
                if encode_default(plan, *variant, default, &mut encoded).is_ok() {
                    put_count(position, out);
                    out.extend(encoded);
                    return Ok(());
                }
            }
            return Err("the default is of no variant of the union".into());
        }
        (Shape::Record { fields, .. }, Value::Object(object)) => {
            for field in fields {
                let value = object.get(&field.name).or(field.default.as_ref());
                let value = value.ok_or_else(|| format!("the default lacks {}", field.name))?;
                encode_default(plan, field.node, value, out)?;
            }
        }
        (Shape::Map(of), Value::Object(object)) => {
            if !object.is_empty() {
                put_count(object.len(), out);
            }
            for (key, value) in object {
                put_bytes(key.as_bytes(), out);
                encode_default(plan, *of, value, out)?;
            }
            out.push(0);
        }
        _ => return Err("the default is not of the field's type".into()),
    }
    Ok(())
}

/// Appends a zigzag variable-length integer.
pub(super) fn put_long(value: i64, out: &mut Vec<u8>) {
    let mut zigzag = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while zigzag > 0x7f {
        out.push(0x80 | (zigzag & 0x7f) as u8);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

fn put_count(count: usize, out: &mut Vec<u8>) {
    put_long(i64::try_from(count).unwrap_or(i64::MAX), out);
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_count(bytes.len(), out);
    out.extend_from_slice(bytes);
}
