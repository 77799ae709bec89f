//! Pose sets of custom avatars that running calls show.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use engine_api::PoseSetFile;

/// A [`PoseSetFile`] that calls own.
struct CachedPoseSet {
    data: Weak<[u8]>,
    completeness: u8,
    version: u32,
}

/// The cached pose sets, by avatar.
#[derive(Default)]
pub(crate) struct LivePoseSets(Mutex<HashMap<String, CachedPoseSet>>);

impl LivePoseSets {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, CachedPoseSet>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pose set of an avatar, if a call uses it and it has at least this rank: the version that
    /// drew it, then its completeness in percent.
    pub(crate) fn get(&self, id: &str, min_rank: (i64, i64)) -> Option<PoseSetFile> {
        let cache = self.lock();
        let &CachedPoseSet { ref data, completeness, version } = cache.get(id)?;
        if (i64::from(version), i64::from(completeness)) < min_rank {
            return None;
        }
        Some(PoseSetFile { data: data.upgrade()?, completeness, version })
    }

    /// Caches a pose set for further calls, as long as one call uses it.
    pub(crate) fn insert(&self, id: String, pose_set: &PoseSetFile) {
        let cached = CachedPoseSet {
            data: Arc::downgrade(&pose_set.data),
            completeness: pose_set.completeness,
            version: pose_set.version,
        };
        let mut cache = self.lock();
        cache.retain(|_, cached| cached.data.strong_count() > 0);
        cache.insert(id, cached);
    }
}
