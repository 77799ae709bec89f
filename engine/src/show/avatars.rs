//! The avatars that this server can show.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use engine_api::{CallConfig, PoseSetFile};
use models::face::{PoseSet, pose_set};
use serde::Serialize;

use super::pose_cache::PoseCache;

/// Extension of a pose set file; the picture beside it has the extension `webp`.
const POSE_SET_EXTENSION: &str = "poses";

/// The pose set and the picture of each of these avatars.
macro_rules! built_in_avatars {
    ($($id:literal),+) => {
        &[$((
            include_bytes!(concat!("../../../assets/avatars/", $id, ".512.poses")),
            include_bytes!(concat!("../../../assets/avatars/", $id, ".512.webp")),
        )),+]
    };
}

/// The avatars in the binary, in the order in which they are offered. The first one is the default.
const BUILT_IN_AVATARS: &[(&[u8], &[u8])] =
    built_in_avatars!("theo", "clara", "martin", "amina", "raj", "mei", "ingrid", "nia", "leo");

/// An avatar at one size.
#[derive(Clone)]
pub struct Avatar {
    /// All poses of it.
    pub pose_set: Arc<PoseSet>,
    /// A WebP picture of it as a data URI.
    pub display_picture: String,
}

/// The description of an avatar for the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StockAvatar {
    /// Id of the avatar.
    pub avatar_key_id: String,
    /// Display name.
    pub avatar_name: String,
    /// `female` or `male`.
    pub gender: String,
    /// A WebP picture as a data URI.
    pub display_picture: String,
    /// The built-in voice that speaks unless another one is selected.
    pub voice: String,
}

/// A pose set could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read: its path, and the cause.
    #[error("{0}: {1}")]
    Read(String, #[source] io::Error),
    /// A file is no valid pose set: its path, and the cause.
    #[error("{0}: {1}")]
    Set(String, #[source] pose_set::Error),
}

/// All stock avatars. Never empty if made by [`Avatars::built_in`].
#[derive(Clone, Default)]
pub struct Avatars(Vec<Avatar>);

impl Avatars {
    /// The avatars in the binary.
    ///
    /// # Errors
    /// If the binary holds a damaged pose set.
    pub fn built_in() -> Result<Self, Error> {
        let mut avatars = Self::default();
        for (poses, picture) in BUILT_IN_AVATARS {
            avatars.add("built in", &Bytes::from_static(poses), picture)?;
        }
        Ok(avatars)
    }

    /// Adds all `NAME.poses` of a directory with their `NAME.webp`, in the order of their names. A
    /// pose set with the id of an earlier one replaces it.
    ///
    /// # Errors
    /// If the directory or one of its files cannot be read, or is no valid pose set.
    pub fn add_dir(&mut self, dir: &Path) -> Result<(), Error> {
        let read =
            |path: &Path| fs::read(path).map_err(|e| Error::Read(path.display().to_string(), e));
        let mut paths: Vec<_> = fs::read_dir(dir)
            .and_then(|entries| {
                entries.map(|e| e.map(|e| e.path())).collect::<io::Result<Vec<_>>>()
            })
            .map_err(|e| Error::Read(dir.display().to_string(), e))?;
        paths.retain(|p| p.extension().is_some_and(|e| e == POSE_SET_EXTENSION));
        paths.sort();
        let mut seen_ids = HashMap::new();
        for path in paths {
            let from = path.display().to_string();
            let id = self.add(&from, &read(&path)?.into(), &read(&path.with_extension("webp"))?)?;
            if let Some(before) = seen_ids.insert(id.clone(), from.clone()) {
                tracing::warn!(
                    "{before} and {from} both contain the avatar {id}: the second one is used"
                );
            }
        }
        Ok(())
    }

    /// Adds an avatar and returns its id.
    fn add(&mut self, from: &str, poses: &Bytes, picture: &[u8]) -> Result<String, Error> {
        let set = Arc::new(PoseSet::parse(poses).map_err(|e| Error::Set(from.into(), e))?);
        let display_picture = format!("data:image/webp;base64,{}", STANDARD.encode(picture));
        let avatar = Avatar { pose_set: set, display_picture };
        let id = avatar.pose_set.manifest().id.clone();
        match self.0.iter_mut().find(|a| a.pose_set.manifest().id == avatar.pose_set.manifest().id)
        {
            Some(old) => *old = avatar,
            None => self.0.push(avatar),
        }
        Ok(id)
    }

    /// The avatar with this `avatar_key_id`.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Avatar> {
        self.0.iter().find(|a| a.pose_set.manifest().id == id)
    }

    /// The avatar with this `avatar_key_id`, else the first one.
    #[must_use]
    pub fn find_or_first(&self, id: &str) -> Option<&Avatar> {
        self.find(id).or_else(|| self.0.first())
    }

    /// All avatars.
    #[must_use]
    pub fn as_slice(&self) -> &[Avatar] {
        &self.0
    }

    /// The descriptions of all avatars for the control plane.
    #[must_use]
    pub fn stock_avatars(&self) -> Vec<StockAvatar> {
        self.0
            .iter()
            .map(|avatar| {
                let manifest = avatar.pose_set.manifest();
                StockAvatar {
                    avatar_key_id: manifest.id.clone(),
                    avatar_name: manifest.name.clone(),
                    gender: manifest.gender.clone(),
                    display_picture: avatar.display_picture.clone(),
                    voice: manifest.voice.clone(),
                }
            })
            .collect()
    }
}

