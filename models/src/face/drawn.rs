//! Draws the parts of all pictures of an avatar, each once and on demand: the stances at rest, the
//! looks of each stance, and the mouths of the stances in which lips move.

use character::{Patch, Picture, Pose, Rect, Sitter, Stage};

use super::bake::{Error, Parts, pose};
use super::breath::Chest;
use super::people::Person;
use super::picture::I420;
use super::plan::{Plan, Share};
use super::set::{Key, Look};

/// Pixels over which a moved part fades into the rest.
pub(super) const FEATHER: usize = 12;
/// A stance takes about as long as this many mouths or eyes.
const STANCE: usize = 6;

pub(super) fn chest(rest: &Stage<'_>) -> Chest {
    Chest::below(rest.eyes_rect(), rest.mouth_rect())
}

/// Change of a rectangle of the picture when a part in it moves.
struct Moved {
    rect: Rect,
    /// Difference to the levels of the picture at rest: red, green and blue of each pixel of the
    /// rectangle.
    change: Vec<i16>,
}

impl Moved {
    /// `whole` and `before` are in linear light. Bloom spills slightly over the border of the
    /// rectangle. That part is discarded, so that nothing else changes.
    fn new(whole: &Patch, still: &Picture, before: &Patch, moved: &Patch) -> Self {
        let rect = moved.rect();
        let mut all = whole.clone();
        all.add_change(before, moved, FEATHER);
        let now = all.finish();
        let mut change = Vec::with_capacity((rect.x1 - rect.x0) * (rect.y1 - rect.y0) * 3);
        for y in rect.y0..rect.y1 {
            for x in rect.x0..rect.x1 {
                let i = (y * still.width + x) * 4;
                change.extend((i..i + 3).map(|i| i16::from(now.rgba[i]) - i16::from(still.rgba[i])));
            }
        }
        Self { rect, change }
    }

    fn add_to(&self, rgb: &mut [u8], width: usize) {
        let r = self.rect;
        let row = (r.x1 - r.x0) * 3;
        for (y, change) in (r.y0..r.y1).zip(self.change.chunks_exact(row)) {
            let at = (y * width + r.x0) * 3;
            for (level, change) in rgb[at..at + row].iter_mut().zip(change) {
                *level = (i16::from(*level) + change).clamp(0, 255) as u8;
            }
        }
    }
}

/// Renderer of one stance of an avatar.
struct Sitting<'a> {
    base: Pose,
    stage: Stage<'a>,
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

impl<'a> Sitting<'a> {
    /// A renderer for stance `h`, and the picture of that stance.
    fn new(
        sitter: &'a Sitter,
        person: &Person,
        size: (usize, usize),
        plan: &Plan,
        parts: &Parts,
        h: usize,
    ) -> Result<(Self, Picture), Error> {
        let base = pose(&person.rest, plan.stances[h], Look::default());
        let stage = sitter.stage(&base, size);
        let rect = Rect::whole(size.0, size.1);
        let whole = parts.part(&format!("stance{h}"), rect, || stage.draw(&base, rect))?;
        let still = whole.finish();
        let region = |rect: Rect, name: String| Region { rect, name, rest: None };
        let eyes = region(stage.eyes_rect(), format!("stance{h}-eyes"));
        let mouth = region(stage.mouth_rect(), format!("stance{h}-mouth"));
        Ok((Self { base, stage, whole, eyes, mouth }, still))
    }

    /// Draws the part `name`: the eyes or the mouth in another pose.
    fn moved(
        &mut self,
        parts: &Parts,
        name: &str,
        mouth: bool,
        pose: &Pose,
        still: &Picture,
    ) -> Result<Moved, Error> {
        let Self { base, stage, whole, .. } = self;
        let Region { rect, name: at_rest, rest } = if mouth { &mut self.mouth } else { &mut self.eyes };
        let rect = *rect;
        let before = match rest {
            Some(before) => before,
            None => rest.insert(parts.part(at_rest, rect, || stage.draw(base, rect))?),
        };
        let moved = parts.part(name, rect, || stage.draw(pose, rect))?;
        Ok(Moved::new(whole, still, before, &moved))
    }
}

/// A drawn stance, with its looks and mouths by number.
struct Held<'a> {
    still: Picture,
    looks: Vec<(u8, Moved)>,
    mouths: Vec<(u8, Moved)>,
    /// Present where lips move, so that further mouths can be drawn.
    sitting: Option<Sitting<'a>>,
}

/// The drawn parts of an avatar.
pub(super) struct Drawn<'a> {
    sitter: &'a Sitter,
    person: &'a Person,
    size: (usize, usize),
    plan: &'a Plan,
    parts: &'a Parts,
    stances: Vec<Option<Held<'a>>>,
    chest: Chest,
    /// Completed and total work, in units of one mouth.
    done: usize,
    total: usize,
}

impl<'a> Drawn<'a> {
    /// Draws the first stance at rest only.
    pub(super) fn new(
        sitter: &'a Sitter,
        person: &'a Person,
        size: (usize, usize),
        plan: &'a Plan,
        parts: &'a Parts,
    ) -> Result<Self, Error> {
        let chest = chest(&sitter.stage(&person.rest, size));
        let looks: usize =
            plan.looks.len() + plan.stance_looks.iter().map(|l| l.len().saturating_sub(1)).sum::<usize>();
        let total = plan.mouths.len() * plan.talking.len() + looks + plan.stances.len() * STANCE;
        let stances = plan.stances.iter().map(|_| None).collect();
        let mut drawn = Self { sitter, person, size, plan, parts, stances, chest, done: 0, total };
        drawn.draw_still(0)?;
        Ok(drawn)
    }

