//! A character in a pose as a signed distance field.
//!
//! One unit is about 10 cm. The line through the eyes is y = 0, +x is the picture's right, +z
//! points to the camera. "Head space" moves with the head; neck and bust are in world space. Most
//! parts are mirrored in x.

pub(crate) mod mouth;

use glam::{EulerRot, Mat3, Vec3, vec3};

use crate::character::{Character, ClothesStyle, Glasses, HairStyle};
use crate::math::{Ellipsoids, Random, capsule, mix, smin, smoothstep, square};
use crate::pose::Pose;
use mouth::MouthShape;

/// Material of a surface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Material {
    None,
    Skin,
    Eye,
    Teeth,
    Tongue,
    Cloth,
    /// The shirt or jumper under a jacket.
    Shirt,
    Tie,
    Frame,
    Gold,
    Scarf,
}

/// Colors in linear light and measures in units, computed from the sliders once.
pub(crate) struct Appearance {
    pub(crate) skin: Vec3,
    pub(crate) lip: Vec3,
    pub(crate) iris: Vec3,
    pub(crate) brow: Vec3,
    pub(crate) hair: [Vec3; 2],
    pub(crate) cloth: Vec3,
    pub(crate) shirt: Vec3,
    pub(crate) tie: Vec3,
    pub(crate) scarf: Vec3,
    pub(crate) frame: Vec3,
    pub(crate) background: [Vec3; 2],
    pub(crate) eye_radius: f32,
    pub(crate) eye_x: f32,
    pub(crate) neck_radius: f32,
    pub(crate) mouth_width: f32,
}

impl Appearance {
    fn new(c: &Character) -> Self {
        Self {
            skin: c.skin.colour.linear(),
            lip: c.lips.colour.linear(),
            iris: c.eyes.colour.linear(),
            brow: c.brows.colour.linear(),
            hair: [c.hair.dark.linear(), c.hair.light.linear()],
            cloth: c.clothes.colour.linear(),
            shirt: c.clothes.under.linear(),
            tie: c.clothes.tie.map_or(Vec3::ZERO, |t| t.linear()),
            scarf: c.headscarf.map_or(Vec3::ZERO, |s| s.linear()),
            frame: c.frame.linear(),
            background: c.background.map(|b| b.linear()),
            eye_radius: 0.225 * c.eyes.size,
            eye_x: 0.322 * c.eyes.spacing,
            neck_radius: 0.345 * c.proportions.neck,
            mouth_width: 0.27 * c.lips.width,
        }
    }
}

/// A character in a pose.
pub(crate) struct Scene {
    pub(crate) character: Character,
    pub(crate) appearance: Appearance,
    pub(crate) pose: Pose,
    /// How far the upper lip is lifted from the teeth, 0 … 1.
    pub(crate) upper_lift: f32,
    /// How far a smile parts the lips to show the edges of the upper teeth, 0 … 1.
    pub(crate) smile_parting: f32,
    /// Tongue: raised 0 … 1, and out between the teeth 0 … 1.
    pub(crate) tongue: (f32, f32),
    /// Rotation from head space to the world, about the pivot.
    pub(crate) head_rotation: Mat3,
    /// Inverse rotation.
    pub(crate) inverse_head_rotation: Mat3,
    /// Center of the right eyeball; the left one is mirrored.
    pub(crate) eye: Vec3,
    /// Gaze directions of the picture's left and right eye, in head space.
    pub(crate) gaze: [Vec3; 2],
    /// Rotation of the jaw in radians.
    pub(crate) jaw_angle: f32,
    jaw_rotation: Mat3,
    pub(crate) mouth: MouthShape,
    neck_top: Vec3,
    /// Upper bound of z in the world.
    pub(crate) max_z: f32,
    pub(crate) ellipsoids: Ellipsoids,
    /// Slopes of mouth and eyes, shifts of jaw and nose.
    asymmetry: [f32; 4],
    /// How much deeper the fold of the right cheek is than that of the left.
    pub(crate) fold_asymmetry: f32,
    /// How far this character's mouth turns up at its corners, and how close to them (an exponent).
    pub(crate) mouth_corners: [f32; 2],
}

