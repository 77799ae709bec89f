//! Properties of the renderer.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use character::{
    Character, CharacterRenderer, Clothes, ClothesStyle, Colour, Eyes, Glasses, Hair, HairStyle,
    Mouth, POSE_SLIDERS, Picture, Pose, Rect, SLIDERS, Skin, render,
};

fn sample_character() -> Character {
    Character {
        seed: 3,
        age: 0.3,
        skin: Skin { freckles: 0.2, ..Skin::default() },
        hair: Hair { grey: 0.1, ..Hair::default() },
        ..Character::default()
    }
}

fn bald() -> Character {
    Character { hair: Hair { style: HairStyle::None, ..Hair::default() }, ..sample_character() }
}

fn model_of(character: &Character) -> CharacterRenderer {
    CharacterRenderer::new(character).unwrap()
}

const SIDE: usize = 96;

fn whole_rect() -> Rect {
    Rect::whole(SIDE, SIDE)
}

/// Mean brightness of a rectangle.
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

/// Characters that together need every part of the renderer.
fn feature_coverage() -> Vec<Character> {
    use ClothesStyle::{Blazer, Crew, Shirt, Suit, Turtleneck};
    let person = |style, clothes| Character {
        hair: Hair { style, ..Hair::default() },
        clothes: Clothes { style: clothes, ..Clothes::default() },
        ..sample_character()
    };
    vec![
        Character { beard: 1.0, glasses: Glasses::Square, ..person(HairStyle::Short, Blazer) },
        Character { headscarf: Some(Colour(0x8e5a73)), ..person(HairStyle::None, Crew) },
        Character { glasses: Glasses::Round, ..person(HairStyle::Bob, Turtleneck) },
        Character { earrings: true, ..person(HairStyle::Long, Shirt) },
        Character { glasses: Glasses::Slim, age: 1.0, ..person(HairStyle::Side, Suit) },
        person(HairStyle::Bun, Crew),
        person(HairStyle::Curly, Crew),
        person(HairStyle::Buzz, Crew),
    ]
}

// Each of [`feature_coverage`] is drawn in one of the next two tests, and in both of the long tier.

#[test]
fn any_number_of_threads_draws_the_same_bits() {
    assert_same_bits(feature_coverage().into_iter().step_by(2));
}

#[test]
#[ignore = "long: faces"]
fn long_faces_any_number_of_threads_draws_the_same_bits() {
    assert_same_bits(feature_coverage());
}

fn assert_same_bits(people: impl IntoIterator<Item = Character>) {
    for character in people {
        let draw = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let pose = Pose {
                mouth: Mouth { jaw: 0.5, ..Mouth::default() },
                smile: 0.7,
                ..Pose::default()
            };
            pool.install(|| render(&character, &pose, (48, 48), None).unwrap())
        };
        let one = draw(1);
        assert!(one == draw(3), "{character:?}");
        assert_eq!((one.width, one.height, one.rgba.len()), (48, 48, 48 * 48 * 4));
    }
}

#[test]
fn a_part_is_drawn_as_in_the_whole() {
    assert_part_matches_whole(feature_coverage().into_iter().skip(1).step_by(2));
}

#[test]
#[ignore = "long: faces"]
fn long_faces_a_part_is_drawn_as_in_the_whole() {
    assert_part_matches_whole(feature_coverage());
}

fn assert_part_matches_whole(people: impl IntoIterator<Item = Character>) {
    for character in people {
        let pose = Pose { mouth: Mouth { jaw: 0.6, ..Mouth::default() }, ..Pose::default() };
        let r = Rect { x0: 37, y0: 51, x1: 77, y1: 90 };
        let draw = |rect| render(&character, &pose, (112, 112), rect).unwrap();
        let (all, part) = (draw(None), draw(Some(r)));
        assert_eq!((part.width, part.height), (40, 39));
        for (y, row) in (r.y0..r.y1).zip(part.rgba.chunks_exact(40 * 4)) {
            let whole = &all.rgba[(y * 112 + r.x0) * 4..(y * 112 + r.x1) * 4];
            let other: Vec<_> =
                row.iter().zip(whole).enumerate().filter(|(_, (a, b))| a != b).collect();
            assert!(other.is_empty(), "row {y}, {other:?} of {character:?}");
        }
    }
}

