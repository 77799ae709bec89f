//! The renderer of a drawn character. Its parts take seconds each, so they are stored.

use character::{CharacterRenderer, Framing, HeadView, Patch, Picture, Pose, Rect};

use super::avatar_renderer::{
    AvatarRenderer, FEATHER, PartNumber, Region, RegionDelta, StanceRenderer,
};
use super::avatar_spec::AvatarSpec;
use super::bake::{Error, PatchCache};
use super::breath::Chest;
use super::cutout::Cutout;

/// A drawn character at one size.
pub(super) struct CharacterAvatar<'a> {
    renderer: CharacterRenderer,
    avatar: &'a AvatarSpec,
    size: (usize, usize),
    cache: &'a PatchCache,
}

impl<'a> CharacterAvatar<'a> {
    pub(super) fn new(
        avatar: &'a AvatarSpec,
        size: (usize, usize),
        cache: &'a PatchCache,
    ) -> Result<Self, Error> {
        Ok(Self { renderer: CharacterRenderer::new(&avatar.character)?, avatar, size, cache })
    }

    /// Changes how much of the character the pictures show.
    pub(super) fn with_framing(self, framing: Framing) -> Self {
        Self { renderer: self.renderer.with_framing(framing), ..self }
    }
}

pub(super) fn locate_chest(rest: &HeadView<'_>) -> Chest {
    Chest::from_face(rest.eyes_rect(), rest.mouth_rect())
}

impl AvatarRenderer for CharacterAvatar<'_> {
    fn rest(&self) -> Pose {
        self.avatar.rest
    }

    fn chest(&self) -> Chest {
        locate_chest(&self.renderer.head_view(&self.avatar.rest, self.size))
    }

    fn draw_stance(
        &self,
        h: usize,
        base: Pose,
    ) -> Result<(Picture, Box<dyn StanceRenderer + '_>), Error> {
        let view = self.renderer.head_view(&base, self.size);
        let rect = Rect::whole(self.size.0, self.size.1);
        let whole =
            self.cache.get_or_draw(&format!("stance{h}"), rect, || view.draw(&base, rect))?;
        let still = whole.to_picture();
        let part = |rect: Rect| Part { rect, rest: None };
        let (eyes, mouth) = (part(view.eyes_rect()), part(view.mouth_rect()));
        let stance = CharacterStance { h, base, view, whole, eyes, mouth, cache: self.cache };
        Ok((still, Box::new(stance)))
    }

    fn cut_out(&self, base: Pose, _: &Picture) -> Result<Cutout, Error> {
        let view = self.renderer.head_view(&base, self.size);
        Ok(Cutout {
            person: view.coverage(&base),
            background: view.studio().to_picture().rgb(),
            person_colour: None,
        })
    }
}

/// One stance of a drawn character.
struct CharacterStance<'a> {
    h: usize,
    base: Pose,
    view: HeadView<'a>,
    whole: Patch,
    eyes: Part,
    mouth: Part,
    cache: &'a PatchCache,
}

/// Where a region lies, and its patch at rest.
struct Part {
    rect: Rect,
    rest: Option<Patch>,
}

impl StanceRenderer for CharacterStance<'_> {
    fn region_delta(
        &mut self,
        region: Region,
        n: PartNumber,
        pose: &Pose,
        still: &Picture,
    ) -> Result<RegionDelta, Error> {
        let Self { h, base, view, whole, cache, .. } = self;
        let (Part { rect, rest }, at_rest, name) = match region {
            Region::Eyes => {
                (&mut self.eyes, format!("stance{h}-eyes"), format!("stance{h}-look{n}"))
            }
            Region::Mouth => {
                (&mut self.mouth, format!("stance{h}-mouth"), format!("stance{h}-mouth{n}"))
            }
        };
        let rect = *rect;
        let before = match rest {
            Some(before) => before,
            None => rest.insert(cache.get_or_draw(&at_rest, rect, || view.draw(base, rect))?),
        };
        let moved = cache.get_or_draw(&name, rect, || view.draw(pose, rect))?;
        Ok(region_delta(whole, still, before, &moved))
    }
}

/// `whole` and `before` are in linear light. Bloom spills slightly over the border of the
/// rectangle. That part is discarded, so that nothing else changes.
fn region_delta(whole: &Patch, still: &Picture, before: &Patch, moved: &Patch) -> RegionDelta {
    let rect = moved.rect();
    let mut all = whole.clone();
    all.add_change(before, moved, FEATHER);
    let now = all.to_picture();
    let mut delta = Vec::with_capacity((rect.x1 - rect.x0) * (rect.y1 - rect.y0) * 3);
    for y in rect.y0..rect.y1 {
        for x in rect.x0..rect.x1 {
            let i = (y * still.width + x) * 4;
            delta.extend((i..i + 3).map(|i| i16::from(now.rgba[i]) - i16::from(still.rgba[i])));
        }
    }
    RegionDelta { rect, delta }
}
