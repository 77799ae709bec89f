//! The people that this server can show.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use conversation::call_config::{CallConfig, PoseSetFile};
use models::face::{PoseSet, set};
use serde::Serialize;

use super::pose_cache::PoseCache;

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
        let mut here = HashMap::new();
        for path in paths {
            let from = path.display().to_string();
            let id = self.add(&from, &read(&path)?.into(), &read(&path.with_extension("webp"))?)?;
            if let Some(before) = here.insert(id.clone(), from.clone()) {
                tracing::warn!("{before} and {from} are both of {id}: calls show the second one");
            }
        }
        Ok(())
    }

    /// The person's id.
    fn add(&mut self, from: &str, poses: &Bytes, picture: &[u8]) -> Result<String, Error> {
        let set = Arc::new(PoseSet::parse(poses).map_err(|e| Error::Set(from.into(), e))?);
        let display_picture = format!("data:image/webp;base64,{}", STANDARD.encode(picture));
        let avatar = Avatar { set, display_picture };
        let id = avatar.set.manifest().id.clone();
        match self.0.iter_mut().find(|a| a.set.manifest().id == avatar.set.manifest().id) {
            Some(old) => *old = avatar,
            None => self.0.push(avatar),
        }
        Ok(id)
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
/// show them at the same time, and gone with the last. Of somebody who is still being drawn sets of a part come first: all calls go on with
/// the best one that came.
#[derive(Default)]
pub(crate) struct Library {
    own: Avatars,
    /// Of each of them what all calls share.
    poses: Vec<Arc<PoseCache>>,
    brought: Mutex<Brought>,
}

#[derive(Default)]
struct Brought {
    /// By person the best set, and how much of the person it shows.
    best: HashMap<String, (u8, Weak<PoseCache>)>,
    /// The last one that came without a call: a call that brings a lesser one may be on its way here.
    last: Option<Arc<PoseCache>>,
}

impl Brought {
    /// The best set of a person, if it shows at least so much.
    fn find(&self, id: &str, share: u8) -> Option<Arc<PoseCache>> {
        self.best.get(id).filter(|(known, _)| *known >= share).and_then(|(_, poses)| poses.upgrade())
    }
}

impl Library {
    pub(crate) fn new(own: Avatars) -> Self {
        let poses = own.all().iter().map(|avatar| Arc::new(PoseCache::new(Arc::clone(&avatar.set))));
        Self { poses: poses.collect(), own, brought: Mutex::default() }
    }

    /// The face of a call, none where this server has nobody; and what its owner should know, where it is not the one that was asked for.
    pub(crate) fn face(&self, call: &CallConfig) -> (Option<Arc<PoseCache>>, Option<String>) {
        let id = &call.avatar.avatar_key_id;
        let brought = call.pose_set.as_ref().map(|face| self.brought(id, face));
        let shown = |avatar: &Avatar| {
            let found = self.poses.iter().find(|poses| Arc::ptr_eq(poses.set(), &avatar.set));
            Arc::clone(found.expect("each of the server's own people has its poses"))
        };
        let (why, instead) = match brought {
            Some(Ok(set)) => return (Some(set), None),
            Some(Err(error)) => {
                tracing::error!(avatar = %id, %error, "a call's face cannot be read");
                ("cannot be read", self.own.find_or_first(id))
            }
            None => match self.own.find(id) {
                Some(found) => return (Some(shown(found)), None),
                None => ("is not there", self.own.find_or_first(id)),
            },
        };
        let told = instead.filter(|_| !id.is_empty()).map(|instead| {
            let id: String = id.chars().take(40).collect();
            format!("The avatar {id:?} {why}; {} shows its face instead.", instead.set.manifest().name)
        });
        (instead.map(shown), told)
    }

    /// A better set of a person: the calls that show it change over, and those that come next begin with it.
    pub(crate) fn renew(&self, id: &str, face: &PoseSetFile) {
        match self.brought(id, face) {
            Ok(poses) => self.locked().last = Some(poses),
            Err(error) => tracing::error!(avatar = %id, %error, "a face cannot be read"),
        }
    }

    fn brought(&self, id: &str, face: &PoseSetFile) -> Result<Arc<PoseCache>, set::Error> {
        if let Some(poses) = self.locked().find(id, face.completeness) {
            return Ok(poses);
        }
        // Without the lock: it takes a few milliseconds. Of two that come at once one is kept.
        let set = PoseSet::parse(&Bytes::from_owner(Arc::clone(&face.data)))?;
        let poses = Arc::new(PoseCache::new(Arc::new(set)));
        let mut brought = self.locked();
        if let Some(poses) = brought.find(id, face.completeness) {
            return Ok(poses);
        }
        brought.best.retain(|_, (_, poses)| poses.strong_count() > 0);
        let lesser = brought.best.insert(id.to_owned(), (face.completeness, Arc::downgrade(&poses)));
        if let Some(lesser) = lesser.and_then(|(_, poses)| poses.upgrade()) {
            lesser.lead_to(Arc::clone(&poses));
        }
        Ok(poses)
    }

    fn locked(&self) -> MutexGuard<'_, Brought> {
        self.brought.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use conversation::call_config::{AvatarChoice, ConversationId};
    use conversation::settings::AgentTurnConfig;

    use super::*;

    fn call(id: &str, own_face: Option<&[u8]>) -> CallConfig {
        let face = AvatarChoice { avatar_key_id: id.into(), frame_rate: 25 };
        let call = CallConfig::minimal(ConversationId(1), AgentTurnConfig::default().to_spec().unwrap());
        CallConfig { avatar: face, pose_set: own_face.map(|file| own(file, 100)), ..call }
    }

    fn own(file: &[u8], share: u8) -> PoseSetFile {
        PoseSetFile { data: file.into(), completeness: share }
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
        assert_eq!(one.set().manifest().name, "Clara");
        drop((one, other));
        assert_eq!(library.locked().best["zoe"].1.strong_count(), 0);
        assert!(library.face(&call("max", Some(file))).0.is_some());
        assert_eq!(library.locked().best.len(), 1, "what nobody shows is forgotten");
    }

    #[test]
    fn calls_go_on_with_the_best_set_that_came() {
        let library = Library::new(Avatars::built_in().unwrap());
        let files = [BUILT_IN[1].0, BUILT_IN[2].0, BUILT_IN[3].0];
        let part = |share: u8| CallConfig {
            pose_set: Some(own(files[usize::from(share)], share)),
            ..call("zoe", None)
        };
        let shown = |share| library.face(&part(share)).0.unwrap();
        let first = shown(0);
        assert!(first.better().is_none());
        library.renew("zoe", &own(files[1], 1));
        let second = Arc::clone(first.better().unwrap());
        assert_eq!(second.set().manifest().name, "Martin");
        assert!(Arc::ptr_eq(&shown(0), &second), "who comes late with a lesser one begins with the better");
        // As it is where another server drew, and nobody but the next call tells of it.
        let third = shown(2);
        assert!(Arc::ptr_eq(second.better().unwrap(), &third));
        library.renew("zoe", &own(files[1], 1));
        library.renew("zoe", &own(b"x", 3));
        assert!(
            third.better().is_none() && Arc::ptr_eq(&shown(0), &third),
            "never back, and never to what is none"
        );
        drop((first, second, third));
        assert_eq!(library.locked().best["zoe"].1.strong_count(), 1, "the last one that was told of is kept");
        library.renew("max", &own(files[0], 1));
        assert_eq!(library.locked().best["zoe"].1.strong_count(), 0);
    }

    #[test]
    fn who_cannot_be_shown_is_replaced_and_that_is_told() {
        let library = Library::new(Avatars::built_in().unwrap());
        for (call, why) in [(call("zoe", None), "is not there"), (call("zoe", Some(b"x")), "cannot be read")]
        {
            let (set, told) = library.face(&call);
            assert_eq!(set.unwrap().set().manifest().id, "theo");
            assert_eq!(told.unwrap(), format!("The avatar \"zoe\" {why}; Theo shows its face instead."));
        }
        for id in ["mei", ""] {
            let [one, other] = [0, 1].map(|_| library.face(&call(id, None)));
            assert_eq!(one.1, None, "{id}");
            assert!(Arc::ptr_eq(&one.0.unwrap(), &other.0.unwrap()), "calls share what they look up");
        }
        let (set, told) = Library::default().face(&call("zoe", None));
        assert!(set.is_none() && told.is_none());
    }
}
