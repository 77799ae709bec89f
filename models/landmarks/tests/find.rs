//! The networks and all checks on a drawn character, whose true shape is known. Needs the networks
//! that `make setup` installs.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use character::{Character, CharacterRenderer, Eyes, Framing, Head, Mouth, Pose, Rect};
use landmarks::{
    CLOSE_FACE_HEIGHT, CropShape, DecodeLimits, FACE_HEIGHT, Landmarks, MASK_SIDE, Networks, Part,
    Picture, Point, Points, Refusal, Segmenter, Warning, check, check_named, decode, exceeds_photo,
    find, index, level, resize, source_size,
};

/// Side of the drawn pictures in pixels.
const SIDE: usize = 512;

/// Folder of the networks.
fn folder() -> PathBuf {
    let named = std::env::var_os("VISAVIS_MODELS_DIR").map(PathBuf::from);
    let checkout = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.cache/models");
    named.unwrap_or_else(checkout).join("mediapipe")
}

fn networks() -> &'static Networks {
    static NETWORKS: OnceLock<Networks> = OnceLock::new();
    NETWORKS.get_or_init(|| Networks::load(&folder()).unwrap())
}

fn draw(pose: &Pose, rect: Rect) -> Picture {
    let drawn = bust(pose, SIDE, rect);
    Picture::new(drawn.width, drawn.height, drawn.rgb()).unwrap()
}

/// A picture with space around the head, as a photo has it.
fn bust(pose: &Pose, side: usize, rect: Rect) -> character::Picture {
    let renderer = CharacterRenderer::new(&Character::default()).unwrap();
    let renderer = renderer.with_framing(Framing::Bust);
    renderer.head_view(pose, (side, side)).draw(pose, rect).to_picture()
}

/// The character at rest, and the points that are found on it.
fn at_rest() -> &'static (Picture, Points) {
    static REST: OnceLock<(Picture, Points)> = OnceLock::new();
    REST.get_or_init(|| {
        let picture = draw(&Pose::default(), Rect::whole(SIDE, SIDE));
        let found = find(networks(), &picture).unwrap();
        assert_eq!(found.warnings, []);
        (picture, found.points)
    })
}

fn level_of(picture: &Picture, x: usize, y: usize) -> i32 {
    let at = (y * picture.width() + x) * 3;
    picture.rgb()[at..at + 3].iter().map(|v| i32::from(*v)).sum::<i32>() / 3
}

fn changed(picture: &Picture, change: impl Fn(usize, usize) -> [u8; 3]) -> Picture {
    let (width, height) = (picture.width(), picture.height());
    let rgb = (0..width * height).flat_map(|i| change(i % width, i / width)).collect();
    Picture::new(width, height, rgb).unwrap()
}

fn pixel(picture: &Picture, x: usize, y: usize) -> [u8; 3] {
    let at = (y * picture.width() + x) * 3;
    picture.rgb()[at..at + 3].try_into().unwrap()
}

fn scaled(picture: &Picture, factor: f32) -> Picture {
    changed(picture, |x, y| pixel(picture, x, y).map(|v| (f32::from(v) * factor).min(255.0) as u8))
}

fn distance(a: Point, b: Point) -> f32 {
    (a[0] - b[0]).hypot(a[1] - b[1])
}

fn middle(a: Point, b: Point) -> Point {
    [(a[0] + b[0]) / 2.0, (a[1] + b[1]) / 2.0]
}

/// Where two drawings of a rectangle differ: the extent of the pixels that `differs` accepts, in
/// pixels of the whole picture: left, top, right and bottom.
fn extent(rect: Rect, differs: impl Fn(usize, usize) -> bool) -> [f32; 4] {
    let mut extent = [f32::MAX, f32::MAX, f32::MIN, f32::MIN];
    for y in rect.y0..rect.y1 {
        for x in rect.x0..rect.x1 {
            if differs(x, y) {
                let (x, y) = (x as f32, y as f32);
                extent = [
                    extent[0].min(x),
                    extent[1].min(y),
                    extent[2].max(x + 1.0),
                    extent[3].max(y + 1.0),
                ];
            }
        }
    }
    extent
}

