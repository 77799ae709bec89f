//! A pose set: all pictures of one person at one size, encoded.
//!
//! The file: `VPOSES`, version (u16), length of the manifest (u32), the manifest (JSON), the key frame, the pose frames in the manifest's
//! order, SHA-256 of all that. Numbers are little-endian. Pose frames depend on the key frame only (see [`super::vp8`]).
//!
//! A pose is a triple of head, look (eyes and brows) and mouth. Not every triple is baked: lips move with the resting head only, and only
//! with the looks that occur while speaking. [`PoseSet::frame`] answers every triple with the best frame that there is.

use bytes::Bytes;
use character::{Brows, Eyes, Head, Mouth};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 6] = b"VPOSES";
const VERSION: u16 = 1;
const CHECKSUM: usize = 32;

/// Which pose: indices into the manifest's lists. 0 is rest in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Of [`Manifest::heads`].
    pub head: u8,
    /// Of [`Manifest::looks`].
    pub look: u8,
    /// Of [`Manifest::mouths`].
    pub mouth: u8,
}

/// Eyes and brows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Lids and gaze.
    pub eyes: Eyes,
    /// Brows.
    pub brows: Brows,
}

/// What a set says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// `avatar_key_id`.
    pub id: String,
    /// The person's name.
    pub name: String,
    /// `female` or `male`.
    pub gender: String,
    /// The built-in voice that suits the person.
    pub voice: String,
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Quantiser of the key, then of the poses.
    pub quantizers: [u32; 2],
    /// Head poses relative to rest, rest first.
    pub heads: Vec<Head>,
    /// Eyes and brows relative to rest, rest first.
    pub looks: Vec<Look>,
    /// Mouths, the closed one first.
    pub mouths: Vec<Mouth>,
    /// The pose frames in order, each with its length in bytes. Rest is among them.
    pub frames: Vec<(Key, u32)>,
    /// Length of the key frame in bytes.
    pub key_length: u32,
}

