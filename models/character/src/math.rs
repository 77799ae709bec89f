//! Distances, noise and random numbers. Every function is pure.

use glam::{Vec3, Vec4, vec3, vec4};

/// The smaller of two numbers in one instruction; `f32::min` needs five, to treat NaN correctly.
#[inline]
fn fast_min(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// The larger of two numbers in one instruction.
#[inline]
fn fast_max(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Smooth minimum with a seam of width `k` (quadratic).
#[inline]
pub(crate) fn smin(a: f32, b: f32, k: f32) -> f32 {
    let h = fast_max(k - (a - b).abs(), 0.0);
    fast_min(a, b) - h * h * (0.25 / k)
}

/// Smooth maximum.
#[inline]
pub(crate) fn smax(a: f32, b: f32, k: f32) -> f32 {
    -smin(-a, -b, k)
}

/// 0 at `a`, 1 at `b`, smooth at both ends; `a` may be the larger one.
#[inline]
pub(crate) fn smoothstep(a: f32, b: f32, x: f32) -> f32 {
    let t = fast_min(fast_max((x - a) * (1.0 / (b - a)), 0.0), 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// Linear interpolation from `a` (0) to `b` (1).
pub(crate) fn mix(a: f32, b: f32, t: f32) -> f32 {
    a + (b - a) * t
}

/// exp(−x²).
#[inline]
pub(crate) fn gaussian(x: f32) -> f32 {
    // Denormal numbers of an `f32` are slow.
    if x * x > 80.0 { 0.0 } else { (-x * x).exp() }
}

pub(crate) fn square(x: f32) -> f32 {
    x * x
}

/// Distance to an ellipsoid at the origin, exact to first order near the surface.
#[inline]
pub(crate) fn ellipsoid(p: Vec3, radii: Vec3) -> f32 {
    let inverse = radii.recip();
    let q = p * inverse;
    let k0 = q.length();
    let k1 = (q * inverse).length();
    if k1 < 1e-6 { -radii.min_element() } else { k0 * (k0 - 1.0) / k1 }
}

/// Eight ellipsoids at once, in two halves of four lanes. Distances are as by [`ellipsoid`].
pub(crate) struct Ellipsoids([Lanes; 2]);

struct Lanes {
    middle: [Vec4; 3],
    inverse: [Vec4; 3],
}

impl Ellipsoids {
    /// Creates them from their centers and radii.
    pub(crate) fn new(all: [(Vec3, Vec3); 8]) -> Self {
        let half = |first: usize| {
            let axis =
                |f: &dyn Fn(usize) -> f32| vec4(f(first), f(first + 1), f(first + 2), f(first + 3));
            Lanes {
                middle: [0, 1, 2].map(|k| axis(&|i| all[i].0[k])),
                inverse: [0, 1, 2].map(|k| axis(&|i| 1.0 / all[i].1[k])),
            }
        };
        Self([half(0), half(4)])
    }

    /// Distances to eight points, one per ellipsoid. `a` holds x, y and z of the first four points,
    /// `b` those of the others.
    #[inline]
    pub(crate) fn distances(&self, a: [Vec4; 3], b: [Vec4; 3]) -> ([f32; 4], [f32; 4]) {
        (self.0[0].distances(a), self.0[1].distances(b))
    }
}

impl Lanes {
    #[inline]
    fn distances(&self, p: [Vec4; 3]) -> [f32; 4] {
        let (mut a, mut b) = (Vec4::ZERO, Vec4::ZERO);
        for ((p, middle), inverse) in p.iter().zip(self.middle).zip(self.inverse) {
            let q = (*p - middle) * inverse;
            let r = q * inverse;
            a += q * q;
            b += r * r;
        }
        let root = |v: Vec4| Vec4::from(v.to_array().map(f32::sqrt));
        let k0 = root(a);
        (k0 * (k0 - Vec4::ONE) / root(b).max(Vec4::splat(1e-6))).to_array()
    }
}

/// Distance to a capsule from `a` to `b` whose radius changes from `ra` to `rb`.
#[inline]
pub(crate) fn capsule(p: Vec3, a: Vec3, b: Vec3, ra: f32, rb: f32) -> f32 {
    let ab = b - a;
    let h = fast_min(fast_max((p - a).dot(ab) * (1.0 / ab.length_squared()), 0.0), 1.0);
    (p - a - ab * h).length() - mix(ra, rb, h)
}

fn hash(x: i32, y: i32, z: i32) -> f32 {
    let mut h = (x as u32).wrapping_mul(0x8da6_b343)
        ^ (y as u32).wrapping_mul(0xd816_3841)
        ^ (z as u32).wrapping_mul(0xcb1a_b31f);
    h ^= h >> 13;
    h = h.wrapping_mul(0x5bd1_e995);
    h ^= h >> 15;
    h = h.wrapping_mul(0x27d4_eb2f);
    h ^= h >> 14;
    (h & 0xff_ffff) as f32 / 16_777_216.0
}

/// Value noise, 0 … 1, with one feature per unit.
pub(crate) fn noise(p: Vec3) -> f32 {
    // Casts are much faster than calls of `floor`.
    let floor = |v: f32| (v + 65_536.0) as i32 - 65_536;
    let (x, y, z) = (floor(p.x), floor(p.y), floor(p.z));
    let w = p - vec3(x as f32, y as f32, z as f32);
    let w = w * w * (Vec3::splat(3.0) - 2.0 * w);
    let row = |dy, dz| mix(hash(x, y + dy, z + dz), hash(x + 1, y + dy, z + dz), w.x);
    mix(mix(row(0, 0), row(1, 0), w.y), mix(row(0, 1), row(1, 1), w.y), w.z)
}

/// Three octaves of noise, 0 … 1.
pub(crate) fn fractal_noise(p: Vec3) -> f32 {
    noise(p) * 0.55 + noise(p * 2.03) * 0.28 + noise(p * 4.1) * 0.17
}

/// Direction in which `f` increases, of length 1.
pub(crate) fn gradient(f: impl Fn(Vec3) -> f32, p: Vec3, e: f32) -> Vec3 {
    let corners = [vec3(1.0, -1.0, -1.0), vec3(-1.0, -1.0, 1.0), vec3(-1.0, 1.0, -1.0), Vec3::ONE];
    corners.iter().fold(Vec3::ZERO, |sum, c| sum + *c * f(p + *c * e)).normalize_or_zero()
}

/// Xorshift generator; its quality is sufficient for hair.
pub(crate) struct Random(u32);

impl Random {
    /// A seed of 0 would yield only zeros, so the lowest bit is set.
    pub(crate) fn new(seed: u32) -> Self {
        Self(seed | 1)
    }

    /// 0 … 1.
    pub(crate) fn unit(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        (self.0 >> 8) as f32 / 16_777_216.0
    }

    /// −1 … 1.
    pub(crate) fn signed(&mut self) -> f32 {
        self.unit() * 2.0 - 1.0
    }

    /// A point in the cube −1 … 1.
    pub(crate) fn vector(&mut self) -> Vec3 {
        vec3(self.signed(), self.signed(), self.signed())
    }

    /// Approximately normal, with standard deviation 0.5.
    pub(crate) fn normal(&mut self) -> f32 {
        (self.unit() + self.unit() + self.unit() + self.unit() - 2.0) * 0.87
    }

    /// A seed for another generator.
    pub(crate) fn seed(&mut self) -> u32 {
        (self.unit() * 4e9) as u32
    }
}
