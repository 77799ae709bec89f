//! The movable parameters of a face.

use serde::{Deserialize, Serialize};

use crate::slider::{OutOfRange, Slider, check, sliders, validated_serde};

/// All movable parameters. The default is a calm face that looks straight ahead with closed lips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, deny_unknown_fields)]
pub struct Pose {
    /// Lips, jaw and tongue.
    pub mouth: Mouth,
    /// 0 serious … 1 broad smile. Constant while the lips speak.
    pub smile: f32,
    /// Lids and gaze.
    pub eyes: Eyes,
    /// Brows.
    pub brows: Brows,
    /// Direction of the head.
    pub head: Head,
}

/// Lips, jaw and tongue: the six parameters of a viseme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mouth {
    /// 0 shut … 1 wide open (17° at the hinge).
    pub jaw: f32,
    /// −1 narrow … 1 spread.
    pub width: f32,
    /// 0 … 1 rounded and pushed forward, as in "oo".
    pub round: f32,
    /// 0 … 1 lips pressed together, as in "p".
    pub press: f32,
    /// 0 … 1 lower lip under the upper teeth, as in "f".
    pub tuck: f32,
    /// 0 lying … 0.6 tip behind the upper teeth, as in "d" … 1 between the teeth, as in "th".
    pub tongue: f32,
}

/// Lids and gaze.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Eyes {
    /// 0 open … 1 shut.
    pub lids: f32,
    /// 0 … 1 narrowed, as in a smile.
    pub squint: f32,
    /// −1 to the picture's left … 1 to its right (26°).
    pub gaze_x: f32,
    /// −1 down … 1 up (20°).
    pub gaze_y: f32,
}

/// Brows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Brows {
    /// −1 lowered … 1 raised.
    pub raise: f32,
    /// −1 inner ends down (frown) … 1 inner ends up (worry).
    pub knit: f32,
}

/// Direction of the head, in radians.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Head {
    /// Positive to the picture's right.
    pub yaw: f32,
    /// Positive down.
    pub pitch: f32,
    /// Positive counter-clockwise in the picture.
    pub roll: f32,
}

/// All sliders of a [`Pose`].
pub const POSE_SLIDERS: &[Slider<Pose>] = sliders![Pose;
    "steps" 0.0 ..= 1.0: mouth.jaw;
    "steps" -1.0 ..= 1.0: mouth.width;
    "steps" 0.0 ..= 1.0: mouth.round;
    "steps" 0.0 ..= 1.0: mouth.press;
    "steps" 0.0 ..= 1.0: mouth.tuck;
    "steps" 0.0 ..= 1.0: mouth.tongue;
    "steps" 0.0 ..= 1.0: smile;
    "steps" 0.0 ..= 1.0: eyes.lids;
    "steps" 0.0 ..= 1.0: eyes.squint;
    "steps" -1.0 ..= 1.0: eyes.gaze_x;
    "steps" -1.0 ..= 1.0: eyes.gaze_y;
    "steps" -1.0 ..= 1.0: brows.raise;
    "steps" -1.0 ..= 1.0: brows.knit;
    "radians" -0.6 ..= 0.6: head.yaw;
    "radians" -0.4 ..= 0.4: head.pitch;
    "radians" -0.4 ..= 0.4: head.roll;
];

impl Pose {
    /// Checks that every slider is in its range.
    ///
    /// # Errors
    /// The first slider that is out of range.
    pub fn check(&self) -> Result<(), OutOfRange> {
        check(POSE_SLIDERS, self)
    }
}

validated_serde!(Pose);
