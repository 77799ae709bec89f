//! Reads the weights from an ONNX file. Only seven protobuf fields are needed, so no crate is used.
//!
//! Field numbers from `onnx.proto`: `ModelProto.graph` 7, `GraphProto.initializer` 5,
//! `TensorProto.{dims 1, data_type 2, float_data 4, name 8, raw_data 9}`; `data_type` 1 is `FLOAT`,
//! little-endian. A truncated or inconsistent part is omitted and never causes a panic. The caller
//! checks that all needed tensors are present.

use std::collections::HashMap;

/// Shape of a tensor, and its values row by row.
pub(super) type Tensor = (Vec<usize>, Vec<f32>);

/// The fields of one protobuf message.
struct Message<'a>(&'a [u8]);

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Message<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for i in 0..10 {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 127) << (7 * i);
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = (u64, Field<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Bytes(self.take(8)?),
            2 => {
                let len = self.varint()?;
                Field::Bytes(self.take(len)?)
            }
            5 => Field::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((tag >> 3, field))
    }
}

/// All float initializers of the file's graph, by name.
pub(super) fn tensors(file: &[u8]) -> HashMap<String, Tensor> {
    let mut found = HashMap::new();
    for graph in Message(file).filter_map(submessage(7)) {
        for initializer in Message(graph).filter_map(submessage(5)) {
            if let Some((name, tensor)) = tensor(initializer) {
                found.insert(name, tensor);
            }
        }
    }
    found
}

fn submessage(number: u64) -> impl Fn((u64, Field<'_>)) -> Option<&[u8]> {
    move |(n, field)| match field {
        Field::Bytes(bytes) if n == number => Some(bytes),
        _ => None,
    }
}

fn tensor(message: &[u8]) -> Option<(String, Tensor)> {
    let (mut dims, mut data_type, mut name, mut values) =
        (Vec::new(), 0, String::new(), Vec::new());
    for field in Message(message) {
        match field {
            (1, Field::Number(n)) => dims.push(usize::try_from(n).ok()?),
            (1, Field::Bytes(packed)) => {
                let mut packed = Message(packed);
                while let Some(n) = packed.varint() {
                    dims.push(usize::try_from(n).ok()?);
                }
            }
            (2, Field::Number(n)) => data_type = n,
            (4 | 9, Field::Bytes(raw)) => {
                values = raw.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            }
            (8, Field::Bytes(bytes)) => name = String::from_utf8_lossy(bytes).into_owned(),
            _ => {}
        }
    }
    let len = dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
    (data_type == 1 && len == values.len()).then_some((name, (dims, values)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one tensor `w` of shape `[2]`.
    fn file() -> Vec<u8> {
        let mut tensor = vec![0x08, 2, 0x10, 1, 0x42, 1, b'w', 0x4a, 8];
        tensor.extend([1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()));
        let mut graph = vec![0x2a, tensor.len() as u8];
        graph.extend(tensor);
        let mut file = vec![0x3a, graph.len() as u8];
        file.extend(graph);
        file
    }

    #[test]
    fn a_tensor_is_read_with_its_shape() {
        assert_eq!(tensors(&file())["w"], (vec![2], vec![1.5, -2.0]));
    }

    #[test]
    fn a_file_cut_short_at_any_byte_yields_nothing() {
        let whole = file();
        for len in 0..whole.len() {
            assert!(tensors(&whole[..len]).is_empty(), "{len} bytes");
        }
    }

    #[test]
    fn a_shape_that_does_not_fit_the_values_is_refused() {
        let mut bad = file();
        bad[5] = 3;
        assert!(tensors(&bad).is_empty());
    }

    #[test]
    fn dimensions_whose_product_overflows_are_refused() {
        // Two dimensions of 2^63 multiply to zero in 64 bits, which is the number of values of this
        // tensor.
        let huge = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
        let mut message = vec![0x10, 1, 0x42, 1, b'w'];
        for _ in 0..2 {
            message.push(0x08);
            message.extend(huge);
        }
        assert!(tensor(&message).is_none());
    }
}