#[test]
fn lips_and_lids_move_and_nothing_else_does() {
    let renderer = model_of(&sample_character());
    let rest = Pose::default();
    let view = renderer.head_view(&rest, (SIDE, SIDE));
    let base = view.draw(&rest, whole_rect());
    let still = base.to_picture();

    let open = Pose { mouth: Mouth { jaw: 0.9, ..Mouth::default() }, ..rest };
    let shut = Pose { eyes: Eyes { lids: 1.0, ..Eyes::default() }, ..rest };
    for (pose, rect, other) in
        [(open, view.mouth_rect(), view.eyes_rect()), (shut, view.eyes_rect(), view.mouth_rect())]
    {
        let mut moved = base.clone();
        moved.add_change(&view.draw(&rest, rect), &view.draw(&pose, rect), 3);
        let moved = moved.to_picture();
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
    let bald = bald();
    let renderer = model_of(&bald);
    let rest = Pose::default();
    let view = renderer.head_view(&rest, (SIDE, SIDE));
    let draw = |pose: &Pose| view.draw(pose, whole_rect()).to_picture();
    let still = draw(&rest);
    let mouth = Rect { x0: 44, y0: 61, x1: 52, y1: 68 };
    let mut last = brightness(&still, mouth);
    for jaw in [0.35, 0.9] {
        let now =
            brightness(&draw(&Pose { mouth: Mouth { jaw, ..Mouth::default() }, ..rest }), mouth);
        assert!(now < last - 5.0, "jaw {jaw}: {now} after {last}");
        last = now;
    }
    let pressed =
        draw(&Pose { mouth: Mouth { press: 1.0, jaw: 0.04, ..Mouth::default() }, ..rest });
    assert!((brightness(&pressed, mouth) - brightness(&still, mouth)).abs() < 25.0);
}

/// Pixels that differ between two pictures of one size.
fn changed_pixels(a: &Picture, b: &Picture) -> Vec<(usize, usize)> {
    let differs = |i: usize| (0..3).any(|k| a.rgba[i * 4 + k].abs_diff(b.rgba[i * 4 + k]) > 6);
    (0..a.width * a.height).filter(|i| differs(*i)).map(|i| (i % a.width, i / a.width)).collect()
}

#[test]
fn sliders_of_lips_nose_and_skin_change_only_the_face() {
    let base = Character { asymmetry: 1.0, ..bald() };
    let rest = Pose { smile: 0.4, ..Pose::default() };
    let renderer = model_of(&base);
    let view = renderer.head_view(&rest, (SIDE, SIDE));
    let (mouth, eyes) = (view.mouth_rect(), view.eyes_rect());
    let before = view.draw(&rest, whole_rect()).to_picture();
    let face = Rect {
        x0: mouth.x0.min(eyes.x0),
        y0: eyes.y0.min(mouth.y0),
        x1: mouth.x1.max(eyes.x1),
        y1: mouth.y1.max(eyes.y1),
    };
    for (name, value, place) in [
        ("lips.upper", 1.5, mouth),
        ("lips.bow", 1.0, mouth),
        ("lips.philtrum", 1.0, mouth),
        ("lips.corners", 1.0, mouth),
        ("lips.smirk", 0.0, face),
        ("nose.bridge", 1.4, face),
        ("nose.wings", 1.4, face),
        ("skin.under_eyes", 1.0, face),
    ] {
        let slider = SLIDERS.iter().find(|s| s.name == name).unwrap();
        let mut character = base.clone();
        *(slider.field)(&mut character) = value;
        let renderer = model_of(&character);
        let view = renderer.head_view(&rest, (SIDE, SIDE));
        assert!(view.mouth_rect() == mouth && view.eyes_rect() == eyes, "{name}");
        let changed = changed_pixels(&before, &view.draw(&rest, whole_rect()).to_picture());
        assert!(!changed.is_empty(), "{name} has no effect");
        let inside = |(x, y): &(usize, usize)| {
            (place.x0..place.x1).contains(x) && (place.y0..place.y1).contains(y)
        };
        let outside: Vec<_> = changed.iter().filter(|p| !inside(p)).collect();
        assert!(outside.is_empty(), "{name} changes {outside:?} outside of {place:?}");
    }
}

#[test]
fn a_tie_and_a_necklace_change_only_neck_and_chest() {
    let base = bald();
    let dressed = |style, tie| Clothes { style, tie, ..Clothes::default() };
    let red = Some(Colour(0xa02030));
    let plain = Character { clothes: dressed(ClothesStyle::Suit, None), ..base.clone() };
    let tied = Character { clothes: dressed(ClothesStyle::Suit, red), ..base.clone() };
    let chained = Character { necklace: true, ..base.clone() };
    let rest = Pose::default();
    for (without, with) in [(&plain, &tied), (&base, &chained)] {
        let draw = |character| {
            let renderer = model_of(character);
            let view = renderer.head_view(&rest, (SIDE, SIDE));
            (view.draw(&rest, whole_rect()).to_picture(), view.mouth_rect())
        };
        let ((a, mouth), (b, _)) = (draw(without), draw(with));
        let changed = changed_pixels(&a, &b);
        assert!(changed.len() > 4, "{with:?}");
        // Lips and jaw move in front of it, and must look alike with and without it.
        let lips = mouth.y0 + (mouth.y1 - mouth.y0) / 2;
        assert!(changed.iter().all(|(_, y)| *y > lips), "{changed:?}");
    }
    // A jumper has no collar for a tie.
    let jumper = |tie| Character { clothes: dressed(ClothesStyle::Crew, tie), ..base.clone() };
    let draw = |character: &Character| render(character, &rest, (SIDE, SIDE), None).unwrap();
    assert!(changed_pixels(&draw(&jumper(None)), &draw(&jumper(red))).is_empty());
}

#[test]
fn a_slider_out_of_range_is_refused_and_named() {
    for slider in SLIDERS {
        for (bad, fine) in [
            (slider.min - 0.01, slider.min),
            (slider.max + 0.01, slider.max),
            (f32::NAN, (slider.min + slider.max) / 2.0),
        ] {
            let mut wild = sample_character();
            *(slider.field)(&mut wild) = fine;
            assert_eq!(wild.check(), Ok(()), "{}", slider.name);
            *(slider.field)(&mut wild) = bad;
            let error = CharacterRenderer::new(&wild).err().unwrap().to_string();
            assert!(error.starts_with(slider.name) && error.contains("must be from"), "{error}");
        }
    }
    let mut wild = Pose::default();
    for slider in POSE_SLIDERS {
        assert_eq!(wild.check(), Ok(()));
        *(slider.field)(&mut wild) = slider.max * 2.0;
        assert_eq!(wild.check().unwrap_err().name, slider.name);
        *(slider.field)(&mut wild) = slider.min;
    }
}

#[test]
fn a_file_may_leave_out_what_is_average_and_nothing_unknown_is_taken() {
    let read = |text: &str| serde_json::from_str::<Character>(text).map_err(|e| e.to_string());
    assert_eq!(read("{}").unwrap(), Character::default());
    assert_eq!(read(r#"{"eyes":{"size":1.2}}"#).unwrap().eyes.size, 1.2);
    for (bad, message) in [
        (r#"{"ears":1}"#, "unknown field `ears`"),
        (r#"{"eyes":{"sise":1}}"#, "unknown field `sise`"),
        (r#"{"eyes":{"size":9}}"#, "eyes.size is 9, but must be from 0.8 to 1.3"),
        (r#"{"hair":{"style":"mohawk"}}"#, "unknown variant `mohawk`"),
    ] {
        let error = read(bad).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
    assert!(serde_json::from_str::<Pose>(r#"{"smile":2}"#).is_err());
}

#[test]
fn a_part_can_be_kept_and_read_again() {
    let (renderer, rest) = (model_of(&bald()), Pose::default());
    let part = renderer.head_view(&rest, (32, 32)).draw(&rest, Rect::whole(32, 32));
    let bytes = part.to_bytes();
    let again = character::Patch::from_bytes(part.rect(), &bytes).unwrap();
    assert!(again.to_picture() == part.to_picture());
    assert!(character::Patch::from_bytes(part.rect(), &bytes[1..]).is_none());
}

#[test]
fn a_person_survives_json_and_bad_colours_are_refused() {
    let text = serde_json::to_string(&sample_character()).unwrap();
    assert_eq!(serde_json::from_str::<Character>(&text).unwrap(), sample_character());
    assert!(text.contains("\"#d0a080\""), "{text}");
    for bad in ["d0a080", "#d0a08", "#d0a0801", "#g0a080", "#+0a080"] {
        assert!(bad.parse::<Colour>().is_err(), "{bad}");
    }
}

#[test]
fn flat_hair_is_not_cut_by_the_upper_edge() {
    use HairStyle::{Bob, Bun, Buzz, Long, Side};
    for style in [Bob, Bun, Buzz, Long, Side] {
        let hair = Hair { style, ..Hair::default() };
        let renderer = model_of(&Character { hair, ..sample_character() });
        let view = renderer.head_view(&Pose::default(), (SIDE, SIDE));
        let person = view.coverage(&Pose::default());
        // 2 % of the height.
        let above: f32 = person[..SIDE * 2].iter().sum();
        assert!(above < 0.5, "{style:?}: {above}");
    }
}
