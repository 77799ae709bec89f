//! Draws the parts of all pictures of an avatar, each once and on demand: the stances at rest, the
//! looks of each stance, and the mouths of the stances in which lips move.

use character::{CharacterRenderer, HeadView, Patch, Picture, Pose, Rect};

use super::avatar_spec::AvatarSpec;
use super::bake::{Error, PatchCache, compose_pose};
use super::breath::Chest;
use super::picture::I420;
use super::pose_plan::{PlanSubset, PosePlan};
use super::pose_set::{Look, PoseId};

/// Pixels over which a moved part fades into the rest.
pub(super) const FEATHER: usize = 12;
/// A stance takes about as long as this many mouths or eyes.
const STANCE_COST: usize = 6;

pub(super) fn locate_chest(rest: &HeadView<'_>) -> Chest {
    Chest::from_face(rest.eyes_rect(), rest.mouth_rect())
}

/// Change of a rectangle of the picture when a part in it moves.
struct RegionDelta {
    rect: Rect,
    /// Difference to the levels of the picture at rest: red, green and blue of each pixel of the
    /// rectangle.
    delta: Vec<i16>,
}

impl RegionDelta {
    /// `whole` and `before` are in linear light. Bloom spills slightly over the border of the
    /// rectangle. That part is discarded, so that nothing else changes.
    fn new(whole: &Patch, still: &Picture, before: &Patch, moved: &Patch) -> Self {
        let rect = moved.rect();
        let mut all = whole.clone();
        all.add_change(before, moved, FEATHER);
        let now = all.to_picture();
        let mut change = Vec::with_capacity((rect.x1 - rect.x0) * (rect.y1 - rect.y0) * 3);
        for y in rect.y0..rect.y1 {
            for x in rect.x0..rect.x1 {
                let i = (y * still.width + x) * 4;
                change
                    .extend((i..i + 3).map(|i| i16::from(now.rgba[i]) - i16::from(still.rgba[i])));
            }
        }
        Self { rect, delta: change }
    }

    fn apply_to(&self, rgb: &mut [u8], width: usize) {
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

/// Renderer of one stance of an avatar.
struct StanceRenderer<'a> {
    base: Pose,
    view: HeadView<'a>,
    whole: Patch,
    eyes: Region,
    mouth: Region,
}

/// Where a part moves, and its patch at rest.
struct Region {
    rect: Rect,
    name: String,
    rest: Option<Patch>,
}

impl<'a> StanceRenderer<'a> {
    /// A renderer for stance `h`, and the picture of that stance.
    fn new(
        renderer: &'a CharacterRenderer,
        avatar: &AvatarSpec,
        size: (usize, usize),
        plan: &PosePlan,
        cache: &PatchCache,
        h: usize,
    ) -> Result<(Self, Picture), Error> {
        let base = compose_pose(&avatar.rest, plan.stances[h], Look::default());
        let view = renderer.head_view(&base, size);
        let rect = Rect::whole(size.0, size.1);
        let whole = cache.get_or_draw(&format!("stance{h}"), rect, || view.draw(&base, rect))?;
        let still = whole.to_picture();
        let region = |rect: Rect, name: String| Region { rect, name, rest: None };
        let eyes = region(view.eyes_rect(), format!("stance{h}-eyes"));
        let mouth = region(view.mouth_rect(), format!("stance{h}-mouth"));
        Ok((Self { base, view, whole, eyes, mouth }, still))
    }

    /// Draws the part `name`: the eyes or the mouth in another pose.
    fn region_delta(
        &mut self,
        cache: &PatchCache,
        name: &str,
        mouth: bool,
        pose: &Pose,
        still: &Picture,
    ) -> Result<RegionDelta, Error> {
        let Self { base, view, whole, .. } = self;
        let Region { rect, name: at_rest, rest } =
            if mouth { &mut self.mouth } else { &mut self.eyes };
        let rect = *rect;
        let before = match rest {
            Some(before) => before,
            None => rest.insert(cache.get_or_draw(at_rest, rect, || view.draw(base, rect))?),
        };
        let moved = cache.get_or_draw(name, rect, || view.draw(pose, rect))?;
        Ok(RegionDelta::new(whole, still, before, &moved))
    }
}

/// A drawn stance, with its looks and mouths by number.
struct DrawnStance<'a> {
    picture: Picture,
    looks: Vec<(u8, RegionDelta)>,
    mouths: Vec<(u8, RegionDelta)>,
    /// Present where lips move, so that further mouths can be drawn.
    stance_renderer: Option<StanceRenderer<'a>>,
}

