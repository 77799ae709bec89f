//! Draws the parts of all pictures of an avatar, each once and on demand: the stances at rest, the
//! looks of each stance, and the mouths of the stances in which lips move. A stance that differs
//! from another one only in the brows is drawn as further looks of that one.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use character::{Picture, Pose};

use super::avatar_renderer::{AvatarRenderer, PartNumber, Region, RegionDelta, StanceRenderer};
use super::background::Background;
use super::bake::{Error, compose_pose};
use super::breath::Chest;
use super::manifest::{Look, PoseId};
use super::picture::I420;
use super::plan_subset::PlanSubset;
use super::pose_plan::PosePlan;

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
    looks: Vec<(PartNumber, RegionDelta)>,
    mouths: Vec<(PartNumber, RegionDelta)>,
    /// Present until all parts are drawn.
    stance_renderer: Option<Box<dyn StanceRenderer + 'a>>,
}

impl DrawnStance<'_> {
    /// The changes of this look and this mouth, in the order in which they are applied.
    fn deltas(&self, id: PoseId, drawn: u8) -> impl Iterator<Item = &RegionDelta> {
        let (look, mouth) = (look_number(id.stance, id.look, drawn), PartNumber::from(id.mouth));
        let look = self.looks.iter().filter(move |(n, _)| *n == look);
        let mouth = self.mouths.iter().filter(move |(n, _)| *n == mouth);
        look.chain(mouth).map(|(_, delta)| delta)
    }
}

/// Number of a look of the stance that is drawn for `stance`: an own look, or one with the brows of
/// another stance.
fn look_number(stance: u8, look: u8, drawn: u8) -> PartNumber {
    let of = if stance == drawn { 0 } else { stance };
    PartNumber::from(of) << 8 | PartNumber::from(look)
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
        let all = PlanSubset::full(plan);
        let drawn = (0..plan.stances.len() as u8).filter(|s| plan.drawn_stance(*s) == *s);
        let total = drawn
            .map(|stance| {
                let (looks, mouths) = parts(plan, &all, stance);
                STANCE_COST + looks.len() + mouths.len()
            })
            .sum();
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
        let drawn: BTreeSet<u8> =
            subset.stances.iter().map(|stance| self.plan.drawn_stance(*stance)).collect();
        for stance in drawn {
            if self.stances[usize::from(stance)].is_none() {
                self.draw_stance(usize::from(stance))?;
                self.advance(0, progress);
            }
            self.draw_parts(stance, subset, progress)?;
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

    /// Draws the looks and mouths of a stance in this subset that are not drawn yet.
    fn draw_parts(
        &mut self,
        stance: u8,
        subset: &PlanSubset,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), Error> {
        let (plan, h) = (self.plan, usize::from(stance));
        let base = compose_pose(&self.rest, plan.stances[h], Look::default());
        let (looks, mouths) = parts(plan, subset, stance);
        let looks = looks.into_iter().map(|(of, look)| {
            let pose = compose_pose(
                &self.rest,
                plan.stances[usize::from(of)],
                plan.looks[usize::from(look)],
            );
            (Region::Eyes, look_number(of, look, stance), pose)
        });
        let mouths = mouths.into_iter().map(|mouth| {
            let pose = Pose { mouth: plan.mouths[usize::from(mouth)], ..base };
            (Region::Mouth, PartNumber::from(mouth), pose)
        });
        let wanted: Vec<_> = looks.chain(mouths).collect();
        for (region, n, pose) in wanted {
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
            if drawn_parts.iter().any(|(drawn, _)| *drawn == n) {
                continue;
            }
            let still = original.as_ref().map_or(&*picture, |(drawn, _)| drawn);
            let mut delta = stance_renderer.region_delta(region, n, &pose, still)?;
            if let Some((_, person)) = original {
                delta.limit_to(person, picture.width);
            }
            drawn_parts.push((n, delta.cropped()));
            self.advance(1, progress);
        }
        let (looks, mouths) = parts(plan, &PlanSubset::full(plan), stance);
        if let Some(drawn) = &mut self.stances[h]
            && (drawn.looks.len(), drawn.mouths.len()) == (looks.len(), mouths.len())
        {
            drawn.stance_renderer = None;
        }
        Ok(())
    }

    fn advance(&mut self, n: usize, progress: &mut dyn FnMut(f64)) {
        self.done_cost += n;
        progress((self.done_cost as f64 / self.total_cost as f64).min(1.0));
    }

    pub(super) fn rest_picture(&self) -> &Picture {
        &self.drawn_stance(0).picture
    }

    #[expect(clippy::expect_used, reason = "the stance was drawn before")]
    fn drawn_stance(&self, stance: u8) -> &DrawnStance<'a> {
        self.stances[usize::from(stance)].as_ref().expect("the stance was drawn before")
    }

    /// Picture of a pose.
    pub(super) fn picture(&self, id: PoseId, breath: f32) -> I420 {
        let number = self.plan.drawn_stance(id.stance);
        let drawn = self.drawn_stance(number);
        let (width, height) = (drawn.picture.width, drawn.picture.height);
        let rgb = self.compose_rgb(id);
        if breath != 0.0 {
            let rgb = self.chest.apply_breath(rgb, (width, height), breath);
            return I420::from_rgb(&rgb, width, height);
        }
        let still = || I420::from_rgb(&drawn.picture.rgb(), width, height);
        let mut picture = drawn.i420.get_or_init(still).clone();
        for delta in drawn.deltas(id, number) {
            picture.set_rect(&rgb, delta.rect);
        }
        picture
    }

    /// Picture of a pose without the breath, as RGB.
    fn compose_rgb(&self, id: PoseId) -> Vec<u8> {
        let number = self.plan.drawn_stance(id.stance);
        let drawn = self.drawn_stance(number);
        let mut rgb = drawn.picture.rgb();
        for delta in drawn.deltas(id, number) {
            delta.apply_to(&mut rgb, drawn.picture.width);
        }
        rgb
    }
}

/// The parts that are drawn of a stance in this subset: looks, each with the stance whose brows it
/// has, and mouths. The look and the mouth at rest are part of the stance's picture.
fn parts(plan: &PosePlan, subset: &PlanSubset, stance: u8) -> (BTreeSet<(u8, u8)>, BTreeSet<u8>) {
    let part = plan.subset(subset);
    let (mut looks, mut mouths) = (BTreeSet::new(), BTreeSet::new());
    for id in part.pose_ids().into_iter().map(|id| subset.to_full_plan(id)) {
        if plan.drawn_stance(id.stance) == stance {
            looks.insert((id.stance, id.look));
            mouths.insert(id.mouth);
        }
    }
    // A stance with other brows is shown with the resting look too.
    let others = subset.stances.iter().filter(|other| plan.drawn_stance(**other) == stance);
    looks.extend(others.map(|other| (*other, 0)));
    looks.remove(&(stance, 0));
    mouths.remove(&0);
    (looks, mouths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::avatar_spec;
    use crate::face::bake::PatchCache;
    use crate::face::character_avatar::CharacterAvatar;

    #[test]
    fn a_mouth_changes_no_level_outside_of_its_rectangle() {
        let avatar = avatar_spec::find("clara").unwrap();
        let size = (96, 96);
        let plan = PosePlan::new();
        let subset = PlanSubset { stances: vec![0], looks: vec![0], mouths: vec![14, 15, 16] };
        let plan = plan.subset(&subset);
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
