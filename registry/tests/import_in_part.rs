//! Imports that leave something out, or are refused because they would: every image that was left out is named.

use std::collections::BTreeSet;
use std::fs;

use registry::Error;
use serde_json::{Value, json};

use crate::import::{Importer, archive, blob_path, file, index_of, tagged};
use crate::support::{IMAGE, image, sha256};

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

#[tokio::test]
async fn different_images_with_different_names_for_one_tag_are_refused_before_anything_is_stored() {
    let importer = Importer::new().await;
    let saved = |images: &[(&str, &[&str])]| {
        let rows: Vec<Value> = images
            .iter()
            .map(|(config, names)| json!({"Config": config, "RepoTags": names, "Layers": ["layer.tar"]}))
            .collect();
        let manifest = json!(rows).to_string().into_bytes();
        archive(&[
            file("manifest.json", &manifest),
            file("one.json", b"{}"),
            file("two.json", b"{ }"),
            file("layer.tar", b"layer"),
        ])
    };
    let [one, two] = [image(b"{}", &[b"layer"]), image(b"{}", &[])];
    let listed = |entries: &[(&[u8], Option<&str>, &str)]| {
        let rows: Vec<Value> = entries
            .iter()
            .map(|(document, full, name)| {
                let mut entry = tagged(IMAGE, document, name);
                if let Some(full) = full {
                    entry["annotations"]["io.containerd.image.name"] = json!(full);
                }
                entry
            })
            .collect();
        let index = index_of(&rows);
        archive(&[
            file("index.json", &index),
            file(blob_path(&one), &one),
            file(blob_path(&two), &two),
            file(blob_path(b"{}"), b"{}"),
            file(blob_path(b"layer"), b"layer"),
        ])
    };
    let (a, b) = ("docker.io/library/a:1.0", "docker.io/library/b:1.0");
    for refused in [
        saved(&[("one.json", &["a:1.0"]), ("two.json", &["b:1.0"])]),
        saved(&[("one.json", &["a:1.0", "b:1.0"]), ("two.json", &["a:1.0"])]),
        listed(&[(&one, Some(a), "1.0"), (&two, Some(b), "1.0")]),
        listed(&[(&one, None, "a:1.0"), (&two, None, "b:1.0")]),
    ] {
        let why = importer.import_bytes(&refused).await.unwrap_err();
        assert!(matches!(&why, Error::AmbiguousTag { tag, .. } if tag.as_str() == "1.0"), "{why:?}");
        let why = why.to_string();
        assert!(why.contains("a:1.0") && why.contains("b:1.0"), "{why}");
    }
    assert_eq!(importer.server.registry.repositories().await, [], "nothing was imported");
    // One image with two names, another tag, and entries that do not differ by name.
    for (accepted, tags) in [
        (saved(&[("one.json", &["a:1.0"]), ("one.json", &["b:1.0"])]), 1),
        (saved(&[("one.json", &["a:1.0"]), ("two.json", &["b:2.0"])]), 2),
        (saved(&[("one.json", &["a:1.0"]), ("two.json", &["a:1.0"])]), 1),
        (listed(&[(&one, Some(a), "1.0"), (&one, Some(b), "1.0")]), 1),
        (listed(&[(&one, Some(a), "1.0"), (&two, Some(a), "1.0")]), 1),
        (listed(&[(&two, Some(a), "1.0"), (&one, None, "1.0")]), 1),
    ] {
        assert_eq!(importer.import_bytes(&accepted).await.unwrap().tags.len(), tags);
    }
    assert_eq!(importer.tag("1.0").await, one, "the later entry counts");
}
