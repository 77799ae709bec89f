//! The tensors and operations of a TensorFlow Lite file, before their shapes are checked.
//!
//! Numbers of fields and codes are those of the schema of TensorFlow Lite, version 3.

use super::flatbuffer::{Malformed, Table};

/// Maximum number of tensors, and of operations.
const MAX_ITEMS: usize = 2_048;
/// Maximum number of inputs of an operation.
const MAX_OPERANDS: usize = 16;
/// Maximum number of dimensions.
const MAX_RANK: usize = 4;
/// Maximum number of elements of a tensor.
pub(super) const MAX_ELEMENTS: usize = 1 << 22;

/// Type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Float32,
    Float16,
    Int32,
}

pub(super) struct Tensor<'a> {
    pub(super) shape: Vec<usize>,
    /// Number of elements.
    pub(super) count: usize,
    kind: Kind,
    /// Content of a constant; empty if an operation computes the tensor.
    data: &'a [u8],
}

impl<'a> Tensor<'a> {
    fn read(table: &Table<'a>, buffers: &[Table<'a>]) -> Result<Self, Malformed> {
        let shape: Option<Vec<usize>> = table
            .ints(0, MAX_RANK)?
            .into_iter()
            .map(|length| usize::try_from(length).ok().filter(|length| *length > 0))
            .collect();
        let shape = shape.ok_or(Malformed("a tensor has no size"))?;
        let count = shape
            .iter()
            .try_fold(1_usize, |count, length| count.checked_mul(*length))
            .filter(|count| *count <= MAX_ELEMENTS)
            .ok_or(Malformed("a tensor is too large"))?;
        let kind = match table.byte(1)? {
            0 => Kind::Float32,
            1 => Kind::Float16,
            2 => Kind::Int32,
            _ => return Err(Malformed("the type of a tensor is not supported")),
        };
        let buffer = buffers.get(table.index(2, 0)?).ok_or(Malformed("a tensor has no buffer"))?;
        Ok(Self { shape, count, kind, data: buffer.bytes(0)? })
    }

    pub(super) fn is_constant(&self) -> bool {
        !self.data.is_empty()
    }

    /// The elements of a constant of numbers with 32 bits.
    pub(super) fn floats(&self) -> Result<Vec<f32>, Malformed> {
        let elements = self.elements::<4>(Kind::Float32)?;
        Ok(elements.into_iter().map(f32::from_le_bytes).collect())
    }

    /// The elements of a constant of numbers with 16 bits.
    pub(super) fn halves(&self) -> Result<Vec<f32>, Malformed> {
        let elements = self.elements::<2>(Kind::Float16)?;
        Ok(elements.into_iter().map(|b| half_to_float(u16::from_le_bytes(b))).collect())
    }

    /// The elements of a constant of integers that count.
    pub(super) fn counts(&self) -> Result<Vec<usize>, Malformed> {
        let elements = self.elements::<4>(Kind::Int32)?;
        elements
            .into_iter()
            .map(|b| usize::try_from(i32::from_le_bytes(b)))
            .collect::<Result<_, _>>()
            .map_err(|_| Malformed("a number is negative"))
    }

    fn elements<const N: usize>(&self, kind: Kind) -> Result<Vec<[u8; N]>, Malformed> {
        if self.kind != kind || self.data.len() != self.count * N {
            return Err(Malformed("a constant has another type or length than its tensor"));
        }
        Ok(self.data.chunks_exact(N).filter_map(|bytes| bytes.try_into().ok()).collect())
    }
}

/// Converts a number of IEEE 754 binary16.
fn half_to_float(half: u16) -> f32 {
    let bits = u32::from(half);
    let (sign, exponent, fraction) = ((bits >> 15) << 31, (bits >> 10) & 31, bits & 1_023);
    match exponent {
        // Zero and subnormal numbers: multiples of 2^-24.
        0 => f32::from_bits(sign | (fraction as f32 / 16_777_216.0).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | (fraction << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (fraction << 13)),
    }
}

pub(super) struct Operation<'a> {
    /// Number of the built-in operation.
    pub(super) code: i32,
    pub(super) inputs: Vec<usize>,
    pub(super) output: usize,
    pub(super) options: Option<Table<'a>>,
    /// Name of a custom operation, and its options.
    pub(super) custom: [&'a [u8]; 2],
}

pub(super) struct Graph<'a> {
    pub(super) tensors: Vec<Tensor<'a>>,
    pub(super) operations: Vec<Operation<'a>>,
    pub(super) input: usize,
    pub(super) outputs: Vec<usize>,
}

impl<'a> Graph<'a> {
    pub(super) fn read(file: &'a [u8]) -> Result<Self, Malformed> {
        let model = Table::root(file)?;
        let codes: Vec<(i32, &[u8])> = model
            .tables(1, MAX_ITEMS)?
            .iter()
            // Old files have the code in a byte; a later field has room for more of them.
            .map(|code| Ok((i32::from(code.byte(0)?).max(code.int(3)?), code.bytes(1)?)))
            .collect::<Result<_, Malformed>>()?;
        let buffers = model.tables(4, MAX_ITEMS)?;
        let [graph] = model.tables(2, 1)?[..] else {
            return Err(Malformed("it has no graph"));
        };
        let tensors: Vec<Tensor<'a>> = graph
            .tables(0, MAX_ITEMS)?
            .iter()
            .map(|table| Tensor::read(table, &buffers))
            .collect::<Result<_, _>>()?;
        let indices = |list: Vec<i32>| {
            list.into_iter()
                .map(|i| usize::try_from(i).ok().filter(|i| *i < tensors.len()))
                .collect::<Option<Vec<usize>>>()
                .ok_or(Malformed("there is no such tensor"))
        };
        let single = |list: Vec<usize>| match list[..] {
            [one] => Ok(one),
            _ => Err(Malformed("the number of tensors is not one")),
        };
        let operations = graph
            .tables(3, MAX_ITEMS)?
            .iter()
            .map(|table| {
                let (code, name) =
                    *codes.get(table.index(0, 0)?).ok_or(Malformed("an operation has no code"))?;
                Ok(Operation {
                    code,
                    inputs: indices(table.ints(1, MAX_OPERANDS)?)?,
                    output: single(indices(table.ints(2, 1)?)?)?,
                    options: table.table(4)?,
                    custom: [name, table.bytes(5)?],
                })
            })
            .collect::<Result<_, Malformed>>()?;
        let input = single(indices(graph.ints(1, 1)?)?)?;
        let outputs = indices(graph.ints(2, MAX_OPERANDS)?)?;
        Ok(Self { tensors, operations, input, outputs })
    }
}

#[cfg(test)]
mod tests {
    use super::half_to_float;

    #[test]
    fn half_precision_is_converted_exactly() {
        for (half, float) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65_504.0),
            (0x3555, 0.333_251_95),
            (0x0001, 5.960_464_5e-8),
            (0x8001, -5.960_464_5e-8),
            (0x7c00, f32::INFINITY),
        ] {
            assert_eq!(half_to_float(half), float, "{half:#06x}");
        }
        assert!(half_to_float(0x7e00).is_nan());
    }
}
