//! The check of an uploaded photo, without the networks: a person has set the landmarks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landmarks::Picture;
use models::face::bake_request::PhotoRequest;
use models::face::photo_upload::{self, PreviewPose, Request, Response, Task};
use models::face::{Framing, Landmarks};
use serde_json::{Value, json};

use super::{LANDMARKS, avatar};

const SIDE: usize = 256;
/// Another size than that of the source.
const UPRIGHT: [usize; 2] = [144, 256];
const WITHOUT_NETWORKS: &str = "face.tflite is missing: run `make setup`";

/// A request with the photo of [`avatar`] and its landmarks as fractions.
fn request() -> Request {
    let photo = avatar((SIDE, SIDE)).photo;
    let picture = Picture::new(SIDE, SIDE, photo.rgb).unwrap();
    let mut landmarks: Value = serde_json::from_str(LANDMARKS).unwrap();
    scale(&mut landmarks);
    Request {
        image: STANDARD.encode(landmarks::encode_png(&picture).unwrap()),
        landmarks: Some(landmarks),
        show: vec![PreviewPose::Aa, PreviewPose::Blink],
        size: [SIDE, SIDE],
        keep_source: true,
    }
}

/// From pixels of 512 to fractions.
fn scale(value: &mut Value) {
    match value {
        Value::Number(number) => *value = json!(number.as_f64().unwrap() / 512.0),
        Value::Array(items) => items.iter_mut().for_each(scale),
        Value::Object(fields) => fields.values_mut().for_each(scale),
        _ => {}
    }
}

fn respond(request: Request) -> Response {
    photo_upload::respond(&Task::Photo(request), Err(WITHOUT_NETWORKS), None)
}

#[test]
fn a_photo_with_landmarks_needs_no_networks_and_its_source_draws_the_same_face() {
    let Response::Accepted(accepted) = respond(request()) else { panic!("it is refused") };
    assert_eq!(accepted.landmarks.len(), 478);
    let [left, top, width, height] = accepted.bounds;
    assert!(left > 0.2 && top > 0.2 && left + width < 0.8 && top + height < 0.8);
    let shown: Vec<PreviewPose> = accepted.pictures.keys().copied().collect();
    assert_eq!(shown, [PreviewPose::Aa, PreviewPose::Blink]);
    for file in accepted.pictures.values() {
        assert!(STANDARD.decode(file).unwrap().starts_with(b"RIFF"));
    }
    // The source crosses two processes as JSON.
    let text = json!({
        "id": "p1", "name": "Pat", "gender": "female", "voice": "heart",
        "source": accepted.source.unwrap(),
    });
    let mut upright = text.clone();
    upright["size"] = json!(UPRIGHT);

    let mut bust_text = text.clone();
    bust_text["framing"] = json!("bust");
    let drawn: PhotoRequest = serde_json::from_value(text).unwrap();
    assert_eq!(drawn.source.size(), (SIDE, SIDE));
    assert!(!drawn.source.has_mask());
    let drawn = drawn.into_avatar().unwrap();
    assert_eq!((drawn.photo.width, drawn.photo.height), (SIDE, SIDE));
    photo::PhotoRenderer::new(&drawn.photo, &drawn.landmarks).unwrap();
    // In another size, the face keeps its proportions.
    let upright: PhotoRequest = serde_json::from_value(upright).unwrap();
    assert_eq!(upright.pixels(), UPRIGHT);
    let upright = upright.into_avatar().unwrap();
    assert_eq!([upright.photo.width, upright.photo.height], UPRIGHT);
    photo::PhotoRenderer::new(&upright.photo, &upright.landmarks).unwrap();
    let [square, tall] = [&drawn.landmarks, &upright.landmarks].map(|landmarks| {
        let Landmarks::Mesh(points) = landmarks else { panic!("it has the points of a mesh") };
        let distance =
            |a: usize, b: usize| (points[a][0] - points[b][0]).hypot(points[a][1] - points[b][1]);
        // Forehead and chin, and the outer corners of the eyes.
        distance(10, 152) / distance(33, 263)
    });
    assert!((square / tall - 1.0).abs() < 0.01, "{square} and {tall}");

    // The source has head and shoulders. A close framing, the default, shows less of them.
    let close = drawn;
    let bust: PhotoRequest = serde_json::from_value(bust_text).unwrap();
    let bust = bust.into_avatar().unwrap();
    assert_eq!((close.framing, bust.framing), (Framing::Close, Framing::Bust));
    let [close, bust] = [close, bust].map(|avatar| {
        let Landmarks::Mesh(points) = avatar.landmarks else { panic!("not a mesh") };
        (points[152][1] - points[10][1]) / SIDE as f32
    });
    assert!(close > bust + 0.05, "{close} and {bust}");
}

