//! An import that fails at any disk operation leaves nothing unfinished, and the next one completes it.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::digest::{Algorithm, Digest};
use crate::name::RepositoryName;
use crate::store::Store;
use crate::store::faults::recorder::{Failure, Recorder};
use crate::store::faults::script::{IMAGE, INDEX, image, index};
use crate::store::faults::{directory, open};

/// A layout with an index of two images that share a layer.
fn write_layout(root: &Path) {
    let contents = [b"{}".to_vec(), b"shared".to_vec(), b"own".to_vec()];
    let images = [image(b"{}", &[b"shared"], "one"), image(b"{}", &[b"shared", b"own"], "other")];
    let list = index(&[&images[0], &images[1]]);
    std::fs::create_dir_all(root.join("blobs/sha256")).unwrap();
    for content in contents.iter().chain(&images).chain([&list]) {
        let digest = Digest::of(Algorithm::Sha256, content);
        std::fs::write(root.join("blobs/sha256").join(digest.hex()), content).unwrap();
    }
    let entry = |kind: &str, content: &[u8], tag: &str| {
        let digest = Digest::of(Algorithm::Sha256, content).to_string();
        let annotations = serde_json::json!({"org.opencontainers.image.ref.name": tag});
        serde_json::json!({"mediaType": kind, "digest": digest, "size": content.len(), "annotations": annotations})
    };
    let entries = [entry(INDEX, &list, "all"), entry(IMAGE, &images[1], "v1")];
    let top = serde_json::json!({"schemaVersion": 2, "manifests": entries});
    std::fs::write(root.join("index.json"), top.to_string()).unwrap();
}

fn export(store: &Arc<Store>, name: &RepositoryName) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.export(name, None, &mut bytes).unwrap();
    bytes
}

#[test]
fn an_import_that_fails_at_any_step_leaves_nothing_unfinished_and_the_next_completes_it() {
    let source = directory();
    write_layout(source.path());
    let name: RepositoryName = "a".parse().unwrap();
    let reference = {
        let root = directory();
        let store = open(root.path(), None).unwrap();
        store.import(source.path(), &name).unwrap();
        export(&store, &name)
    };
    for kind in [ErrorKind::Other, ErrorKind::StorageFull, ErrorKind::WriteZero] {
        let mut failures = 0;
        for step in 0.. {
            let root = directory();
            let recorder = Arc::new(Recorder::new(root.path(), Some((step, Failure::Once(kind))), None));
            let Ok(store) = open(root.path(), Some(Arc::clone(&recorder))) else { continue };
            let imported = store.import(source.path(), &name);
            if !recorder.failed() {
                imported.unwrap();
                break;
            }
            failures += usize::from(imported.is_err());
            assert!(store.sessions.lock().is_empty(), "{kind:?} at step {step}");
            let left = |directory: &str| root.path().join(directory).read_dir().unwrap().count();
            assert_eq!((left("uploads"), left("tmp")), (0, 0), "{kind:?} at step {step}");
            store
                .import(source.path(), &name)
                .unwrap_or_else(|error| panic!("{kind:?} at step {step}: {error}"));
            assert_eq!(export(&store, &name), reference);
        }
        assert!(failures > 40, "an import has only {failures} steps that can fail");
    }
}
