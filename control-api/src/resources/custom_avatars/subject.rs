//! What a drawing job draws: the line of JSON for the child process.

use models::face::avatar_spec::{self, AvatarSpec, Gender};
use models::face::background::Background;
use models::face::bake_request::{BakeRequest, BakeSubject, CharacterRequest, PhotoRequest};
use models::face::photo_source::PhotoSource;
use models::tts;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::store::custom_avatar::Job;
use crate::store::vault::Vault;
use crate::store::{self, Store, secrets};

/// Width and height in pixels of the pose set of a character.
const CHARACTER_SIZE: [usize; 2] = [512, 512];

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
}

/// The request of a job; or why there is none.
pub(super) async fn read_request(
    store: &Store,
    vault: &Vault,
    job: &Job,
) -> store::Result<Result<String, String>> {
    let (person, background) = match (&job.base_avatar, &job.background) {
        (Some(base), Some(background)) => {
            let background = match read_background(vault, job, background) {
                Ok(background) => background,
                Err(why) => return Ok(Err(why)),
            };
            if let Some(avatar) = avatar_spec::find(base) {
                let subject = character_subject(&job.id, &avatar);
                return Ok(Ok(to_line(subject, Some(background))));
            }
            let Some(found) = store.background_base(&job.workspace, base).await? else {
                return Ok(Err("its avatar was deleted".into()));
            };
            let person = Person {
                id: &job.id,
                name: found.name,
                gender: found.gender,
                character: found.character,
                source: found.source,
                source_owner: base,
            };
            (person, Some(background))
        }
        _ => {
            let person = Person {
                id: &job.id,
                name: job.name.clone(),
                gender: job.gender.clone(),
                character: job.character.clone(),
                source: job.source.clone(),
                source_owner: &job.id,
            };
            (person, None)
        }
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

fn character_subject(id: &str, avatar: &AvatarSpec) -> BakeSubject {
    BakeSubject::Character(CharacterRequest {
        id: id.to_owned(),
        file: avatar_spec::to_toml(avatar),
        size: CHARACTER_SIZE,
    })
}

fn read_subject(vault: &Vault, person: Person<'_>) -> Result<BakeSubject, String> {
    let Person { id, name, gender, character, source, source_owner } = person;
    if let Some(character) = character {
        let avatar = parse_character(id, name, gender, &character);
        return Ok(character_subject(id, &avatar.map_err(|error| error.to_string())?));
    }
    let sealed = source.ok_or("there is neither a character nor a photo")?;
    let source: PhotoSource = open(vault, source_owner, &sealed)?;
    let gender = if gender == "male" { Gender::Male } else { Gender::Female };
    let voice = tts::default_voice(gender == Gender::Female).to_owned();
    let request = PhotoRequest { id: id.to_owned(), name, gender, voice, source };
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
