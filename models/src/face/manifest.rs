//! The description of a pose set: its states, its reference frames, and the heads that speak.

use character::{Brows, Eyes, Framing, Head, Mouth};
use serde::{Deserialize, Serialize};

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

/// Position of the head, and the expression that the avatar keeps while it speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stance {
    /// Relative to rest.
    pub head: Head,
    /// −1 no smile … 0 as at rest … 1 a smile of joy.
    pub smile: f32,
    /// Brows relative to rest, below those of the look.
    #[serde(default)]
    pub brows: Brows,
}

/// Eyes and brows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Lids and gaze.
    pub eyes: Eyes,
    /// Brows.
    pub brows: Brows,
}

/// Position of a head with which the avatar speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadName {
    /// Upright.
    Rest,
    /// Tilted, as a listener's.
    Lean,
    /// Turned to the picture's left.
    Left,
    /// Turned to the picture's right.
    Right,
    /// With a lowered chin.
    Down,
}

/// Expression of a speaking head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mood {
    /// The expression at rest.
    Calm,
    /// A smile.
    Warm,
    /// A broad smile with raised brows.
    Glad,
    /// Without the smile of rest, the inner ends of the brows raised.
    Serious,
    /// The head tilted, the brows raised.
    Curious,
}

/// A stance in which lips speak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeakingHead {
    /// Position of the head.
    pub name: HeadName,
    /// Expression.
    pub mood: Mood,
    /// Its stance.
    pub stance: u8,
    /// The stances on the way to it, in this order. The way begins at the rest of the same mood,
    /// and that of [`HeadName::Rest`] at rest. It is empty if there is none.
    pub ways: Vec<u8>,
    /// The same with raised brows. It has an anchor of its own, and shares the mouths of this
    /// stance with the resting look.
    pub raised: Option<u8>,
}

/// A second reference frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// The stances whose frames refer to it. It shows the first of them, at rest.
    pub stances: Vec<u8>,
    /// Its length in bytes.
    pub length: u32,
}

impl Anchor {
    /// An anchor of these stances. The length becomes known with its frame.
    #[must_use]
    pub fn of(stances: Vec<u8>) -> Self {
        Self { stances, length: 0 }
    }
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
    /// [`super::bake::PLAN_VERSION`] of the program that baked the set.
    #[serde(default)]
    pub plan_version: u32,
    /// How much of the person the pictures show. Sets without this field show a bust.
    #[serde(default = "default_framing")]
    pub framing: Framing,
    /// Quantizer of the key frame, then those of moving lips in the quality levels, finest first.
    pub quantizers: Vec<u32>,
    /// The anchors, in the order of the file. The frames of all stances without one refer to the
    /// key frame.
    #[serde(default)]
    pub anchors: Vec<Anchor>,
    /// The heads that speak, rest first. Empty: [`Manifest::derive_heads`].
    #[serde(default)]
    pub heads: Vec<SpeakingHead>,
    /// Heads and expressions relative to rest, rest first.
    pub stances: Vec<Stance>,
    /// Eyes and brows relative to rest, rest first.
    pub looks: Vec<Look>,
    /// Mouths, the closed one first.
    pub mouths: Vec<Mouth>,
    /// Rise of the chest: 0 breathed out, first, … 1 breathed in.
    pub breaths: Vec<f32>,
    /// The pose frames in order, each with its length in bytes in its quality levels. Rest is among
    /// them.
    #[serde(with = "frame_list")]
    pub frames: Vec<(PoseId, Vec<u32>)>,
    /// Length of the key frame in bytes.
    pub key_length: u32,
}

/// The plan of all sets in files of version 2.
pub(super) const PLAN_VERSION_2: u32 = 2;

/// The framing of sets that do not have the field.
fn default_framing() -> Framing {
    Framing::Bust
}

/// Fields of version 2 that later versions replace.
#[derive(Deserialize)]
struct Version2 {
    /// The stances of its only anchor.
    anchored: Vec<u8>,
    /// 0 if there is none.
    anchor_length: u32,
}

impl Manifest {
    /// Reads a manifest of version 3.
    pub(super) fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// Reads a manifest of version 2.
    pub(super) fn read_version_2(json: &[u8]) -> Result<Self, serde_json::Error> {
        let Version2 { anchored: stances, anchor_length: length } = serde_json::from_slice(json)?;
        let anchors = if stances.is_empty() { vec![] } else { vec![Anchor { stances, length }] };
        Ok(Self { anchors, plan_version: PLAN_VERSION_2, ..serde_json::from_slice(json)? })
    }

    /// The speaking heads of a set without a list of them, as version 2: rest, and the one leaning
    /// head with moving lips. The stances without lips between both are its way.
    #[must_use]
    pub fn derive_heads(&self) -> Vec<SpeakingHead> {
        let head = |name, stance, ways| SpeakingHead {
            name,
            mood: Mood::Calm,
            stance,
            ways,
            raised: None,
        };
        let speaks =
            |stance: u8| self.frames.iter().any(|(id, _)| id.stance == stance && id.mouth != 0);
        let all = 1..self.stances.len() as u8;
        let mut heads = vec![head(HeadName::Rest, 0, Vec::new())];
        if let Some(lean) = all.clone().find(|stance| speaks(*stance)) {
            let place = |stance: u8| {
                let [way, lean] = [stance, lean].map(|stance| self.stances[usize::from(stance)]);
                fraction_of(way.head, lean.head)
                    .filter(|_| way.smile == lean.smile && !speaks(stance))
                    .map(|fraction| (fraction, stance))
            };
            let mut ways: Vec<(f32, u8)> = all.filter_map(place).collect();
            ways.sort_by(|a, b| a.0.total_cmp(&b.0));
            heads.push(head(HeadName::Lean, lean, ways.into_iter().map(|way| way.1).collect()));
        }
        heads
    }

    /// Number of stances, looks, mouths and breaths.
    pub(super) fn state_counts(&self) -> [usize; 4] {
        [self.stances.len(), self.looks.len(), self.mouths.len(), self.breaths.len()]
    }

    /// Index of a combination among all.
    pub(super) fn table_index(&self, id: PoseId) -> usize {
        let [_, looks, mouths, breaths] = self.state_counts();
        let [stance, look, mouth, breath] =
            [id.stance, id.look, id.mouth, id.breath].map(usize::from);
        ((stance * looks + look) * mouths + mouth) * breaths + breath
    }

    /// The same pose with 0 for states out of range.
    pub(super) fn with_valid_states(&self, id: PoseId) -> PoseId {
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

/// How far `head` is on the straight way from rest to `end`, if it is between the two.
fn fraction_of(head: Head, end: Head) -> Option<f32> {
    /// Maximum distance from the way, in radians.
    const TOLERANCE: f32 = 1e-4;
    let [a, b] = [head, end].map(|head| [head.yaw, head.pitch, head.roll]);
    let dot = |a: [f32; 3], b: [f32; 3]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let fraction = dot(a, b) / dot(b, b);
    let beside = a.iter().zip(b).map(|(a, b)| (a - fraction * b).abs()).fold(0.0, f32::max);
    (fraction > 0.01 && fraction < 0.99 && beside < TOLERANCE).then_some(fraction)
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
