//! Reading the primitives of Avro's binary encoding from a slice, with typed faults and no allocation.

/// What is wrong with an encoded value, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset} of the value: {fault}")]
pub struct Malformed {
    /// Position within the value, framing excluded, in bytes.
    pub offset: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// The ways in which bytes are no encoded value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The value goes on where the bytes end.
    #[error("the bytes end too early")]
    Truncated,
    /// A variable-length integer has more than 64 bits.
    #[error("an integer is longer than 10 bytes")]
    IntegerTooLong,
    /// An `int` has more than 32 bits.
    #[error("{0} is no 32-bit integer")]
    NoInt(i64),
    /// A boolean is neither 0 nor 1.
    #[error("{0} is no boolean")]
    NoBoolean(u8),
    /// The length of a string or of bytes is negative or beyond the end.
    #[error("a length of {0} bytes does not fit")]
    Length(i64),
    /// A block of a collection claims more items than the bytes can hold.
    #[error("a block of {0} items does not fit")]
    BlockCount(i64),
    /// A block's size in bytes is not what its items take.
    #[error("a block claims {0} bytes and has another size")]
    BlockSize(i64),
    /// No such variant in the union.
    #[error("a union has no variant {0}")]
    UnionVariant(i64),
    /// No such symbol in the enum.
    #[error("an enum has no symbol {0}")]
    EnumSymbol(i64),
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// The value ends before the bytes do.
    #[error("{0} bytes follow the value")]
    TrailingBytes(usize),
    /// Well-formed, but a newer version's: a variant or a symbol that the present schema does not have.
    #[error("{0} is unknown to this version")]
    Newer(&'static str),
    /// Well-formed Avro that is not a value of the type, such as a tag that is none.
    #[error("{0}")]
    Value(String),
}

/// A position in an encoded value.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'b> {
    bytes: &'b [u8],
    offset: usize,
}

impl<'b> Cursor<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// How many bytes are left.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// The fault `fault` at this position.
    pub(super) fn fault<T>(&self, fault: Fault) -> Result<T, Malformed> {
        Err(Malformed { offset: self.offset, fault })
    }

    /// What was read since `start`, an earlier offset of this cursor.
    pub(super) fn since(&self, start: usize) -> &'b [u8] {
        self.bytes.get(start..self.offset).unwrap_or_default()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'b [u8], Malformed> {
        let end = self.offset.checked_add(count);
        match end.and_then(|end| Some((end, self.bytes.get(self.offset..end)?))) {
            Some((end, taken)) => {
                self.offset = end;
                Ok(taken)
            }
            None => self.fault(Fault::Truncated),
        }
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        match self.bytes.get(self.offset) {
            Some(byte) => {
                self.offset += 1;
                Ok(*byte)
            }
            None => self.fault(Fault::Truncated),
        }
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => self.fault(Fault::NoBoolean(other)),
        }
    }

    /// A zigzag variable-length integer.
    pub(super) fn long(&mut self) -> Result<i64, Malformed> {
        let mut zigzag = 0_u64;
        for position in 0..10 {
            let byte = self.byte()?;
            zigzag |= u64::from(byte & 0x7f) << (position * 7);
            if byte & 0x80 == 0 {
                return Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed());
            }
        }
        self.fault(Fault::IntegerTooLong)
    }

    pub(super) fn int(&mut self) -> Result<i32, Malformed> {
        let long = self.long()?;
        i32::try_from(long).or_else(|_| self.fault(Fault::NoInt(long)))
    }

    /// A length and as many bytes.
    pub(super) fn bytes(&mut self) -> Result<&'b [u8], Malformed> {
        let length = self.long()?;
        match usize::try_from(length) {
            Ok(count) if count <= self.remaining() => self.take(count),
            _ => self.fault(Fault::Length(length)),
        }
    }

    pub(super) fn string(&mut self) -> Result<&'b str, Malformed> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).or_else(|_| self.fault(Fault::NotUtf8))
    }

    /// The index of a union's variant, below `count`.
    pub(super) fn variant(&mut self, count: usize) -> Result<usize, Malformed> {
        self.index(count, Fault::UnionVariant)
    }

    /// The index of an enum's symbol, below `count`.
    pub(super) fn symbol(&mut self, count: usize) -> Result<usize, Malformed> {
        self.index(count, Fault::EnumSymbol)
    }

    fn index(&mut self, count: usize, fault: fn(i64) -> Fault) -> Result<usize, Malformed> {
        let index = self.long()?;
        match usize::try_from(index) {
            Ok(position) if position < count => Ok(position),
            _ => self.fault(fault(index)),
        }
    }

    /// The head of a collection's next block; `None` at the end of the collection. Each item takes at
    /// least `min_bytes`, so a count that the remaining bytes cannot hold is a lie.
    pub(super) fn block(&mut self, min_bytes: usize) -> Result<Option<Block>, Malformed> {
        let count = self.long()?;
        if count == 0 {
            return Ok(None);
        }
        let size = if count < 0 { Some(self.long()?) } else { None };
        let items = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        match items.checked_mul(min_bytes.max(1)) {
            Some(needed) if needed <= self.remaining() => Ok(Some(Block { items, size, start: self.offset })),
            _ => self.fault(Fault::BlockCount(count)),
        }
    }

    /// Checks, after a block's items, the size that its head gave.
    pub(super) fn end_block(&self, block: Block) -> Result<(), Malformed> {
        match block.size {
            Some(size) if usize::try_from(size) != Ok(self.offset - block.start) => {
                self.fault(Fault::BlockSize(size))
            }
            _ => Ok(()),
        }
    }
}

/// The head of a block.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) items: usize,
    size: Option<i64>,
    start: usize,
}
