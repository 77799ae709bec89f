//! A pose set: all pictures of one avatar at one size, encoded.
//!
//! File format: `VPOSES`, version (u16), length of the manifest (u32), the manifest (JSON), the key
//! frame, the altref frame, the pose frames, SHA-256 of all that. The pose frames are in the
//! manifest's order, each in every quality level. Numbers are little-endian.
//!
//! A pose frame depends on the key frame only, or on the altref frame only if the head is held as
//! in that one (see [`super::vp8`]). A client that receives a frame of the second kind must have
//! received the altref frame since the last key frame.
//!
//! A pose is four states: stance (head and smile), look (eyes and brows), mouth and breath. Not
//! every combination is baked. Lips move only with the speaking heads of [`Manifest::frames`], the
//! resting one and the leaning one. They move only with the looks that occur in speech, and only
//! breathed out. [`PoseSet::frame_index`] maps each combination to the best existing frame.
//!
//! A quality level is one quality of all frames, the finest first: for a lower bandwidth, the same
//! pictures with fewer bytes.

use bytes::Bytes;
use character::{Brows, Eyes, Head, Mouth};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 6] = b"VPOSES";
const VERSION: u16 = 2;
const CHECKSUM_BYTES: usize = 32;
/// Maximum number of combinations of states in a set. The table of best frames takes two bytes for
/// each.
const MAX_COMBINATIONS: usize = 1 << 18;

/// Identifies a pose: indices into the manifest's lists. 0 is rest in each.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct PoseId {
    /// Index into [`Manifest::stances`].
    pub stance: u8,
    /// Index into [`Manifest::looks`].
    pub look: u8,
    /// Index into [`Manifest::mouths`].
    pub mouth: u8,
    /// Index into [`Manifest::breaths`].
    pub breath: u8,
}

/// Position of the head, and how much more the avatar smiles than at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stance {
    /// Relative to rest.
    pub head: Head,
    /// 0 as at rest … 1 a smile of joy.
    pub smile: f32,
}

/// Eyes and brows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Lids and gaze.
    pub eyes: Eyes,
    /// Brows.
    pub brows: Brows,
}

/// Description of a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// `avatar_key_id`.
    pub id: String,
    /// The avatar's name.
    pub name: String,
    /// `female` or `male`.
    pub gender: String,
    /// The built-in voice that suits the avatar.
    pub voice: String,
    /// Pixels in a row.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
    /// Quantizer of the key frame, then those of moving lips in the quality levels, finest first.
    pub quantizers: Vec<u32>,
    /// Stances whose frames refer to the altref frame, which shows the first of them. The frames of
    /// all others refer to the key frame.
    #[serde(rename = "anchored")]
    pub altref_stances: Vec<u8>,
    /// Heads and smiles relative to rest, rest first.
    pub stances: Vec<Stance>,
    /// Eyes and brows relative to rest, rest first.
    pub looks: Vec<Look>,
    /// Mouths, the closed one first.
    pub mouths: Vec<Mouth>,
    /// Rise of the chest: 0 breathed out, first, … 1 breathed in.
    pub breaths: Vec<f32>,
    /// The pose frames in order, each with its length in bytes in every quality level. Rest is
    /// among them.
    #[serde(with = "frame_list")]
    pub frames: Vec<(PoseId, Vec<u32>)>,
    /// Length of the key frame in bytes.
    pub key_length: u32,
    /// Length of the altref frame in bytes; 0 if no stance needs it.
    #[serde(rename = "anchor_length")]
    pub altref_length: u32,
}

/// Compact JSON of the list of frames: for each pose one row of its four states and its lengths.
mod frame_list {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::PoseId;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Row {
        #[serde(rename = "Short")]
        Compact(Vec<u32>),
        /// Format of sets that were baked by earlier versions.
        #[serde(rename = "Long")]
        Legacy(PoseId, Vec<u32>),
    }

