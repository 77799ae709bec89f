//! What may be relied on when a person is drawn.

use character::{
    BrowShape, Character, Clothes, ClothesStyle, Colour, EyeShape, Eyes, Hair, HairStyle, Lips, Mouth, Nose,
    Picture, Pose, Proportions, Rect, Sitter, Skin, render,
};

fn somebody() -> Character {
    Character {
        seed: 3,
        age: 0.3,
        skin: Skin { colour: Colour(0xd0a080), blush: 0.5, stubble: 0.0, freckles: 0.2 },
        proportions: Proportions {
            face_width: 1.0,
            jaw_width: 1.0,
            jaw_height: 1.0,
            chin: 1.0,
            cheeks: 1.0,
            brow_ridge: 1.0,
            neck: 1.0,
            shoulders: 1.0,
        },
        eyes: EyeShape {
            size: 1.0,
            spacing: 1.0,
            opening: 1.0,
            tilt: 0.0,
            colour: Colour(0x4a2e1c),
            iris: 0.6,
            lashes: 1.0,
        },
        brows: BrowShape { thickness: 1.0, arch: 0.5, colour: Colour(0x201810) },
        nose: Nose { width: 1.0, length: 1.0, tip: 1.0, upturn: 0.2 },
        lips: Lips { colour: Colour(0xa06050), fullness: 1.0, width: 1.0 },
        hair: Hair { style: HairStyle::Short, dark: Colour(0x1c120d), light: Colour(0x3a2417), grey: 0.1 },
        beard: 0.0,
        glasses: false,
        headscarf: None,
        clothes: Clothes { style: ClothesStyle::Crew, colour: Colour(0x2e4057) },
        background: [Colour(0xb9ccc4), Colour(0x5e7f78)],
    }
}

const SIDE: usize = 96;

fn whole() -> Rect {
    Rect::whole(SIDE, SIDE)
}

/// Mean brightness of a part.
fn brightness(picture: &Picture, r: Rect) -> f64 {
    let mut sum = 0.0;
    for y in r.y0..r.y1 {
        for x in r.x0..r.x1 {
            let i = (y * picture.width + x) * 4;
            sum += picture.rgba[i..i + 3].iter().map(|c| f64::from(*c)).sum::<f64>();
        }
    }
    sum / (3 * (r.x1 - r.x0) * (r.y1 - r.y0)) as f64
}

#[test]
fn any_number_of_threads_draws_the_same_bits() {
    let draw = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| render(&somebody(), &Pose::default(), (64, 64), None))
    };
    let one = draw(1);
    assert!(one == draw(3));
    assert_eq!((one.width, one.height, one.rgba.len()), (64, 64, 64 * 64 * 4));
}

#[test]
fn a_part_is_cut_from_the_whole() {
    let bald = Character { hair: Hair { style: HairStyle::None, ..somebody().hair }, ..somebody() };
    let r = Rect { x0: 16, y0: 8, x1: 40, y1: 20 };
    let (all, part) =
        (render(&bald, &Pose::default(), (48, 48), None), render(&bald, &Pose::default(), (48, 48), Some(r)));
    assert_eq!((part.width, part.height), (24, 12));
    assert_eq!(part.rgba[..24 * 4], all.rgba[(8 * 48 + 16) * 4..(8 * 48 + 40) * 4]);
}

#[test]
fn lips_and_lids_move_and_nothing_else_does() {
    let sitter = Sitter::new(&somebody());
    let rest = Pose::default();
    let stage = sitter.stage(&rest, (SIDE, SIDE));
    let base = stage.draw(&rest, whole());
    let still = base.finish();

    let open = Pose { mouth: Mouth { jaw: 0.9, ..Mouth::default() }, ..rest };
    let shut = Pose { eyes: Eyes { lids: 1.0, ..Eyes::default() }, ..rest };
    for (pose, rect, other) in
        [(open, stage.mouth_rect(), stage.eyes_rect()), (shut, stage.eyes_rect(), stage.mouth_rect())]
    {
        let mut moved = base.clone();
        moved.add_change(&stage.draw(&rest, rect), &stage.draw(&pose, rect), 3);
        let moved = moved.finish();
        let differs = |x: usize, y: usize| {
            let i = (y * SIDE + x) * 4;
            still.rgba[i..i + 3].iter().zip(&moved.rgba[i..i + 3]).any(|(a, b)| a.abs_diff(*b) > 3)
        };
        let inside = |r: Rect, x, y| (r.x0..r.x1).contains(&x) && (r.y0..r.y1).contains(&y);
        let pixels = || (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (x, y)));
        assert!(
            pixels().all(|(x, y)| inside(rect, x, y) || !differs(x, y)),
            "something moves outside of {rect:?}"
        );
        let own = pixels().filter(|(x, y)| inside(rect, *x, *y) && !inside(other, *x, *y));
        assert!(own.filter(|(x, y)| differs(*x, *y)).count() > 20, "nothing moves in {rect:?}");
    }
}

#[test]
fn an_open_mouth_is_dark_inside_and_shut_lids_hide_the_white() {
    let bald = Character { hair: Hair { style: HairStyle::None, ..somebody().hair }, ..somebody() };
    let sitter = Sitter::new(&bald);
    let rest = Pose::default();
    let stage = sitter.stage(&rest, (SIDE, SIDE));
    let draw = |pose: &Pose| stage.draw(pose, whole()).finish();
    let still = draw(&rest);
    let mouth = Rect { x0: 44, y0: 58, x1: 52, y1: 64 };
    let mut last = brightness(&still, mouth);
    for jaw in [0.35, 0.9] {
        let now = brightness(&draw(&Pose { mouth: Mouth { jaw, ..Mouth::default() }, ..rest }), mouth);
        assert!(now < last - 5.0, "jaw {jaw}: {now} after {last}");
        last = now;
    }
    let pressed = draw(&Pose { mouth: Mouth { press: 1.0, jaw: 0.04, ..Mouth::default() }, ..rest });
    assert!((brightness(&pressed, mouth) - brightness(&still, mouth)).abs() < 25.0);
}

#[test]
fn sliders_are_brought_into_range() {
    let mut wild = somebody();
    wild.eyes.size = 9.0;
    wild.nose.width = f32::NAN;
    wild.beard = -1.0;
    let tame = wild.bounded();
    assert_eq!((tame.eyes.size, tame.beard), (1.3, 0.0));
    assert!((0.7..=1.4).contains(&tame.nose.width));
    assert_eq!(somebody().bounded(), somebody());
}

#[test]
fn a_person_survives_json_and_bad_colours_are_refused() {
    let text = serde_json::to_string(&somebody()).unwrap();
    assert_eq!(serde_json::from_str::<Character>(&text).unwrap(), somebody());
    assert!(text.contains("\"#d0a080\""));
    for bad in ["d0a080", "#d0a08", "#d0a0801", "#g0a080", "#+0a080"] {
        assert!(bad.parse::<Colour>().is_err(), "{bad}");
    }
}