/// The part of a picture around a point.
fn around([x, y]: Point, radius: f32) -> Rect {
    let at = |v: f32| v as usize;
    Rect { x0: at(x - radius), y0: at(y - radius), x1: at(x + radius), y1: at(y + radius) }
}

/// The network sets the lids of drawn people too low, because their eyes are larger than those of
/// people: by up to 6 % of the face's height here. The middle of an eye is right within 2 %.
#[test]
fn eyes_are_where_they_close() {
    let (picture, points) = at_rest();
    let face = distance(points[index::FOREHEAD], points[index::CHIN]);
    let closed = Pose { eyes: Eyes { lids: 1.0, ..Eyes::default() }, ..Pose::default() };
    for (eye, iris) in [(index::LEFT_EYE, index::LEFT_IRIS), (index::RIGHT_EYE, index::RIGHT_IRIS)]
    {
        let [outer, inner, upper, lower, _] = eye.map(|i| points[i]);
        let rect = around(middle(outer, inner), 0.14 * face);
        let shut = draw(&closed, rect);
        let [left, top, right, bottom] = extent(rect, |x, y| {
            let open = level_of(picture, x, y);
            (open - level_of(&shut, x - rect.x0, y - rect.y0)).abs() > 40
        });
        let truth = [(left + right) / 2.0, (top + bottom) / 2.0];
        let error = distance(points[iris], truth).max(distance(middle(outer, inner), truth));
        assert!(error < 0.02 * face, "{:?} and {outer:?} … {inner:?} for {truth:?}", points[iris]);
        let (from_top, from_bottom) = (upper[1] - top, bottom - lower[1]);
        for offset in [from_top, from_bottom] {
            assert!((0.0..0.06 * face).contains(&offset), "{from_top} and {from_bottom} pixels");
        }
    }
}

/// The line between the lips is right within 1.5 % of the face's height, and so are the corners.
#[test]
fn lips_meet_where_the_mouth_opens() {
    let (picture, points) = at_rest();
    let face = distance(points[index::FOREHEAD], points[index::CHIN]);
    let open = Pose { mouth: Mouth { jaw: 0.5, ..Mouth::default() }, ..Pose::default() };
    let (left, right) = (points[index::MOUTH_LEFT], points[index::MOUTH_RIGHT]);
    let width = distance(left, right);
    let rect = around(middle(left, right), 0.7 * width);
    let opened = draw(&open, rect);
    // What is dark in the open mouth only.
    let inside = |x: usize, y: usize| {
        level_of(&opened, x - rect.x0, y - rect.y0) < 45 && level_of(picture, x, y) > 60
    };
    let column = middle(left, right)[0] as usize;
    let middle_columns = Rect { x0: column - 2, x1: column + 3, ..rect };
    let [_, seam, _, bottom] = extent(middle_columns, inside);
    assert!(bottom - seam > 5.0, "the mouth opens by {} pixels", bottom - seam);
    // Numbers 13 and 14 are the middles of the lips' inner edges.
    for lip in [points[13], points[14]] {
        assert!((lip[1] - seam).abs() < 0.015 * face, "{lip:?} for {seam}");
    }
    let near_seam = Rect { y0: seam as usize - 4, y1: seam as usize + 4, ..rect };
    let [from, _, to, _] = extent(near_seam, |x, y| {
        level_of(picture, x, y) - level_of(&opened, x - rect.x0, y - rect.y0) > 45
    });
    for (corner, truth) in [(left, from), (right, to)] {
        assert!((corner[0] - truth).abs() < 0.015 * face, "{corner:?} for {truth}");
    }
}

