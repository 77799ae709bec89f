//! A pose set: all pictures of one avatar at one size, encoded.
//!
//! File format: `VPOSES`, version (u16), length of the manifest (u32), the manifest (JSON), the key
//! frame, the anchors, the pose frames, SHA-256 of all that. Anchors and pose frames are in the
//! manifest's order, each pose in all quality levels that it has. Numbers are little-endian.
//! Version 2 has one anchor at most, all quality levels of each pose, and no list of heads.
//!
//! A pose frame depends on the key frame only, or on one anchor only (see [`super::vp8`]). A client
//! that receives a frame of the second kind must have received that anchor since the last key
//! frame, and no other anchor after it: each anchor replaces the previous one.
//!
//! A pose is four states: stance (head and expression), look (eyes and brows), mouth and breath.
//! Not every combination is baked. Lips speak with the heads of [`PoseSet::heads`], with the looks
//! that occur in speech, and only breathed out. [`PoseSet::frame_index`] maps each combination to
//! the best existing frame.
//!
//! A quality level is one quality of the frames, the finest first: for a lower bandwidth, the same
//! pictures with fewer bytes. A pose without a coarse level is shown in its coarsest one.

use bytes::Bytes;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::manifest::PLAN_VERSION_2;

pub use super::manifest::{Anchor, HeadName, Look, Manifest, Mood, PoseId, SpeakingHead, Stance};

const MAGIC: &[u8; 6] = b"VPOSES";
const VERSION: u16 = 3;
/// The previous version, which is still read.
const VERSION_2: u16 = 2;
/// Length of the magic bytes, the version, and the length of the manifest.
const HEADER_BYTES: usize = MAGIC.len() + 2 + 4;
const CHECKSUM_BYTES: usize = 32;
/// Maximum number of combinations of states in a set. The table of best frames takes two bytes for
/// each.
const MAX_COMBINATIONS: usize = 1 << 18;

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
    anchor_frames: Vec<Bytes>,
    /// By pose, then by quality level.
    frames: Vec<Bytes>,
    quality_levels: usize,
    /// For each combination of states: the pose that shows it best.
    best_frames: Vec<u16>,
    /// For each stance: its anchor, and the stance whose mouths it shows with the resting look.
    stances: Vec<StanceReference>,
}

/// What the frames of a stance refer to.
#[derive(Clone, Copy)]
struct StanceReference {
    /// `None`: the key frame.
    anchor: Option<u8>,
    /// The stance itself, or for raised brows the head of [`SpeakingHead::raised`].
    mouths_of: u8,
}

impl PoseSet {
    /// A set of these frames: the anchors in the order of [`Manifest::anchors`], and the poses in
    /// that of [`Manifest::frames`], each in one or more quality levels, finest first. The lengths
    /// in the manifest are set.
    ///
    /// # Errors
    /// If lists and frames are inconsistent, or rest is not among the frames.
    pub fn new(
        mut manifest: Manifest,
        key: Bytes,
        anchors: Vec<Bytes>,
        poses: Vec<Vec<Bytes>>,
    ) -> Result<Self, Error> {
        let quality_levels = manifest.quantizers.len().saturating_sub(1);
        if manifest.frames.len() != poses.len()
            || poses.len() > usize::from(u16::MAX)
            || poses.iter().any(|levels| !(1..=quality_levels).contains(&levels.len()))
        {
            return Err(Error::Damaged("number of frames"));
        }
        if anchors.len() != manifest.anchors.len() || anchors.iter().any(Bytes::is_empty) {
            return Err(Error::Damaged("anchors"));
        }
        manifest.key_length = length_of(&key)?;
        for (anchor, frame) in manifest.anchors.iter_mut().zip(&anchors) {
            anchor.length = length_of(frame)?;
        }
        for ((_, lengths), levels) in manifest.frames.iter_mut().zip(&poses) {
            *lengths = levels.iter().map(length_of).collect::<Result<_, _>>()?;
        }
        if manifest.heads.is_empty() {
            manifest.heads = manifest.derive_heads();
        }
        let stances = stance_references(&manifest)?;
        let table = build_best_frames(&manifest, &stances)?;
        let frames = poses.iter().flat_map(|levels| {
            (0..quality_levels).map(|level| levels[level.min(levels.len() - 1)].clone())
        });
        Ok(Self {
            frames: frames.collect(),
            manifest,
            key_frame: key,
            anchor_frames: anchors,
            quality_levels,
            best_frames: table,
            stances,
        })
    }