/// The avatars that calls may show: the stock avatars, and custom avatars whose pose set comes with
/// a call. Concurrent calls share a custom pose set, and the last call frees it. While a custom
/// avatar is being drawn, partial pose sets arrive first. After an upgrade it may be drawn again.
/// All its calls switch to the best set that has arrived, but none to another framing or size: those
/// of a call are fixed at its start.
#[derive(Default)]
pub(crate) struct AvatarLibrary {
    stock: Avatars,
    /// The pose cache of each stock avatar, shared by all calls.
    stock_poses: Vec<Arc<PoseCache>>,
    custom: Mutex<CustomAvatars>,
}

#[derive(Default)]
struct CustomAvatars {
    /// The best pose set per avatar id, and its rank ([`PoseSetFile::rank`]).
    best: HashMap<String, ((u32, u8), Weak<PoseCache>)>,
    /// The latest set that arrived without a call. It is stored because a call with a less complete
    /// set may be about to start.
    latest: Option<Arc<PoseCache>>,
}

impl CustomAvatars {
    /// The best pose set of an avatar, if it has at least this rank.
    fn find(&self, id: &str, min_rank: (u32, u8)) -> Option<Arc<PoseCache>> {
        self.best
            .get(id)
            .filter(|(known, _)| *known >= min_rank)
            .and_then(|(_, poses)| poses.upgrade())
    }
}

impl AvatarLibrary {
    pub(crate) fn new(stock: Avatars) -> Self {
        let poses = stock
            .as_slice()
            .iter()
            .map(|avatar| Arc::new(PoseCache::new(Arc::clone(&avatar.pose_set))));
        Self { stock_poses: poses.collect(), stock, custom: Mutex::default() }
    }

    /// Resolves the avatar of a call; `None` if the server has no avatar. The second value is a
    /// warning for the agent's owner if it is not the requested avatar.
    #[expect(clippy::expect_used, reason = "each stock avatar has its pose cache")]
    pub(crate) fn resolve_avatar(
        &self,
        call: &CallConfig,
    ) -> (Option<Arc<PoseCache>>, Option<String>) {
        let id = &call.avatar.avatar_key_id;
        let custom = call.pose_set.as_ref().map(|face| self.load_custom(id, face));
        let poses_of = |avatar: &Avatar| {
            let found = self
                .stock_poses
                .iter()
                .find(|poses| Arc::ptr_eq(poses.pose_set(), &avatar.pose_set));
            Arc::clone(found.expect("each stock avatar has its pose cache"))
        };
        let (why, substitute) = match custom {
            Some(Ok(set)) => return (Some(set), None),
            Some(Err(error)) => {
                tracing::error!(
                    avatar = %id,
                    %error,
                    "cannot read the pose set of a call's avatar"
                );
                ("cannot be read", self.stock.find_or_first(id))
            }
            None => match self.stock.find(id) {
                Some(found) => return (Some(poses_of(found)), None),
                None => ("is missing", self.stock.find_or_first(id)),
            },
        };
        let warning = substitute.filter(|_| !id.is_empty()).map(|substitute| {
            let id: String = id.chars().take(40).collect();
            format!(
                "The avatar {id:?} {why}; the stock avatar {} is used.",
                substitute.pose_set.manifest().name
            )
        });
        (substitute.map(poses_of), warning)
    }

