//! Writing an image (or a text beside it) to disk whole: temporary name, fsync, rename, fsync of the folder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::Body;
use engine::model::failpoint::hit_file;

/// Bytes copied at a time.
const CHUNK: usize = 256 * 1024;

/// Writes a body under `name` in `folder`, which is made when it is not there. Blocks on the disk.
pub fn write_image(folder: &Path, name: &str, body: &Body) -> io::Result<()> {
    whole(folder, name, |file| {
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

/// Writes bytes under `name` in `folder`, which is made when it is not there. Blocks on the disk.
pub fn write_bytes(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    whole(folder, name, |file| file.write_all(bytes))
}

fn whole(folder: &Path, name: &str, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let partial = folder.join(format!(".{name}.partial"));
    // A task image holds the secrets of its job.
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
    fn what_is_written_is_the_body_and_nothing_partial_stays() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..600_000_u32).map(|n| n as u8).collect();
        let target = folder.path().join("job");
        write_image(&target, "task.iso", &Body::from_bytes(bytes.clone())).unwrap();
        assert_eq!(fs::read(target.join("task.iso")).unwrap(), bytes);
        assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
    }
}