    /// Parses a set. Frames are slices of `file`.
    ///
    /// # Errors
    /// If it is not a pose set, has an unknown version or is damaged.
    pub fn parse(file: &Bytes) -> Result<Self, Error> {
        let (version, manifest_length) = read_header(file)?;
        let body = file.len().checked_sub(CHECKSUM_BYTES).ok_or(Error::Damaged("too short"))?;
        if Sha256::digest(&file[..body])[..] != file[body..] {
            return Err(Error::Damaged("checksum"));
        }
        let mut at = HEADER_BYTES;
        let mut take = |length: u32| -> Result<Bytes, Error> {
            let end = at
                .checked_add(length as usize)
                .filter(|end| *end <= body)
                .ok_or(Error::Damaged("lengths"))?;
            let slice = file.slice(at..end);
            at = end;
            Ok(slice)
        };
        let json = take(manifest_length)?;
        let manifest = match version {
            VERSION_2 => Manifest::read_version_2(&json)?,
            _ => Manifest::read(&json)?,
        };
        let key = take(manifest.key_length)?;
        let anchors = manifest.anchors.iter().map(|anchor| take(anchor.length));
        let anchors = anchors.collect::<Result<_, _>>()?;
        let levels = |(_, lengths): &(PoseId, Vec<u32>)| lengths.iter().map(|n| take(*n)).collect();
        let poses = manifest.frames.iter().map(levels).collect::<Result<_, _>>()?;
        if at != body {
            return Err(Error::Damaged("lengths"));
        }
        Self::new(manifest, key, anchors, poses)
    }