/// A file is no pose set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It does not begin like one.
    #[error("no pose set")]
    Magic,
    /// Made for another version.
    #[error("pose set of version {0}, this is {VERSION}")]
    Version(u16),
    /// Cut short or damaged.
    #[error("damaged pose set: {0}")]
    Damaged(&'static str),
    /// The manifest is not understood.
    #[error("manifest of a pose set: {0}")]
    Manifest(#[from] serde_json::Error),
}

/// All poses of a person at one size. Frames are shared, never copied.
pub struct PoseSet {
    manifest: Manifest,
    key: Bytes,
    frames: Vec<Bytes>,
    /// For each triple the frame that shows it best.
    table: Vec<u16>,
}

impl PoseSet {
    /// A set of these frames, in the order of the manifest's list.
    ///
    /// # Errors
    /// If lists and frames disagree, or rest is not among the frames.
    pub fn new(mut manifest: Manifest, key: Bytes, frames: Vec<Bytes>) -> Result<Self, Error> {
        if manifest.frames.len() != frames.len() || frames.len() > usize::from(u16::MAX) {
            return Err(Error::Damaged("number of frames"));
        }
        manifest.key_length = u32::try_from(key.len()).map_err(|_| Error::Damaged("key too long"))?;
        for ((_, length), frame) in manifest.frames.iter_mut().zip(&frames) {
            *length = u32::try_from(frame.len()).map_err(|_| Error::Damaged("frame too long"))?;
        }
        let table = Self::table(&manifest)?;
        Ok(Self { manifest, key, frames, table })
    }

    /// For each triple, in the order of [`Self::index`]: itself, else the same lips with a calmer look and head, else the same head.
    fn table(manifest: &Manifest) -> Result<Vec<u16>, Error> {
        let (heads, looks, mouths) = (manifest.heads.len(), manifest.looks.len(), manifest.mouths.len());
        let fits = |n: usize| (1..=256).contains(&n);
        if !(fits(heads) && fits(looks) && fits(mouths)) {
            return Err(Error::Damaged("number of states"));
        }
        let index = |key: Key| {
            (usize::from(key.head) * looks + usize::from(key.look)) * mouths + usize::from(key.mouth)
        };
        let mut baked = vec![None; heads * looks * mouths];
        for (i, (key, _)) in manifest.frames.iter().enumerate() {
            if usize::from(key.head) >= heads
                || usize::from(key.look) >= looks
                || usize::from(key.mouth) >= mouths
            {
                return Err(Error::Damaged("state out of range"));
            }
            baked[index(*key)] = Some(i as u16);
        }
        let mut table = Vec::with_capacity(baked.len());
        for head in 0..heads as u16 {
            for look in 0..looks as u16 {
                for mouth in 0..mouths as u16 {
                    let key = Key { head: head as u8, look: look as u8, mouth: mouth as u8 };
                    let tries = if mouth == 0 {
                        [key, Key { look: 0, ..key }, Key { head: 0, ..key }, Key::default()]
                    } else {
                        [key, Key { head: 0, ..key }, Key { head: 0, look: 0, ..key }, Key::default()]
                    };
                    let found = tries.into_iter().find_map(|key| baked[index(key)]);
                    table.push(found.ok_or(Error::Damaged("rest is missing"))?);
                }
            }
        }
        Ok(table)
    }

    /// Reads a set. Frames are slices of `file`.
    ///
    /// # Errors
    /// If it is none, of another version, or damaged.
    pub fn parse(file: &Bytes) -> Result<Self, Error> {
        if !file.starts_with(MAGIC) {
            return Err(Error::Magic);
        }
        let head = file.get(MAGIC.len()..MAGIC.len() + 6).ok_or(Error::Damaged("too short"))?;
        let version = u16::from_le_bytes([head[0], head[1]]);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let body = file.len().checked_sub(CHECKSUM).ok_or(Error::Damaged("too short"))?;
        if Sha256::digest(&file[..body])[..] != file[body..] {
            return Err(Error::Damaged("checksum"));
        }
        let mut at = MAGIC.len() + 6;
        let mut take = |length: u32| -> Result<Bytes, Error> {
            let end = at
                .checked_add(length as usize)
                .filter(|end| *end <= body)
                .ok_or(Error::Damaged("lengths"))?;
            let slice = file.slice(at..end);
            at = end;
            Ok(slice)
        };
        let manifest: Manifest =
            serde_json::from_slice(&take(u32::from_le_bytes([head[2], head[3], head[4], head[5]]))?)?;
        let key = take(manifest.key_length)?;
        let frames = manifest.frames.iter().map(|(_, length)| take(*length)).collect::<Result<_, _>>()?;
        if at != body {
            return Err(Error::Damaged("lengths"));
        }
        Self::new(manifest, key, frames)
    }

    /// The file.
    #[must_use]
    pub fn to_file(&self) -> Vec<u8> {
        let manifest = serde_json::to_vec(&self.manifest).expect("plain data is JSON");
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_le_bytes());
        file.extend((manifest.len() as u32).to_le_bytes());
        file.extend(manifest);
        file.extend(&self.key);
        for frame in &self.frames {
            file.extend(frame);
        }
        let sum = Sha256::digest(&file);
        file.extend(sum);
        file
    }

    /// What it says of itself.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The key frame: rest.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        &self.key
    }

    /// The number of the frame that shows this pose best. A state out of range counts as rest.
    #[must_use]
    pub fn index(&self, key: Key) -> u16 {
        let (heads, looks, mouths) =
            (self.manifest.heads.len(), self.manifest.looks.len(), self.manifest.mouths.len());
        let within = |i: u8, n: usize| if usize::from(i) < n { usize::from(i) } else { 0 };
        self.table
            [(within(key.head, heads) * looks + within(key.look, looks)) * mouths + within(key.mouth, mouths)]
    }

    /// A frame by its number.
    ///
    /// # Panics
    /// On a number that [`Self::index`] did not give.
    #[must_use]
    pub fn frame(&self, index: u16) -> &Bytes {
        &self.frames[usize::from(index)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(head: u8, look: u8, mouth: u8) -> Key {
        Key { head, look, mouth }
    }

    fn sample() -> PoseSet {
        let keys = [key(0, 0, 0), key(0, 1, 0), key(0, 0, 1), key(1, 0, 0)];
        let manifest = Manifest {
            id: "ada".into(),
            width: 512,
            height: 512,
            heads: vec![Head::default(); 2],
            looks: vec![Look::default(); 2],
            mouths: vec![Mouth::default(); 2],
            frames: keys.iter().map(|k| (*k, 0)).collect(),
            ..Manifest::default()
        };
        let frames = (0..4).map(|i| Bytes::from(vec![i; usize::from(i) + 3])).collect();
        PoseSet::new(manifest, Bytes::from_static(b"key"), frames).unwrap()
    }

    #[test]
    fn a_set_survives_its_file() {
        let set = sample();
        let again = PoseSet::parse(&set.to_file().into()).unwrap();
        assert_eq!(again.manifest(), set.manifest());
        assert_eq!(again.key(), set.key());
        for i in 0..4 {
            assert_eq!(again.frame(i), set.frame(i));
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        let file = sample().to_file();
        for i in 0..file.len() {
            let mut bad = file.clone();
            bad[i] ^= 0x40;
            assert!(PoseSet::parse(&bad.into()).is_err(), "byte {i}");
            assert!(PoseSet::parse(&file[..i].to_vec().into()).is_err(), "cut at {i}");
        }
    }

    #[test]
    fn a_missing_pose_keeps_the_lips_first_and_then_the_head() {
        let set = sample();
        assert_eq!(set.index(key(0, 1, 0)), 1);
        assert_eq!(set.index(key(0, 1, 1)), 2, "lips matter more than eyes");
        assert_eq!(set.index(key(1, 1, 1)), 2, "lips matter more than the head");
        assert_eq!(set.index(key(1, 1, 0)), 3, "the head matters more than eyes");
        assert_eq!(set.index(key(9, 9, 9)), 0, "unknown states are rest");
    }

    #[test]
    fn a_set_without_rest_is_refused() {
        let mut manifest = sample().manifest().clone();
        manifest.frames = vec![(key(0, 1, 0), 0)];
        assert!(PoseSet::new(manifest, Bytes::new(), vec![Bytes::from_static(b"x")]).is_err());
    }
}
