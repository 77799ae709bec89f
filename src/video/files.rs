//! Files that appear under their names when they are complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::thread;

use tokio::signal::unix::{SignalKind, signal};

use crate::deliver::part_of;

/// Exit status of a program that a signal has ended, as shells report it.
const INTERRUPTED: u8 = 130;
const TERMINATED: u8 = 143;

/// Removes these files and folders when a person ends this process: its parts must not stay.
pub(super) fn remove_at_signal(paths: Vec<PathBuf>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let guard = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    drop(guard);
    let work = move || {
        let status = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => INTERRUPTED,
                _ = terminate.recv() => TERMINATED,
            }
        });
        for path in paths {
            // Each is a file, a folder, or not there.
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
        models::exit_process(status)
    };
    thread::Builder::new().name("signals".into()).spawn(work)?;
    Ok(())
}

/// A file that is being written. It is removed if it is not completed.
pub(super) struct Part {
    file: BufWriter<File>,
    path: PathBuf,
    out: PathBuf,
    is_complete: bool,
}

impl Part {
    /// Begins the file `out`. An earlier file of this name stays until it is complete.
    pub(super) fn create(out: &Path) -> io::Result<Self> {
        let path = part_of(out);
        let file = BufWriter::new(File::create(&path)?);
        Ok(Self { file, path, out: out.to_owned(), is_complete: false })
    }

    pub(super) fn file(&mut self) -> &mut BufWriter<File> {
        &mut self.file
    }

    /// Where it is written.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name.
    pub(super) fn complete(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(&self.path, &self.out)?;
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_complete {
            // It may be gone already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A folder for what a conversion needs. It is removed in the end.
pub(super) struct WorkFolder(PathBuf);

impl WorkFolder {
    /// A folder beside the file `out`.
    pub(super) fn beside(out: &Path) -> io::Result<Self> {
        let path = Self::path_beside(out);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Where that folder is.
    pub(super) fn path_beside(out: &Path) -> PathBuf {
        let mut name = out.as_os_str().to_owned();
        // No folder of the user has this name.
        name.push(format!(".{}.work", std::process::id()));
        name.into()
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // Nothing depends on it.
        let _ = fs::remove_dir_all(&self.0);
    }
}