/// The picture turned clockwise by quarters, and the place of a point in it.
fn turned(picture: &Picture, quarters: usize) -> Picture {
    let last = SIDE - 1;
    changed(picture, |x, y| match quarters {
        1 => pixel(picture, y, last - x),
        2 => pixel(picture, last - x, last - y),
        _ => pixel(picture, last - y, x),
    })
}

fn turned_point([x, y]: Point, quarters: usize) -> Point {
    let side = SIDE as f32;
    match quarters {
        1 => [side - y, x],
        2 => [side - x, side - y],
        _ => [y, side - x],
    }
}

#[test]
fn a_photo_on_its_side_or_upside_down_is_levelled() {
    let (picture, points) = at_rest();
    for quarters in 1..4 {
        let turned = turned(picture, quarters);
        let found = find(networks(), &turned).unwrap();
        assert!(matches!(found.warnings[..], [Warning::Turned { .. }]), "{:?}", found.warnings);
        let error =
            |(found, point): (&Point, &Point)| distance(*found, turned_point(*point, quarters));
        let mean = found.points.iter().zip(points).map(error).sum::<f32>() / points.len() as f32;
        assert!(mean < 1.5, "{mean} pixels after {quarters} quarters");
        let (crop, moved) = level(&turned, &found.points, [SIDE, SIDE]);
        let upright = find(networks(), &crop).unwrap();
        assert_eq!(upright.warnings, []);
        assert!(distance(upright.points[index::CHIN], moved[index::CHIN]) < 4.0);
    }
}

#[test]
fn a_crop_has_the_face_in_its_middle() {
    let (picture, points) = at_rest();
    for size in [[512, 512], [1280, 720]] {
        let (crop, moved) = level(picture, points, size);
        assert_eq!([crop.width(), crop.height()], size);
        let (top, chin) = (moved[index::FOREHEAD], moved[index::CHIN]);
        let height = distance(top, chin) / size[1] as f32;
        // The photo ends a little too close to the face, which is therefore larger.
        assert!((FACE_HEIGHT..0.5).contains(&height), "{height}");
        let [x, y] = middle(top, chin);
        let [width, height] = size.map(|length| length as f32);
        let shift = [x / width - 0.5, y / height - 0.5].map(f32::abs);
        assert!(shift.iter().all(|shift| *shift < 0.15), "{x}, {y}");
        let (left, right) = (moved[index::LEFT_EYE[0]], moved[index::RIGHT_EYE[0]]);
        assert!((left[1] - right[1]).abs() < 0.1);
        // The pixels move with the points.
        for i in [index::LEFT_IRIS, index::CHEEKS[0], index::CHEEKS[1]] {
            let at = |p: &Picture, [x, y]: Point| level_of(p, x as usize, y as usize);
            let (before, after) = (at(picture, points[i]), at(&crop, moved[i]));
            assert!((before - after).abs() < 30, "point {i}: {before} and {after}");
        }
        // A close crop has room for the whole height of the face.
        let (_, near) = level(picture, points, CropShape::close(size));
        let face = distance(near[index::FOREHEAD], near[index::CHIN]) / height;
        assert!((CLOSE_FACE_HEIGHT - face).abs() < 0.005, "{face}");
        let source = source_size(picture, points, size);
        let shape = source[0] as f32 / source[1] as f32 - width / height;
        assert!(
            source[0] <= 1024 && source[0].is_multiple_of(2) && shape.abs() < 0.02,
            "{source:?}"
        );
    }
    // A face of 900 pixels keeps 1,024 pixels of its surroundings.
    let large = points.map(|point| point.map(|v| v * 4.0));
    let whole = resize(picture, [4 * SIDE, 4 * SIDE]);
    assert_eq!(source_size(&whole, &large, [512, 512]), [1024, 1024]);
}

