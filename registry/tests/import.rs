//! Malicious archives and directories are refused with a reason, in little time, and nothing of them stays; unusual
//! valid ones are imported.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use registry::{Error, Imported, RepositoryName};
use serde_json::{Value, json};

use crate::support::{CONFIG, IMAGE, INDEX, LAYER, Server, descriptor, header, image, noise, sha256, sha512};

const NAME: &str = "os/imported";

/// One entry of an archive, with arbitrary header fields.
pub(crate) struct Entry<'a> {
    kind: u8,
    name: String,
    link: String,
    /// The size in the header, when it is not the length of the body.
    size: Option<u64>,
    body: &'a [u8],
}

pub(crate) fn file(name: impl Into<String>, body: &[u8]) -> Entry<'_> {
    special(b'0', name, None, body)
}

fn special(kind: u8, name: impl Into<String>, size: Option<u64>, body: &[u8]) -> Entry<'_> {
    Entry { kind, name: name.into(), link: String::new(), size, body }
}

fn link(kind: u8, name: impl Into<String>, link: &str) -> Entry<'static> {
    Entry { link: link.to_owned(), ..special(kind, name, None, b"") }
}

pub(crate) fn archive(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        let mut head = tar::Header::new_gnu();
        let raw = head.as_mut_bytes();
        raw[..entry.name.len()].copy_from_slice(entry.name.as_bytes());
        raw[157..157 + entry.link.len()].copy_from_slice(entry.link.as_bytes());
        raw[156] = entry.kind;
        head.set_size(entry.size.unwrap_or(entry.body.len() as u64));
        head.set_cksum();
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(entry.body);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let record = |(key, value): &(&str, &str)| {
        let rest = format!(" {key}={value}\n");
        let digits = if rest.len() + 2 < 100 { 2 } else { 3 };
        format!("{}{rest}", rest.len() + digits)
    };
    records.iter().map(record).collect::<String>().into_bytes()
}

pub(crate) fn index_of(entries: &[Value]) -> Vec<u8> {
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string().into_bytes()
}

pub(crate) fn tagged(kind: &str, content: &[u8], tag: &str) -> Value {
    let mut entry = descriptor(kind, content);
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
    entry
}

pub(crate) fn blob_path(content: &[u8]) -> String {
    format!("blobs/sha256/{}", sha256(content).hex())
}

/// An archive of one image, `v1`, and its parts.
fn valid_archive() -> (Vec<u8>, Vec<u8>) {
    let document = image(b"{}", &[b"layer"]);
    let index = index_of(&[tagged(IMAGE, &document, "v1")]);
    let entries = [
        file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#),
        file("index.json", &index),
        file(blob_path(&document), &document),
        file(blob_path(b"{}"), b"{}"),
        file(blob_path(b"layer"), b"layer"),
    ];
    (archive(&entries), document)
}

pub(crate) struct Importer {
    pub(crate) server: Server,
    scratch: tempfile::TempDir,
}

impl Importer {
    pub(crate) async fn new() -> Self {
        Importer { server: Server::start().await, scratch: tempfile::tempdir().unwrap() }
    }

    fn name() -> RepositoryName {
        NAME.parse().unwrap()
    }

    async fn import(&self, path: &Path) -> Result<Imported, Error> {
        let imported = self.server.registry.import(path, &Self::name()).await;
        for left in ["uploads", "tmp", "states"] {
            let left: Vec<_> = fs::read_dir(self.server.root().join(left)).unwrap().collect();
            // Temporary files of layouts come and go by themselves.
            assert!(left.iter().flatten().all(|entry| entry.file_name().len() < 40), "{left:?}");
        }
        imported
    }

    pub(crate) async fn import_bytes(&self, archive: &[u8]) -> Result<Imported, Error> {
        let path = self.scratch.path().join("archive.tar");
        fs::write(&path, archive).unwrap();
        self.import(&path).await
    }

