//! An avatar from one photo, and its renderer.
//!
//! A part takes about 20 ms. Reading it from a file would not be faster, and no part of a person's
//! picture is left on the disk: nothing is stored. A mouth is drawn on the upright head only, and
//! carried to the turned ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use character::{Framing, Head, Picture, Pose, Rect};
use photo::{Change, FaceBounds, Landmarks, Photo, PhotoRenderer, TurnedRect};

use super::avatar_renderer::{
    AvatarRenderer, FEATHER, PartNumber, Region, RegionDelta, StanceRenderer,
};
use super::avatar_spec::Gender;
use super::bake::Error;
use super::breath::Chest;
use super::cutout::Cutout;

/// Specification of an avatar from one photo.
#[derive(Clone, Debug)]
pub struct PhotoAvatar {
    /// `avatar_key_id`.
    pub id: String,
    /// Display name.
    pub name: String,
    /// `female` or `male`.
    pub gender: Gender,
    /// Name of the avatar's voice.
    pub voice: String,
    /// The levelled photo, in the size of the pose set: 512×512 or 1280×720.
    pub photo: Photo,
    /// How much of the person the photo shows.
    pub framing: Framing,
    /// Landmarks of the face, in pixels of the photo.
    pub landmarks: Landmarks,
    /// Share of the person in each pixel of the photo, 0 … 1. Needed to replace its background.
    pub mask: Option<Vec<f32>>,
}

/// Distance from the eyes to below the chin, relative to that to the chin.
const BELOW_CHIN: f32 = 1.36;

/// The renderer of a photo, and the person's share in each of its pixels.
pub(super) struct PhotoAvatarRenderer<'a> {
    renderer: PhotoRenderer,
    mask: Option<&'a [f32]>,
    /// The mouths of the upright head, by the bits of the smile.
    upright: Mutex<HashMap<u32, UprightMouths>>,
}

/// The mouths of the upright head with one smile.
struct UprightMouths {
    rect: Rect,
    /// Levels of the rectangle with closed lips.
    still: Vec<u8>,
    /// Differences of levels by number of the mouth.
    changes: HashMap<PartNumber, Arc<Vec<i16>>>,
}

impl<'a> PhotoAvatarRenderer<'a> {
    pub(super) fn new(renderer: PhotoRenderer, mask: Option<&'a [f32]>) -> Self {
        Self { renderer, mask, upright: Mutex::default() }
    }

    /// The rectangle of the mouth on the upright head, and how mouth number `n` changes it.
    /// `base` has the same expression and closed lips.
    fn upright_mouth(&self, n: PartNumber, base: &Pose, pose: &Pose) -> (Rect, Arc<Vec<i16>>) {
        let mut all = self.upright.lock().unwrap_or_else(PoisonError::into_inner);
        let mouths = all.entry(base.smile.to_bits()).or_insert_with(|| {
            let base = upright(base);
            let rect = self.renderer.mouth_rect(&base);
            let still = self.renderer.draw(&base, rect);
            UprightMouths { rect, still, changes: HashMap::new() }
        });
        let UprightMouths { rect, still, changes } = mouths;
        let change = changes.entry(n).or_insert_with(|| {
            let moved = self.renderer.draw(&upright(pose), *rect);
            let changes = moved.iter().zip(still.iter());
            Arc::new(changes.map(|(now, before)| i16::from(*now) - i16::from(*before)).collect())
        });
        (*rect, Arc::clone(change))
    }
}

/// The pose with an upright head.
fn upright(pose: &Pose) -> Pose {
    Pose { head: Head::default(), ..*pose }
}

impl AvatarRenderer for PhotoAvatarRenderer<'_> {
    /// The photo as it is.
    fn rest(&self) -> Pose {
        Pose::default()
    }

    fn chest(&self) -> Chest {
        let FaceBounds { eyes, chin } = self.renderer.face_bounds();
        Chest::new((chin[0], eyes[1]), (chin[1] - eyes[1]) * BELOW_CHIN)
    }

    fn draw_stance(
        &self,
        _: usize,
        base: Pose,
    ) -> Result<(Picture, Box<dyn StanceRenderer + '_>), Error> {
        let renderer = &self.renderer;
        let (width, height) = renderer.size();
        let rgb = renderer.draw(&base, Rect::whole(width, height));
        let rgba = rgb.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2], 255]).collect();
        let (eyes, mouth) = (renderer.eyes_rect(&base), renderer.mouth_rect(&base));
        let stance = PhotoStance { avatar: self, base, eyes, mouth, turned: None };
        Ok((Picture { width, height, rgba }, Box::new(stance)))
    }

    fn cut_out(&self, base: Pose, still: &Picture) -> Result<Cutout, Error> {
        let mask = self.mask.ok_or(Error::NoMask)?;
        let size = self.renderer.size();
        let person = (0..size.0 * size.1)
            .map(|i| {
                // The outline turns with the head.
                let place = [(i % size.0) as f32, (i / size.0) as f32];
                sample(mask, size, self.renderer.photo_place(&base, place))
            })
            .collect();
        Ok(Cutout::of_photo(&still.rgb(), size, person))
    }
}

