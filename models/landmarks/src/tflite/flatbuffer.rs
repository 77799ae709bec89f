//! Reads tables of a FlatBuffers file. Every offset is checked, so a malformed file gives an error.
//!
//! Format: <https://flatbuffers.dev/internals/>. A table begins with the distance to its vtable,
//! which holds the offset of each field in the table, 0 for a field with its default value.

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

const OUTSIDE: Malformed = Malformed("an offset points outside the file");

/// Identifier of the file format.
const IDENTIFIER: &[u8] = b"TFL3";

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Malformed> {
    let end = at.checked_add(N).ok_or(OUTSIDE)?;
    bytes.get(at..end).and_then(|part| part.try_into().ok()).ok_or(OUTSIDE)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
    bytes_at(bytes, at).map(|b| usize::from(u16::from_le_bytes(b)))
}

fn i32_at(bytes: &[u8], at: usize) -> Result<i32, Malformed> {
    bytes_at(bytes, at).map(i32::from_le_bytes)
}

/// The place that the offset at `at` points to.
fn follow(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
    let offset = bytes_at(bytes, at).map(u32::from_le_bytes)?;
    at.checked_add(offset as usize).filter(|to| *to < bytes.len()).ok_or(OUTSIDE)
}

/// A table.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
    vtable: usize,
    /// Size of the vtable in bytes.
    vtable_size: usize,
}

impl<'a> Table<'a> {
    /// The root table of a file.
    pub(super) fn root(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.get(4..8) != Some(IDENTIFIER) {
            return Err(Malformed("it is not a TensorFlow Lite file"));
        }
        Self::at(bytes, follow(bytes, 0)?)
    }

    fn at(bytes: &'a [u8], at: usize) -> Result<Self, Malformed> {
        let distance = i64::from(i32_at(bytes, at)?);
        let vtable = i64::try_from(at).ok().and_then(|at| usize::try_from(at - distance).ok());
        let vtable = vtable.ok_or(OUTSIDE)?;
        let vtable_size = u16_at(bytes, vtable)?;
        let inside = vtable.checked_add(vtable_size).is_some_and(|end| end <= bytes.len());
        if inside { Ok(Self { bytes, at, vtable, vtable_size }) } else { Err(OUTSIDE) }
    }

    /// Position of field number `n`; `None` if the field has its default value.
    fn field(&self, n: usize) -> Result<Option<usize>, Malformed> {
        let slot = 4 + 2 * n;
        if slot + 2 > self.vtable_size {
            return Ok(None);
        }
        let offset = u16_at(self.bytes, self.vtable + slot)?;
        Ok((offset != 0).then_some(self.at + offset))
    }

    /// A byte; 0 by default.
    pub(super) fn byte(&self, n: usize) -> Result<u8, Malformed> {
        match self.field(n)? {
            Some(at) => bytes_at(self.bytes, at).map(|[byte]| byte),
            None => Ok(0),
        }
    }

    /// A 32-bit number; 0 by default.
    pub(super) fn int(&self, n: usize) -> Result<i32, Malformed> {
        self.field(n)?.map_or(Ok(0), |at| i32_at(self.bytes, at))
    }

    /// A 32-bit number that counts or indexes; `default` if it is absent.
    pub(super) fn index(&self, n: usize, default: usize) -> Result<usize, Malformed> {
        match self.field(n)? {
            Some(at) => usize::try_from(i32_at(self.bytes, at)?)
                .map_err(|_| Malformed("a number is negative")),
            None => Ok(default),
        }
    }

    /// A table; `None` if it is absent.
    pub(super) fn table(&self, n: usize) -> Result<Option<Self>, Malformed> {
        match self.field(n)? {
            Some(at) => Self::at(self.bytes, follow(self.bytes, at)?).map(Some),
            None => Ok(None),
        }
    }

    /// Position and content of a vector whose elements have `size` bytes; empty if it is absent.
    fn vector(&self, n: usize, size: usize) -> Result<(usize, &'a [u8]), Malformed> {
        let Some(at) = self.field(n)? else { return Ok((0, &[])) };
        let vector = follow(self.bytes, at)?;
        let count = bytes_at(self.bytes, vector).map(u32::from_le_bytes)? as usize;
        let first = vector + 4;
        let end = count.checked_mul(size).and_then(|length| first.checked_add(length));
        let content = end.and_then(|end| self.bytes.get(first..end)).ok_or(OUTSIDE)?;
        Ok((first, content))
    }

    /// A vector of bytes.
    pub(super) fn bytes(&self, n: usize) -> Result<&'a [u8], Malformed> {
        self.vector(n, 1).map(|(_, content)| content)
    }

    /// A vector of 32-bit numbers, at most `limit`.
    pub(super) fn ints(&self, n: usize, limit: usize) -> Result<Vec<i32>, Malformed> {
        let (_, content) = self.vector(n, 4)?;
        if content.len() / 4 > limit {
            return Err(Malformed("a list is too long"));
        }
        Ok(content.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// A vector of tables, at most `limit`.
    pub(super) fn tables(&self, n: usize, limit: usize) -> Result<Vec<Self>, Malformed> {
        let (first, content) = self.vector(n, 4)?;
        let count = content.len() / 4;
        if count > limit {
            return Err(Malformed("a list is too long"));
        }
        (0..count).map(|i| Self::at(self.bytes, follow(self.bytes, first + 4 * i)?)).collect()
    }
}
