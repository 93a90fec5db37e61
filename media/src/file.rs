//! Atomic writes of images and texts: temporary name, fsync, rename, fsync of the directory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::ImageBody;
use model::failpoint::hit_file;

/// Bytes copied at a time.
const CHUNK: usize = 256 * 1024;

/// Writes a body to the file `name` in `folder` and creates the folder if needed. Blocks on the disk.
///
/// # Errors
/// When the body cannot be read or the file cannot be written. A previous file `name` is then unchanged.
pub fn write_image(folder: &Path, name: &str, body: &ImageBody) -> io::Result<()> {
    write_atomically(folder, name, |file| {
        let mut buffer = vec![0; CHUNK];
        let mut offset = 0;
        while offset < body.len() {
            let wanted = usize::try_from(body.len() - offset).unwrap_or(CHUNK).min(CHUNK);
            let part = &mut buffer[..wanted];
            body.read_exact_at(offset, part)?;
            file.write_all(part)?;
            offset += wanted as u64;
        }
        Ok(())
    })
}

/// Writes bytes to the file `name` in `folder` and creates the folder if needed. Blocks on the disk.
///
/// # Errors
/// When the file cannot be written. A previous file `name` is then unchanged.
pub fn write_bytes(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    write_atomically(folder, name, |file| file.write_all(bytes))
}

/// Creates a directory and its missing parents, open to their owner only. An existing one is not changed.
pub(super) fn create_private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn write_atomically(
    folder: &Path,
    name: &str,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    create_private_directory(folder)?;
    let partial = folder.join(format!(".{name}.partial"));
    // Mode 0600, because a task image contains the secrets of its job.
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    fill(&mut file)?;
    hit_file("write", name);
    file.sync_all()?;
    hit_file("synced", name);
    fs::rename(&partial, folder.join(name))?;
    hit_file("renamed", name);
    File::open(folder)?.sync_all()?;
    hit_file("kept", name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_written_file_equals_the_body_and_no_partial_file_remains() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..600_000_u32).map(|n| n as u8).collect();
        let target = folder.path().join("job");
        write_image(&target, "task.iso", &ImageBody::from_bytes(bytes.clone())).unwrap();
        assert_eq!(fs::read(target.join("task.iso")).unwrap(), bytes);
        assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
    }
}
