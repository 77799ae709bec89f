//! What a bake asks of the renderer of an avatar: a picture of each stance, and how the eyes or the
//! mouth change it in another pose. Drawn characters and photos implement it.

use character::{Picture, Pose, Rect};

use super::bake::Error;
use super::breath::Chest;
use super::cutout::Cutout;

/// Pixels over which a moved part fades into the rest.
pub(super) const FEATHER: usize = 12;

/// The renderer of one avatar at one size.
pub(super) trait AvatarRenderer: Sync {
    /// The pose to which all others are relative.
    fn rest(&self) -> Pose;

    /// The border between head and chest in the rest pose, for the breath.
    fn chest(&self) -> Chest;

    /// Draws stance number `h`, whose pose is `base`: its whole picture, and the renderer of its
    /// regions.
    ///
    /// # Errors
    /// If drawn parts cannot be stored.
    fn draw_stance(
        &self,
        h: usize,
        base: Pose,
    ) -> Result<(Picture, Box<dyn StanceRenderer + '_>), Error>;

    /// Separates the avatar from the background in `still`, the picture of the stance with this
    /// pose.
    ///
    /// # Errors
    /// If that is impossible for this avatar.
    fn cut_out(&self, base: Pose, still: &Picture) -> Result<Cutout, Error>;
}

/// The renderer of one stance.
pub(super) trait StanceRenderer: Send + Sync {
    /// Draws a region in number `n` of its poses. `still` is the picture of the stance.
    ///
    /// # Errors
    /// If drawn parts cannot be stored.
    fn region_delta(
        &mut self,
        region: Region,
        n: u8,
        pose: &Pose,
        still: &Picture,
    ) -> Result<RegionDelta, Error>;
}

/// A region of a picture that moves by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Region {
    /// Lids, eyes and brows.
    Eyes,
    /// Lips and jaw.
    Mouth,
}

/// Change of a rectangle of the picture when a part in it moves.
pub(super) struct RegionDelta {
    pub(super) rect: Rect,
    /// Difference to the levels of the picture at rest: red, green and blue of each pixel of the
    /// rectangle, row by row.
    pub(super) delta: Vec<i16>,
}

impl RegionDelta {
    /// Removes what moves in the background. `person`: their share in each pixel of the picture.
    pub(super) fn limit_to(&mut self, person: &[f32], width: usize) {
        let r = self.rect;
        let shares = (r.y0..r.y1).flat_map(|y| &person[y * width + r.x0..y * width + r.x1]);
        for (change, share) in self.delta.chunks_exact_mut(3).zip(shares) {
            for level in change {
                *level = (f32::from(*level) * share).round() as i16;
            }
        }
    }

    pub(super) fn apply_to(&self, rgb: &mut [u8], width: usize) {
        let r = self.rect;
        let row = (r.x1 - r.x0) * 3;
        for (y, change) in (r.y0..r.y1).zip(self.delta.chunks_exact(row)) {
            let at = (y * width + r.x0) * 3;
            for (level, change) in rgb[at..at + row].iter_mut().zip(change) {
                *level = (i16::from(*level) + change).clamp(0, 255) as u8;
            }
        }
    }
}
