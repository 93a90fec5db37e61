//! Imports that leave something out, or are refused because they would: every image that was left out is named.

use std::collections::BTreeSet;
use std::fs;

use registry::Error;

use crate::import::Importer;
use crate::support::{image, sha256};

#[tokio::test]
async fn a_broken_tag_of_another_registry_is_reported_and_the_others_are_imported() {
    let importer = Importer::new().await;
    let root = "docker/registry/v2";
    let blob_path = |content: &[u8]| {
        let hex = sha256(content).hex().to_owned();
        format!("{root}/blobs/sha256/{}/{hex}/data", &hex[..2])
    };
    let link_of =
        |name: &str, tag: &str| format!("{root}/repositories/{name}/_manifests/tags/{tag}/current/link");
    let [whole, lacking, altered] =
        [image(b"{}", &[b"layer"]), image(b"{}", &[b"lost"]), image(b"{}", &[b"altered"])];
    let (stored, spoiled) = ([whole.as_slice(), &lacking, &altered, b"{}", b"layer"], blob_path(b"altered"));
    let stored = stored.map(|content| (blob_path(content), content));
    let gone = sha256(b"a manifest that is gone").to_string();
    let digests = [&whole, &lacking, &altered].map(|document| sha256(document).to_string());
    let links = [
        (link_of("os/a", "v1"), digests[0].as_bytes()),
        (link_of("os/a", "v2"), digests[1].as_bytes()),
        (link_of("os/a", "v3"), digests[2].as_bytes()),
        (link_of("os/a", "v4"), gone.as_bytes()),
        (link_of("os/a", "v5"), digests[0].as_bytes()),
        (link_of("os/b", "v1"), digests[0].as_bytes()),
    ];
    let files: Vec<(&str, &[u8])> =
        stored.iter().chain(&links).map(|(path, content)| (path.as_str(), *content)).collect();
    let tree = importer.directory("tree", &[files.as_slice(), &[(&spoiled, b"other bytes")]].concat());
    let imported = importer.server.registry.import_registry(&tree).await.unwrap();
    let (a, b) = (&imported[&"os/a".parse().unwrap()], &imported[&"os/b".parse().unwrap()]);
    assert_eq!(a.tags, BTreeSet::from(["v1", "v5"].map(|tag| tag.parse().unwrap())));
    assert_eq!((b.tags.len(), b.failed.len()), (1, 0));
    for (tag, why) in
        [("v2", sha256(b"lost").to_string()), ("v3", sha256(b"altered").to_string()), ("v4", gone.clone())]
    {
        assert!(a.failed[&tag.parse().unwrap()].contains(&why), "{:?}", a.failed);
    }
    assert_eq!(a.failed.len(), 3);
    assert_eq!(fs::read_dir(importer.server.root().join("uploads")).unwrap().count(), 0);

    // What every further image would meet ends the import.
    importer.server.registry.set_read_only(Some("moving".to_owned()));
    let refused = importer.server.registry.import_registry(&tree).await;
    assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
}