/// The head rotates about this point.
const HEAD_PIVOT: Vec3 = vec3(0.0, -1.0, -0.3);
/// Above this height a headscarf hides neck and clothes.
pub(crate) const COLLAR_Y: f32 = -1.25;
/// The jaw rotates about this axis (along x).
const JAW_HINGE: Vec3 = vec3(0.0, -0.18, -0.12);

impl Scene {
    pub(crate) fn new(character: &Character, pose: &Pose) -> Self {
        let character = &character.with_soft_limits();
        let m = pose.mouth;
        let turn = Mat3::from_euler(EulerRot::YXZ, pose.head.yaw, pose.head.pitch, pose.head.roll);
        let jaw_angle = m.jaw * 0.30 - m.press * 0.012;
        let open = smoothstep(0.0, 0.14, m.jaw) * (1.0 - m.press);
        let mut scene = Self {
            character: character.clone(),
            appearance: Appearance::new(character),
            pose: Pose::default(),
            upper_lift: (0.55 + 0.25 * m.width.max(0.0) - 0.38 * m.round) * open,
            smile_parting: smoothstep(0.58, 1.0, pose.smile)
                * (1.0 - m.press)
                * (1.0 - m.tuck)
                * (1.0 - m.round),
            tongue: ((m.tongue / 0.6).min(1.0), ((m.tongue - 0.6) / 0.4).max(0.0)),
            head_rotation: turn,
            inverse_head_rotation: turn.transpose(),
            eye: Vec3::ZERO,
            gaze: [Vec3::Z; 2],
            jaw_angle: 0.0,
            jaw_rotation: Mat3::IDENTITY,
            mouth: MouthShape::default(),
            neck_top: Vec3::ZERO,
            max_z: 0.0,
            ellipsoids: Self::head_ellipsoids(
                &character.proportions,
                0.322 * character.eyes.spacing,
                &Pose::default(),
            ),
            asymmetry: random_asymmetry(character, pose.smile),
            fold_asymmetry: 0.0,
            mouth_corners: random_mouth_corners(character),
        };
        scene.neck_top = scene.to_world(vec3(0.0, -0.62, -0.22));
        // The nose ends in a ball, and the bridge of glasses at 1.06.
        let (tip_y, tip_z) = scene.nose_tip();
        let nose = scene.to_world(vec3(0.0, tip_y, tip_z)).z + 0.10 * character.nose.tip;
        scene.max_z = nose.max(scene.to_world(vec3(0.0, 0.1, 1.06)).z);
        // The eye lies in the socket of the face at rest: it must not move with jaw or cheeks.
        let looks = &scene.appearance;
        scene.eye =
            vec3(looks.eye_x, 0.0, scene.face_depth(looks.eye_x, 0.0) - looks.eye_radius * 0.93);
        scene.pose = *pose;
        scene.ellipsoids =
            Self::head_ellipsoids(&character.proportions, scene.appearance.eye_x, pose);
        scene.jaw_angle = jaw_angle;
        scene.jaw_rotation = Mat3::from_rotation_x(-jaw_angle);
        for (i, side) in [-1.0, 1.0].into_iter().enumerate() {
            let (yaw, up) = (pose.eyes.gaze_x * 0.45 - side * 0.035, pose.eyes.gaze_y * 0.35);
            scene.gaze[i] = vec3(yaw.sin() * up.cos(), up.sin(), yaw.cos() * up.cos());
        }
        scene.fold_asymmetry =
            0.16 * scene.asymmetry[0].signum() * character.asymmetry * character.lips.smirk;
        scene.mouth = scene.shape_mouth();
        scene
    }

    pub(crate) fn to_head(&self, p: Vec3) -> Vec3 {
        let p = self.inverse_head_rotation * (p - HEAD_PIVOT) + HEAD_PIVOT;
        p + self.asymmetry_offset(p)
    }

