//! The network: three dense layers, the first over five frames of sound, the second over six of the first's. Its file says how it is to be
//! read; `scripts/lips/train.py` writes it, and nothing else does.

use std::sync::LazyLock;

use super::features::BANDS;

const FILE: &[u8] = include_bytes!("../../../assets/lips/network.bin");
const MAGIC: &[u8; 5] = b"VLIPS";
const VERSION: u16 = 1;
/// Outputs that are computed at a time: what fits into the registers of every machine.
const BLOCK: usize = 16;

/// A file is no network of this version.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// It does not begin like one.
    #[error("no network for lips")]
    Magic,
    /// Made for another version.
    #[error("network for lips of version {0}, this is {VERSION}")]
    Version(u16),
    /// Cut short, too long, or its numbers disagree.
    #[error("damaged network for lips: {0}")]
    Damaged(&'static str),
}

/// `relu(W x + b)`, or without the `relu`. Weights lie as [block of outputs][input][output in block].
struct Layer {
    inputs: usize,
    weights: Vec<[f32; BLOCK]>,
    bias: Vec<[f32; BLOCK]>,
}

impl Layer {
    /// Outputs are in whole blocks: those beyond the last are 0.
    fn run(&self, x: &[f32], out: &mut [f32], relu: bool) {
        debug_assert_eq!(x.len(), self.inputs);
        let blocks = self.weights.chunks_exact(self.inputs).zip(&self.bias);
        for ((weights, bias), out) in blocks.zip(out.as_chunks_mut::<BLOCK>().0) {
            // Two sums, so that an addition need not wait for the one before it.
            let (mut even, mut odd) = (*bias, [0.0; BLOCK]);
            let (pairs, rest) = weights.as_chunks::<2>();
            let (x_pairs, x_rest) = x.as_chunks::<2>();
            for ([w, v], [a, b]) in pairs.iter().zip(x_pairs) {
                add(&mut even, w, *a);
                add(&mut odd, v, *b);
            }
            for (w, a) in rest.iter().zip(x_rest) {
                add(&mut even, w, *a);
            }
            for (to, (a, b)) in out.iter_mut().zip(even.iter().zip(&odd)) {
                *to = if relu { (a + b).max(0.0) } else { a + b };
            }
        }
    }
}

#[inline(always)]
fn add(sums: &mut [f32; BLOCK], weights: &[f32; BLOCK], x: f32) {
    for (sum, weight) in sums.iter_mut().zip(weights) {
        *sum += weight * x;
    }
}

/// The weights, and the decoder's numbers that belong to them.
pub struct Network {
    names: Vec<String>,
    /// Frames that the decoder looks ahead.
    lag: usize,
    /// Frames around its own that the first layer sees, without a gap, and frames of the first layer that the second sees.
    near: Vec<isize>,
    far: Vec<isize>,
    mean: [f32; BANDS],
    scale: [f32; BANDS],
    layers: [Layer; 3],
    /// Added to each class's logit.
    pub(super) offsets: Vec<f32>,
    /// Logarithms: [from][to].
    pub(super) moves: Vec<f32>,
    /// Frames that each class lasts at least.
    pub(super) least: Vec<u8>,
}

