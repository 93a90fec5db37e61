//! The view of this crate's reader of an image.

use std::ops::ControlFlow;

use iso9660::{EntryKind, Image, ReadAt};

use crate::listing::{Item, Kind, Listing};

/// Returns the tree of the namespace by which the image was opened, with the hash of every file.
pub(crate) fn listing<S: ReadAt>(image: &Image<S>) -> Result<Listing, String> {
    let mut items = Vec::new();
    let mut failed = None;
    let walked = image.walk(|path, entry| {
        let kind = match &entry.kind {
            EntryKind::Directory => Kind::Directory,
            EntryKind::Symlink(target) => Kind::Symlink(target.clone()),
            _ => match read(image, path, entry) {
                Ok(kind) => kind,
                Err(error) => {
                    failed = Some(format!("{path:?}: {error}"));
                    return ControlFlow::Break(());
                }
            },
        };
        let (mode, modified) = (entry.mode.map(|mode| mode & 0o7777), entry.modified);
        items.push(Item { path: path.to_owned(), kind, mode, modified });
        ControlFlow::Continue(())
    });
    walked.map_err(|error| error.to_string())?;
    failed.map_or(Ok(Listing(items)), Err)
}

fn read<S: ReadAt>(image: &Image<S>, path: &str, entry: &iso9660::Entry) -> Result<Kind, String> {
    let file = image.reader(entry, path).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; usize::try_from(file.len()).unwrap()];
    file.read_exact_at(0, &mut bytes).map_err(|error| error.to_string())?;
    Ok(Kind::file(&bytes))
}
