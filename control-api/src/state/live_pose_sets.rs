//! Pose sets of custom avatars that running calls show.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use engine_api::PoseSetFile;

/// A [`PoseSetFile`] that calls own.
struct CachedPoseSet {
    data: Weak<[u8]>,
    completeness: u8,
}

/// The cached pose sets, by avatar.
#[derive(Default)]
pub(crate) struct LivePoseSets(Mutex<HashMap<String, CachedPoseSet>>);

impl LivePoseSets {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, CachedPoseSet>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pose set of an avatar, if a call uses it and it is complete to at least `percent`.
    pub(crate) fn get(&self, id: &str, percent: i64) -> Option<PoseSetFile> {
        let cache = self.lock();
        let cached = cache.get(id).filter(|cached| i64::from(cached.completeness) >= percent)?;
        Some(PoseSetFile { data: cached.data.upgrade()?, completeness: cached.completeness })
    }

    /// Caches a pose set for further calls, as long as one call uses it.
    pub(crate) fn insert(&self, id: String, pose_set: &PoseSetFile) {
        let cached = CachedPoseSet {
            data: Arc::downgrade(&pose_set.data),
            completeness: pose_set.completeness,
        };
        let mut cache = self.lock();
        cache.retain(|_, cached| cached.data.strong_count() > 0);
        cache.insert(id, cached);
    }
}