impl Network {
    /// The one in the binary.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static NETWORK: LazyLock<Network> = LazyLock::new(|| {
            #[allow(clippy::expect_used, reason = "a constant of the binary, which a test reads")]
            Network::read(FILE).expect("the network in the binary")
        });
        &NETWORK
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is none, of another version, or damaged.
    pub fn read(file: &[u8]) -> Result<Self, Error> {
        let mut rest = file.strip_prefix(MAGIC).ok_or(Error::Magic)?;
        let reader = &mut rest;
        let version = u16::from_le_bytes(take(reader)?);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let mut count = || take(reader).map(|bytes| usize::from(u16::from_le_bytes(bytes)));
        let [bands, hidden, deeper, near, far, lag, names] =
            [count()?, count()?, count()?, count()?, count()?, count()?, count()?];
        let names = std::str::from_utf8(bytes(reader, names)?).map_err(|_| Error::Damaged("names"))?;
        let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
        let classes = names.len();
        let fits = |n: usize| (1..=1024).contains(&n);
        if bands != BANDS || ![hidden, deeper, classes, near, far].into_iter().all(fits) || classes > 64 {
            return Err(Error::Damaged("sizes"));
        }
        let near = offsets(reader, near)?;
        let far = offsets(reader, far)?;
        if !near.windows(2).all(|pair| pair[1] == pair[0] + 1) {
            return Err(Error::Damaged("gaps in what the first layer sees"));
        }
        let (mean, scale) = (floats(reader, BANDS)?, floats(reader, BANDS)?);
        let all = |values: Vec<f32>| std::array::from_fn(|n| values[n]);
        let layers = [
            layer(reader, near.len() * BANDS, hidden)?,
            layer(reader, far.len() * hidden, deeper)?,
            layer(reader, deeper, classes)?,
        ];
        let network = Self {
            lag,
            near,
            far,
            mean: all(mean),
            scale: all(scale),
            layers,
            offsets: floats(reader, classes)?,
            moves: floats(reader, classes * classes)?,
            least: bytes(reader, classes)?.to_vec(),
            names,
        };
        let lasts = |n: &u8| (1..=super::decode::DEPTH as u8).contains(n);
        if !reader.is_empty() || !network.least.iter().all(lasts) {
            return Err(Error::Damaged("its end"));
        }
        Ok(network)
    }

    /// The phone that stands for a class.
    #[must_use]
    pub fn name(&self, class: u8) -> &str {
        &self.names[usize::from(class)]
    }

    /// Classes that are told apart.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.names.len()
    }

    /// Frames before its own that a result depends on.
    pub(super) fn past(&self) -> usize {
        (-self.near[0] - self.far[0]) as usize
    }

    /// Frames after its own that a result depends on.
    pub(super) fn future(&self) -> usize {
        (self.near[self.near.len() - 1] + self.far[self.far.len() - 1]) as usize
    }

    /// Frames that the decoder looks ahead.
    pub(super) fn lag(&self) -> usize {
        self.lag
    }
}

fn take<const N: usize>(reader: &mut &[u8]) -> Result<[u8; N], Error> {
    let (first, rest) = reader.split_first_chunk().ok_or(Error::Damaged("cut short"))?;
    *reader = rest;
    Ok(*first)
}

fn bytes<'a>(reader: &mut &'a [u8], count: usize) -> Result<&'a [u8], Error> {
    let (first, rest) = reader.split_at_checked(count).ok_or(Error::Damaged("cut short"))?;
    *reader = rest;
    Ok(first)
}

fn floats(reader: &mut &[u8], count: usize) -> Result<Vec<f32>, Error> {
    let all: Vec<f32> =
        bytes(reader, 4 * count)?.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    if all.iter().all(|x| x.is_finite()) { Ok(all) } else { Err(Error::Damaged("numbers")) }
}

/// Frames relative to its own: ascending, some before and some after it.
fn offsets(reader: &mut &[u8], count: usize) -> Result<Vec<isize>, Error> {
    let all: Vec<isize> =
        bytes(reader, 2 * count)?.as_chunks().0.iter().map(|b| isize::from(i16::from_le_bytes(*b))).collect();
    let fits = all.is_sorted_by(|a, b| a < b) && all[0] <= 0 && all[count - 1] >= 0;
    let near = all.iter().all(|o| o.abs() < 100);
    if fits && near { Ok(all) } else { Err(Error::Damaged("offsets")) }
}