/// The drawn parts of an avatar.
pub(super) struct Rasterizer<'a> {
    renderer: &'a CharacterRenderer,
    avatar: &'a AvatarSpec,
    size: (usize, usize),
    plan: &'a PosePlan,
    cache: &'a PatchCache,
    stances: Vec<Option<DrawnStance<'a>>>,
    chest: Chest,
    /// Completed and total work, in units of one mouth.
    done_cost: usize,
    total_cost: usize,
}

impl<'a> Rasterizer<'a> {
    /// Draws the first stance at rest only.
    pub(super) fn new(
        renderer: &'a CharacterRenderer,
        avatar: &'a AvatarSpec,
        size: (usize, usize),
        plan: &'a PosePlan,
        cache: &'a PatchCache,
    ) -> Result<Self, Error> {
        let chest = locate_chest(&renderer.head_view(&avatar.rest, size));
        let looks: usize = plan.looks.len()
            + plan.stance_looks.iter().map(|l| l.len().saturating_sub(1)).sum::<usize>();
        let total = plan.mouths.len() * plan.speaking_stances.len()
            + looks
            + plan.stances.len() * STANCE_COST;
        let stances = plan.stances.iter().map(|_| None).collect();
        let mut rasterizer = Self {
            renderer,
            avatar,
            size,
            plan,
            cache,
            stances,
            chest,
            done_cost: 0,
            total_cost: total,
        };
        rasterizer.draw_stance(0)?;
        Ok(rasterizer)
    }

    /// Draws the parts of this subset that are not drawn yet. `progress` receives the drawn
    /// fraction of the full plan, 0 … 1.
    pub(super) fn draw(
        &mut self,
        subset: &PlanSubset,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), Error> {
        self.advance(0, progress);
        let none = Vec::new();
        let part = self.plan.subset(subset);
        for (at, &stance) in subset.stances.iter().enumerate() {
            let h = usize::from(stance);
            if self.stances[h].is_none() {
                self.draw_stance(h)?;
                self.advance(0, progress);
            }
            let looks = if h == 0 {
                &subset.looks
            } else {
                self.plan.stance_looks.get(h - 1).unwrap_or(&none)
            };
            let talks = part.speaking_stances.iter().any(|(talks, _)| usize::from(*talks) == at);
            self.draw_parts(h, looks, if talks { &subset.mouths } else { &none }, progress)?;
        }
        Ok(())
    }

    /// Draws a stance at rest.
    fn draw_stance(&mut self, h: usize) -> Result<(), Error> {
        let (stance_renderer, still) =
            StanceRenderer::new(self.renderer, self.avatar, self.size, self.plan, self.cache, h)?;
        self.stances[h] = Some(DrawnStance {
            picture: still,
            looks: Vec::new(),
            mouths: Vec::new(),
            stance_renderer: Some(stance_renderer),
        });
        self.done_cost += STANCE_COST;
        Ok(())
    }

    /// Draws the given looks and mouths of a stance that are not drawn yet.
    fn draw_parts(
        &mut self,
        h: usize,
        looks: &[u8],
        mouths: &[u8],
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), Error> {
        let (rest, plan) = (&self.avatar.rest, self.plan);
        for (mouth, wanted) in [(false, looks), (true, mouths)] {
            for &n in wanted.iter().filter(|n| **n != 0) {
                let Some(DrawnStance {
                    picture: still,
                    looks,
                    mouths,
                    stance_renderer: Some(stance_renderer),
                }) = &mut self.stances[h]
                else {
                    continue;
                };
                let drawn_parts = if mouth { mouths } else { looks };
                if drawn_parts.iter().any(|(drawn_parts, _)| *drawn_parts == n) {
                    continue;
                }
                let i = usize::from(n);
                let (pose, name) = if mouth {
                    (
                        Pose { mouth: plan.mouths[i], ..stance_renderer.base },
                        format!("stance{h}-mouth{n}"),
                    )
                } else {
                    (
                        compose_pose(rest, plan.stances[h], plan.looks[i]),
                        format!("stance{h}-look{n}"),
                    )
                };
                drawn_parts.push((
                    n,
                    stance_renderer.region_delta(self.cache, &name, mouth, &pose, still)?,
                ));
                self.advance(1, progress);
            }
        }
        let talks = plan.speaking_stances.iter().any(|(talks, _)| usize::from(*talks) == h);
        if let Some(held) = self.stances[h].as_mut().filter(|_| !talks) {
            held.stance_renderer = None;
        }
        Ok(())
    }

