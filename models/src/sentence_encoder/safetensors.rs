//! Reader of a safetensors file: the length of a header (u64, little endian), the header (JSON: the
//! type, shape and byte range of each tensor), and the values of the tensors.
//!
//! The file is read in pieces, because the network keeps a quarter of it.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::Deserialize;

/// Maximum length of the header. That of the network has 11 kB.
const MAX_HEADER_BYTES: u64 = 1 << 20;
/// Number of floats that are read at a time.
const PIECE_FLOATS: usize = 1 << 16;

/// One tensor in the header.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    /// Start and end after the header.
    data_offsets: [u64; 2],
}

/// The tensors of an open file.
pub(super) struct Tensors {
    file: File,
    entries: HashMap<String, Entry>,
    /// Position of the first value in the file.
    data_start: u64,
}

impl Tensors {
    /// Reads the header.
    ///
    /// # Errors
    /// One phrase that says what is wrong with the file.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let file_length = file.metadata().map_err(|error| error.to_string())?.len();
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).map_err(|_| "it has no header".to_owned())?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER_BYTES || length + 8 > file_length {
            return Err(format!("a header of {length} bytes is impossible"));
        }
        let mut header = vec![0; length as usize];
        file.read_exact_at(&mut header, 8).map_err(|error| error.to_string())?;
        let header: HashMap<String, serde_json::Value> = serde_json::from_slice(&header)
            .map_err(|error| format!("its header is no JSON object: {error}"))?;
        let data_start = 8 + length;
        let mut entries = HashMap::new();
        for (name, value) in header {
            if name == "__metadata__" {
                continue;
            }
            let entry: Entry = serde_json::from_value(value)
                .map_err(|error| format!("the header of {name} is wrong: {error}"))?;
            let [start, end] = entry.data_offsets;
            if start > end || end > file_length - data_start {
                return Err(format!("the values of {name} are outside the file"));
            }
            entries.insert(name, entry);
        }
        Ok(Self { file, entries, data_start })
    }

    /// Passes the rows of the tensor `name` to `take`, in order. `shape` is that of the tensor, in
    /// row-major order; a row has the length of the last dimension.
    ///
    /// # Errors
    /// One phrase: there is no such tensor of 32-bit floats with this shape, it cannot be read, or
    /// a value is not finite.
    pub(super) fn read_rows(
        &self,
        name: &str,
        shape: &[usize],
        mut take: impl FnMut(&[f32]),
    ) -> Result<(), String> {
        let wanted = || format!("it has no 32-bit floats {name} of shape {shape:?}");
        let entry = self.entries.get(name).ok_or_else(wanted)?;
        let row = *shape.last().filter(|row| **row > 0).ok_or_else(wanted)?;
        let values: usize = shape.iter().product();
        let [start, end] = entry.data_offsets;
        if entry.dtype != "F32" || entry.shape != shape || end - start != 4 * values as u64 {
            return Err(wanted());
        }
        let mut at = self.data_start + start;
        let mut rows_left = values / row;
        let mut bytes = Vec::new();
        let mut floats = Vec::new();
        while rows_left > 0 {
            let rows = rows_left.min((PIECE_FLOATS / row).max(1));
            bytes.resize(4 * rows * row, 0);
            self.file
                .read_exact_at(&mut bytes, at)
                .map_err(|error| format!("{name} cannot be read: {error}"))?;
            floats.clear();
            floats.extend(bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)));
            if floats.iter().any(|value: &f32| !value.is_finite()) {
                return Err(format!("{name} has a value that is no number"));
            }
            floats.chunks_exact(row).for_each(&mut take);
            at += bytes.len() as u64;
            rows_left -= rows;
        }
        Ok(())
    }

    /// All values of the tensor `name`.
    ///
    /// # Errors
    /// As [`Tensors::read_rows`].
    pub(super) fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let mut values = Vec::with_capacity(shape.iter().product());
        self.read_rows(name, shape, |row| values.extend_from_slice(row))?;
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens a file with this content.
    fn open(name: &str, content: &[u8]) -> Result<Tensors, String> {
        let path = std::env::temp_dir().join(format!("{name}-{}.safetensors", std::process::id()));
        std::fs::write(&path, content).unwrap();
        let opened = Tensors::open(&path);
        std::fs::remove_file(path).unwrap();
        opened
    }

    fn file(header: &str, values: &[f32]) -> Vec<u8> {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        file
    }

    const HEADER: &str = r#"{"__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [24, 28]}}"#;

    #[test]
    fn rows_of_a_tensor_are_read_in_order() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let tensors = open("rows", &file(HEADER, &values)).unwrap();
        let mut rows = Vec::new();
        tensors.read_rows("a", &[2, 3], |row| rows.push(row.to_vec())).unwrap();
        assert_eq!(rows, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        assert_eq!(tensors.read("b", &[1]).unwrap(), [7.0]);
    }

    #[test]
    fn a_tensor_longer_than_a_piece_is_complete() {
        let rows = PIECE_FLOATS / 3 + 7;
        let values: Vec<f32> = (0..rows * 3).map(|i| i as f32).collect();
        let header = format!(
            r#"{{"a": {{"dtype": "F32", "shape": [{rows}, 3], "data_offsets": [0, {}]}}}}"#,
            values.len() * 4
        );
        let tensors = open("pieces", &file(&header, &values)).unwrap();
        assert_eq!(tensors.read("a", &[rows, 3]).unwrap(), values);
    }

    #[test]
    fn another_name_shape_or_type_is_an_error() {
        let tensors = open("shapes", &file(HEADER, &[0.0; 7])).unwrap();
        for (name, shape) in [("c", &[2, 3][..]), ("a", &[3, 2]), ("a", &[6]), ("b", &[])] {
            let error = tensors.read(name, shape).unwrap_err();
            assert!(error.contains(&format!("{name} of shape {shape:?}")), "{error}");
        }
        let half = open("types", &file(&HEADER.replace("F32", "F16"), &[0.0; 7])).unwrap();
        assert!(half.read("a", &[2, 3]).is_err());
        let short = HEADER.replace("[0, 24]", "[0, 20]");
        assert!(open("lengths", &file(&short, &[0.0; 7])).unwrap().read("a", &[2, 3]).is_err());
    }

    #[test]
    fn a_value_that_is_no_number_is_an_error() {
        for value in [f32::NAN, f32::INFINITY] {
            let tensors = open("numbers", &file(HEADER, &[0., 0., value, 0., 0., 0., 0.])).unwrap();
            assert!(tensors.read("a", &[2, 3]).unwrap_err().contains("no number"));
            assert!(tensors.read("b", &[1]).is_ok());
        }
    }

    #[test]
    fn every_truncated_or_damaged_header_is_an_error() {
        let whole = file(HEADER, &[0.0; 7]);
        for length in 0..whole.len() {
            assert!(open("truncated", &whole[..length]).is_err(), "{length} bytes");
        }
        let mut long = whole.clone();
        long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(open("long", &long).err().unwrap().contains("impossible"));
        for (from, to) in [("[0, 24]", "[24, 0]"), ("[0, 24]", "[0, 29]"), ("{\"d", "[\"d")] {
            assert!(open("damaged", &file(&HEADER.replace(from, to), &[0.0; 7])).is_err(), "{to}");
        }
        let huge = HEADER.replace("[2, 3]", "[9223372036854775807, 3]");
        assert!(open("huge", &file(&huge, &[0.0; 7])).unwrap().read("a", &[2, 3]).is_err());
    }
}
