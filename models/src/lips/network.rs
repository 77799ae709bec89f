//! The network: three dense layers. The first covers five frames of features, the second six frames
//! of the first layer's output. The file defines the exact frames. It is written only by
//! `scripts/lips/train.py`.

use std::sync::LazyLock;

use super::features::MEL_BANDS;

const NETWORK_FILE: &[u8] = include_bytes!("../../../assets/lips/network.bin");
const MAGIC: &[u8; 5] = b"VLIPS";
const VERSION: u16 = 1;
/// Maximum of the minimum durations of all classes, in frames. A class lasts at least its own
/// minimum, which is at least one frame.
pub(super) const MAX_MIN_FRAMES: usize = 4;
/// Number of outputs that are computed together: they fit into the registers of every machine.
const OUTPUTS_PER_BLOCK: usize = 16;

/// Error of a network file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The file does not start with the magic bytes.
    #[error("not a lip-sync network")]
    Magic,
    /// The file has another version.
    #[error("the lip-sync network has version {0}, but this program requires version {VERSION}")]
    Version(u16),
    /// The file is truncated, too long or inconsistent.
    #[error("damaged lip-sync network: {0}")]
    Damaged(&'static str),
}

/// `relu(W x + b)`, or the same without `relu`. Layout of the weights: [block of
/// outputs][input][output in block].
struct Layer {
    inputs: usize,
    weights: Vec<[f32; OUTPUTS_PER_BLOCK]>,
    bias: Vec<[f32; OUTPUTS_PER_BLOCK]>,
}

impl Layer {
    /// Computes the outputs in whole blocks: those beyond the last output are 0.
    fn forward(&self, x: &[f32], out: &mut [f32], relu: bool) {
        debug_assert_eq!(x.len(), self.inputs);
        let blocks = self.weights.chunks_exact(self.inputs).zip(&self.bias);
        for ((weights, bias), out) in blocks.zip(out.as_chunks_mut::<OUTPUTS_PER_BLOCK>().0) {
            // Two sums, so that an addition does not depend on the one before it.
            let (mut even, mut odd) = (*bias, [0.0; OUTPUTS_PER_BLOCK]);
            let (pairs, rest) = weights.as_chunks::<2>();
            let (x_pairs, x_rest) = x.as_chunks::<2>();
            for ([w, v], [a, b]) in pairs.iter().zip(x_pairs) {
                multiply_add(&mut even, w, *a);
                multiply_add(&mut odd, v, *b);
            }
            for (w, a) in rest.iter().zip(x_rest) {
                multiply_add(&mut even, w, *a);
            }
            for (to, (a, b)) in out.iter_mut().zip(even.iter().zip(&odd)) {
                *to = if relu { (a + b).max(0.0) } else { a + b };
            }
        }
    }
}

#[inline(always)]
fn multiply_add(sums: &mut [f32; OUTPUTS_PER_BLOCK], weights: &[f32; OUTPUTS_PER_BLOCK], x: f32) {
    for (sum, weight) in sums.iter_mut().zip(weights) {
        *sum += weight * x;
    }
}

/// The weights, and the parameters of the decoder that belong to them.
pub struct Network {
    names: Vec<String>,
    /// Look-ahead of the decoder, in frames.
    lag: usize,
    /// Frame offsets of the input of the first layer, without a gap, and of the second layer
    /// relative to the first.
    first_context: Vec<isize>,
    second_context: Vec<isize>,
    mean: [f32; MEL_BANDS],
    scale: [f32; MEL_BANDS],
    layers: [Layer; 3],
    /// Added to the logit of each class.
    pub(super) logit_offsets: Vec<f32>,
    /// Transition scores, as logarithms: [from][to].
    pub(super) transitions: Vec<f32>,
    /// Minimum duration of each class, in frames.
    pub(super) min_frames: Vec<u8>,
}