/// A cut of a picture with the points in it: the edges are left, top, right and bottom.
fn cut_out(
    picture: &Picture,
    points: &Points,
    [left, top, right, bottom]: [usize; 4],
) -> (Picture, Points) {
    let row = |y: usize| &picture.rgb()[(y * SIDE + left) * 3..(y * SIDE + right) * 3];
    let rgb = (top..bottom).flat_map(row).copied().collect();
    let moved = points.map(|[x, y]| [x - left as f32, y - top as f32]);
    (Picture::new(right - left, bottom - top, rgb).unwrap(), moved)
}

#[test]
fn a_crop_stays_in_a_photo_that_ends_close_to_the_face() {
    let (picture, points) = at_rest();
    let (top, chin) = (points[index::FOREHEAD], points[index::CHIN]);
    let face = distance(top, chin);
    // Space above the forehead, below the chin and on both sides of the middle, in heights of the
    // face, and whether the crop exceeds the photo.
    for (above, below, beside, exceeds) in [
        (0.5, 0.4, 0.85, false),
        (0.3, 0.9, 1.1, false),
        (0.6, 0.25, 1.0, false),
        (0.2, 0.2, 0.6, true),
    ] {
        let at = |v: f32| v.clamp(0.0, SIDE as f32) as usize;
        let edges = [
            at(top[0] - beside * face),
            at(top[1] - above * face),
            at(top[0] + beside * face),
            at(chin[1] + below * face),
        ];
        let (photo, points) = cut_out(picture, points, edges);
        let size = [512, 512];
        assert_eq!(exceeds_photo(&photo, &points, size), exceeds, "{above} {below} {beside}");
        let (_, moved) = level(&photo, &points, size);
        let (top, chin) = (moved[index::FOREHEAD], moved[index::CHIN]);
        let height = distance(top, chin) / 512.0;
        assert!((FACE_HEIGHT..0.65).contains(&(height + 1e-3)), "{height}");
        let [x, y] = middle(top, chin).map(|at| at / 512.0 - 0.5);
        assert!(x.abs() < 0.15 && y.abs() < 0.15, "{x}, {y}");
        // A wide crop of a narrow photo is filled at both sides.
        assert!(exceeds_photo(&photo, &points, [1280, 720]));
        // What is kept of the photo has the shape of the avatar.
        let [width, height] = source_size(&photo, &points, size);
        assert!(width.abs_diff(height) <= 2, "{width} x {height}");
    }
}

fn refusal(picture: &Picture) -> Refusal {
    find(networks(), picture).map(|found| found.angles).unwrap_err()
}

#[test]
fn each_unusable_picture_has_its_reason() {
    let (picture, points) = at_rest();
    assert_eq!(refusal(&scaled(picture, 0.15)), Refusal::TooDark);
    assert_eq!(refusal(&scaled(picture, 3.5)), Refusal::BurntOut);
    let flat = Picture::new(300, 200, vec![128; 300 * 200 * 3]).unwrap();
    assert_eq!(refusal(&flat), Refusal::NoFace);

    let rows = |first: usize, count: usize| {
        Picture::new(SIDE, count, picture.rgb()[first * SIDE * 3..][..count * SIDE * 3].to_vec())
    };
    let below_the_lip = points[index::LIP_LOWER][1] as usize + 40;
    assert_eq!(refusal(&rows(0, below_the_lip).unwrap()), Refusal::CutOff);

    let two = Picture::new(
        2 * SIDE,
        SIDE,
        picture.rgb().chunks(SIDE * 3).flat_map(|row| [row, row].concat()).collect(),
    );
    assert_eq!(refusal(&two.unwrap()), Refusal::SeveralFaces);

    let quarter: Vec<u8> = (0..SIDE / 4)
        .flat_map(|y| (0..SIDE / 4).flat_map(move |x| pixel(picture, 4 * x, 4 * y)))
        .collect();
    let small = refusal(&Picture::new(SIDE / 4, SIDE / 4, quarter).unwrap());
    assert!(matches!(small, Refusal::TooSmall { width } if (40.0..60.0).contains(&width)));

    let blue = |x: usize, y: usize| {
        let [mouth_x, mouth_y] = middle(points[0], points[17]);
        let (dx, dy) = ((x as f32 - mouth_x) / 60.0, (y as f32 - mouth_y) / 36.0);
        if dx.hypot(dy) < 1.0 { [60, 90, 160] } else { pixel(picture, x, y) }
    };
    let hidden = refusal(&changed(picture, blue));
    assert!(matches!(hidden, Refusal::Hidden(Part::Mouth | Part::Face)), "{hidden:?}");
    for refusal in [Refusal::TooDark, small, hidden] {
        assert!(refusal.to_string().contains(':') && !refusal.reason().is_empty());
    }
}

