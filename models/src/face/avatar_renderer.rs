//! What a bake asks of the renderer of an avatar: a picture of each stance, and how the eyes or the
//! mouth change it in another pose. Drawn characters and photos implement it.

use std::ops::Range;

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

/// Number of a pose of a region, unique in its stance.
pub(super) type PartNumber = u16;

/// The renderer of one stance.
pub(super) trait StanceRenderer: Send + Sync {
    /// Draws a region in number `n` of its poses. `still` is the picture of the stance.
    ///
    /// # Errors
    /// If drawn parts cannot be stored.
    fn region_delta(
        &mut self,
        region: Region,
        n: PartNumber,
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

    /// The same without the rows and columns at the edges that do not change. A set has hundreds of
    /// changes, and a mouth that is nearly shut moves little of its rectangle.
    pub(super) fn cropped(self) -> Self {
        let Rect { x0, y0, x1, .. } = self.rect;
        let columns = x1 - x0;
        let changes = self.delta.chunks_exact(3).enumerate();
        let changed = changes.filter(|(_, change)| *change != [0; 3]);
        let places = changed.map(|(i, _)| (i % columns, i / columns));
        let bounds = places.fold(None, |bounds: Option<[Range<usize>; 2]>, (x, y)| {
            let [across, down] = bounds.unwrap_or([x..x, y..y]);
            let grown = |range: Range<usize>, to: usize| range.start.min(to)..range.end.max(to + 1);
            Some([grown(across, x), grown(down, y)])
        });
        let [across, down] = bounds.unwrap_or([0..1, 0..1]);
        let rows = self.delta.chunks_exact(columns * 3).take(down.end).skip(down.start);
        let delta = rows.flat_map(|row| &row[across.start * 3..across.end * 3]).copied().collect();
        let rect = Rect {
            x0: x0 + across.start,
            y0: y0 + down.start,
            x1: x0 + across.end,
            y1: y0 + down.end,
        };
        Self { rect, delta }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cropped_change_is_the_same_change() {
        let rect = Rect { x0: 2, y0: 1, x1: 7, y1: 6 };
        let apply = |change: &RegionDelta| {
            let mut rgb = vec![100; 9 * 8 * 3];
            change.apply_to(&mut rgb, 9);
            rgb
        };
        for changed in [&[][..], &[37], &[0, 74], &[20, 32, 50]] {
            let mut delta = vec![0; 5 * 5 * 3];
            changed.iter().for_each(|at| delta[*at] = 9);
            let whole = RegionDelta { rect, delta };
            let expected = apply(&whole);
            let cropped = whole.cropped();
            let Rect { x0, y0, x1, y1 } = cropped.rect;
            assert_eq!(cropped.delta.len(), (x1 - x0) * (y1 - y0) * 3);
            assert_eq!(apply(&cropped), expected, "{changed:?}");
            let size = match changed {
                [] | [_] => 1,
                [0, _] => 25,
                _ => 6,
            };
            assert_eq!(cropped.delta.len(), size * 3, "{changed:?}");
        }
    }
}
