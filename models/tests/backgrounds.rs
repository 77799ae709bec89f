//! Avatars in front of another background, drawn and encoded.

use character::{Colour, Pose};
use models::face::avatar_source::{AvatarSource, Subject};
use models::face::avatar_spec;
use models::face::background::Background;
use models::face::bake::{self, Error, PosePlan};
use models::face::bake_request::{BakeRequest, BakeSubject, CharacterRequest};
use models::face::photo_avatar::PhotoAvatar;
use models::face::picture::I420;
use models::face::{CharacterRenderer, Framing, PoseId, PoseSet};

use super::{SIDE, avatar, character, decode_pose, no_cache, small_plan};

const SIZE: (usize, usize) = (SIDE, SIDE);
/// A blue that no drawn person wears, and its luma in video range (ITU-R BT.601).
const BLUE: Colour = Colour(0x1e3ca0);
const BLUE_LUMA: u8 = 67;
/// Loss of a flat area by the encoder, in levels.
const LOSS: u8 = 6;

fn blue() -> Background {
    Background::Colour { colour: BLUE }
}

fn set_of(source: AvatarSource<'_>, plan: &PosePlan) -> PoseSet {
    bake::bake(source, SIZE, plan, &no_cache(), |_| ()).unwrap().pose_set
}

/// Share of the drawn person of [`avatar`] in each pixel.
fn mask() -> Vec<f32> {
    let renderer = CharacterRenderer::new(&character()).unwrap().with_framing(Framing::Bust);
    renderer.head_view(&Pose::default(), SIZE).coverage(&Pose::default())
}

/// Largest difference of luma of the pixels for which `which` holds.
fn difference(a: &I420, b: &I420, which: impl Fn(usize) -> bool) -> u8 {
    let places = (0..SIDE * SIDE).filter(|i| which(*i)).map(|i| (i % SIDE, i / SIDE));
    places.map(|(x, y)| a.luma(x, y).abs_diff(b.luma(x, y))).max().unwrap()
}

#[test]
fn every_pose_of_a_photo_stands_in_front_of_the_colour_and_the_face_is_unchanged() {
    let (mut photo, plan, mask) = (avatar(SIZE), small_plan(), mask());
    photo.mask = Some(mask.clone());
    let background = blue();
    let own = set_of((&photo).into(), &plan);
    let blue = set_of(
        AvatarSource {
            subject: Subject::Photo(&photo),
            background: Some(&background),
            framing: Framing::Bust,
        },
        &plan,
    );
    let (outside, inside) = (|i: usize| mask[i] == 0.0, |i: usize| mask[i] == 1.0);
    for id in plan.pose_ids() {
        let picture = decode_pose(&blue, id);
        // The head turns, so places at its outline may be covered. The upper corners never are.
        let corners = [0, 8, SIDE - 9, SIDE - 1].map(|x| picture.luma(x, 4));
        assert!(corners.iter().all(|l| l.abs_diff(BLUE_LUMA) <= LOSS), "{id:?}: {corners:?}");
    }
    let rest = [&own, &blue].map(|set| decode_pose(set, PoseId::default()));
    let changed = difference(&rest[0], &rest[1], outside);
    assert!(changed > 60, "the studio is as dark as the colour: {changed}");
    let face = difference(&rest[0], &rest[1], |i| {
        inside(i)
            && (SIDE / 3..SIDE * 2 / 3).contains(&(i / SIDE))
            && i % SIDE > SIDE * 2 / 5
            && i % SIDE < SIDE * 3 / 5
    });
    assert!(face < 16, "the face differs by {face} levels");
}

#[test]
fn a_drawn_avatar_is_separated_from_its_studio_without_a_mask() {
    let (mei, plan) = (avatar_spec::find("mei").unwrap(), small_plan());
    let background = blue();
    let source = AvatarSource {
        subject: Subject::Character(&mei),
        background: Some(&background),
        framing: Framing::Close,
    };
    let set = set_of(source, &plan);
    for id in [PoseId::default(), PoseId { mouth: 3, ..PoseId::default() }] {
        let picture = decode_pose(&set, id);
        let corners = [0, SIDE - 1].map(|x| picture.luma(x, 2));
        assert!(corners.iter().all(|l| l.abs_diff(BLUE_LUMA) <= LOSS), "{id:?}: {corners:?}");
    }
    let own = set_of((&mei).into(), &plan);
    assert_eq!(own.manifest().name, set.manifest().name);
    assert_ne!(
        bake::fingerprint(&mei, SIZE, &plan),
        bake::fingerprint(source, SIZE, &plan),
        "the background is a part of the fingerprint"
    );
}

#[test]
fn a_photo_without_a_mask_or_a_damaged_picture_gives_one_sentence() {
    let (mut photo, plan) = (avatar(SIZE), small_plan());
    let bake = |photo: &PhotoAvatar, background: &Background| {
        let subject = Subject::Photo(photo);
        let source =
            AvatarSource { subject, background: Some(background), framing: Framing::Close };
        bake::bake(source, SIZE, &plan, &no_cache(), |_| ()).err().unwrap()
    };
    assert!(matches!(bake(&photo, &blue()), Error::NoMask));
    photo.mask = Some(mask());
    let error = bake(&photo, &Background::Image { image: "AAAA".into() });
    assert_eq!(
        error.to_string(),
        "the background cannot be used: the picture must be PNG, JPEG or WebP"
    );
}

#[test]
fn a_request_for_a_character_crosses_to_the_baking_process() {
    let mei = avatar_spec::find("mei").unwrap();
    let request = BakeRequest {
        subject: BakeSubject::Character(CharacterRequest {
            id: mei.id.clone(),
            file: avatar_spec::to_toml(&mei),
            size: [SIDE, SIDE],
            framing: Framing::Bust,
        }),
        background: Some(Background::Blur { strength: 0.5 }),
    };
    let line = serde_json::to_string(&request).unwrap();
    assert!(!line.contains('\n'));
    let read: BakeRequest = serde_json::from_str(&line).unwrap();
    assert_eq!(read.background, Some(Background::Blur { strength: 0.5 }));
    let BakeSubject::Character(character) = read.subject else { panic!("it is no character") };
    assert_eq!(character.into_avatar().unwrap(), mei);
}