#[test]
fn what_cannot_be_used_is_refused_with_its_reason() {
    let changed = |change: fn(&mut Request)| {
        let mut request = request();
        change(&mut request);
        match respond(request) {
            Response::Accepted(_) => "accepted".to_owned(),
            Response::Refused { reason, .. } => reason,
            Response::InvalidLandmarks { path, reason } => format!("{path} {reason}"),
            Response::NoNetworks(why) => why,
            Response::Background(_) => "a background".to_owned(),
        }
    };
    for (found, expected) in [
        (changed(|r| r.landmarks = None), WITHOUT_NETWORKS),
        (changed(|r| r.landmarks = Some(Value::Null)), WITHOUT_NETWORKS),
        (changed(|r| r.image = "AAAA".into()), "not readable"),
        (changed(|r| r.image.truncate(2_000)), "not readable"),
        (changed(|r| r.image = "no base64".into()), "not readable"),
        (
            changed(|r| r.landmarks.as_mut().unwrap()["chin"] = json!([2, 0])),
            "chin[0] must be a \
            number between 0 and 1, a fraction of the picture",
        ),
        (changed(|r| r.landmarks.as_mut().unwrap()["chin"] = json!([0.5, 0.99])), "cut off"),
        (
            changed(|r| r.landmarks.as_mut().unwrap()["left_eye"]["iris"] = json!([0.99, 0.99])),
            "left_eye.iris is too far from the face",
        ),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn named_points_of_a_mouth_with_teeth_have_a_warning() {
    let closed = request();
    let mouth = &closed.landmarks.as_ref().unwrap()["mouth"];
    let pixel = |point: &str, axis: usize| mouth[point][axis].as_f64().unwrap() * SIDE as f64;
    let (upper, lower) = (pixel("upper", 1), pixel("lower", 1));
    let mut rgb = avatar((SIDE, SIDE)).photo.rgb;
    for (i, colour) in rgb.chunks_exact_mut(3).enumerate() {
        let (x, y) = ((i % SIDE) as f64, (i / SIDE) as f64);
        let is_between = (0.3..0.6).contains(&((y - upper) / (lower - upper)));
        if is_between && x > pixel("left", 0) && x < pixel("right", 0) {
            colour.copy_from_slice(&[225, 220, 210]);
        }
    }
    let picture = Picture::new(SIDE, SIDE, rgb).unwrap();
    let image = STANDARD.encode(landmarks::encode_png(&picture).unwrap());
    let warns = |request: Request| {
        let Response::Accepted(accepted) = respond(request) else { panic!("it is refused") };
        accepted.warnings.iter().any(|text| text.starts_with("the lips seem to be open"))
    };
    let smile = || Request { image: image.clone(), ..request() };
    assert_eq!((warns(closed), warns(smile())), (false, true));
    // The mesh has the inner edges of the lips.
    let Response::Accepted(accepted) = respond(smile()) else { panic!("it is refused") };
    assert!(!warns(Request { landmarks: Some(json!(accepted.landmarks)), ..smile() }));
}

#[test]
fn a_picture_of_a_background_is_decoded_and_kept_as_webp() {
    let respond = |file: String| {
        let task: Task = serde_json::from_value(json!({"background": file})).unwrap();
        photo_upload::respond(&task, Err(WITHOUT_NETWORKS), None)
    };
    let Response::Background(stored) = respond(request().image) else { panic!("it is refused") };
    assert!(STANDARD.decode(stored).unwrap().starts_with(b"RIFF"));
    let Response::Refused { reason, .. } = respond("AAAA".into()) else { panic!("accepted") };
    assert_eq!(reason, "not readable");
}
