//! What a drawing job draws: the line of JSON for the child process.

use models::face::Framing as DrawnFraming;
use models::face::avatar_spec::{self, AvatarSpec, Gender};
use models::face::background::Background;
use models::face::bake_request::{BakeRequest, BakeSubject, CharacterRequest, PhotoRequest};
use models::face::photo_source::PhotoSource;
use models::tts;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::store::custom_avatar::Job;
use crate::store::framing::{Framing, VideoSize};
use crate::store::vault::Vault;
use crate::store::{self, Store, secrets};

/// A person in the store.
struct Person<'a> {
    /// `avatar_key_id` of what is drawn.
    id: &'a str,
    name: String,
    gender: String,
    /// A character as JSON.
    character: Option<String>,
    /// Or the crop of a photo, encrypted for the row `source_owner`.
    source: Option<String>,
    source_owner: &'a str,
    /// Width and height in pixels of the pose set.
    size: [usize; 2],
    framing: DrawnFraming,
}

/// The request of a job; or why there is none.
pub(super) async fn read_request(
    store: &Store,
    vault: &Vault,
    job: &Job,
) -> store::Result<Result<String, String>> {
    let size = VideoSize::from_name(&job.size).pixels();
    let framing = Framing::from_name(&job.framing).drawn();
    let background = job.background.as_ref().map(|text| read_background(vault, job, text));
    let background = match background.transpose() {
        Ok(background) => background,
        Err(why) => return Ok(Err(why)),
    };
    let person = match &job.base_avatar {
        Some(base) => {
            if let Some(avatar) = avatar_spec::find(base) {
                let subject = character_subject(&job.id, &avatar, size, framing);
                return Ok(Ok(to_line(subject, background)));
            }
            let Some(found) = store.variant_base(&job.workspace, base).await? else {
                return Ok(Err("its avatar was deleted".into()));
            };
            Person {
                id: &job.id,
                name: found.name,
                gender: found.gender,
                character: found.character,
                source: found.source,
                source_owner: base,
                size,
                framing,
            }
        }
        None => Person {
            id: &job.id,
            name: job.name.clone(),
            gender: job.gender.clone(),
            character: job.character.clone(),
            source: job.source.clone(),
            source_owner: &job.id,
            size,
            framing,
        },
    };
    Ok(read_subject(vault, person).map(|subject| to_line(subject, background)))
}

fn to_line(subject: BakeSubject, background: Option<Background>) -> String {
    json!(BakeRequest { subject, background }).to_string() + "\n"
}

/// The background of a job. It is encrypted if it contains a picture.
fn read_background(vault: &Vault, job: &Job, text: &str) -> Result<Background, String> {
    if job.image_hash.is_some() {
        return open(vault, &job.id, text);
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn open<T: DeserializeOwned>(vault: &Vault, owner: &str, sealed: &str) -> Result<T, String> {
    secrets::open(vault, owner, sealed).map_err(|error| error.to_string())
}

fn character_subject(
    id: &str,
    avatar: &AvatarSpec,
    size: [usize; 2],
    framing: DrawnFraming,
) -> BakeSubject {
    BakeSubject::Character(CharacterRequest {
        id: id.to_owned(),
        file: avatar_spec::to_toml(avatar),
        size,
        framing,
    })
}

fn read_subject(vault: &Vault, person: Person<'_>) -> Result<BakeSubject, String> {
    let Person { id, name, gender, character, source, source_owner, size, framing } = person;
    if let Some(character) = character {
        let avatar = parse_character(id, name, gender, &character);
        let avatar = avatar.map_err(|error| error.to_string())?;
        return Ok(character_subject(id, &avatar, size, framing));
    }
    let sealed = source.ok_or("there is neither a character nor a photo")?;
    let source: PhotoSource = open(vault, source_owner, &sealed)?;
    let gender = if gender == "male" { Gender::Male } else { Gender::Female };
    let voice = tts::default_voice(gender == Gender::Female).to_owned();
    // The source knows the size of the avatar itself, also in rows of the release before.
    let size = (source_owner != id).then_some(size);
    let request = PhotoRequest { id: id.to_owned(), name, gender, voice, source, size, framing };
    Ok(BakeSubject::Photo(Box::new(request)))
}

fn parse_character(
    id: &str,
    name: String,
    gender: String,
    character: &str,
) -> Result<AvatarSpec, serde_json::Error> {
    let mut person: Value = serde_json::from_str(character)?;
    person["name"] = name.into();
    person["gender"] = gender.into();
    Ok(AvatarSpec { id: id.to_owned(), ..serde_json::from_value(person)? })
}