    /// Draws the parts of this subset that are not drawn yet. `progress` receives the drawn
    /// fraction of the full plan, 0 … 1.
    pub(super) fn draw(&mut self, share: &Share, progress: &mut dyn FnMut(f64)) -> Result<(), Error> {
        self.step(0, progress);
        let none = Vec::new();
        let part = self.plan.of(share);
        for (at, &stance) in share.stances.iter().enumerate() {
            let h = usize::from(stance);
            if self.stances[h].is_none() {
                self.draw_still(h)?;
                self.step(0, progress);
            }
            let looks =
                if h == 0 { &share.looks } else { self.plan.stance_looks.get(h - 1).unwrap_or(&none) };
            let talks = part.talking.iter().any(|(talks, _)| usize::from(*talks) == at);
            self.draw_parts(h, looks, if talks { &share.mouths } else { &none }, progress)?;
        }
        Ok(())
    }

    /// Draws a stance at rest.
    fn draw_still(&mut self, h: usize) -> Result<(), Error> {
        let (sitting, still) = Sitting::new(self.sitter, self.person, self.size, self.plan, self.parts, h)?;
        self.stances[h] = Some(Held { still, looks: Vec::new(), mouths: Vec::new(), sitting: Some(sitting) });
        self.done += STANCE;
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
        let (rest, plan) = (&self.person.rest, self.plan);
        for (mouth, wanted) in [(false, looks), (true, mouths)] {
            for &n in wanted.iter().filter(|n| **n != 0) {
                let Some(Held { still, looks, mouths, sitting: Some(sitting) }) = &mut self.stances[h] else {
                    continue;
                };
                let known = if mouth { mouths } else { looks };
                if known.iter().any(|(known, _)| *known == n) {
                    continue;
                }
                let i = usize::from(n);
                let (pose, name) = if mouth {
                    (Pose { mouth: plan.mouths[i], ..sitting.base }, format!("stance{h}-mouth{n}"))
                } else {
                    (pose(rest, plan.stances[h], plan.looks[i]), format!("stance{h}-look{n}"))
                };
                known.push((n, sitting.moved(self.parts, &name, mouth, &pose, still)?));
                self.step(1, progress);
            }
        }
        let talks = plan.talking.iter().any(|(talks, _)| usize::from(*talks) == h);
        if let Some(held) = self.stances[h].as_mut().filter(|_| !talks) {
            held.sitting = None;
        }
        Ok(())
    }

    fn step(&mut self, n: usize, progress: &mut dyn FnMut(f64)) {
        self.done += n;
        progress((self.done as f64 / self.total as f64).min(1.0));
    }

    pub(super) fn rest_picture(&self) -> &Picture {
        self.still(0)
    }

    /// Picture of a stance at rest.
    pub(super) fn still(&self, stance: u8) -> &Picture {
        &self.held(stance).still
    }

    fn held(&self, stance: u8) -> &Held<'a> {
        self.stances[usize::from(stance)].as_ref().expect("a stance of a share that was drawn")
    }

    /// Picture of a pose.
    pub(super) fn picture(&self, key: Key, breath: f32) -> I420 {
        let still = self.still(key.stance);
        let size = (still.width, still.height);
        I420::from_rgb(&self.chest.lift(self.with(key), size, breath), size.0, size.1)
    }

    /// Picture of a pose without the breath, as RGB.
    fn with(&self, key: Key) -> Vec<u8> {
        let Held { still, looks, mouths, .. } = self.held(key.stance);
        let mut rgb = still.rgb();
        if let Some((_, look)) = looks.iter().find(|(l, _)| *l == key.look) {
            look.add_to(&mut rgb, still.width);
        }
        if let Some((_, mouth)) = mouths.iter().find(|(m, _)| *m == key.mouth) {
            mouth.add_to(&mut rgb, still.width);
        }
        rgb
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::people;
    use crate::face::set::Stance;

    #[test]
    fn a_mouth_changes_no_level_outside_of_its_rectangle() {
        let person = people::find("clara").unwrap();
        let size = (96, 96);
        let plan = Plan {
            stances: vec![Stance::default()],
            stance_looks: Vec::new(),
            breathing: Vec::new(),
            anchored: Vec::new(),
            ..Plan::new()
        };
        let plan = Plan {
            looks: plan.looks[..1].to_vec(),
            mouths: plan.mouths[14..17].to_vec(),
            talking: vec![(0, vec![0])],
            ..plan
        };
        let (sitter, parts) = (Sitter::new(&person.character).unwrap(), Parts::new(None).unwrap());
        let mut drawn = Drawn::new(&sitter, &person, size, &plan, &parts).unwrap();
        drawn.draw(&Share::of_all(&plan), &mut |_| ()).unwrap();
        let rect = drawn.held(0).mouths[0].1.rect;
        let still = drawn.rest_picture();
        let open = drawn.with(Key { mouth: 1, ..Key::default() });
        let (mut inside, mut outside) = (0, 0);
        for (i, (a, b)) in open.iter().zip(still.rgb()).enumerate().filter(|(_, (a, b))| **a != *b) {
            let (x, y) = (i / 3 % size.0, i / 3 / size.0);
            let within = (rect.x0..rect.x1).contains(&x) && (rect.y0..rect.y1).contains(&y);
            *(if within { &mut inside } else { &mut outside }) += usize::from(a.abs_diff(b) > 0);
        }
        assert!(inside > 100 && outside == 0, "{inside} inside, {outside} outside");
    }
}