    pub(crate) fn to_world(&self, p: Vec3) -> Vec3 {
        // The asymmetry is small and smooth: its value here approximates that at the result.
        self.head_rotation * (p - self.asymmetry_offset(p) - HEAD_PIVOT) + HEAD_PIVOT
    }

    /// Offset from the real face to the symmetric one that all other code describes, because no
    /// face is symmetric. At most about 2 mm.
    fn asymmetry_offset(&self, p: Vec3) -> Vec3 {
        let [mouth, eyes, jaw, nose] = self.asymmetry;
        if p.z < -0.1 || p.y < -1.4 {
            return Vec3::ZERO;
        }
        let hump = |x: f32| 1.0 / (1.0 + square(x)); // like a Gaussian, and fast
        let front = smoothstep(-0.1, 0.5, p.z);
        let tilt = mouth * hump((p.y + 0.64) * 5.0) + eyes * hump(p.y * 5.0);
        let mut aside = jaw * smoothstep(-0.35, -0.95, p.y);
        if p.z > 0.5 {
            aside += nose * hump((p.y + 0.28) * (1.0 / 0.12)) * smoothstep(0.5, 0.9, p.z);
        }
        vec3(aside, tilt * p.x, 0.0) * front
    }

    /// Position of a point that moves with the jaw, when the jaw is shut.
    pub(crate) fn to_jaw_space(&self, p: Vec3) -> Vec3 {
        self.jaw_rotation * (p - JAW_HINGE) + JAW_HINGE
    }

    /// Current position of a point of the shut jaw.
    pub(crate) fn move_with_jaw(&self, p: Vec3) -> Vec3 {
        self.jaw_rotation.transpose() * (p - JAW_HINGE) + JAW_HINGE
    }

    /// z of the bare face in front of (x, y), in head space.
    pub(crate) fn face_depth(&self, x: f32, y: f32) -> f32 {
        let mut z = 1.6;
        for _ in 0..60 {
            let d = self.skull(vec3(x, y, z));
            if d < 0.0005 || z < -1.0 {
                break;
            }
            z -= d * 0.8;
        }
        z
    }

    /// Whether hair grows on the head.
    pub(crate) fn has_hair(&self) -> bool {
        self.character.hair.style != HairStyle::None && self.character.headscarf.is_none()
    }

    fn wears_tie(&self) -> bool {
        let clothes = &self.character.clothes;
        clothes.tie.is_some() && matches!(clothes.style, ClothesStyle::Shirt | ClothesStyle::Suit)
    }

    /// Distance to the nearest surface and its material, in the world.
    ///
    /// Distant parts are replaced by bounds. A bound must exceed the cone of the soft shadows, or
    /// contour lines appear on the cloth.
    pub(crate) fn map(&self, p: Vec3) -> (f32, Material) {
        let hp = self.to_head(p);
        let bound = (hp - vec3(0.0, -0.02, -0.02)).length() - 1.32;
        let near = bound < 0.4;
        let mut best = (9.0, Material::None);
        let mut add = |d: f32, material: Material| {
            if d < best.0 {
                best = (d, material);
            }
        };
        let bones = if near { self.skull(hp) } else { bound };
        let opening =
            if self.character.headscarf.is_some() { self.scarf_opening(hp) } else { f32::MIN };
        // Behind the hem of a headscarf nothing else is visible.
        let wrapped = opening > 0.1;
        let mut skin = if near && !wrapped { self.head_from_skull(bones, hp) } else { bones };
        let mut nearest = skin;
        if self.character.headscarf.is_some() {
            let scarf = self.scarf(hp, p, bones, opening, skin);
            nearest = nearest.min(scarf);
            add(scarf, Material::Scarf);
        }
        if p.y >= -0.15 {
            add(p.y + 0.6, Material::Cloth);
        } else if !(wrapped && p.y > COLLAR_Y) && skin > neck_clearance(p) {
            let torso = self.torso(p);
            let body = smin(torso, self.neck(p), 0.25);
            skin = smin(skin, body, 0.10);
            let (d, material) = self.cloth(p, torso, body, nearest);
            add(d, material);
            if self.wears_tie() {
                add(self.tie(p, body), Material::Tie);
            }
            if self.character.necklace && !wrapped {
                add(self.necklace(p, body), Material::Gold);
            }
        }
        add(skin, Material::Skin);
        if near && !wrapped {
            if bones < 0.3 {
                add(self.eyeball(hp), Material::Eye);
                if self.mouth.is_open() && self.near_mouth_cavity(hp, skin) {
                    for upper in [true, false] {
                        add(self.teeth(hp, upper, skin / 0.9) * 0.9, Material::Teeth);
                    }
                    add(self.tongue(hp, skin), Material::Tongue);
                }
            }
            if self.character.glasses != Glasses::None {
                add(self.glasses(hp), Material::Frame);
            }
            if self.character.earrings {
                add(self.earrings(hp), Material::Gold);
            }
        }
        best
    }