    async fn refused(&self, archive: &[u8]) -> String {
        match self.import_bytes(archive).await {
            Err(Error::NotAnArchive(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn directory(&self, name: &str, files: &[(&str, &[u8])]) -> PathBuf {
        let root = self.scratch.path().join(name);
        fs::create_dir_all(&root).unwrap();
        for (path, content) in files {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), content).unwrap();
        }
        root
    }

    /// The content of this tag in the registry.
    pub(crate) async fn tag(&self, tag: &str) -> Vec<u8> {
        let response = self.server.get(&format!("/v2/{NAME}/manifests/{tag}")).await;
        assert_eq!(response.status(), 200, "{tag}");
        response.bytes().await.unwrap().to_vec()
    }

    async fn has(&self, content: &[u8]) -> bool {
        self.server.head(&format!("/v2/{NAME}/blobs/{}", sha256(content))).await.status() == 200
    }
}

#[tokio::test]
async fn content_listed_a_million_times_is_imported_once() {
    let importer = Importer::new().await;
    let document = image(b"{}", &[b"layer"]);
    let mut files = vec![document.clone(), b"{}".to_vec(), b"layer".to_vec()];
    // Each level lists the one below 100 times: 10^24 manifests in a few kilobytes.
    let mut top = (IMAGE, document);
    for _ in 0..12 {
        let level = index_of(&vec![descriptor(top.0, &top.1); 100]);
        files.push(level.clone());
        top = (INDEX, level);
    }
    let listed: Vec<Value> = (0..500).map(|_| tagged(INDEX, &top.1, "same")).collect();
    let root = importer.directory("layout", &[("index.json", &index_of(&listed))]);
    fs::create_dir_all(root.join("blobs/sha256")).unwrap();
    for content in &files {
        fs::write(root.join(blob_path(content)), content).unwrap();
    }
    let imported = importer.import(&root).await.unwrap();
    assert_eq!((imported.manifests, imported.blobs), (13, 2));
    assert_eq!(importer.tag("same").await, top.1);
}

#[tokio::test]
async fn the_last_entry_for_a_tag_counts_and_a_manifest_may_have_many_tags() {
    let importer = Importer::new().await;
    let [one, other] = [image(b"{}", &[]), image(b"{}", &[b"{}"])];
    let entries = [
        tagged(IMAGE, &one, "moved"),
        tagged(IMAGE, &one, "host:5000/name:stays"),
        tagged(IMAGE, &other, "moved"),
        descriptor(IMAGE, &other),
        tagged(IMAGE, &other, "not a tag"),
    ];
    let index = index_of(&entries);
    let files = [file("index.json", &index), file(blob_path(&one), &one), file(blob_path(&other), &other)];
    let files: Vec<_> = files.into_iter().chain([file(blob_path(b"{}"), b"{}")]).collect();
    let imported = importer.import_bytes(&archive(&files)).await.unwrap();
    assert_eq!(imported.skipped, BTreeSet::from(["not a tag".to_owned()]));
    assert_eq!(imported.tags, BTreeSet::from(["moved", "stays"].map(|tag| tag.parse().unwrap())));
    assert_eq!(imported.manifests, 2);
    assert_eq!((importer.tag("moved").await, importer.tag("stays").await), (other, one));
}

#[tokio::test]
async fn an_image_whose_only_names_are_no_tags_is_reported_and_not_imported() {
    let importer = Importer::new().await;
    let document = image(b"{}", &[b"layer"]);
    let index = index_of(&[tagged(IMAGE, &document, "-v1"), tagged(IMAGE, &document, "name:bad tag")]);
    let names = [blob_path(&document), blob_path(b"{}"), blob_path(b"layer")];
    let contents: [&[u8]; 3] = [&document, b"{}", b"layer"];
    let mut files = vec![file("index.json", &index)];
    files.extend(names.iter().zip(contents).map(|(name, content)| file(name, content)));
    let saved =
        json!([{"Config": "config", "RepoTags": ["x:bad tag"], "Layers": []}]).to_string().into_bytes();
    let saved = [file("manifest.json", &saved), file("config", b"{}")];
    let registry = importer.scratch.path().join("registry");
    let tag = registry.join("docker/registry/v2/repositories/os/one/_manifests/tags/-bad/current");
    fs::create_dir_all(&tag).unwrap();
    fs::write(tag.join("link"), sha256(&document).to_string()).unwrap();

    for (archive, skipped) in
        [(archive(&files), vec!["-v1", "name:bad tag"]), (archive(&saved), vec!["x:bad tag"])]
    {
        let imported = importer.import_bytes(&archive).await.unwrap();
        assert_eq!((imported.manifests, imported.blobs), (0, 0));
        assert_eq!(imported.skipped.iter().map(String::as_str).collect::<Vec<_>>(), skipped);
    }
    let imported = importer.server.registry.import_registry(&registry).await.unwrap();
    assert_eq!(imported[&"os/one".parse().unwrap()].skipped, BTreeSet::from(["-bad".to_owned()]));
    let empty = archive(&[file("index.json", &index_of(&[]))]);
    assert_eq!(importer.import_bytes(&empty).await.unwrap(), Imported::default());
    assert_eq!(importer.server.registry.repositories().await, [], "nothing was imported");
}

#[tokio::test]
async fn other_content_of_an_index_is_imported_and_exported() {
    let importer = Importer::new().await;
    let notes = "application/vnd.example.notes+json";
    importer.server.put_blob("a", b"some notes").await;
    let document = importer.server.push_image("a", "v1", "x").await;
    let mixed = index_of(&[descriptor(IMAGE, &document), descriptor(notes, b"some notes")]);
    let put = importer.server.put_manifest("a", "mixed", INDEX, &mixed).await;
    assert_eq!(put.status(), 201);
    let exported = importer.server.registry.export(&"a".parse().unwrap(), None, Vec::new()).await.unwrap();
    importer.import_bytes(&exported).await.unwrap();
    assert!(importer.has(b"some notes").await);
    let again = importer.server.registry.export(&Importer::name(), None, Vec::new()).await.unwrap();
    assert_eq!(again, exported);
}

#[tokio::test]
async fn indexes_are_imported_up_to_the_depth_limit() {
    let importer = Importer::new().await;
    let mut files = vec![image(b"{}", &[]), b"{}".to_vec()];
    let mut top = (IMAGE, files[0].clone());
    for depth in 1..=40 {
        top = (INDEX, index_of(&[descriptor(top.0, &top.1)]));
        files.push(top.1.clone());
        let index = index_of(&[tagged(INDEX, &top.1, "deep")]);
        let names: Vec<String> = files.iter().map(|content| blob_path(content)).collect();
        let entries = names.iter().zip(&files).map(|(name, content)| file(name, content));
        let bytes = archive(&entries.chain([file("index.json", &index)]).collect::<Vec<_>>());
        if depth == 31 {
            assert_eq!(importer.import_bytes(&bytes).await.unwrap().manifests, 32);
        } else if depth == 40 {
            assert!(importer.refused(&bytes).await.contains("deep"));
        }
    }
}

#[tokio::test]
async fn names_and_links_of_an_archive_never_lead_out_of_it() {
    let importer = Importer::new().await;
    fs::write(importer.scratch.path().join("secret"), "outside").unwrap();
    let secret = importer.scratch.path().join("secret").display().to_string();
    let saved = json!([{"Config": "config", "RepoTags": ["x:v1"], "Layers": []}]).to_string().into_bytes();
    let parent = [file("manifest.json", &saved), file("../config", b"{}")];
    let absolute = [file("manifest.json", &saved), file("/config", b"{}")];
    for entries in [
        &parent[..],
        &absolute[..],
        &[file("manifest.json", &saved), link(b'2', "config", "../secret")],
        &[file("manifest.json", &saved), link(b'2', "config", &secret)],
        &[file("manifest.json", &saved), link(b'1', "config", &secret)],
        &[file("manifest.json", &saved), link(b'2', "config", "config")],
        &[file("manifest.json", &saved), link(b'2', "config", "b"), link(b'2', "b", "config")],
        &[file("manifest.json", &saved), link(b'3', "config", ""), link(b'6', "config", "")],
        &[file("manifest.json", &saved), link(b'5', "config", "")],
    ] {
        assert!(importer.refused(&archive(entries)).await.contains("is missing"));
    }
    for name in ["../secret", "/etc/hostname", "a/../../secret", "", "."] {
        let saved = json!([{"Config": name, "RepoTags": [], "Layers": []}]).to_string().into_bytes();
        importer.refused(&archive(&[file("manifest.json", &saved)])).await;
        let root = importer.directory("named", &[("manifest.json", &saved)]);
        assert!(matches!(importer.import(&root).await, Err(Error::NotAnArchive(_))), "{name:?}");
    }
    assert!(!importer.has(b"outside").await);
    assert_eq!(fs::read_to_string(secret).unwrap(), "outside");
}

#[tokio::test]
async fn a_directory_may_contain_links_but_none_that_lead_out_or_to_a_pipe() {
    let importer = Importer::new().await;
    let secret = importer.scratch.path().join("secret");
    fs::write(&secret, "outside").unwrap();
    let saved = json!([{"Config": "config", "RepoTags": ["x:v1"], "Layers": ["layer.tar"]}]);
    let saved = saved.to_string().into_bytes();
    let parts: [(&str, &[u8]); 2] = [("manifest.json", &saved), ("other", b"{}")];
    let out = importer.directory("out", &parts);
    std::os::unix::fs::symlink("../secret", out.join("config")).unwrap();
    std::os::unix::fs::symlink("other", out.join("layer.tar")).unwrap();
    match importer.import(&out).await {
        Err(Error::NotAnArchive(why)) => assert!(why.contains("leads out"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(!importer.has(b"outside").await);

    for (name, part) in [("pipe-config", "config"), ("pipe-index", "index.json")] {
        let pipe = importer.directory(name, &parts);
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, pipe.join(part), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        match importer.import(&pipe).await {
            Err(Error::NotAnArchive(why)) => assert!(why.contains("not a file"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    let inside = importer.directory("inside", &parts);
    for name in ["config", "layer.tar"] {
        std::os::unix::fs::symlink("other", inside.join(name)).unwrap();
    }
    assert_eq!(importer.import(&inside).await.unwrap().blobs, 1);
}

#[tokio::test]
async fn layers_that_docker_save_links_are_imported() {
    let importer = Importer::new().await;
    let layers = ["a/layer.tar", "b/layer.tar", "c/layer.tar"];
    let saved = json!([
        {"Config": "config.json", "RepoTags": ["x:v1", "x:v2"], "Layers": layers},
        {"Config": "config.json", "RepoTags": null, "Layers": [layers[0]]},
    ]);
    let saved = saved.to_string().into_bytes();
    let content = noise(4, 5000);
    let bytes = archive(&[
        link(b'5', "a", ""),
        file("a/layer.tar", &content),
        link(b'2', "b/layer.tar", "../a/layer.tar"),
        link(b'1', "c/layer.tar", "./b/layer.tar"),
        file("./config.json", b"{}"),
        file("manifest.json", &saved),
    ]);
    let imported = importer.import_bytes(&bytes).await.unwrap();
    assert_eq!((imported.tags.len(), imported.manifests, imported.blobs), (2, 2, 2));
    let manifest: Value = serde_json::from_slice(&importer.tag("v2").await).unwrap();
    let digests: Vec<_> =
        manifest["layers"].as_array().unwrap().iter().map(|layer| &layer["digest"]).collect();
    assert_eq!(digests, vec![&json!(sha256(&content).to_string()); 3]);
}

#[tokio::test]
async fn an_image_with_too_many_layers_is_refused() {
    let importer = Importer::new().await;
    let layers = vec!["l"; 1_000_000];
    let saved = json!([{"Config": "c", "RepoTags": [], "Layers": layers}]).to_string().into_bytes();
    let why =
        importer.refused(&archive(&[file("manifest.json", &saved), file("c", b"{}"), file("l", b"l")])).await;
    assert!(why.contains("layers"), "{why}");
}

#[tokio::test]
async fn impossible_sizes_are_refused_at_their_header() {
    let importer = Importer::new().await;
    let huge = |kind, size| special(kind, "x", Some(size), b"little");
    for size in [1 << 12, 1 << 40, i64::MAX as u64, u64::MAX - 511, u64::MAX] {
        for kind in [b'0', b'L', b'K', b'x', b'g', b'5', b'?'] {
            let why = importer.refused(&archive(&[huge(kind, size)])).await;
            assert!(why.contains("ends in the middle"), "{why}");
        }
    }
    for size in ["18446744073709551615", "99999999999999999999999", "-1", "", "ten"] {
        let records = pax(&[("size", size)]);
        let before = special(b'x', "h", None, &records);
        importer.refused(&archive(&[before, file("index.json", b"{}")])).await;
    }
    // A name of two megabytes that is really there.
    let name = vec![b'n'; 2 << 20];
    let long = special(b'L', "././@LongLink", None, &name);
    assert!(importer.refused(&archive(&[long, file("x", b"")])).await.contains("longer"));
    let wrong = |at: usize, byte: u8| {
        let mut bytes = valid_archive().0;
        bytes[at] ^= byte;
        bytes
    };
    for (at, byte) in [(0, 1), (124, 7), (148, 1), (156, 1)] {
        importer.refused(&wrong(at, byte)).await;
    }
    assert_eq!(importer.import_bytes(&valid_archive().0).await.unwrap().manifests, 1);
}

#[tokio::test]
async fn an_archive_with_too_many_entries_is_refused() {
    let importer = Importer::new().await;
    let path = importer.scratch.path().join("many.tar");
    let mut head = tar::Header::new_gnu();
    head.set_size(0);
    let mut bytes = Vec::new();
    for number in 0..(1 << 16) + 1 {
        head.set_path(number.to_string()).unwrap();
        head.set_cksum();
        bytes.extend_from_slice(head.as_bytes());
    }
    fs::write(&path, bytes).unwrap();
    assert!(matches!(importer.import(&path).await, Err(Error::NotAnArchive(why)) if why.contains("entries")));
}

#[tokio::test]
async fn compressed_and_sparse_archives_are_refused_with_the_reason() {
    let importer = Importer::new().await;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &valid_archive().0).unwrap();
    let mut gzip = gzip.finish().unwrap();
    gzip.resize(gzip.len().max(512), 0);
    assert!(importer.refused(&gzip).await.contains("decompress"));
    let sparse = special(b'S', "index.json", None, b"");
    assert!(importer.refused(&archive(&[sparse])).await.contains("sparse"));
    // A sparse file in the newer format.
    let records =
        pax(&[("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.name", "index.json")]);
    let before = special(b'x', "h", None, &records);
    let sparse = [before, file("GNUSparseFile.0/index.json", b"0\n")];
    assert!(importer.refused(&archive(&sparse)).await.contains("sparse"));
}

#[tokio::test]
async fn long_names_are_read_in_every_archive_format() {
    let importer = Importer::new().await;
    let layer = noise(5, 700);
    let long = format!("blobs/sha512/{}", sha512(&layer).hex());
    let mut document: Value = serde_json::from_slice(&image(b"{}", &[])).unwrap();
    let digest = sha512(&layer).to_string();
    document["layers"] = json!([{"mediaType": LAYER, "digest": digest, "size": layer.len()}]);
    let document = document.to_string().into_bytes();
    let index = index_of(&[tagged(IMAGE, &document, "v1")]);
    let (records, name) = (pax(&[("comment", "x"), ("path", &long)]), format!("{long}\0").into_bytes());
    let before = |kind, body| special(kind, "before", None, body);
    for (number, before) in [before(b'L', name.as_slice()), before(b'x', &records)].into_iter().enumerate() {
        let entries = [
            before,
            file("short", &layer),
            file("index.json", &index),
            file(blob_path(&document), &document),
            file(blob_path(b"{}"), b"{}"),
        ];
        let importer = if number == 0 { &importer } else { &Importer::new().await };
        assert_eq!(importer.import_bytes(&archive(&entries)).await.unwrap().blobs, 2);
        let response = importer.server.get(&format!("/v2/{NAME}/blobs/{digest}")).await;
        assert_eq!(response.bytes().await.unwrap(), layer);
    }
    // The name of one entry does not apply to the next.
    let entries = [before(b'L', name.as_slice()), link(b'5', "x", ""), file("index.json", b"{}")];
    assert_eq!(importer.import_bytes(&archive(&entries)).await.unwrap(), Imported::default());
}

#[tokio::test]
async fn the_later_of_two_entries_with_one_name_counts() {
    let importer = Importer::new().await;
    let (honest, document) = valid_archive();
    let entries = [
        file("index.json", b"not this one"),
        link(b'2', blob_path(b"layer"), "index.json"),
        file(blob_path(b"{}"), b"evil"),
    ];
    let mut bytes = archive(&entries);
    bytes.truncate(bytes.len() - 1024);
    bytes.extend_from_slice(&honest);
    importer.import_bytes(&bytes).await.unwrap();
    assert_eq!(importer.tag("v1").await, document);
    let mut bytes = honest[..honest.len() - 1024].to_vec();
    bytes.extend_from_slice(&archive(&[file(blob_path(b"layer"), b"LAYER")]));
    let fresh = Importer::new().await;
    assert!(matches!(fresh.import_bytes(&bytes).await, Err(Error::DigestMismatch { .. })));
}

#[tokio::test]
async fn a_truncated_archive_is_refused_and_the_whole_one_is_imported_afterwards() {
    let importer = Importer::new().await;
    let (whole, document) = valid_archive();
    let end = whole.len() - 1024;
    for length in [1, 511, 513].into_iter().chain((0..end).step_by(128)).chain([end - 1]) {
        let cut = importer.import_bytes(&whole[..length]).await;
        // Only padding may be missing at the end.
        if length > end - 512 {
            continue;
        }
        assert!(cut.is_err(), "cut to {length} bytes: {cut:?}");
        assert_eq!(importer.server.head(&format!("/v2/{NAME}/manifests/v1")).await.status(), 404);
    }
    importer.import_bytes(&whole[..end]).await.unwrap();
    assert_eq!(importer.tag("v1").await, document);
    assert_eq!(importer.import_bytes(&whole).await.unwrap().blobs, 0);
}

#[tokio::test]
async fn a_blob_beyond_the_limit_or_the_disk_is_refused_before_it_is_copied() {
    let small = Server::start_with(|config| {
        config.max_blob_size = 1000;
        let repositories = "limited/**".parse().unwrap();
        config.quotas = vec![registry::Quota { repositories, bytes: 1500 }];
    })
    .await;
    let importer = Importer { server: small, scratch: tempfile::tempdir().unwrap() };
    let import = async |layers: &[&[u8]], name: &str| {
        let document = image(b"{}", layers);
        let index = index_of(&[tagged(IMAGE, &document, "v1")]);
        let contents: Vec<&[u8]> =
            [b"{}".as_slice(), &document].into_iter().chain(layers.iter().copied()).collect();
        let names: Vec<String> = contents.iter().map(|content| blob_path(content)).collect();
        let files = names.iter().zip(contents).map(|(name, content)| file(name, content));
        let bytes = archive(&files.chain([file("index.json", &index)]).collect::<Vec<_>>());
        let path = importer.scratch.path().join("archive.tar");
        fs::write(&path, bytes).unwrap();
        importer.server.registry.import(&path, &name.parse().unwrap()).await
    };
    let refused = import(&[&noise(1, 1001)], "os").await;
    assert!(matches!(&refused, Err(Error::NotAnArchive(why)) if why.contains("larger")), "{refused:?}");
    let refused = import(&[&noise(2, 900), &noise(3, 900)], "limited/os").await;
    assert!(matches!(refused, Err(Error::QuotaExceeded { .. })), "{refused:?}");
    assert_eq!(importer.server.registry.quotas()[0].reserved, 0);
    assert_eq!(fs::read_dir(importer.server.root().join("uploads")).unwrap().count(), 0);
    import(&[&noise(2, 900)], "os").await.unwrap();
}

#[tokio::test]
async fn the_tree_of_another_registry_is_walked_once_for_any_links() {
    let importer = Importer::new().await;
    let document = image(b"{}", &[]);
    let root = "docker/registry/v2";
    let link = sha256(&document).to_string();
    let blob_path = |content: &[u8]| {
        let hex = sha256(content).hex().to_owned();
        format!("{root}/blobs/sha256/{}/{hex}/data", &hex[..2])
    };
    let tags = format!("{root}/repositories/os/_manifests/tags");
    let tree = importer.directory(
        "tree",
        &[
            (&blob_path(&document), &document),
            (&blob_path(b"{}"), b"{}"),
            (&format!("{tags}/v1/current/link"), link.as_bytes()),
        ],
    );
    // Two links back at every level: 2^50 directories if all links are followed.
    for name in ["x", "y"] {
        std::os::unix::fs::symlink(".", tree.join(root).join("repositories/os").join(name)).unwrap();
    }
    let imported = importer.server.registry.import_registry(&tree).await.unwrap();
    assert_eq!(imported.len(), 1);
    let response = importer.server.get("/v2/os/manifests/v1").await;
    assert_eq!(header(&response, "docker-content-digest"), link);
    for (tag, link) in [("long", "sha256:".repeat(100)), ("odd", "sha256:../../secret".to_owned())] {
        let spoiled = importer.directory("tree", &[(&format!("{tags}/{tag}/current/link"), link.as_bytes())]);
        let imported = importer.server.registry.import_registry(&spoiled).await.unwrap();
        let os = &imported[&"os".parse().unwrap()];
        assert_eq!((os.tags.len(), os.failed.len()), (1, 1), "{tag}");
        assert!(os.failed.contains_key(&tag.parse().unwrap()));
        fs::remove_dir_all(tree.join(&tags).join(tag)).unwrap();
    }
}

#[tokio::test]
async fn invalid_documents_are_refused() {
    let importer = Importer::new().await;
    let config = descriptor(CONFIG, b"{}");
    let documents: [(&str, Vec<u8>); 6] = [
        (IMAGE, b"null".to_vec()),
        (IMAGE, b"{}".to_vec()),
        (IMAGE, "[".repeat(100_000).into_bytes()),
        (
            INDEX,
            json!({"schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": []})
                .to_string()
                .into(),
        ),
        (INDEX, json!({"schemaVersion": 2, "manifests": {}}).to_string().into()),
        (IMAGE, json!({"schemaVersion": 1, "config": config, "layers": []}).to_string().into()),
    ];
    for (kind, document) in documents {
        let index = index_of(&[tagged(kind, &document, "v1")]);
        let bytes = archive(&[file("index.json", &index), file(blob_path(&document), &document)]);
        importer.refused(&bytes).await;
    }
    for index in [b"null".as_slice(), b"[]", b"{\"manifests\":7}", b"{\"manifests\":[{}]}", b"\xff", b""] {
        importer.refused(&archive(&[file("index.json", index)])).await;
        importer
            .refused(&archive(&[file("manifest.json", if index == b"[]" { b"{}" } else { index })]))
            .await;
    }
    let large = vec![b' '; (5 << 20) + 1];
    assert!(importer.refused(&archive(&[file("index.json", &large)])).await.contains("larger"));
    assert_eq!(importer.server.head(&format!("/v2/{NAME}/manifests/v1")).await.status(), 404);
}

#[tokio::test]
async fn a_blob_of_another_size_than_its_descriptor_says_is_refused_in_an_import_too() {
    let importer = Importer::new().await;
    let mut config = descriptor(CONFIG, b"{}");
    config["size"] = json!(7);
    let document = json!({"schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": []});
    let document = document.to_string().into_bytes();
    let index = index_of(&[tagged(IMAGE, &document, "v1")]);
    let bytes = archive(&[
        file("index.json", &index),
        file(blob_path(&document), &document),
        file(blob_path(b"{}"), b"{}"),
    ]);
    let refused = importer.import_bytes(&bytes).await.unwrap_err();
    assert!(matches!(refused, Error::WrongSize { described: 7, actual: 2, .. }), "{refused}");
    assert_eq!(importer.server.head(&format!("/v2/{NAME}/manifests/v1")).await.status(), 404);
}
