//! `[models]`.

use std::path::PathBuf;

use models::paths;
use serde::Deserialize;

/// `[models]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Models {
    /// `None`: the first standard folder that exists.
    pub(crate) dir: Option<PathBuf>,
}

impl Models {
    /// The folder with the models, absolute: messages about its files name it.
    pub(crate) fn folder(&self) -> PathBuf {
        let folder = paths::models_dir(self.dir.as_deref());
        std::path::absolute(&folder).unwrap_or(folder)
    }

    /// Why there is no folder with models, in one sentence; `None` if there is one.
    pub(crate) fn missing_reason(&self) -> Option<String> {
        paths::missing_models_dir(self.dir.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_folder_that_does_not_exist_is_named_with_its_key() {
        let configured = Models { dir: Some("/no/such/folder".into()) };
        assert_eq!(configured.folder(), PathBuf::from("/no/such/folder"));
        let reason = configured.missing_reason().unwrap();
        assert_eq!(reason, "the folder /no/such/folder (models.dir) does not exist");
        let there = Models { dir: Some(std::env::temp_dir()) };
        assert_eq!(there.missing_reason(), None);
    }
}