    /// Distance to the nearest surface.
    pub(crate) fn distance(&self, p: Vec3) -> f32 {
        self.map(p).0
    }

    /// Distance to the surface of this material: for normals, near that surface.
    pub(crate) fn distance_to(&self, material: Material, p: Vec3) -> f32 {
        let hp = self.to_head(p);
        match material {
            Material::Eye => self.eyeball(hp),
            Material::Teeth => {
                self.teeth(hp, true, f32::MAX).min(self.teeth(hp, false, f32::MAX)) * 0.9
            }
            Material::Tongue => self.tongue(hp, f32::MAX),
            Material::Frame => self.glasses(hp),
            Material::Gold => {
                let body = smin(self.torso(p), self.neck(p), 0.25);
                let studs = if self.character.earrings { self.earrings(hp) } else { f32::MAX };
                let chain = if self.character.necklace { self.necklace(p, body) } else { f32::MAX };
                studs.min(chain)
            }
            Material::Tie => self.tie(p, smin(self.torso(p), self.neck(p), 0.25)),
            Material::Scarf => self.scarf(hp, p, self.skull(hp), self.scarf_opening(hp), f32::MAX),
            Material::Cloth | Material::Shirt => {
                let torso = self.torso(p);
                self.cloth(p, torso, smin(torso, self.neck(p), 0.25), f32::MAX).0
            }
            Material::Skin | Material::None => {
                let head = self.head(hp);
                if p.y >= -0.15 || head < neck_clearance(p) {
                    return head;
                }
                smin(head, smin(self.torso(p), self.neck(p), 0.25), 0.10)
            }
        }
    }

    /// An approximate solid for hair to lie on, in head space: head, ears, neck, bust.
    pub(crate) fn hair_collider(&self, hp: Vec3) -> f32 {
        let mut d = self.skull(hp);
        if hp.x.abs() > 0.5 && hp.y.abs() < 0.5 && self.character.headscarf.is_none() {
            d = smin(d, self.ear_shell(hp), 0.05);
        }
        d.min(self.neck(hp)).min(self.torso(hp) - 0.10)
    }

    /// Whether a point lies in that solid, deeper than the skin.
    pub(crate) fn is_inside_collider(&self, hp: Vec3) -> bool {
        // Most points of the air around the head are decided quickly.
        if hp.y > -0.3 && (hp - vec3(0.0, 0.1, -0.05)).length_squared() > 1.69 {
            return false;
        }
        self.hair_collider(hp) < -0.05
    }

    fn eyeball(&self, p: Vec3) -> f32 {
        (vec3(p.x.abs(), p.y, p.z) - self.eye).length() - self.appearance.eye_radius
    }