/// Of each output: a scale, a bias, and a weight in 8 bits for each input.
fn layer(reader: &mut &[u8], inputs: usize, outputs: usize) -> Result<Layer, Error> {
    let (scales, biases) = (floats(reader, outputs)?, floats(reader, outputs)?);
    let quantised = bytes(reader, inputs * outputs)?;
    let blocks = outputs.div_ceil(BLOCK);
    let mut weights = vec![[0.0; BLOCK]; blocks * inputs];
    let mut bias = vec![[0.0; BLOCK]; blocks];
    for (output, row) in quantised.chunks_exact(inputs).enumerate() {
        let (block, lane) = (output / BLOCK, output % BLOCK);
        bias[block][lane] = biases[output];
        for (input, q) in row.iter().enumerate() {
            weights[block * inputs + input][lane] = f32::from(*q as i8) * scales[output];
        }
    }
    Ok(Layer { inputs, weights, bias })
}

/// The last frames of one stream, as far as results still depend on them.
pub(super) struct Stream {
    /// Frames of features, normalised, the latest last; of the first layer; what the second layer sees of those; and results.
    near: Vec<f32>,
    first: Vec<f32>,
    seen: Vec<f32>,
    second: Vec<f32>,
    logits: Vec<f32>,
    /// Frames until there is a result.
    wait: usize,
}

impl Stream {
    pub(super) fn new(network: &Network) -> Self {
        let span = |offsets: &[isize]| (offsets[offsets.len() - 1] - offsets[0]) as usize + 1;
        let width = |layer: usize| network.layers[layer].bias.len() * BLOCK;
        Self {
            near: vec![0.0; span(&network.near) * BANDS],
            first: vec![0.0; span(&network.far) * width(0)],
            seen: vec![0.0; network.layers[1].inputs],
            second: vec![0.0; width(1)],
            logits: vec![0.0; width(2)],
            wait: network.past() + network.future(),
        }
    }

    /// Takes the next frame; gives the logits of the frame [`Network::future`] frames before it, once [`Network::past`] frames went before that.
    pub(super) fn push(&mut self, network: &Network, frame: &[f32; BANDS]) -> Option<&[f32]> {
        let [first, second, third] = &network.layers;
        self.near.copy_within(BANDS.., 0);
        let newest = self.near.len() - BANDS;
        for (to, ((x, mean), scale)) in
            self.near[newest..].iter_mut().zip(frame.iter().zip(&network.mean).zip(&network.scale))
        {
            *to = (x - mean) * scale;
        }
        let width = first.bias.len() * BLOCK;
        self.first.copy_within(width.., 0);
        let newest = self.first.len() - width;
        first.run(&self.near, &mut self.first[newest..], true);
        if self.wait > 0 {
            self.wait -= 1;
            return None;
        }
        let each = second.inputs / network.far.len();
        for (to, offset) in self.seen.chunks_exact_mut(each).zip(&network.far) {
            let at = (offset - network.far[0]) as usize * width;
            to.copy_from_slice(&self.first[at..at + each]);
        }
        second.run(&self.seen, &mut self.second, true);
        third.run(&self.second[..third.inputs], &mut self.logits, false);
        Some(&self.logits[..network.classes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_in_the_binary_is_whole_and_small() {
        let network = Network::read(FILE).unwrap();
        assert!(FILE.len() <= 64 * 1024, "{} bytes", FILE.len());
        for closure in ["p", "f", "pau"] {
            assert!(network.names.iter().any(|name| name == closure), "{closure}");
        }
    }

    #[test]
    fn a_damaged_file_is_told() {
        assert_eq!(Network::read(b"what").err(), Some(Error::Magic));
        let mut other = FILE.to_vec();
        other[5] = 9;
        assert_eq!(Network::read(&other).err(), Some(Error::Version(9)));
        for length in (5..FILE.len()).step_by(97) {
            assert!(
                matches!(Network::read(&FILE[..length]), Err(Error::Damaged(_))),
                "cut short at {length}"
            );
        }
        let longer = [FILE, &[0]].concat();
        assert!(matches!(Network::read(&longer), Err(Error::Damaged(_))));
    }
}
