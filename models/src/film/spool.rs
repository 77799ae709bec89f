//! The sound of a hosted voice in a file, so that a restart neither loses it nor pays for it twice.
//!
//! The file is a sequence of segments of the text, each written at once when it is complete. A
//! segment is a sequence of records: type (u8), length (u32, little endian), content. A reader stops
//! at the first segment that is not complete.

use std::io::{self, Read, Write};

use crate::tts::{Phone, Word};

/// Largest content of a record in bytes. A damaged length must not reserve memory.
const MAX_RECORD_BYTES: u32 = 64 << 20;

/// One event of the voice.
#[derive(Clone, Debug, PartialEq)]
pub enum SpoolRecord {
    /// A segment begins; its index.
    Begin(u32),
    /// Samples and their rate in Hz.
    Audio(u32, Vec<i16>),
    /// Spoken words.
    Words(Vec<Word>),
    /// Phones.
    Phones(Vec<Phone>),
    /// The segment ends.
    End,
}

/// Appends complete segments.
pub struct SpoolWriter<W> {
    out: W,
    segment: Vec<u8>,
}

impl<W: Write> SpoolWriter<W> {
    /// Writes to the end of `out`.
    pub fn new(out: W) -> Self {
        Self { out, segment: Vec::new() }
    }

    /// Adds a record to the segment. [`SpoolRecord::End`] writes the segment.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn push(&mut self, record: &SpoolRecord) -> io::Result<()> {
        let (kind, content) = encode(record)?;
        if kind == 0 {
            self.segment.clear();
        }
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        self.segment.push(kind);
        self.segment.extend(length.to_le_bytes());
        self.segment.extend(content);
        if matches!(record, SpoolRecord::End) {
            self.out.write_all(&self.segment)?;
            self.out.flush()?;
            self.segment.clear();
        }
        Ok(())
    }

    /// The file, for example to synchronize it.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }
}

/// Reads complete segments.
pub struct SpoolReader<R> {
    file: R,
    read: u64,
}

impl<R: Read> SpoolReader<R> {
    /// Reads from the position of `file`.
    pub fn new(file: R) -> Self {
        Self { file, read: 0 }
    }

    /// The records of the next segment, from `Begin` to `End`, or `None` where no complete segment
    /// follows.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn next_segment(&mut self) -> io::Result<Option<Vec<SpoolRecord>>> {
        let mut records = Vec::new();
        let mut bytes = 0;
        loop {
            let Some((record, length)) = self.next_record()? else { return Ok(None) };
            bytes += length;
            match (&record, records.is_empty()) {
                (SpoolRecord::Begin(_), true) => records.push(record),
                (SpoolRecord::Begin(_), false) | (_, true) => return Ok(None),
                (SpoolRecord::End, false) => {
                    records.push(record);
                    self.read += bytes;
                    return Ok(Some(records));
                }
                (_, false) => records.push(record),
            }
        }
    }

    /// Bytes of all complete segments so far: a writer that goes on truncates the file to them.
    #[must_use]
    pub fn complete_bytes(&self) -> u64 {
        self.read
    }

    /// A record and its bytes with header. `None`: the file ends, or the record is damaged.
    fn next_record(&mut self) -> io::Result<Option<(SpoolRecord, u64)>> {
        let mut header = [0; 5];
        if !read_or_end(&mut self.file, &mut header)? {
            return Ok(None);
        }
        let [kind, length @ ..] = header;
        let length = u32::from_le_bytes(length);
        if length > MAX_RECORD_BYTES {
            return Ok(None);
        }
        let mut content = vec![0; length as usize];
        if !read_or_end(&mut self.file, &mut content)? {
            return Ok(None);
        }
        Ok(decode(kind, &content).map(|record| (record, 5 + u64::from(length))))
    }
}

/// Fills the buffer. `false`: the file ends before.
fn read_or_end(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn encode(record: &SpoolRecord) -> io::Result<(u8, Vec<u8>)> {
    Ok(match record {
        SpoolRecord::Begin(index) => (0, index.to_le_bytes().to_vec()),
        SpoolRecord::Audio(rate, samples) => {
            let mut content = rate.to_le_bytes().to_vec();
            content.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
            (1, content)
        }
        SpoolRecord::Words(words) => {
            let words: Vec<_> =
                words.iter().map(|word| (&word.text, word.begin, word.end)).collect();
            (2, serde_json::to_vec(&words)?)
        }
        SpoolRecord::Phones(phones) => {
            let phones: Vec<_> =
                phones.iter().map(|phone| (&phone.name, phone.end, phone.stress)).collect();
            (3, serde_json::to_vec(&phones)?)
        }
        SpoolRecord::End => (4, Vec::new()),
    })
}

fn decode(kind: u8, content: &[u8]) -> Option<SpoolRecord> {
    Some(match kind {
        0 => SpoolRecord::Begin(u32::from_le_bytes(content.try_into().ok()?)),
        1 => {
            let (rate, samples) = content.split_first_chunk()?;
            let (samples, rest) = samples.as_chunks();
            if !rest.is_empty() {
                return None;
            }
            let samples = samples.iter().map(|sample| i16::from_le_bytes(*sample)).collect();
            SpoolRecord::Audio(u32::from_le_bytes(*rate), samples)
        }
        2 => {
            let words: Vec<(String, Option<f64>, f64)> = serde_json::from_slice(content).ok()?;
            let word = |(text, begin, end)| Word { text, begin, end };
            SpoolRecord::Words(words.into_iter().map(word).collect())
        }
        3 => {
            let phones: Vec<(String, f32, bool)> = serde_json::from_slice(content).ok()?;
            let phone = |(name, end, stress)| Phone { name, end, stress };
            SpoolRecord::Phones(phones.into_iter().map(phone).collect())
        }
        4 if content.is_empty() => SpoolRecord::End,
        _ => return None,
    })
}