    /// The set as a file of the current version.
    #[must_use]
    #[expect(clippy::expect_used, reason = "plain data serializes")]
    pub fn to_bytes(&self) -> Vec<u8> {
        let manifest = serde_json::to_vec(&self.manifest).expect("the manifest serializes to JSON");
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_le_bytes());
        file.extend((manifest.len() as u32).to_le_bytes());
        file.extend(manifest);
        file.extend(&self.key_frame);
        for anchor in &self.anchor_frames {
            file.extend(anchor);
        }
        let poses = self.frames.chunks_exact(self.quality_levels).zip(&self.manifest.frames);
        for frame in poses.flat_map(|(levels, (_, lengths))| &levels[..lengths.len()]) {
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

    /// The version of plan and drawing that baked the set: [`super::bake::PLAN_VERSION`] if it is
    /// up to date, or less. Of two sets of an avatar, the one of the greater version is better,
    /// then the more complete one.
    #[must_use]
    pub fn plan_version(&self) -> u32 {
        self.manifest.plan_version
    }

    /// The key frame: rest.
    #[must_use]
    pub fn key_frame(&self) -> &Bytes {
        &self.key_frame
    }

    /// The heads with which lips speak, rest first.
    #[must_use]
    pub fn heads(&self) -> &[SpeakingHead] {
        &self.manifest.heads
    }

    /// The anchors. Each shows the first of its stances at rest, and refers to the key frame.
    #[must_use]
    pub fn anchor_frames(&self) -> &[Bytes] {
        &self.anchor_frames
    }

    /// An anchor by its index.
    ///
    /// # Panics
    /// If there is no such anchor.
    #[must_use]
    pub fn anchor_frame(&self, anchor: u8) -> &Bytes {
        &self.anchor_frames[usize::from(anchor)]
    }

    /// The anchor that a receiver needs so that a frame shows `id`; `None` = the key frame. `frame`
    /// is the number of [`Self::frame_index`] for this pose. A mouth that two stances share shows
    /// the stance of the anchor.
    ///
    /// # Panics
    /// If there is no such frame.
    #[must_use]
    pub fn anchor_of(&self, frame: u16, id: PoseId) -> Option<u8> {
        let shown = self.manifest.frames[usize::from(frame)].0.stance;
        let wanted = usize::from(self.manifest.with_valid_states(id).stance);
        let shares = self.stances[wanted].mouths_of == shown;
        self.stances[if shares { wanted } else { usize::from(shown) }].anchor
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

/// The version of the file, and the length of its manifest in bytes.
fn read_header(file: &[u8]) -> Result<(u16, u32), Error> {
    if !file.starts_with(MAGIC) {
        return Err(Error::Magic);
    }
    let head = file.get(MAGIC.len()..HEADER_BYTES).ok_or(Error::Damaged("too short"))?;
    let version = u16::from_le_bytes([head[0], head[1]]);
    if ![VERSION_2, VERSION].contains(&version) {
        return Err(Error::Version(version));
    }
    Ok((version, u32::from_le_bytes([head[2], head[3], head[4], head[5]])))
}

/// [`PoseSet::plan_version`] of a file, read from its beginning only. `None` if it is not a pose
/// set of a known version.
#[must_use]
pub fn plan_version_of(file: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Versions {
        plan_version: u32,
    }
    let (version, length) = read_header(file).ok()?;
    let manifest = file.get(HEADER_BYTES..)?.get(..length as usize)?;
    if version == VERSION_2 {
        return Some(PLAN_VERSION_2);
    }
    serde_json::from_slice(manifest).ok().map(|Versions { plan_version }| plan_version)
}

fn length_of(frame: &Bytes) -> Result<u32, Error> {
    u32::try_from(frame.len()).map_err(|_| Error::Damaged("frame too long"))
}

/// What the frames of each stance refer to.
fn stance_references(manifest: &Manifest) -> Result<Vec<StanceReference>, Error> {
    let mut stances: Vec<StanceReference> = (0..manifest.stances.len())
        .map(|stance| StanceReference { anchor: None, mouths_of: stance as u8 })
        .collect();
    for (n, anchor) in manifest.anchors.iter().enumerate() {
        let n = u8::try_from(n).map_err(|_| Error::Damaged("anchors"))?;
        if anchor.stances.is_empty() {
            return Err(Error::Damaged("anchors"));
        }
        for stance in &anchor.stances {
            // The key frame shows rest, so rest needs no anchor.
            let known = stances.get_mut(usize::from(*stance)).filter(|_| *stance != 0);
            let known = known.ok_or(Error::Damaged("anchors"))?;
            if known.anchor.replace(n).is_some() {
                return Err(Error::Damaged("anchors"));
            }
        }
    }
    let exists = |stance: &u8| usize::from(*stance) < stances.len();
    let rest_is_first = manifest.heads.first().is_some_and(|head| head.stance == 0);
    let all = manifest.heads.iter().flat_map(|head| head.ways.iter().chain([&head.stance]));
    if !rest_is_first || !all.into_iter().all(exists) {
        return Err(Error::Damaged("heads"));
    }
    for (raised, head) in manifest.heads.iter().filter_map(|head| Some((head.raised?, head.stance)))
    {
        // Mouths that refer to the key frame would show the brows at rest.
        let anchored =
            |stance: u8| stances.get(usize::from(stance)).is_some_and(|s| s.anchor.is_some());
        if !anchored(raised) || !anchored(head) {
            return Err(Error::Damaged("heads"));
        }
        stances[usize::from(raised)].mouths_of = head;
    }
    Ok(stances)
}

/// The best frame for each combination, in the order of [`Manifest::table_index`]. The first baked
/// pose of this list is used:
///
/// - the combination itself, then the same breathed out;
/// - the same lips and head with the resting look;
/// - the same lips and look with the resting head, then with the resting look too;
/// - rest.
fn build_best_frames(
    manifest: &Manifest,
    references: &[StanceReference],
) -> Result<Vec<u16>, Error> {
    let states = manifest.state_counts();
    // The product of four numbers up to 256 cannot overflow.
    if !states.iter().all(|n| (1..=256).contains(n))
        || states.iter().product::<usize>() > MAX_COMBINATIONS
    {
        return Err(Error::Damaged("number of states"));
    }
    let mut baked = vec![None; states.iter().product()];
    for (i, (key, _)) in manifest.frames.iter().enumerate() {
        if manifest.with_valid_states(*key) != *key {
            return Err(Error::Damaged("state out of range"));
        }
        baked[manifest.table_index(*key)] = Some(i as u16);
    }
    let frame_of = |id: PoseId| {
        let shared = PoseId { stance: references[usize::from(id.stance)].mouths_of, ..id };
        let shared = Some(shared).filter(|id| id.look == 0);
        baked[manifest.table_index(id)]
            .or_else(|| shared.and_then(|shared| baked[manifest.table_index(shared)]))
    };
    let best = |key: PoseId| {
        let out = PoseId { breath: 0, ..key };
        let upright = PoseId { stance: 0, ..out };
        let upright_at_rest = PoseId { look: 0, ..upright };
        [key, out, PoseId { look: 0, ..out }, upright, upright_at_rest, PoseId::default()]
            .into_iter()
            .find_map(frame_of)
            .ok_or(Error::Damaged("rest is missing"))
    };
    let [stances, looks, mouths, breaths] = states.map(|n| n as u16);
    let mut table = Vec::with_capacity(baked.len());
    for stance in 0..stances {
        for look in 0..looks {
            for mouth in 0..mouths {
                for breath in 0..breaths {
                    let [stance, look, mouth, breath] =
                        [stance, look, mouth, breath].map(|n| n as u8);
                    table.push(best(PoseId { stance, look, mouth, breath })?);
                }
            }
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use character::{Head, Mouth};

    use super::*;

    fn pose(stance: u8, look: u8, mouth: u8, breath: u8) -> PoseId {
        PoseId { stance, look, mouth, breath }
    }

    /// Rest, a leaning head, a third one with raised brows, which shares the mouths of the second,
    /// and a stance without frames.
    fn sample() -> PoseSet {
        let keys = [
            pose(0, 0, 0, 0),
            pose(0, 1, 0, 0),
            pose(0, 0, 1, 0),
            pose(1, 0, 0, 0),
            pose(0, 0, 0, 1),
            pose(1, 0, 1, 0),
            pose(2, 1, 0, 0),
        ];
        let head = |name, stance, raised| SpeakingHead {
            name,
            mood: Mood::Calm,
            stance,
            ways: vec![],
            raised,
        };
        let manifest = Manifest {
            id: "ada".into(),
            width: 512,
            height: 512,
            plan_version: 7,
            quantizers: vec![8, 30, 50],
            anchors: vec![Anchor::of(vec![1]), Anchor::of(vec![2])],
            heads: vec![head(HeadName::Rest, 0, None), head(HeadName::Lean, 1, Some(2))],
            stances: vec![Stance::default(); 4],
            looks: vec![Look::default(); 2],
            mouths: vec![Mouth::default(); 2],
            breaths: vec![0.0, 1.0],
            frames: keys.iter().map(|k| (*k, Vec::new())).collect(),
            ..Manifest::default()
        };
        // The frames that refer to an anchor have no coarse level.
        let levels = |key: &PoseId| if key.stance == 0 { 2 } else { 1 };
        let frames = (0..).zip(&keys).map(|(i, key)| {
            (0..levels(key)).map(move |level| Bytes::from(vec![i * 2 + level; usize::from(i) + 3]))
        });
        let frames = frames.map(Iterator::collect).collect();
        let anchors = vec![Bytes::from_static(b"anchor"), Bytes::from_static(b"raised")];
        PoseSet::new(manifest, Bytes::from_static(b"key"), anchors, frames).unwrap()
    }

    #[test]
    fn a_set_survives_its_file() {
        let set = sample();
        let again = PoseSet::parse(&set.to_bytes().into()).unwrap();
        assert_eq!(again.manifest(), set.manifest());
        assert_eq!(again.plan_version(), 7);
        assert_eq!(
            (again.key_frame(), again.anchor_frames()),
            (set.key_frame(), set.anchor_frames())
        );
        for i in 0..7 {
            let coarse = usize::from(set.manifest().frames[usize::from(i)].0.stance == 0);
            for level in 0..2 {
                assert_eq!(again.frame(i, level)[0], i as u8 * 2 + level.min(coarse) as u8);
            }
            assert_eq!(set.frame(i, 9), set.frame(i, 1), "there is no third quality level");
        }
    }

    #[test]
    fn a_shared_mouth_needs_the_anchor_of_the_stance_that_it_shows() {
        let set = sample();
        for (id, frame, anchor) in [
            (pose(0, 0, 1, 0), 2, None),
            (pose(1, 0, 1, 0), 5, Some(0)),
            (pose(2, 0, 1, 0), 5, Some(1)),
            (pose(2, 0, 0, 0), 3, Some(1)),
            (pose(2, 1, 0, 0), 6, Some(1)),
            // Not baked: the mouth with the resting look.
            (pose(2, 1, 1, 0), 5, Some(1)),
            (pose(1, 1, 0, 0), 3, Some(0)),
        ] {
            let index = set.frame_index(id);
            assert_eq!((index, set.anchor_of(index, id)), (frame, anchor), "{id:?}");
        }
    }

    #[test]
    fn anchors_and_heads_that_contradict_each_other_are_refused() {
        let built = |change: &dyn Fn(&mut Manifest)| {
            let set = sample();
            let mut manifest = set.manifest().clone();
            change(&mut manifest);
            let poses = vec![vec![Bytes::from_static(b"x")]; manifest.frames.len()];
            PoseSet::new(manifest, Bytes::new(), set.anchor_frames().to_vec(), poses)
        };
        assert!(built(&|_| ()).is_ok());
        let bad: [&dyn Fn(&mut Manifest); 8] = [
            &|manifest| manifest.anchors[1].stances = vec![1],
            &|manifest| manifest.anchors[1].stances = vec![0],
            &|manifest| manifest.anchors[1].stances = vec![4],
            &|manifest| manifest.anchors[1].stances = vec![],
            &|manifest| drop(manifest.anchors.pop()),
            &|manifest| manifest.heads.swap(0, 1),
            &|manifest| manifest.heads[1].ways = vec![4],
            &|manifest| manifest.heads[0].raised = Some(2),
        ];
        for (n, change) in bad.into_iter().enumerate() {
            assert!(matches!(built(change), Err(Error::Damaged("anchors" | "heads"))), "{n}");
        }
    }

    #[test]
    fn a_set_of_version_2_has_the_heads_that_spoke_then() {
        let head = |lean: f32| Stance {
            head: Head { yaw: 0.02 * lean, pitch: 0.01 * lean, roll: 0.04 * lean },
            ..Stance::default()
        };
        let nod = Stance { head: Head { pitch: 0.06, ..head(1.0).head }, ..head(1.0) };
        let stances = vec![head(0.0), head(0.75), head(0.25), head(1.0), nod];
        let key = |stance, mouth| (pose(stance, 0, mouth, 0), vec![]);
        let manifest = Manifest {
            stances,
            frames: vec![key(0, 0), key(0, 1), key(1, 0), key(3, 0), key(3, 1), key(4, 0)],
            ..sample().manifest().clone()
        };
        let heads = manifest.derive_heads();
        let found: Vec<_> = heads.iter().map(|h| (h.name, h.stance, h.ways.clone())).collect();
        assert_eq!(found, [(HeadName::Rest, 0, vec![]), (HeadName::Lean, 3, vec![2, 1])]);
        let upright = Manifest { frames: vec![key(0, 0), key(0, 1), key(3, 0)], ..manifest };
        assert_eq!(upright.derive_heads().len(), 1);
    }

    #[test]
    fn the_version_of_the_plan_is_read_from_the_beginning_of_a_file() {
        let mut file = sample().to_bytes();
        let manifest = HEADER_BYTES + read_header(&file).unwrap().1 as usize;
        assert_eq!(plan_version_of(&file[..manifest]), Some(7));
        assert_eq!(plan_version_of(&file[..manifest - 1]), None);
        file[MAGIC.len()] = 2;
        assert_eq!(plan_version_of(&file), Some(2));
        file[MAGIC.len()] = 9;
        assert_eq!(plan_version_of(&file), None);
        assert_eq!(plan_version_of(b"{}"), None);
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
            "the pose set has version 1, but this program requires version 3: bake it again"
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
        let frames = vec![vec![Bytes::from_static(b"x")]; 7];
        assert!(matches!(
            PoseSet::new(manifest, Bytes::new(), sample().anchor_frames().to_vec(), frames),
            Err(Error::Damaged("number of states"))
        ));
    }

    #[test]
    fn a_missing_pose_keeps_lips_and_head_before_the_eyes() {
        let set = sample();
        assert_eq!(set.frame_index(pose(0, 1, 0, 0)), 1);
        assert_eq!(set.frame_index(pose(0, 1, 1, 0)), 2, "lips have priority over eyes");
        assert_eq!(set.frame_index(pose(1, 1, 1, 0)), 5, "the head has priority over eyes");
        assert_eq!(set.frame_index(pose(1, 1, 0, 0)), 3, "the head has priority over eyes");
        assert_eq!(set.frame_index(pose(3, 1, 1, 0)), 2, "lips have priority over the head");
        assert_eq!(set.frame_index(pose(0, 0, 0, 1)), 4);
        assert_eq!(set.frame_index(pose(0, 1, 1, 1)), 2, "everything has priority over the breath");
        assert_eq!(set.frame_index(pose(9, 9, 9, 9)), 0, "unknown states are rest");
    }

    #[test]
    fn a_set_without_rest_or_with_states_that_it_lacks_is_refused() {
        let with = |key| {
            let manifest = Manifest {
                frames: vec![(key, Vec::new())],
                anchors: Vec::new(),
                heads: Vec::new(),
                ..sample().manifest().clone()
            };
            let frames = vec![vec![Bytes::from_static(b"x")]];
            PoseSet::new(manifest, Bytes::new(), Vec::new(), frames).err()
        };
        assert!(with(pose(0, 0, 0, 0)).is_none());
        for bad in [pose(0, 1, 0, 0), pose(4, 0, 0, 0), pose(0, 0, 0, 2), pose(0, 9, 0, 0)] {
            assert!(with(bad).is_some(), "{bad:?}");
        }
    }
}