impl Network {
    /// The network in the binary.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static NETWORK: LazyLock<Network> = LazyLock::new(|| {
            #[allow(clippy::expect_used, reason = "a constant of the binary, which a test reads")]
            Network::parse(NETWORK_FILE).expect("the network in the binary")
        });
        &NETWORK
    }

    /// Parses a file.
    ///
    /// # Errors
    /// If it is not a network, has another version or is damaged.
    pub fn parse(file: &[u8]) -> Result<Self, Error> {
        let mut rest = file.strip_prefix(MAGIC).ok_or(Error::Magic)?;
        let reader = &mut rest;
        let version = u16::from_le_bytes(read_array(reader)?);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let mut count = || read_array(reader).map(|bytes| usize::from(u16::from_le_bytes(bytes)));
        let [bands, hidden, deeper, first_context, second_context, lag, names] =
            [count()?, count()?, count()?, count()?, count()?, count()?, count()?];
        let names =
            std::str::from_utf8(read_bytes(reader, names)?).map_err(|_| Error::Damaged("names"))?;
        let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
        let classes = names.len();
        let fits = |n: usize| (1..=1024).contains(&n);
        if bands != MEL_BANDS
            || ![hidden, deeper, classes, first_context, second_context].into_iter().all(fits)
            || classes > 64
        {
            return Err(Error::Damaged("sizes"));
        }
        let first_context = read_offsets(reader, first_context)?;
        let second_context = read_offsets(reader, second_context)?;
        if !first_context.windows(2).all(|pair| pair[1] == pair[0] + 1) {
            return Err(Error::Damaged("gaps in the context of the first layer"));
        }
        let (mean, scale) = (read_floats(reader, MEL_BANDS)?, read_floats(reader, MEL_BANDS)?);
        let all = |values: Vec<f32>| std::array::from_fn(|n| values[n]);
        let layers = [
            read_layer(reader, first_context.len() * MEL_BANDS, hidden)?,
            read_layer(reader, second_context.len() * hidden, deeper)?,
            read_layer(reader, deeper, classes)?,
        ];
        let network = Self {
            lag,
            first_context,
            second_context,
            mean: all(mean),
            scale: all(scale),
            layers,
            logit_offsets: read_floats(reader, classes)?,
            transitions: read_floats(reader, classes * classes)?,
            min_frames: read_bytes(reader, classes)?.to_vec(),
            names,
        };
        let lasts = |n: &u8| (1..=MAX_MIN_FRAMES as u8).contains(n);
        if !reader.is_empty() || !network.min_frames.iter().all(lasts) {
            return Err(Error::Damaged("trailing bytes or minimum durations"));
        }
        Ok(network)
    }

    /// The phone that represents a class.
    #[must_use]
    pub fn name(&self, class: u8) -> &str {
        &self.names[usize::from(class)]
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.names.len()
    }

    /// Number of frames before its own on which a result depends.
    pub(super) fn past_frames(&self) -> usize {
        (-self.first_context[0] - self.second_context[0]) as usize
    }

    /// Number of frames after its own on which a result depends.
    pub(super) fn future_frames(&self) -> usize {
        (self.first_context[self.first_context.len() - 1]
            + self.second_context[self.second_context.len() - 1]) as usize
    }

    /// Look-ahead of the decoder, in frames.
    pub(super) fn lag(&self) -> usize {
        self.lag
    }
}

fn read_array<const N: usize>(reader: &mut &[u8]) -> Result<[u8; N], Error> {
    let (first, rest) = reader.split_first_chunk().ok_or(Error::Damaged("truncated"))?;
    *reader = rest;
    Ok(*first)
}

fn read_bytes<'a>(reader: &mut &'a [u8], count: usize) -> Result<&'a [u8], Error> {
    let (first, rest) = reader.split_at_checked(count).ok_or(Error::Damaged("truncated"))?;
    *reader = rest;
    Ok(first)
}

fn read_floats(reader: &mut &[u8], count: usize) -> Result<Vec<f32>, Error> {
    let all: Vec<f32> = read_bytes(reader, 4 * count)?
        .as_chunks()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect();
    if all.iter().all(|x| x.is_finite()) { Ok(all) } else { Err(Error::Damaged("numbers")) }
}

/// Frame offsets relative to the result: ascending, from at most 0 to at least 0.
fn read_offsets(reader: &mut &[u8], count: usize) -> Result<Vec<isize>, Error> {
    let all: Vec<isize> = read_bytes(reader, 2 * count)?
        .as_chunks()
        .0
        .iter()
        .map(|b| isize::from(i16::from_le_bytes(*b)))
        .collect();
    let fits = all.is_sorted_by(|a, b| a < b) && all[0] <= 0 && all[count - 1] >= 0;
    let near = all.iter().all(|o| o.abs() < 100);
    if fits && near { Ok(all) } else { Err(Error::Damaged("offsets")) }
}

