//! Reads files with the reader of libwebm.

#![allow(unsafe_code)]

// The crate contains the compiled libwebm.
use webm_sys as _;

/// Status of libwebm: no cluster follows.
pub const COMPLETE: i64 = 1;
/// Status of libwebm: more bytes are needed, and those so far are valid.
pub const INCOMPLETE: i64 = -3;

/// A block of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Number of its track.
    pub track: i32,
    /// Its time.
    pub milliseconds: i32,
}

/// What was read of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct File {
    /// Why the reading ended: [`COMPLETE`], [`INCOMPLETE`] or an error of libwebm.
    pub status: i64,
    /// Number of clusters.
    pub cluster_count: i64,
    block_count: i64,
    /// In ns; -1 = unknown.
    pub duration: i64,
    /// Number of cues.
    pub cue_count: i64,
    /// Number of cues that lead to a key frame of their time.
    pub valid_cue_count: i64,
}

unsafe extern "C" {
    fn recording_tests_read_webm(
        data: *const u8,
        size: i64,
        grows: bool,
        last: i64,
        blocks: *mut Block,
        capacity: i64,
        file: *mut File,
    );
}

/// A reader. It keeps the memory of the blocks for the next file.
pub struct Reader {
    blocks: Vec<Block>,
}

impl Reader {
    /// A reader of files of at most `capacity` blocks. A file with more is an error.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { blocks: vec![Block::default(); capacity] }
    }

    /// Reads a file that ends here. All clusters are loaded, and the blocks of the last ones are
    /// read.
    pub fn read_complete(&mut self, data: &[u8], last: i64) -> (File, &[Block]) {
        self.read(data, false, last)
    }

    /// Reads a file that has no end yet, so that missing bytes are not an error.
    pub fn read_growing(&mut self, data: &[u8], last: i64) -> (File, &[Block]) {
        self.read(data, true, last)
    }

    fn read(&mut self, data: &[u8], grows: bool, last: i64) -> (File, &[Block]) {
        let mut file = File::default();
        let (size, capacity) = (data.len() as i64, self.blocks.len() as i64);
        let (data, blocks) = (data.as_ptr(), self.blocks.as_mut_ptr());
        // SAFETY: the function reads `size` bytes of `data`, and writes at most `capacity` blocks
        // and the file. The types have the layout of those in libwebm.cc.
        unsafe {
            recording_tests_read_webm(data, size, grows, last, blocks, capacity, &raw mut file);
        }
        let count = usize::try_from(file.block_count).unwrap_or_default();
        (file, &self.blocks[..count])
    }
}
