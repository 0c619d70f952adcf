//! How long the Avro encoding of a value can be, without encoding it.

use serde::ser::{self, Serialize};
use std::fmt::{self, Display};

/// What a record takes besides the content that [`upper_bound`] measures: framing, epoch, nonce,
/// counters and the ends of arrays.
pub const RECORD_OVERHEAD: usize = 512;

/// Longest encoded integer.
const VARINT: usize = 10;
/// Count, byte length and end of an array or map.
const ARRAY: usize = 2 * VARINT + 1;

/// No Avro encoding of `value` is longer, in bytes. Cheap: nothing is allocated.
#[must_use]
pub fn upper_bound<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut meter = Meter(0);
    match value.serialize(&mut meter) {
        Ok(()) => meter.0,
        Err(_) => usize::MAX, // what cannot be measured fits nowhere
    }
}

struct Meter(usize);

#[derive(Debug)]
struct Unmeasurable;

impl Display for Unmeasurable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value cannot be measured")
    }
}

impl std::error::Error for Unmeasurable {}

impl ser::Error for Unmeasurable {
    fn custom<T: Display>(_: T) -> Self {
        Unmeasurable
    }
}

type Measured = Result<(), Unmeasurable>;

impl Meter {
    fn add(&mut self, bytes: usize) -> Measured {
        self.0 = self.0.saturating_add(bytes);
        Ok(())
    }
}

macro_rules! fixed {
    ($($method:ident: $type:ty = $bytes:expr;)*) => {$(
        fn $method(self, _: $type) -> Measured {
            self.add($bytes)
        }
    )*};
}

impl<'a> ser::Serializer for &'a mut Meter {
    type Ok = ();
    type Error = Unmeasurable;
    type SerializeSeq = &'a mut Meter;
    type SerializeTuple = &'a mut Meter;
    type SerializeTupleStruct = &'a mut Meter;
    type SerializeTupleVariant = &'a mut Meter;
    type SerializeMap = &'a mut Meter;
    type SerializeStruct = &'a mut Meter;
    type SerializeStructVariant = &'a mut Meter;

    fixed! {
        serialize_bool: bool = 1;
        serialize_i8: i8 = VARINT;
        serialize_i16: i16 = VARINT;
        serialize_i32: i32 = VARINT;
        serialize_i64: i64 = VARINT;
        serialize_u8: u8 = VARINT;
        serialize_u16: u16 = VARINT;
        serialize_u32: u32 = VARINT;
        serialize_u64: u64 = VARINT;
        serialize_f32: f32 = 4;
        serialize_f64: f64 = 8;
        serialize_char: char = VARINT + 4;
    }

    fn serialize_str(self, v: &str) -> Measured {
        self.add(VARINT + v.len())
    }

    fn serialize_bytes(self, v: &[u8]) -> Measured {
        self.add(VARINT + v.len())
    }

    fn serialize_none(self) -> Measured {
        self.add(1)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Measured {
        self.add(1)?;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Measured {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Measured {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Measured {
        self.add(VARINT)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Measured {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Measured {
        self.add(VARINT)?;
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Unmeasurable> {
        self.add(ARRAY)?;
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Unmeasurable> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Unmeasurable> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unmeasurable> {
        self.add(VARINT)?;
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Unmeasurable> {
        self.add(ARRAY)?;
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Unmeasurable> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unmeasurable> {
        self.add(VARINT)?;
        Ok(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

macro_rules! compound {
    ($($kind:ident :: $method:ident;)*) => {$(
        impl ser::$kind for &mut Meter {
            type Ok = ();
            type Error = Unmeasurable;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Measured {
                value.serialize(&mut **self)
            }
            fn end(self) -> Measured {
                Ok(())
            }
        }
    )*};
}

compound! {
    SerializeSeq::serialize_element;
    SerializeTuple::serialize_element;
    SerializeTupleStruct::serialize_field;
    SerializeTupleVariant::serialize_field;
}

impl ser::SerializeMap for &mut Meter {
    type Ok = ();
    type Error = Unmeasurable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Measured {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Measured {
        value.serialize(&mut **self)
    }

    fn end(self) -> Measured {
        Ok(())
    }
}

macro_rules! fields {
    ($($kind:ident),*) => {$(
        impl ser::$kind for &mut Meter {
            type Ok = ();
            type Error = Unmeasurable;
            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Measured {
                value.serialize(&mut **self)
            }
            fn end(self) -> Measured {
                Ok(())
            }
        }
    )*};
}

fields!(SerializeStruct, SerializeStructVariant);
