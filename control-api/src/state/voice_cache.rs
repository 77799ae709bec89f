//! Voices of vendors, so that a search in them asks the vendor once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use models::tts::ListedVoice;

use crate::state::api_key::KeyHash;

/// How long a list is used.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Maximum number of lists. A list has up to some thousand voices.
const MAX_LISTS: usize = 64;

/// The account whose voices are listed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct VoiceAccount {
    pub(crate) workspace: Arc<str>,
    /// Name of the provider.
    pub(crate) provider: String,
    /// Hash of the workspace's address and key. A new key has other voices.
    pub(crate) access: KeyHash,
}

type Lists = HashMap<VoiceAccount, (Instant, Arc<[ListedVoice]>)>;

/// The lists of the last hour.
#[derive(Default)]
pub(crate) struct VoiceCache(Mutex<Lists>);

impl VoiceCache {
    /// The list of an account, unless it is too old.
    pub(crate) fn get(&self, account: &VoiceAccount, now: Instant) -> Option<Arc<[ListedVoice]>> {
        let lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, voices) = lists.get(account)?;
        (now.saturating_duration_since(*at) < LIFETIME).then(|| Arc::clone(voices))
    }

    /// Stores a list; if there are too many, the oldest one is dropped.
    pub(crate) fn insert(&self, account: VoiceAccount, voices: Arc<[ListedVoice]>, now: Instant) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|_, (at, _)| now.saturating_duration_since(*at) < LIFETIME);
        if lists.len() >= MAX_LISTS && !lists.contains_key(&account) {
            let oldest = lists.iter().min_by_key(|(_, (at, _))| *at);
            if let Some(oldest) = oldest.map(|(account, _)| account.clone()) {
                lists.remove(&oldest);
            }
        }
        lists.insert(account, (now, voices));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(workspace: &str, key: u8) -> VoiceAccount {
        VoiceAccount { workspace: workspace.into(), provider: "cartesia".into(), access: [key; 32] }
    }

    #[test]
    fn a_list_belongs_to_its_account_for_an_hour() {
        let (cache, start) = (VoiceCache::default(), Instant::now());
        let voice = ListedVoice { id: "v".into(), ..ListedVoice::default() };
        cache.insert(account("a", 1), [voice].into(), start);
        let later = start + Duration::from_secs(3599);
        assert_eq!(cache.get(&account("a", 1), later).map(|voices| voices.len()), Some(1));
        assert!(cache.get(&account("b", 1), start).is_none(), "another workspace");
        assert!(cache.get(&account("a", 2), start).is_none(), "another key");
        assert!(cache.get(&account("a", 1), start + LIFETIME).is_none());
    }

    #[test]
    fn the_oldest_of_too_many_lists_is_dropped() {
        let (cache, start) = (VoiceCache::default(), Instant::now());
        for number in 0..=MAX_LISTS {
            let at = start + Duration::from_secs(number as u64);
            cache.insert(account(&number.to_string(), 0), [].into(), at);
        }
        assert!(cache.get(&account("0", 0), start).is_none());
        assert!(cache.get(&account("1", 0), start).is_some());
        assert_eq!(cache.0.lock().unwrap().len(), MAX_LISTS);
    }
}