    pub(super) fn serialize<S: Serializer>(
        frames: &[(PoseId, Vec<u32>)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let row = |(key, lengths): &(PoseId, Vec<u32>)| -> Vec<u32> {
            let states = [key.stance, key.look, key.mouth, key.breath].map(u32::from);
            states.iter().chain(lengths).copied().collect()
        };
        frames.iter().map(row).collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(PoseId, Vec<u32>)>, D::Error> {
        let read = |row: Row| match row {
            Row::Legacy(key, lengths) => Some((key, lengths)),
            Row::Compact(row) => {
                let (states, lengths) = row.split_at_checked(4)?;
                let state = |i: usize| u8::try_from(states[i]).ok();
                let key = PoseId {
                    stance: state(0)?,
                    look: state(1)?,
                    mouth: state(2)?,
                    breath: state(3)?,
                };
                Some((key, lengths.to_vec()))
            }
        };
        let rows = Vec::<Row>::deserialize(from)?;
        let frames = rows.into_iter().map(read).collect::<Option<_>>();
        frames.ok_or_else(|| serde::de::Error::custom("a frame has no states"))
    }
}

/// Error of a pose set's file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not start with the magic bytes.
    #[error("not a pose set")]
    Magic,
    /// The file has another version.
    #[error(
        "the pose set has version {0}, but this program requires version {VERSION}: bake it again"
    )]
    Version(u16),
    /// The file is truncated or damaged.
    #[error("damaged pose set: {0}")]
    Damaged(&'static str),
    /// The manifest is invalid.
    #[error("invalid manifest of the pose set: {0}")]
    Manifest(#[from] serde_json::Error),
}

/// All poses of an avatar at one size. Frames are shared, never copied.
pub struct PoseSet {
    manifest: Manifest,
    key_frame: Bytes,
    altref_frame: Bytes,
    /// By pose, then by quality level.
    frames: Vec<Bytes>,
    quality_levels: usize,
    /// For each combination of states: the pose that shows it best.
    best_frames: Vec<u16>,
}

impl PoseSet {
    /// A set of these frames, in the order of the manifest's list, each in all quality levels.
    ///
    /// # Errors
    /// If lists and frames are inconsistent, or rest is not among the frames.
    pub fn new(
        mut manifest: Manifest,
        key: Bytes,
        altref_frame: Bytes,
        frames: Vec<Bytes>,
    ) -> Result<Self, Error> {
        let (poses, quality_levels) =
            (manifest.frames.len(), manifest.quantizers.len().saturating_sub(1));
        if quality_levels == 0
            || poses * quality_levels != frames.len()
            || poses > usize::from(u16::MAX)
        {
            return Err(Error::Damaged("number of frames"));
        }
        if altref_frame.is_empty() != manifest.altref_stances.is_empty() {
            return Err(Error::Damaged("altref frame"));
        }
        manifest.key_length =
            u32::try_from(key.len()).map_err(|_| Error::Damaged("key too long"))?;
        manifest.altref_length = u32::try_from(altref_frame.len())
            .map_err(|_| Error::Damaged("altref frame too long"))?;
        for ((_, lengths), frames) in
            manifest.frames.iter_mut().zip(frames.chunks_exact(quality_levels))
        {
            let all = frames.iter().map(|frame| u32::try_from(frame.len()));
            *lengths =
                all.collect::<Result<_, _>>().map_err(|_| Error::Damaged("frame too long"))?;
        }
        let table = Self::build_best_frames(&manifest)?;
        Ok(Self {
            manifest,
            key_frame: key,
            altref_frame,
            frames,
            quality_levels,
            best_frames: table,
        })
    }

    /// The best frame for each combination, in the order of [`Manifest::table_index`]. The first
    /// baked pose of this list is used:
    ///
    /// - the combination itself, then the same breathed out;
    /// - with a moving mouth: the same lips and look with the resting head, then with the resting
    ///   look too;
    /// - with a closed mouth: the same head with the resting look, then the same look with the
    ///   resting head;
    /// - rest.
    fn build_best_frames(manifest: &Manifest) -> Result<Vec<u16>, Error> {
        let [stances, looks, mouths, breaths] = manifest.state_counts();
        let states = [stances, looks, mouths, breaths];
        // The product of four numbers up to 256 cannot overflow.
        if !states.iter().all(|n| (1..=256).contains(n))
            || states.iter().product::<usize>() > MAX_COMBINATIONS
        {
            return Err(Error::Damaged("number of states"));
        }
        let mut baked = vec![None; stances * looks * mouths * breaths];
        for (i, (key, _)) in manifest.frames.iter().enumerate() {
            *baked
                .get_mut(manifest.table_index(*key))
                .ok_or(Error::Damaged("state out of range"))? = Some(i as u16);
            if manifest.with_valid_states(*key) != *key {
                return Err(Error::Damaged("state out of range"));
            }
        }
        let best = |key: PoseId| {
            let out = PoseId { breath: 0, ..key };
            let tries = if key.mouth == 0 {
                [
                    key,
                    out,
                    PoseId { look: 0, ..out },
                    PoseId { stance: 0, ..out },
                    PoseId::default(),
                ]
            } else {
                [
                    key,
                    out,
                    PoseId { stance: 0, ..out },
                    PoseId { stance: 0, look: 0, ..out },
                    PoseId::default(),
                ]
            };
            tries
                .into_iter()
                .find_map(|key| baked[manifest.table_index(key)])
                .ok_or(Error::Damaged("rest is missing"))
        };
        let mut table = Vec::with_capacity(baked.len());
        for stance in 0..stances as u16 {
            for look in 0..looks as u16 {
                for mouth in 0..mouths as u16 {
                    for breath in 0..breaths as u16 {
                        let [stance, look, mouth, breath] =
                            [stance, look, mouth, breath].map(|n| n as u8);
                        table.push(best(PoseId { stance, look, mouth, breath })?);
                    }
                }
            }
        }
        Ok(table)
    }

    /// Parses a set. Frames are slices of `file`.
    ///
    /// # Errors
    /// If it is not a pose set, has another version or is damaged.
    pub fn parse(file: &Bytes) -> Result<Self, Error> {
        if !file.starts_with(MAGIC) {
            return Err(Error::Magic);
        }
        let head = file.get(MAGIC.len()..MAGIC.len() + 6).ok_or(Error::Damaged("too short"))?;
        let version = u16::from_le_bytes([head[0], head[1]]);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let body = file.len().checked_sub(CHECKSUM_BYTES).ok_or(Error::Damaged("too short"))?;
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
        let manifest: Manifest = serde_json::from_slice(&take(u32::from_le_bytes([
            head[2], head[3], head[4], head[5],
        ]))?)?;
        let quality_levels = manifest.quantizers.len().saturating_sub(1);
        if manifest.frames.iter().any(|(_, lengths)| lengths.len() != quality_levels) {
            return Err(Error::Damaged("number of frames"));
        }
        let key = take(manifest.key_length)?;
        let altref_frame = take(manifest.altref_length)?;
        let frames =
            manifest.frames.iter().flat_map(|(_, lengths)| lengths).map(|length| take(*length));
        let frames = frames.collect::<Result<_, _>>()?;
        if at != body {
            return Err(Error::Damaged("lengths"));
        }
        Self::new(manifest, key, altref_frame, frames)
    }

    /// The set as a file.
    #[must_use]
    #[expect(clippy::expect_used, reason = "plain data serializes")]
    pub fn to_bytes(&self) -> Vec<u8> {
        let manifest = serde_json::to_vec(&self.manifest).expect("the manifest serializes to JSON");
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_le_bytes());
        file.extend((manifest.len() as u32).to_le_bytes());
        file.extend(manifest);
        file.extend(&self.key_frame);
        file.extend(&self.altref_frame);
        for frame in &self.frames {
            file.extend(frame);
        }
        let sum = Sha256::digest(&file);
        file.extend(sum);
        file
    }

    /// Description of the set.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The key frame: rest.
    #[must_use]
    pub fn key_frame(&self) -> &Bytes {
        &self.key_frame
    }

    /// The altref frame: the first of [`Manifest::altref_stances`] at rest. It is sent after a key
    /// frame and before frames that depend on it.
    #[must_use]
    pub fn altref_frame(&self) -> &Bytes {
        &self.altref_frame
    }

    /// Whether a frame depends on the altref frame instead of the key frame.
    ///
    /// # Panics
    /// If the index is not from [`Self::frame_index`].
    #[must_use]
    pub fn uses_altref(&self, index: u16) -> bool {
        let (key, _) = &self.manifest.frames[usize::from(index)];
        self.manifest.altref_stances.contains(&key.stance)
    }

    /// Number of quality levels, at least one.
    #[must_use]
    pub fn quality_levels(&self) -> usize {
        self.quality_levels
    }

    /// Index of the frame that shows this pose best. A state out of range counts as rest.
    #[must_use]
    pub fn frame_index(&self, id: PoseId) -> u16 {
        self.best_frames[self.manifest.table_index(self.manifest.with_valid_states(id))]
    }

    /// A frame by its index, in a quality level (0 = the finest; beyond the last one, the last
    /// one).
    ///
    /// # Panics
    /// If the index is not from [`Self::frame_index`].
    #[must_use]
    pub fn frame(&self, index: u16, level: usize) -> &Bytes {
        &self.frames[usize::from(index) * self.quality_levels + level.min(self.quality_levels - 1)]
    }
}

