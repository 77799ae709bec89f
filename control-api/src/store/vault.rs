//! The key files of the data folder: one signs tokens, one encrypts the secrets of the store.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};

use crate::secret_key::KEY_LEN;

/// Reads the 32 bytes of a key file; creates it if it does not exist. Only its owner may read it.
///
/// # Errors
/// The folder cannot be written, or the file has another length.
pub(crate) fn load_or_create_key(path: &Path) -> io::Result<[u8; KEY_LEN]> {
    let mut key = [0; KEY_LEN];
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // Written under a temporary name and then linked, so that no process reads a partial key.
    let new_file = path.with_extension(format!("{}.new", std::process::id()));
    if !path.exists() {
        fill_random(&mut key);
        let _ = fs::remove_file(&new_file);
        let mut file = options.open(&new_file)?;
        file.write_all(&key)?;
        file.sync_all()?;
        let linked = fs::hard_link(&new_file, path);
        fs::remove_file(&new_file)?;
        match linked {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    let mut file = fs::File::open(path)?;
    file.read_exact(&mut key)?;
    if file.read(&mut [0])? != 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is not a key file", path.display()),
        ));
    }
    Ok(key)
}

/// Identifies keys without revealing anything about them.
pub(crate) fn fingerprint(keys: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, keys);
    digest.as_ref().iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// Fills `bytes` from the system's random generator.
#[expect(clippy::expect_used, reason = "the system's random generator works")]
pub(crate) fn fill_random(bytes: &mut [u8]) {
    // The system's generator fails only when the process cannot continue anyway.
    SystemRandom::new().fill(bytes).expect("the system's random generator works");
}

/// A secret cannot be decrypted: another key file, or a corrupt row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored secret cannot be decrypted with this data folder's key")]
pub(crate) struct DecryptError;

/// Encrypts the secrets of the store with AES-256-GCM; a random nonce precedes the ciphertext.
pub(crate) struct Vault(LessSafeKey);

impl Vault {
    #[expect(clippy::expect_used, reason = "an AES-256 key has 32 bytes")]
    pub(crate) fn new(key: &[u8; KEY_LEN]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("an AES-256 key has 32 bytes");
        Self(LessSafeKey::new(key))
    }

    /// Encrypts `plain`, bound to `owner` (the row's id), so that it cannot be moved to another
    /// row.
    #[expect(clippy::expect_used, reason = "a secret is shorter than the limit of AES-GCM")]
    pub(crate) fn seal(&self, owner: &str, plain: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        fill_random(&mut nonce);
        let mut sealed = plain.to_vec();
        let tag = self
            .0
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(owner),
                &mut sealed,
            )
            .expect("a secret is shorter than the limit of AES-GCM");
        [&nonce[..], &sealed, tag.as_ref()].concat()
    }

    /// Decrypts the output of [`Vault::seal`] for the same `owner`.
    pub(crate) fn open(&self, owner: &str, sealed: &[u8]) -> Result<Vec<u8>, DecryptError> {
        let (nonce, rest) = sealed.split_at_checked(NONCE_LEN).ok_or(DecryptError)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| DecryptError)?;
        let mut bytes = rest.to_vec();
        let length = self
            .0
            .open_in_place(nonce, Aad::from(owner), &mut bytes)
            .map_err(|_| DecryptError)?
            .len();
        bytes.truncate(length);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_only_for_its_row_and_with_its_key() {
        let vault = Vault::new(&[7; 32]);
        let sealed = vault.seal("agent 1", b"token");
        assert_eq!(vault.open("agent 1", &sealed).unwrap(), b"token");
        assert_eq!(vault.open("agent 2", &sealed), Err(DecryptError));
        assert_eq!(Vault::new(&[8; 32]).open("agent 1", &sealed), Err(DecryptError));
        assert_eq!(vault.open("agent 1", b"short"), Err(DecryptError));
        assert!(!sealed.windows(5).any(|w| w == b"token"));
    }

    #[test]
    fn a_key_file_is_made_once_and_read_by_its_owner_only() {
        let dir = std::env::temp_dir().join(format!("visavis-vault-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("secrets.key");
        let key = load_or_create_key(&path).unwrap();
        assert_eq!(load_or_create_key(&path).unwrap(), key);
        #[cfg(unix)]
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions())
                & 0o777,
            0o600
        );
        fs::write(&path, b"short").unwrap();
        assert!(load_or_create_key(&path).is_err());
        fs::remove_dir_all(dir).unwrap();
    }
}
