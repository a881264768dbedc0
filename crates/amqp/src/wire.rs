//! The primitive encodings of AMQP 0-9-1: integers, short and long strings, field tables.

use bytes::{BufMut, Bytes, BytesMut};

use crate::table::{FieldTable, FieldValue};

/// Nesting allowed in a received table; deeper ones are refused instead of recursing without bound.
const MAX_DEPTH: usize = 32;

/// Bytes that do not decode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("{0} ends too early")]
    Truncated(&'static str),
    #[error("field type 0x{0:02x} is unknown")]
    UnknownFieldType(u8),
    #[error("a short string is not utf-8")]
    NotUtf8,
    #[error("tables are nested deeper than {MAX_DEPTH}")]
    TooDeep,
    #[error("{0}")]
    Other(&'static str),
}

/// A value that cannot be expressed on the wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {length} bytes long, the limit is {limit}")]
pub(crate) struct TooLong {
    pub(crate) field: &'static str,
    pub(crate) length: usize,
    pub(crate) limit: usize,
}

/// Takes primitives off the front of a byte slice.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], WireError> {
        if self.rest.len() < length {
            return Err(WireError::Truncated(what));
        }
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N, what)?);
        Ok(bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>("an octet")?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array("a short")?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array("a long")?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_be_bytes(self.array("a long long")?))
    }

    pub(crate) fn short_bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = usize::from(self.u8()?);
        self.take(length, "a short string")
    }

    /// A short string that must be UTF-8.
    pub(crate) fn short(&mut self) -> Result<String, WireError> {
        let bytes = self.short_bytes()?;
        str::from_utf8(bytes).map(str::to_owned).map_err(|_| WireError::NotUtf8)
    }

    /// A short string of a method: brokers do not validate names, so odd bytes must not be fatal.
    pub(crate) fn short_lossy(&mut self) -> Result<String, WireError> {
        Ok(String::from_utf8_lossy(self.short_bytes()?).into_owned())
    }

    pub(crate) fn long_bytes(&mut self, what: &'static str) -> Result<&'a [u8], WireError> {
        let length = self.u32()? as usize;
        self.take(length, what)
    }

    pub(crate) fn table(&mut self) -> Result<FieldTable, WireError> {
        self.nested_table(0)
    }

    fn nested_table(&mut self, depth: usize) -> Result<FieldTable, WireError> {
        if depth > MAX_DEPTH {
            return Err(WireError::TooDeep);
        }
        let mut inner = Reader::new(self.long_bytes("a table")?);
        let mut table = FieldTable::new();
        while !inner.is_empty() {
            let key = inner.short()?;
            let value = inner.value(depth)?;
            table.push(key, value);
        }
        Ok(table)
    }

    fn value(&mut self, depth: usize) -> Result<FieldValue, WireError> {
        let what = "a field value";
        Ok(match self.u8()? {
            b't' => FieldValue::Bool(self.u8()? != 0),
            b'b' => FieldValue::Int(i64::from(i8::from_be_bytes(self.array(what)?))),
            b'B' => FieldValue::Int(i64::from(self.u8()?)),
            b's' => FieldValue::Int(i64::from(i16::from_be_bytes(self.array(what)?))),
            b'u' => FieldValue::Int(i64::from(self.u16()?)),
            b'I' => FieldValue::Int(i64::from(i32::from_be_bytes(self.array(what)?))),
            b'i' => FieldValue::Int(i64::from(self.u32()?)),
            b'l' | b'L' => FieldValue::Int(i64::from_be_bytes(self.array(what)?)),
            b'f' => FieldValue::Float(f64::from(f32::from_be_bytes(self.array(what)?))),
            b'd' => FieldValue::Float(f64::from_be_bytes(self.array(what)?)),
            b'D' => {
                let scale = self.u8()?;
                FieldValue::Decimal { scale, value: i32::from_be_bytes(self.array(what)?) }
            }
            b'S' => {
                let bytes = self.long_bytes("a long string")?;
                match str::from_utf8(bytes) {
                    Ok(text) => FieldValue::Text(text.to_owned()),
                    Err(_) => FieldValue::Bytes(Bytes::copy_from_slice(bytes)),
                }
            }
            b'x' => FieldValue::Bytes(Bytes::copy_from_slice(self.long_bytes("a byte array")?)),
            b'T' => FieldValue::Timestamp(self.u64()?),
            b'A' => {
                if depth >= MAX_DEPTH {
                    return Err(WireError::TooDeep);
                }
                let mut inner = Reader::new(self.long_bytes("an array")?);
                let mut values = Vec::new();
                while !inner.is_empty() {
                    values.push(inner.value(depth + 1)?);
                }
                FieldValue::Array(values)
            }
            b'F' => FieldValue::Table(self.nested_table(depth + 1)?),
            b'V' => FieldValue::Void,
            other => return Err(WireError::UnknownFieldType(other)),
        })
    }
}

