//! The people that this server can show.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::{fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use conversation::call::Call;
use models::face::{PoseSet, set};
use serde::Serialize;

/// Extension of a pose set's file; the picture beside it ends in `webp`.
const POSES: &str = "poses";

/// The pose set and the picture of each of these people.
macro_rules! shipped {
    ($($id:literal),+) => {
        &[$((
            include_bytes!(concat!("../../../assets/avatars/", $id, ".512.poses")),
            include_bytes!(concat!("../../../assets/avatars/", $id, ".512.webp")),
        )),+]
    };
}

/// Who is in the binary, in the order in which they are offered: the first one is everybody's who names nobody.
const BUILT_IN: &[(&[u8], &[u8])] =
    shipped!("theo", "clara", "martin", "amina", "raj", "mei", "ingrid", "nia", "leo");

/// A person at one size.
#[derive(Clone)]
pub struct Avatar {
    /// All that is shown of it.
    pub set: Arc<PoseSet>,
    /// A WebP picture of it as a data URI.
    pub display_picture: String,
}

/// What the control plane tells of a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StockAvatar {
    /// Its id.
    pub avatar_key_id: String,
    /// Its name.
    pub avatar_name: String,
    /// `female` or `male`.
    pub gender: String,
    /// A data URI.
    pub display_picture: String,
}

/// A pose set could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error("{0}: {1}")]
    Read(String, #[source] io::Error),
    /// It is no pose set.
    #[error("{0}: {1}")]
    Set(String, #[source] set::Error),
}

/// All people. Never empty once [`Avatars::built_in`] has made it.
#[derive(Clone, Default)]
pub struct Avatars(Vec<Avatar>);

impl Avatars {
    /// The people in the binary.
    ///
    /// # Errors
    /// If the binary holds a damaged set.
    pub fn built_in() -> Result<Self, Error> {
        let mut avatars = Self::default();
        for (poses, picture) in BUILT_IN {
            avatars.add("built in", &Bytes::from_static(poses), picture)?;
        }
        Ok(avatars)
    }

    /// Adds all `NAME.poses` of a directory with their `NAME.webp`, in the order of their names. A set with the id of an earlier one
    /// replaces it.
    ///
    /// # Errors
    /// If the directory or a file of it cannot be read or is no pose set.
    pub fn add_dir(&mut self, dir: &Path) -> Result<(), Error> {
        let read = |path: &Path| fs::read(path).map_err(|e| Error::Read(path.display().to_string(), e));
        let mut paths: Vec<_> = fs::read_dir(dir)
            .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect::<io::Result<Vec<_>>>())
            .map_err(|e| Error::Read(dir.display().to_string(), e))?;
        paths.retain(|p| p.extension().is_some_and(|e| e == POSES));
        paths.sort();
        for path in paths {
            self.add(
                &path.display().to_string(),
                &read(&path)?.into(),
                &read(&path.with_extension("webp"))?,
            )?;
        }
        Ok(())
    }

    fn add(&mut self, from: &str, poses: &Bytes, picture: &[u8]) -> Result<(), Error> {
        let set = Arc::new(PoseSet::parse(poses).map_err(|e| Error::Set(from.into(), e))?);
        let display_picture = format!("data:image/webp;base64,{}", STANDARD.encode(picture));
        let avatar = Avatar { set, display_picture };
        match self.0.iter_mut().find(|a| a.set.manifest().id == avatar.set.manifest().id) {
            Some(old) => *old = avatar,
            None => self.0.push(avatar),
        }
        Ok(())
    }

    /// The person with this `avatar_key_id`.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Avatar> {
        self.0.iter().find(|a| a.set.manifest().id == id)
    }

    /// The person with this id, else the first one.
    #[must_use]
    pub fn find_or_first(&self, id: &str) -> Option<&Avatar> {
        self.find(id).or_else(|| self.0.first())
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Avatar] {
        &self.0
    }

    /// What the control plane tells of them.
    #[must_use]
    pub fn stock(&self) -> Vec<StockAvatar> {
        self.0
            .iter()
            .map(|avatar| {
                let manifest = avatar.set.manifest();
                StockAvatar {
                    avatar_key_id: manifest.id.clone(),
                    avatar_name: manifest.name.clone(),
                    gender: manifest.gender.clone(),
                    display_picture: avatar.display_picture.clone(),
                }
            })
            .collect()
    }
}