/// The value at a place, by linear interpolation. Outside, that of the nearest pixel of the edge.
fn sample(values: &[f32], (width, height): (usize, usize), [x, y]: [f32; 2]) -> f32 {
    let (x, y) = (x.clamp(0.0, (width - 1) as f32), y.clamp(0.0, (height - 1) as f32));
    let (left, top) = (x as usize, y as usize);
    let (right, low) = ((left + 1).min(width - 1), (top + 1).min(height - 1));
    let (fx, fy) = (x - left as f32, y - top as f32);
    let row = |y: usize| {
        let (a, b) = (values[y * width + left], values[y * width + right]);
        a + (b - a) * fx
    };
    row(top) + (row(low) - row(top)) * fy
}

/// One stance of a photo.
struct PhotoStance<'a> {
    avatar: &'a PhotoAvatarRenderer<'a>,
    base: Pose,
    eyes: Rect,
    mouth: Rect,
    /// The mouth's rectangle, if the head is turned and a mouth was drawn.
    turned: Option<TurnedRect>,
}

impl PhotoStance<'_> {
    /// How a mouth changes the stance, in its rectangle: differences of levels.
    fn mouth(&mut self, n: PartNumber, pose: &Pose) -> Arc<Vec<i16>> {
        let Self { avatar, base, mouth, .. } = *self;
        let (rect, drawn) = avatar.upright_mouth(n, &base, pose);
        if base.head == Head::default() {
            return drawn;
        }
        let turned =
            self.turned.get_or_insert_with(|| TurnedRect::new(&avatar.renderer, &base, mouth));
        Arc::new(turned.carry(Change { rect, levels: &drawn }))
    }

    /// The same of eyes and brows.
    fn eyes(&self, pose: &Pose, still: &Picture) -> Vec<i16> {
        let rect = self.eyes;
        let moved = self.avatar.renderer.draw(pose, rect);
        let columns = rect.x1 - rect.x0;
        let changes = moved.chunks_exact(3).enumerate().flat_map(|(i, level)| {
            let (x, y) = (rect.x0 + i % columns, rect.y0 + i / columns);
            let before = &still.rgba[(y * still.width + x) * 4..][..3];
            [0, 1, 2].map(|n| i16::from(level[n]) - i16::from(before[n]))
        });
        changes.collect()
    }
}

impl StanceRenderer for PhotoStance<'_> {
    fn region_delta(
        &mut self,
        region: Region,
        n: PartNumber,
        pose: &Pose,
        still: &Picture,
    ) -> Result<RegionDelta, Error> {
        let (rect, change) = match region {
            Region::Eyes => (self.eyes, Arc::new(self.eyes(pose, still))),
            Region::Mouth => (self.mouth, self.mouth(n, pose)),
        };
        let columns = rect.x1 - rect.x0;
        let mut delta = Vec::with_capacity(change.len());
        for (i, change) in change.chunks_exact(3).enumerate() {
            let (x, y) = (rect.x0 + i % columns, rect.y0 + i / columns);
            let weight = feather_weight(rect, (still.width, still.height), (x, y));
            delta.extend(change.iter().map(|level| (f32::from(*level) * weight).round() as i16));
        }
        Ok(RegionDelta { rect, delta })
    }
}

/// Weight of a change, 0 at the border of the rectangle … 1 inside. A border of the picture is none.
fn feather_weight(r: Rect, (width, height): (usize, usize), (x, y): (usize, usize)) -> f32 {
    let sides = [
        (r.x0 > 0, x - r.x0),
        (r.x1 < width, r.x1 - 1 - x),
        (r.y0 > 0, y - r.y0),
        (r.y1 < height, r.y1 - 1 - y),
    ];
    let inside = sides.iter().filter(|(counts, _)| *counts).map(|(_, d)| *d).min();
    let t = (inside.unwrap_or(FEATHER) as f32 / FEATHER as f32).min(1.0);
    t * t * (3.0 - 2.0 * t)
}