/// Appends a string of at most 255 bytes.
pub(crate) fn put_short(buffer: &mut BytesMut, field: &'static str, text: &str) -> Result<(), TooLong> {
    let length = u8::try_from(text.len()).map_err(|_| TooLong { field, length: text.len(), limit: 255 })?;
    buffer.put_u8(length);
    buffer.put_slice(text.as_bytes());
    Ok(())
}

/// Appends a byte string with a 32-bit length.
pub(crate) fn put_long(buffer: &mut BytesMut, field: &'static str, bytes: &[u8]) -> Result<(), TooLong> {
    let limit = u32::MAX as usize;
    let length = u32::try_from(bytes.len()).map_err(|_| TooLong { field, length: bytes.len(), limit })?;
    buffer.put_u32(length);
    buffer.put_slice(bytes);
    Ok(())
}

/// Appends a table; `field` names it in errors.
pub(crate) fn put_table(buffer: &mut BytesMut, table: &FieldTable) -> Result<(), TooLong> {
    put_sized(buffer, |buffer| {
        for (key, value) in table.iter() {
            put_short(buffer, "a header key", key)?;
            put_value(buffer, value)?;
        }
        Ok(())
    })
}

/// Appends what `write` appends, with its length in front.
fn put_sized(
    buffer: &mut BytesMut,
    write: impl FnOnce(&mut BytesMut) -> Result<(), TooLong>,
) -> Result<(), TooLong> {
    let start = buffer.len();
    buffer.put_u32(0);
    write(buffer)?;
    let length = buffer.len() - start - 4;
    let limit = u32::MAX as usize;
    let length = u32::try_from(length).map_err(|_| TooLong { field: "a table", length, limit })?;
    buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn put_value(buffer: &mut BytesMut, value: &FieldValue) -> Result<(), TooLong> {
    match value {
        FieldValue::Void => buffer.put_u8(b'V'),
        FieldValue::Bool(value) => {
            buffer.put_u8(b't');
            buffer.put_u8(u8::from(*value));
        }
        FieldValue::Int(value) => {
            buffer.put_u8(b'l');
            buffer.put_i64(*value);
        }
        FieldValue::Float(value) => {
            buffer.put_u8(b'd');
            buffer.put_f64(*value);
        }
        FieldValue::Decimal { scale, value } => {
            buffer.put_u8(b'D');
            buffer.put_u8(*scale);
            buffer.put_i32(*value);
        }
        FieldValue::Text(text) => {
            buffer.put_u8(b'S');
            put_long(buffer, "a header value", text.as_bytes())?;
        }
        FieldValue::Bytes(bytes) => {
            buffer.put_u8(b'x');
            put_long(buffer, "a header value", bytes)?;
        }
        FieldValue::Timestamp(seconds) => {
            buffer.put_u8(b'T');
            buffer.put_u64(*seconds);
        }
        FieldValue::Array(values) => {
            buffer.put_u8(b'A');
            put_sized(buffer, |buffer| values.iter().try_for_each(|value| put_value(buffer, value)))?;
        }
        FieldValue::Table(table) => {
            buffer.put_u8(b'F');
            put_table(buffer, table)?;
        }
    }
    Ok(())
}