    /// Stores a better pose set of an avatar. Current calls switch to it, and new calls start with
    /// it.
    pub(crate) fn swap_pose_set(&self, id: &str, face: &PoseSetFile) {
        match self.load_custom(id, face) {
            Ok(poses) => self.lock_custom().latest = Some(poses),
            Err(error) => {
                tracing::error!(avatar = %id, %error, "cannot read the pose set of an avatar")
            }
        }
    }

    fn load_custom(&self, id: &str, face: &PoseSetFile) -> Result<Arc<PoseCache>, pose_set::Error> {
        if let Some(poses) = self.lock_custom().find(id, face.rank()) {
            return Ok(poses);
        }
        // Parsed without the lock, because it takes a few milliseconds. If two arrive at once, one
        // is discarded.
        let set = PoseSet::parse(&Bytes::from_owner(Arc::clone(&face.data)))?;
        let poses = Arc::new(PoseCache::new(Arc::new(set)));
        let mut custom = self.lock_custom();
        if let Some(poses) = custom.find(id, face.rank()) {
            return Ok(poses);
        }
        custom.best.retain(|_, (_, poses)| poses.strong_count() > 0);
        let replaced = custom.best.insert(id.to_owned(), (face.rank(), Arc::downgrade(&poses)));
        if let Some(replaced) = replaced.and_then(|(_, poses)| poses.upgrade())
            && is_shown_alike(&replaced, &poses)
        {
            replaced.set_upgrade(Arc::clone(&poses));
        }
        Ok(poses)
    }

    fn lock_custom(&self) -> MutexGuard<'_, CustomAvatars> {
        self.custom.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a running call may switch from one set to the other.
fn is_shown_alike(one: &PoseCache, other: &PoseCache) -> bool {
    let [one, other] = [one, other].map(|poses| poses.pose_set().manifest());
    (one.width, one.height, one.framing) == (other.width, other.height, other.framing)
}

#[cfg(test)]
mod tests {
    use conversation::id::ConversationId;
    use conversation::settings::AgentTurnConfig;
    use engine_api::AvatarChoice;
    use models::face::Framing;
    use models::face::pose_set::Manifest;

    use super::*;

    fn call(id: &str, own_face: Option<&[u8]>) -> CallConfig {
        let face = AvatarChoice { avatar_key_id: id.into(), frame_rate: 25 };
        let call =
            CallConfig::minimal(ConversationId(1), AgentTurnConfig::default().to_spec().unwrap());
        CallConfig { avatar: face, pose_set: own_face.map(|file| pose_set_file(file, 100)), ..call }
    }

    fn pose_set_file(file: &[u8], share: u8) -> PoseSetFile {
        PoseSetFile { data: file.into(), completeness: share, version: 3 }
    }

    #[test]
    fn calls_share_the_face_that_they_bring_and_the_last_one_takes_it_with_it() {
        let library = AvatarLibrary::new(Avatars::built_in().unwrap());
        // Any pose set will do, because it is found by the call's id and not by its own.
        let (file, _) = BUILT_IN_AVATARS[1];
        let (one, warning) = library.resolve_avatar(&call("zoe", Some(file)));
        let (other, _) = library.resolve_avatar(&call("zoe", Some(file)));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(Arc::ptr_eq(&one, &other) && warning.is_none());
        assert_eq!(one.pose_set().manifest().name, "Clara");
        drop((one, other));
        assert_eq!(library.lock_custom().best["zoe"].1.strong_count(), 0);
        assert!(library.resolve_avatar(&call("max", Some(file))).0.is_some());
        assert_eq!(library.lock_custom().best.len(), 1, "an unused avatar is removed");
    }