    pub(crate) fn neck(&self, p: Vec3) -> f32 {
        if p.y > -0.25 {
            return 0.35;
        }
        let r = self.appearance.neck_radius;
        let q = vec3((p.x * p.x + 0.0016).sqrt(), p.y, p.z);
        let column = capsule(p, self.neck_top, vec3(0.0, -1.95, -0.36), r, r * 1.12);
        let tendon = capsule(q, vec3(0.34, -0.75, -0.25), vec3(0.08, -1.70, 0.0), 0.05, 0.05);
        let collar_bone =
            capsule(q, vec3(0.09, -1.73, 0.02), vec3(0.75, -1.67, -0.16), 0.045, 0.045);
        smin(smin(column, tendon, 0.20), collar_bone, 0.13)
    }

    /// Height of the closed mouth.
    pub(crate) fn mouth_rest_y(&self) -> f32 {
        -0.615 + 0.5 * (1.0 - self.character.proportions.jaw_height)
            - 0.02 * (self.character.nose.length - 1.0)
    }

    /// How far the parts of the skull below the nose move up on a short face.
    pub(crate) fn face_shortening(&self) -> f32 {
        1.0 - self.character.proportions.jaw_height
    }

    /// Half the width of the eye's opening.
    pub(crate) fn lid_half_width(&self) -> f32 {
        0.212 * self.character.eyes.size
    }

    /// Contours of the upper and the lower lid at `dx` from the eye's center, outward positive.
    pub(crate) fn lid_contours(&self, dx: f32) -> (f32, f32) {
        let (e, p) = (&self.character.eyes, &self.pose);
        let k = e.size;
        let u = (dx / self.lid_half_width()).clamp(-1.0, 1.0);
        let raise = p.eyes.gaze_y * 0.028 - p.eyes.squint * 0.02 - p.smile * 0.008
            + p.brows.raise.max(0.0) * 0.008;
        let drop = p.eyes.squint * 0.036 + p.smile * 0.022 + p.eyes.gaze_y * 0.012;
        let (upper, lower) = ((0.116 * e.opening + raise) * k, (0.098 * e.opening - drop) * k);
        let uu = u + 0.10 * (1.0 - u * u);
        let ul = u - 0.14 * (1.0 - u * u);
        let a = (1.0 - uu.abs().powf(2.3)).max(0.0).powf(0.80);
        let b = (1.0 - ul.abs().powf(2.2)).max(0.0).powf(0.85);
        let tilt = e.tilt * dx;
        let shut = p.eyes.lids.clamp(0.0, 1.0);
        let low = (-lower * b + tilt) * (1.0 - 0.12 * shut);
        // The upper lid moves down to the lower one and stays curved halfway.
        let up =
            mix(upper * a + tilt, low - 0.004 * shut, shut) + 0.085 * shut * (1.0 - shut) * a * k;
        (up, low)
    }
}

/// Skin of the head that is closer than this is not affected by neck, bust and clothes: in front of
/// the throat they are far away.
fn neck_clearance(p: Vec3) -> f32 {
    if p.y < -1.3 || p.z < 0.0 {
        return f32::MIN;
    }
    p.x.hypot(p.z + 0.25) - 0.60 - 0.17
}

/// Asymmetry of this character's face. A smile lifts one corner slightly more.
fn random_asymmetry(c: &Character, smile: f32) -> [f32; 4] {
    let mut random = Random::new(c.seed.wrapping_mul(2_654_435_761).wrapping_add(99));
    let mut amount = || {
        let side = if random.unit() < 0.5 { -1.0 } else { 1.0 };
        side * (0.55 + 0.45 * random.unit()) * c.asymmetry
    };
    let mouth = 0.05 * c.lips.smirk * (1.0 + 0.2 * smile);
    [amount() * mouth, amount() * 0.028, amount() * 0.018, amount() * 0.014]
}

/// Shape of this character's closed lips.
fn random_mouth_corners(c: &Character) -> [f32; 2] {
    let mut random = Random::new(c.seed.wrapping_mul(747_796_405).wrapping_add(7));
    for _ in 0..4 {
        random.unit();
    }
    [0.006 + 0.011 * random.signed(), 2.2 + 0.5 * random.signed()]
}