#[test]
fn a_head_that_is_turned_has_its_reason() {
    let look = |yaw: f32, pitch: f32| {
        let pose = Pose { head: Head { yaw, pitch, roll: 0.0 }, ..Pose::default() };
        let side = SIDE / 2;
        let drawn = bust(&pose, side, Rect::whole(side, side));
        find(networks(), &Picture::new(side, side, drawn.rgb()).unwrap())
    };
    let slightly = look(0.2, 0.0).unwrap().angles;
    // 0.2 radians are 11.5 degrees.
    assert!((7.0..16.0).contains(&slightly[0]) && slightly[2].abs() < 5.0, "{slightly:?}");
    let aside = look(0.5, 0.0).unwrap_err();
    assert!(matches!(aside, Refusal::TurnedAside { degrees } if degrees > 20.0), "{aside:?}");
    assert_eq!(look(0.0, -0.4).unwrap_err(), Refusal::LooksUp);
    // The head cannot be bent down farther; this network sees 10 degrees in one that is not bent.
    let down = look(0.0, 0.4).unwrap().angles;
    assert!((22.0..28.0).contains(&down[1]), "{down:?}");
}

#[test]
fn a_soft_picture_has_a_warning_and_a_blurred_one_is_refused() {
    let (picture, _) = at_rest();
    // The mean of squares of this side, as many pixels as before: of rows, then of columns.
    let range = |v: usize, side: usize| v.saturating_sub(side / 2)..(v + side / 2 + 1).min(SIDE);
    let mean = |pixels: &mut dyn Iterator<Item = [u8; 3]>| {
        let (mut sum, mut count) = ([0; 3], 0);
        for pixel in pixels {
            sum.iter_mut().zip(pixel).for_each(|(s, v)| *s += usize::from(v));
            count += 1;
        }
        sum.map(|s| (s / count) as u8)
    };
    let softened = |side: usize| {
        let rows = changed(picture, |x, y| mean(&mut range(x, side).map(|x| pixel(picture, x, y))));
        changed(&rows, |x, y| mean(&mut range(y, side).map(|y| pixel(&rows, x, y))))
    };
    assert_eq!(refusal(&softened(33)), Refusal::Blurred);
    let half: Vec<u8> = (0..SIDE / 2)
        .flat_map(|y| (0..SIDE / 2).flat_map(move |x| pixel(picture, 2 * x, 2 * y)))
        .collect();
    let half = find(networks(), &Picture::new(SIDE / 2, SIDE / 2, half).unwrap()).unwrap();
    assert!(matches!(half.warnings[..], [Warning::Soft { .. }]), "{:?}", half.warnings);
}

#[test]
fn landmarks_of_a_person_are_checked_without_networks() {
    let (picture, points) = at_rest();
    let mesh = Landmarks::from_points(points, SIDE, SIDE);
    assert_eq!(check(picture, &mesh.to_points(SIDE, SIDE)), Ok(vec![]));
    let outline = Landmarks::Outline(mesh.outline()).to_points(SIDE, SIDE);
    assert_eq!(check(picture, &outline), Ok(vec![]));
    // The points that the outline does not name are near those that were found.
    let error = |(a, b): (&Point, &Point)| distance(*a, *b);
    let mean = outline.iter().zip(points).map(error).sum::<f32>() / points.len() as f32;
    assert!(mean < 4.0, "{mean} pixels");
    let small = Landmarks::from_points(points, 4 * SIDE, 4 * SIDE).to_points(SIDE, SIDE);
    assert!(matches!(check(picture, &small), Err(Refusal::TooSmall { .. })));
}