impl Manifest {
    /// Number of stances, looks, mouths and breaths.
    fn state_counts(&self) -> [usize; 4] {
        [self.stances.len(), self.looks.len(), self.mouths.len(), self.breaths.len()]
    }

    /// Index of a combination among all.
    fn table_index(&self, id: PoseId) -> usize {
        let [_, looks, mouths, breaths] = self.state_counts();
        let [stance, look, mouth, breath] =
            [id.stance, id.look, id.mouth, id.breath].map(usize::from);
        ((stance * looks + look) * mouths + mouth) * breaths + breath
    }

    /// The same pose with 0 for states out of range.
    fn with_valid_states(&self, id: PoseId) -> PoseId {
        let [stances, looks, mouths, breaths] = self.state_counts();
        let within = |i: u8, n: usize| if usize::from(i) < n { i } else { 0 };
        PoseId {
            stance: within(id.stance, stances),
            look: within(id.look, looks),
            mouth: within(id.mouth, mouths),
            breath: within(id.breath, breaths),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pose(stance: u8, look: u8, mouth: u8, breath: u8) -> PoseId {
        PoseId { stance, look, mouth, breath }
    }

    fn sample() -> PoseSet {
        let keys = [
            pose(0, 0, 0, 0),
            pose(0, 1, 0, 0),
            pose(0, 0, 1, 0),
            pose(1, 0, 0, 0),
            pose(0, 0, 0, 1),
        ];
        let manifest = Manifest {
            id: "ada".into(),
            width: 512,
            height: 512,
            quantizers: vec![8, 30, 50],
            altref_stances: vec![1],
            stances: vec![Stance::default(); 2],
            looks: vec![Look::default(); 2],
            mouths: vec![Mouth::default(); 2],
            breaths: vec![0.0, 1.0],
            frames: keys.iter().map(|k| (*k, Vec::new())).collect(),
            ..Manifest::default()
        };
        let frames = (0..10).map(|i| Bytes::from(vec![i; usize::from(i) + 3])).collect();
        let (key, altref_frame) = (Bytes::from_static(b"key"), Bytes::from_static(b"anchor"));
        PoseSet::new(manifest, key, altref_frame, frames).unwrap()
    }

    #[test]
    fn a_set_survives_its_file() {
        let set = sample();
        let again = PoseSet::parse(&set.to_bytes().into()).unwrap();
        assert_eq!(again.manifest(), set.manifest());
        assert_eq!(
            (again.key_frame(), again.altref_frame()),
            (set.key_frame(), set.altref_frame())
        );
        assert!(again.uses_altref(3) && !again.uses_altref(4));
        for i in 0..5 {
            for level in 0..2 {
                assert_eq!(again.frame(i, level)[0], i as u8 * 2 + level as u8);
            }
            assert_eq!(set.frame(i, 9), set.frame(i, 1), "there is no third quality level");
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        let file = sample().to_bytes();
        for i in 0..file.len() {
            let mut bad = file.clone();
            bad[i] ^= 0x40;
            assert!(PoseSet::parse(&bad.into()).is_err(), "byte {i}");
            assert!(PoseSet::parse(&file[..i].to_vec().into()).is_err(), "cut at {i}");
        }
    }

    #[test]
    fn a_set_of_another_version_says_so_in_one_sentence() {
        let mut file = sample().to_bytes();
        file[MAGIC.len()] = 1;
        let error = PoseSet::parse(&file.into()).err().unwrap().to_string();
        assert_eq!(
            error,
            "the pose set has version 1, but this program requires version 2: bake it again"
        );
    }

    #[test]
    fn a_set_with_more_combinations_than_its_table_may_hold_is_refused() {
        let manifest = Manifest {
            mouths: vec![Mouth::default(); 256],
            looks: vec![Look::default(); 256],
            stances: vec![Stance::default(); 256],
            ..sample().manifest().clone()
        };
        let frames = vec![Bytes::from_static(b"x"); 10];
        assert!(matches!(
            PoseSet::new(manifest, Bytes::new(), Bytes::from_static(b"a"), frames),
            Err(Error::Damaged("number of states"))
        ));
    }

    #[test]
    fn a_missing_pose_keeps_the_lips_first_and_then_the_head() {
        let set = sample();
        assert_eq!(set.frame_index(pose(0, 1, 0, 0)), 1);
        assert_eq!(set.frame_index(pose(0, 1, 1, 0)), 2, "lips have priority over eyes");
        assert_eq!(set.frame_index(pose(1, 1, 1, 0)), 2, "lips have priority over the head");
        assert_eq!(set.frame_index(pose(1, 1, 0, 0)), 3, "the head has priority over eyes");
        assert_eq!(set.frame_index(pose(0, 0, 0, 1)), 4);
        assert_eq!(set.frame_index(pose(0, 1, 1, 1)), 2, "everything has priority over the breath");
        assert_eq!(set.frame_index(pose(9, 9, 9, 9)), 0, "unknown states are rest");
    }

    #[test]
    fn a_set_without_rest_or_with_states_that_it_lacks_is_refused() {
        let with = |key| {
            let manifest =
                Manifest { frames: vec![(key, Vec::new())], ..sample().manifest().clone() };
            let frames = vec![Bytes::from_static(b"x"); 2];
            PoseSet::new(manifest, Bytes::new(), Bytes::from_static(b"a"), frames).err()
        };
        assert!(with(pose(0, 0, 0, 0)).is_none());
        for bad in [pose(0, 1, 0, 0), pose(2, 0, 0, 0), pose(0, 0, 0, 2), pose(0, 9, 0, 0)] {
            assert!(with(bad).is_some(), "{bad:?}");
        }
    }
}