/// Whom calls may show: the people of this server, and those whose set comes with a call. Sets of the latter are shared by the calls that
/// show them at the same time, and gone with the last.
#[derive(Default)]
pub(crate) struct Library {
    own: Avatars,
    brought: Mutex<HashMap<String, Weak<PoseSet>>>,
}

impl Library {
    pub(crate) fn new(own: Avatars) -> Self {
        Self { own, brought: Mutex::default() }
    }

    /// The face of a call, none where this server has nobody; and what its owner should know, where it is not the one that was asked for.
    pub(crate) fn face(&self, call: &Call) -> (Option<Arc<PoseSet>>, Option<String>) {
        let id = &call.face.avatar_key_id;
        let brought = call.own_face.as_ref().map(|file| self.brought(id, file));
        let (why, instead) = match brought {
            Some(Ok(set)) => return (Some(set), None),
            Some(Err(error)) => {
                tracing::error!(avatar = %id, %error, "a call's face cannot be read");
                ("cannot be read", self.own.find_or_first(id))
            }
            None => match self.own.find(id) {
                Some(found) => return (Some(Arc::clone(&found.set)), None),
                None => ("is not there", self.own.find_or_first(id)),
            },
        };
        let told = instead.filter(|_| !id.is_empty()).map(|instead| {
            let id: String = id.chars().take(40).collect();
            format!("The avatar {id:?} {why}; {} shows its face instead.", instead.set.manifest().name)
        });
        (instead.map(|instead| Arc::clone(&instead.set)), told)
    }

    fn brought(&self, id: &str, file: &Arc<[u8]>) -> Result<Arc<PoseSet>, set::Error> {
        let known = || self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(set) = known().get(id).and_then(Weak::upgrade) {
            return Ok(set);
        }
        // Without the lock: it takes a few milliseconds. Two that come at once make two sets, and one of them is kept.
        let set = Arc::new(PoseSet::parse(&Bytes::from_owner(Arc::clone(file)))?);
        let mut known = known();
        known.retain(|_, set| set.strong_count() > 0);
        known.insert(id.to_owned(), Arc::downgrade(&set));
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use conversation::call::{ConversationId, FaceChoice};
    use conversation::settings::Agent;

    use super::*;

    fn call(id: &str, own_face: Option<&[u8]>) -> Call {
        let face = FaceChoice { avatar_key_id: id.into(), frame_rate: 25 };
        let call = Call::bare(ConversationId(1), Agent::default().spec().unwrap());
        Call { face, own_face: own_face.map(Arc::from), ..call }
    }

    #[test]
    fn calls_share_the_face_that_they_bring_and_the_last_one_takes_it_with_it() {
        let library = Library::new(Avatars::built_in().unwrap());
        // Any set will do: it is found by the call's id, not by its own.
        let (file, _) = BUILT_IN[1];
        let (one, told) = library.face(&call("zoe", Some(file)));
        let (other, _) = library.face(&call("zoe", Some(file)));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(Arc::ptr_eq(&one, &other) && told.is_none());
        assert_eq!(one.manifest().name, "Clara");
        drop((one, other));
        assert_eq!(library.brought.lock().unwrap()["zoe"].strong_count(), 0);
        assert!(library.face(&call("max", Some(file))).0.is_some());
        assert_eq!(library.brought.lock().unwrap().len(), 1, "what nobody shows is forgotten");
    }

    #[test]
    fn who_cannot_be_shown_is_replaced_and_that_is_told() {
        let library = Library::new(Avatars::built_in().unwrap());
        for (call, why) in [(call("zoe", None), "is not there"), (call("zoe", Some(b"x")), "cannot be read")]
        {
            let (set, told) = library.face(&call);
            assert_eq!(set.unwrap().manifest().id, "theo");
            assert_eq!(told.unwrap(), format!("The avatar \"zoe\" {why}; Theo shows its face instead."));
        }
        for id in ["mei", ""] {
            assert_eq!(library.face(&call(id, None)).1, None, "{id}");
        }
        let (set, told) = Library::default().face(&call("zoe", None));
        assert!(set.is_none() && told.is_none());
    }
}