#[test]
fn the_same_picture_gives_the_same_bits() {
    let (picture, points) = at_rest();
    let again = find(networks(), picture).unwrap().points;
    assert!(
        again
            .iter()
            .flatten()
            .zip(points.iter().flatten())
            .all(|(a, b)| a.to_bits() == b.to_bits())
    );
}

#[test]
fn a_mask_separates_the_person_from_the_background() {
    let (picture, points) = at_rest();
    let mask = Segmenter::load(&folder()).unwrap().mask(picture);
    assert_eq!(mask.len(), MASK_SIDE * MASK_SIDE);
    let at = |[x, y]: Point| {
        let [x, y] = [x, y].map(|v| (v / SIDE as f32 * MASK_SIDE as f32) as usize);
        mask[y * MASK_SIDE + x]
    };
    for i in [index::CHIN, index::CHEEKS[0], index::CHEEKS[1], index::NOSE_BASE] {
        assert!(at(points[i]) > 0.9, "point {i}: {}", at(points[i]));
    }
    for corner in [[8.0, 8.0], [500.0, 8.0], [20.0, 150.0], [490.0, 150.0]] {
        assert!(at(corner) < 0.1, "{corner:?}: {}", at(corner));
    }
    let missing = Segmenter::load(Path::new("no/such/folder")).unwrap_err();
    assert!(missing.ends_with("selfie_segmentation.tflite is missing: run `make setup`"));
}

/// What is known of a mouth by the named points only.
fn named(picture: &Picture) -> Points {
    let found = find(networks(), picture).unwrap().points;
    let (width, height) = (picture.width(), picture.height());
    Landmarks::Outline(Landmarks::from_points(&found, width, height).outline())
        .to_points(width, height)
}

#[test]
fn named_points_of_open_lips_have_a_warning() {
    let (picture, _) = at_rest();
    let points = named(picture);
    for factor in [0.7, 1.0, 1.3] {
        assert_eq!(check_named(&scaled(picture, factor), &points), Ok(vec![]), "{factor}");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../assets/avatars");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|name| name == "webp") {
            let picture = decode(&std::fs::read(&path).unwrap(), DecodeLimits::default()).unwrap();
            // Lips that are less red than the skin look like a covered mouth.
            if let Err(refusal) = find(networks(), &picture) {
                assert_eq!(refusal, Refusal::Hidden(Part::Mouth), "{path:?}");
                continue;
            }
            let warnings = check_named(&picture, &named(&picture)).unwrap();
            assert!(!warnings.contains(&Warning::OpenLips), "{path:?}");
            count += 1;
        }
    }
    assert!(count >= 8, "{count}");

    let open = Pose { mouth: Mouth { jaw: 0.5, ..Mouth::default() }, ..Pose::default() };
    let open = draw(&open, Rect::whole(SIDE, SIDE));
    assert_eq!(check_named(&open, &named(&open)), Ok(vec![Warning::OpenLips]));
    // Teeth: a fifth of the height of the lips, where they meet.
    let (upper, lower) = (points[index::LIP_UPPER], points[index::LIP_LOWER]);
    let (centre, height) = (middle(upper, lower), lower[1] - upper[1]);
    let smile = changed(picture, |x, y| {
        let [dx, dy] = [x as f32 - centre[0], y as f32 - centre[1]];
        let is_tooth = dx.abs() < 2.0 * height && (dy + 0.1 * height).abs() < 0.1 * height;
        if is_tooth { [225, 220, 210] } else { pixel(picture, x, y) }
    });
    assert_eq!(check_named(&smile, &points), Ok(vec![Warning::OpenLips]));
    assert_eq!(check(&smile, &points), Ok(vec![]));
}