/// For each output: a scale, a bias, and an 8-bit weight for each input.
fn read_layer(reader: &mut &[u8], inputs: usize, outputs: usize) -> Result<Layer, Error> {
    let (scales, biases) = (read_floats(reader, outputs)?, read_floats(reader, outputs)?);
    let quantized = read_bytes(reader, inputs * outputs)?;
    let blocks = outputs.div_ceil(OUTPUTS_PER_BLOCK);
    let mut weights = vec![[0.0; OUTPUTS_PER_BLOCK]; blocks * inputs];
    let mut bias = vec![[0.0; OUTPUTS_PER_BLOCK]; blocks];
    for (output, row) in quantized.chunks_exact(inputs).enumerate() {
        let (block, lane) = (output / OUTPUTS_PER_BLOCK, output % OUTPUTS_PER_BLOCK);
        bias[block][lane] = biases[output];
        for (input, q) in row.iter().enumerate() {
            weights[block * inputs + input][lane] = f32::from(*q as i8) * scales[output];
        }
    }
    Ok(Layer { inputs, weights, bias })
}

/// The recent frames of one stream on which future results depend.
pub(super) struct Stream {
    /// Normalized features, the latest frame last; outputs of the first layer; inputs and outputs
    /// of the second layer; and results.
    features: Vec<f32>,
    first_outputs: Vec<f32>,
    second_inputs: Vec<f32>,
    second_outputs: Vec<f32>,
    logits: Vec<f32>,
    /// Number of frames until the first result.
    frames_to_fill: usize,
}

impl Stream {
    pub(super) fn new(network: &Network) -> Self {
        let span = |offsets: &[isize]| (offsets[offsets.len() - 1] - offsets[0]) as usize + 1;
        let width = |layer: usize| network.layers[layer].bias.len() * OUTPUTS_PER_BLOCK;
        Self {
            features: vec![0.0; span(&network.first_context) * MEL_BANDS],
            first_outputs: vec![0.0; span(&network.second_context) * width(0)],
            second_inputs: vec![0.0; network.layers[1].inputs],
            second_outputs: vec![0.0; width(1)],
            logits: vec![0.0; width(2)],
            frames_to_fill: network.past_frames() + network.future_frames(),
        }
    }

    /// Takes the next frame. Returns the logits of the frame [`Network::future_frames`] frames
    /// before it, if [`Network::past_frames`] frames precede that one.
    pub(super) fn push(&mut self, network: &Network, frame: &[f32; MEL_BANDS]) -> Option<&[f32]> {
        let [first, second, third] = &network.layers;
        self.features.copy_within(MEL_BANDS.., 0);
        let newest = self.features.len() - MEL_BANDS;
        for (to, ((x, mean), scale)) in self.features[newest..]
            .iter_mut()
            .zip(frame.iter().zip(&network.mean).zip(&network.scale))
        {
            *to = (x - mean) * scale;
        }
        let width = first.bias.len() * OUTPUTS_PER_BLOCK;
        self.first_outputs.copy_within(width.., 0);
        let newest = self.first_outputs.len() - width;
        first.forward(&self.features, &mut self.first_outputs[newest..], true);
        if self.frames_to_fill > 0 {
            self.frames_to_fill -= 1;
            return None;
        }
        let each = second.inputs / network.second_context.len();
        for (to, offset) in self.second_inputs.chunks_exact_mut(each).zip(&network.second_context) {
            let at = (offset - network.second_context[0]) as usize * width;
            to.copy_from_slice(&self.first_outputs[at..at + each]);
        }
        second.forward(&self.second_inputs, &mut self.second_outputs, true);
        third.forward(&self.second_outputs[..third.inputs], &mut self.logits, false);
        Some(&self.logits[..network.classes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_in_the_binary_is_whole_and_small() {
        let network = Network::parse(NETWORK_FILE).unwrap();
        assert!(NETWORK_FILE.len() <= 64 * 1024, "{} bytes", NETWORK_FILE.len());
        for closure in ["p", "f", "pau"] {
            assert!(network.names.iter().any(|name| name == closure), "{closure}");
        }
    }

    #[test]
    fn a_damaged_network_file_is_reported() {
        assert_eq!(Network::parse(b"what").err(), Some(Error::Magic));
        let mut other = NETWORK_FILE.to_vec();
        other[5] = 9;
        assert_eq!(Network::parse(&other).err(), Some(Error::Version(9)));
        for length in (5..NETWORK_FILE.len()).step_by(97) {
            assert!(
                matches!(Network::parse(&NETWORK_FILE[..length]), Err(Error::Damaged(_))),
                "cut short at {length}"
            );
        }
        let longer = [NETWORK_FILE, &[0]].concat();
        assert!(matches!(Network::parse(&longer), Err(Error::Damaged(_))));
    }
}