    #[test]
    fn calls_go_on_with_the_best_set_that_came() {
        let library = AvatarLibrary::new(Avatars::built_in().unwrap());
        let files = [BUILT_IN_AVATARS[1].0, BUILT_IN_AVATARS[2].0, BUILT_IN_AVATARS[3].0];
        let part = |share: u8| CallConfig {
            pose_set: Some(pose_set_file(files[usize::from(share)], share)),
            ..call("zoe", None)
        };
        let resolve = |share| library.resolve_avatar(&part(share)).0.unwrap();
        let first = resolve(0);
        assert!(first.upgrade().is_none());
        library.swap_pose_set("zoe", &pose_set_file(files[1], 1));
        let second = Arc::clone(first.upgrade().unwrap());
        assert_eq!(second.pose_set().manifest().name, "Martin");
        assert!(
            Arc::ptr_eq(&resolve(0), &second),
            "a later call with a smaller set starts with the better set"
        );
        // This happens if another server drew the set, and only the next call brings it.
        let third = resolve(2);
        assert!(Arc::ptr_eq(second.upgrade().unwrap(), &third));
        library.swap_pose_set("zoe", &pose_set_file(files[1], 1));
        library.swap_pose_set("zoe", &pose_set_file(b"x", 3));
        assert!(
            third.upgrade().is_none() && Arc::ptr_eq(&resolve(0), &third),
            "never back, and never to an invalid set"
        );
        drop((first, second, third));
        assert_eq!(
            library.lock_custom().best["zoe"].1.strong_count(),
            1,
            "the last announced set is kept"
        );
        library.swap_pose_set("max", &pose_set_file(files[0], 1));
        assert_eq!(library.lock_custom().best["zoe"].1.strong_count(), 0);
    }

    #[test]
    fn calls_go_on_with_a_renewed_set_of_the_same_framing() {
        let library = AvatarLibrary::new(Avatars::built_in().unwrap());
        let files = [BUILT_IN_AVATARS[1].0, BUILT_IN_AVATARS[2].0];
        let renewed = |version: u32, file: &[u8]| PoseSetFile {
            version,
            ..pose_set_file(file, if version == 4 { 40 } else { 100 })
        };
        let old = library.resolve_avatar(&call("zoe", Some(files[0]))).0.unwrap();
        library.swap_pose_set("zoe", &renewed(2, files[1]));
        assert!(old.upgrade().is_none(), "never to an older version");
        library.swap_pose_set("zoe", &renewed(4, files[1]));
        let new = old.upgrade().unwrap();
        assert_eq!(new.pose_set().manifest().name, "Martin");
        let again = library.resolve_avatar(&call("zoe", Some(files[0]))).0.unwrap();
        assert!(Arc::ptr_eq(new, &again), "a call with the old set starts with the new one");
        let manifest = new.pose_set().manifest();
        let framing = match manifest.framing {
            Framing::Close => Framing::Bust,
            Framing::Bust => Framing::Close,
        };
        for other in [
            Manifest { framing, ..manifest.clone() },
            Manifest { width: manifest.height + 2, ..manifest.clone() },
        ] {
            let other = reframed(new.pose_set(), other);
            library.swap_pose_set("zoe", &renewed(5, &other));
            assert!(again.upgrade().is_none(), "its framing and size are fixed");
            let next = library.resolve_avatar(&call("zoe", Some(&other))).0.unwrap();
            assert!(!Arc::ptr_eq(&next, &again), "the next call starts with them");
            library.lock_custom().latest = None;
            drop(next);
            library.lock_custom().best.insert("zoe".into(), ((4, 40), Arc::downgrade(&again)));
        }
    }

    /// The file of a set with another description, without the pictures that do not matter.
    fn reframed(set: &PoseSet, manifest: Manifest) -> Vec<u8> {
        let poses: Vec<Vec<Bytes>> = set
            .manifest()
            .frames
            .iter()
            .map(|(_, levels)| levels.iter().map(|_| Bytes::from_static(b"x")).collect())
            .collect();
        let anchors = manifest.anchors.iter().map(|_| Bytes::from_static(b"x")).collect();
        PoseSet::new(manifest, Bytes::from_static(b"x"), anchors, poses).unwrap().to_bytes()
    }

    #[test]
    fn an_unavailable_avatar_is_replaced_and_reported() {
        let library = AvatarLibrary::new(Avatars::built_in().unwrap());
        for (call, why) in
            [(call("zoe", None), "is missing"), (call("zoe", Some(b"x")), "cannot be read")]
        {
            let (set, warning) = library.resolve_avatar(&call);
            assert_eq!(set.unwrap().pose_set().manifest().id, "theo");
            assert_eq!(
                warning.unwrap(),
                format!("The avatar \"zoe\" {why}; the stock avatar Theo is used.")
            );
        }
        for id in ["mei", ""] {
            let [one, other] = [0, 1].map(|_| library.resolve_avatar(&call(id, None)));
            assert_eq!(one.1, None, "{id}");
            assert!(Arc::ptr_eq(&one.0.unwrap(), &other.0.unwrap()), "calls share the pose set");
        }
        let (set, warning) = AvatarLibrary::default().resolve_avatar(&call("zoe", None));
        assert!(set.is_none() && warning.is_none());
    }
}