    fn advance(&mut self, n: usize, progress: &mut dyn FnMut(f64)) {
        self.done_cost += n;
        progress((self.done_cost as f64 / self.total_cost as f64).min(1.0));
    }

    pub(super) fn rest_picture(&self) -> &Picture {
        self.stance_picture(0)
    }

    /// Picture of a stance at rest.
    pub(super) fn stance_picture(&self, stance: u8) -> &Picture {
        &self.drawn_stance(stance).picture
    }

    #[expect(clippy::expect_used, reason = "the stance was drawn before")]
    fn drawn_stance(&self, stance: u8) -> &DrawnStance<'a> {
        self.stances[usize::from(stance)].as_ref().expect("the stance was drawn before")
    }

    /// Picture of a pose.
    pub(super) fn picture(&self, id: PoseId, breath: f32) -> I420 {
        let still = self.stance_picture(id.stance);
        let size = (still.width, still.height);
        I420::from_rgb(&self.chest.apply_breath(self.compose_rgb(id), size, breath), size.0, size.1)
    }

    /// Picture of a pose without the breath, as RGB.
    fn compose_rgb(&self, id: PoseId) -> Vec<u8> {
        let DrawnStance { picture: still, looks, mouths, .. } = self.drawn_stance(id.stance);
        let mut rgb = still.rgb();
        if let Some((_, look)) = looks.iter().find(|(l, _)| *l == id.look) {
            look.apply_to(&mut rgb, still.width);
        }
        if let Some((_, mouth)) = mouths.iter().find(|(m, _)| *m == id.mouth) {
            mouth.apply_to(&mut rgb, still.width);
        }
        rgb
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::avatar_spec;
    use crate::face::pose_set::Stance;

    #[test]
    fn a_mouth_changes_no_level_outside_of_its_rectangle() {
        let avatar = avatar_spec::find("clara").unwrap();
        let size = (96, 96);
        let plan = PosePlan {
            stances: vec![Stance::default()],
            stance_looks: Vec::new(),
            breathing_poses: Vec::new(),
            altref_stances: Vec::new(),
            ..PosePlan::new()
        };
        let plan = PosePlan {
            looks: plan.looks[..1].to_vec(),
            mouths: plan.mouths[14..17].to_vec(),
            speaking_stances: vec![(0, vec![0])],
            ..plan
        };
        let (renderer, cache) =
            (CharacterRenderer::new(&avatar.character).unwrap(), PatchCache::new(None).unwrap());
        let mut rasterizer = Rasterizer::new(&renderer, &avatar, size, &plan, &cache).unwrap();
        rasterizer.draw(&PlanSubset::full(&plan), &mut |_| ()).unwrap();
        let rect = rasterizer.drawn_stance(0).mouths[0].1.rect;
        let still = rasterizer.rest_picture();
        let open = rasterizer.compose_rgb(PoseId { mouth: 1, ..PoseId::default() });
        let (mut inside, mut outside) = (0, 0);
        for (i, (a, b)) in open.iter().zip(still.rgb()).enumerate().filter(|(_, (a, b))| **a != *b)
        {
            let (x, y) = (i / 3 % size.0, i / 3 / size.0);
            let within = (rect.x0..rect.x1).contains(&x) && (rect.y0..rect.y1).contains(&y);
            *(if within { &mut inside } else { &mut outside }) += usize::from(a.abs_diff(b) > 0);
        }
        assert!(inside > 100 && outside == 0, "{inside} inside, {outside} outside");
    }
}
