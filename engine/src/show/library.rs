//! The people that this server can show.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
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
