//! Draws the parts of all pictures of an avatar, each once and on demand: the stances at rest, the
//! looks of each stance, and the mouths of the stances in which lips move.

use std::sync::OnceLock;

use character::{Picture, Pose};

use super::avatar_renderer::{AvatarRenderer, Region, RegionDelta, StanceRenderer};
use super::background::Background;
use super::bake::{Error, compose_pose};
use super::breath::Chest;
use super::picture::I420;
use super::pose_plan::{PlanSubset, PosePlan};
use super::pose_set::{Look, PoseId};

/// A stance takes about as long as this many mouths or eyes.
const STANCE_COST: usize = 6;

/// A drawn stance, with its looks and mouths by number.
struct DrawnStance<'a> {
    picture: Picture,
    /// The picture as it is encoded, once a pose needs it.
    i420: OnceLock<I420>,
    /// The picture as the renderer drew it, and the share of the person in each pixel, if the
    /// background was replaced.
    original: Option<(Picture, Vec<f32>)>,
    looks: Vec<(u8, RegionDelta)>,
    mouths: Vec<(u8, RegionDelta)>,
    /// Present where lips move, so that further mouths can be drawn.
    stance_renderer: Option<Box<dyn StanceRenderer + 'a>>,
}

impl DrawnStance<'_> {
    /// The changes of this look and this mouth, in the order in which they are applied.
    fn deltas(&self, id: PoseId) -> impl Iterator<Item = &RegionDelta> {
        let look = self.looks.iter().filter(move |(look, _)| *look == id.look);
        let mouth = self.mouths.iter().filter(move |(mouth, _)| *mouth == id.mouth);
        look.chain(mouth).map(|(_, delta)| delta)
    }
}

/// The drawn parts of an avatar.
pub(super) struct Rasterizer<'a> {
    renderer: &'a dyn AvatarRenderer,
    /// The pose at rest.
    rest: Pose,
    /// What replaces the background, and its picture, which all stances share.
    background: Option<&'a Background>,
    backdrop: Option<Vec<u8>>,
    plan: &'a PosePlan,
    stances: Vec<Option<DrawnStance<'a>>>,
    chest: Chest,
    /// Completed and total work, in units of one mouth.
    done_cost: usize,
    total_cost: usize,
}

impl<'a> Rasterizer<'a> {
    /// Draws the first stance at rest only.
    pub(super) fn new(
        renderer: &'a dyn AvatarRenderer,
        background: Option<&'a Background>,
        plan: &'a PosePlan,
    ) -> Result<Self, Error> {
        let looks: usize = plan.looks.len()
            + plan.stance_looks.iter().map(|l| l.len().saturating_sub(1)).sum::<usize>();
        let total = plan.mouths.len() * plan.speaking_stances.len()
            + looks
            + plan.stances.len() * STANCE_COST;
        let stances = plan.stances.iter().map(|_| None).collect();
        let mut rasterizer = Self {
            renderer,
            rest: renderer.rest(),
            background,
            backdrop: None,
            plan,
            stances,
            chest: renderer.chest(),
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
        let base = compose_pose(&self.rest, self.plan.stances[h], Look::default());
        let (mut picture, stance_renderer) = self.renderer.draw_stance(h, base)?;
        let mut original = None;
        if let Some(background) = self.background {
            let cutout = self.renderer.cut_out(base, &picture)?;
            let backdrop = match &mut self.backdrop {
                Some(backdrop) => backdrop,
                backdrop => {
                    backdrop.insert(background.paint((picture.width, picture.height), &cutout)?)
                }
            };
            let drawn = picture.clone();
            cutout.replace(&mut picture.rgba, backdrop);
            original = Some((drawn, cutout.person));
        }
        self.stances[h] = Some(DrawnStance {
            picture,
            i420: OnceLock::new(),
            original,
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
        let plan = self.plan;
        let base = compose_pose(&self.rest, plan.stances[h], Look::default());
        for (region, wanted) in [(Region::Eyes, looks), (Region::Mouth, mouths)] {
            for &n in wanted.iter().filter(|n| **n != 0) {
                let Some(DrawnStance {
                    picture,
                    original,
                    looks,
                    mouths,
                    stance_renderer: Some(stance_renderer),
                    ..
                }) = &mut self.stances[h]
                else {
                    continue;
                };
                let drawn_parts = if region == Region::Mouth { mouths } else { looks };
                if drawn_parts.iter().any(|(drawn_parts, _)| *drawn_parts == n) {
                    continue;
                }
                let i = usize::from(n);
                let pose = match region {
                    Region::Mouth => Pose { mouth: plan.mouths[i], ..base },
                    Region::Eyes => compose_pose(&self.rest, plan.stances[h], plan.looks[i]),
                };
                let still = original.as_ref().map_or(&*picture, |(drawn, _)| drawn);
                let mut delta = stance_renderer.region_delta(region, n, &pose, still)?;
                if let Some((_, person)) = original {
                    delta.limit_to(person, picture.width);
                }
                drawn_parts.push((n, delta));
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
        let drawn = self.drawn_stance(id.stance);
        let (width, height) = (drawn.picture.width, drawn.picture.height);
        let rgb = self.compose_rgb(id);
        if breath != 0.0 {
            let rgb = self.chest.apply_breath(rgb, (width, height), breath);
            return I420::from_rgb(&rgb, width, height);
        }
        let still = || I420::from_rgb(&drawn.picture.rgb(), width, height);
        let mut picture = drawn.i420.get_or_init(still).clone();
        for delta in drawn.deltas(id) {
            picture.set_rect(&rgb, delta.rect);
        }
        picture
    }

    /// Picture of a pose without the breath, as RGB.
    fn compose_rgb(&self, id: PoseId) -> Vec<u8> {
        let drawn = self.drawn_stance(id.stance);
        let mut rgb = drawn.picture.rgb();
        for delta in drawn.deltas(id) {
            delta.apply_to(&mut rgb, drawn.picture.width);
        }
        rgb
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::avatar_spec;
    use crate::face::bake::PatchCache;
    use crate::face::character_avatar::CharacterAvatar;
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
        let cache = PatchCache::new(None).unwrap();
        let renderer = CharacterAvatar::new(&avatar, size, &cache).unwrap();
        let mut rasterizer = Rasterizer::new(&renderer, None, &plan).unwrap();
        rasterizer.draw(&PlanSubset::full(&plan), &mut |_| ()).unwrap();
        let rect = rasterizer.drawn_stance(0).mouths[0].1.rect;
        let still = rasterizer.rest_picture();
        let id = PoseId { mouth: 1, ..PoseId::default() };
        let open = rasterizer.compose_rgb(id);
        assert!(rasterizer.picture(id, 0.0) == I420::from_rgb(&open, size.0, size.1));
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
