//! The list of referrers.

use std::sync::Arc;

use crate::support::{IMAGE, INDEX, Server, config, descriptor, header, refusal, sha256, sha512};
use registry::{AllowAll, Digest};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const EMPTY: &str = "application/vnd.oci.empty.v1+json";
const SBOM: &str = "application/vnd.example.sbom";
const NOTE: &str = "application/vnd.example.note";

/// An artifact with the subject `subject`, distinguished by `seed`.
fn artifact(subject: &Digest, kind: &str, seed: &str) -> Vec<u8> {
    json!({
        "schemaVersion": 2, "mediaType": IMAGE, "artifactType": kind,
        "config": descriptor(EMPTY, b"{}"), "layers": [descriptor(EMPTY, b"{}")],
        "subject": {"mediaType": IMAGE, "digest": subject.to_string(), "size": 7},
        "annotations": {"org.example.seed": seed},
    })
    .to_string()
    .into_bytes()
}

async fn put(server: &Server, repository: &str, reference: &str, document: &[u8]) {
    server.put_blob(repository, b"{}").await;
    let put = server.put_manifest(repository, reference, IMAGE, document).await;
    assert_eq!(put.status(), StatusCode::CREATED);
}

/// The listed descriptors, after the checks that every response must pass, and the link to the next page.
async fn page(server: &Server, path: &str) -> (Vec<Value>, Option<String>) {
    let head = server.head(path).await;
    let response = server.get(path).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    assert_eq!(header(&response, "content-type"), INDEX);
    assert_eq!(header(&head, "content-length"), header(&response, "content-length"));
    let filtered = response.headers().get("oci-filters-applied").map(|value| value.to_str().unwrap());
    assert_eq!(filtered, path.contains("artifactType=").then_some("artifactType"));
    let next = response.headers().get("link").map(|link| {
        let link = link.to_str().unwrap().strip_prefix('<').unwrap();
        link.strip_suffix(">; rel=\"next\"").unwrap().to_owned()
    });
    let index: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!((&index["schemaVersion"], &index["mediaType"]), (&json!(2), &json!(INDEX)));
    let listed = index["manifests"].as_array().unwrap().clone();
    (listed, next)
}

async fn listed(server: &Server, repository: &str, subject: &Digest) -> Vec<Value> {
    let (listed, next) = page(server, &format!("/v2/{repository}/referrers/{subject}")).await;
    assert_eq!(next, None);
    listed
}

fn expected(document: &[u8], kind: &str, seed: &str) -> Value {
    let mut expected = descriptor(IMAGE, document);
    expected["artifactType"] = json!(kind);
    expected["annotations"] = json!({"org.example.seed": seed});
    expected
}

#[tokio::test]
async fn an_unknown_subject_has_an_empty_list() {
    let server = Server::start().await;
    let digest = sha256(b"nothing");
    assert!(listed(&server, "nowhere", &digest).await.is_empty());
    server.push_image("a", "v1", "x").await;
    assert!(listed(&server, "a", &digest).await.is_empty());
    assert!(listed(&server, "a", &sha512(b"nothing")).await.is_empty());
    for bad in ["sha256:0", "latest", "md5:d41d8cd98f00b204e9800998ecf8427e"] {
        let response = server.get(&format!("/v2/a/referrers/{bad}")).await;
        assert_eq!(refusal(response).await, (400, vec!["DIGEST_INVALID".into()]), "{bad}");
    }
}

#[tokio::test]
async fn a_referrer_is_listed_before_and_after_its_subject_is_pushed() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    let subject = Server::start().await.push_image("elsewhere", "v1", "subject").await;
    let digest = sha256(&subject);
    let sbom = artifact(&digest, SBOM, "1");
    server.put_blob("a", b"{}").await;
    let response = server.put_manifest("a", &sha256(&sbom).to_string(), IMAGE, &sbom).await;
    assert_eq!(response.status(), StatusCode::CREATED);
    assert_eq!(header(&response, "oci-subject"), digest.to_string());
    assert_eq!(listed(&server, "a", &digest).await, [expected(&sbom, SBOM, "1")]);
    assert!(listed(&server, "b", &digest).await.is_empty(), "only in the repository of the referrer");

    server.push_image("a", "v1", "subject").await;
    assert_eq!(listed(&server, "a", &digest).await.len(), 1);
    drop(server);
    let server = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    assert_eq!(listed(&server, "a", &digest).await, [expected(&sbom, SBOM, "1")]);

    let gone = server.send(Method::DELETE, &format!("/v2/a/manifests/{digest}")).await;
    assert_eq!(gone.status(), StatusCode::ACCEPTED);
    assert_eq!(listed(&server, "a", &digest).await.len(), 1, "also when the subject is deleted");
    let gone = server.send(Method::DELETE, &format!("/v2/a/manifests/{}", sha256(&sbom))).await;
    assert_eq!(gone.status(), StatusCode::ACCEPTED);
    assert!(listed(&server, "a", &digest).await.is_empty());
    let left = root.path().join("repos/a/_referrers/sha256").join(digest.hex());
    assert_eq!(std::fs::read_dir(left).unwrap().count(), 0, "its record is removed");
    put(&server, "a", "again", &sbom).await;
    assert_eq!(listed(&server, "a", &digest).await.len(), 1);
}

#[tokio::test]
async fn a_referrer_is_listed_with_its_own_type() {
    let server = Server::start().await;
    let subject = sha512(b"a subject under another algorithm");
    let about = json!({"mediaType": IMAGE, "digest": subject.to_string(), "size": 7});
    server.put_blob("a", b"{}").await;
    let image = json!({
        "schemaVersion": 2, "mediaType": IMAGE, "layers": [], "subject": about,
        "config": descriptor("application/vnd.oci.image.config.v1+json", b"{}"),
    })
    .to_string();
    let plain =
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [], "subject": about}).to_string();
    let typed = json!({
        "schemaVersion": 2, "mediaType": INDEX, "artifactType": NOTE, "manifests": [], "subject": about,
    })
    .to_string();
    let untyped = image.replace("\"layers\"", "\"artifactType\":\"\",\"layers\"");
    for (kind, document) in [(IMAGE, &image), (IMAGE, &untyped), (INDEX, &plain), (INDEX, &typed)] {
        let response = server.put_manifest("a", "v1", kind, document.as_bytes()).await;
        assert_eq!(header(&response, "oci-subject"), subject.to_string());
    }
    let listed = listed(&server, "a", &subject).await;
    let kind_of = |document: &str| {
        let digest = sha256(document.as_bytes()).to_string();
        let entry = listed.iter().find(|entry| entry["digest"] == json!(digest)).unwrap();
        entry.get("artifactType").and_then(Value::as_str)
    };
    for image in [&image, &untyped] {
        assert_eq!(kind_of(image), Some("application/vnd.oci.image.config.v1+json"));
    }
    assert_eq!(kind_of(&plain), None);
    assert_eq!(kind_of(&typed), Some(NOTE));
}

#[tokio::test]
async fn referrers_are_listed_filtered_and_in_pages() {
    let server = Server::start().await;
    let subject = sha256(b"subject");
    let mut all = Vec::new();
    for number in 0..9 {
        let kind = if number % 3 == 0 { "application/vnd.example+json" } else { NOTE };
        let document = artifact(&subject, kind, &number.to_string());
        put(&server, "a", &sha256(&document).to_string(), &document).await;
        all.push((sha256(&document).to_string(), kind));
    }
    all.sort();
    for (filter, kind) in
        [("", None), ("artifactType=application%2Fvnd.example%2Bjson&", Some("application/vnd.example+json"))]
    {
        let wanted: Vec<&str> = all
            .iter()
            .filter(|(_, own)| kind.is_none_or(|kind| kind == *own))
            .map(|(digest, _)| digest.as_str())
            .collect();
        let mut path = format!("/v2/a/referrers/{subject}?{filter}n=2");
        let mut found = Vec::new();
        loop {
            let (page, next) = page(&server, &path).await;
            assert!(page.len() <= 2);
            found.extend(page.iter().map(|entry| entry["digest"].as_str().unwrap().to_owned()));
            let Some(next) = next else { break };
            path = next;
        }
        assert_eq!(found, wanted);
    }
    assert_eq!(page(&server, &format!("/v2/a/referrers/{subject}?n=0")).await, (Vec::new(), None));
    let none = page(&server, &format!("/v2/a/referrers/{subject}?artifactType=absent/type")).await;
    assert_eq!(none, (Vec::new(), None));
    let refused = server.get(&format!("/v2/a/referrers/{subject}?n=many")).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_page_of_long_descriptors_is_no_larger_than_the_manifest_limit() {
    let server = Server::start().await;
    let subject = sha256(b"subject");
    for number in 0..5 {
        let document = artifact(&subject, NOTE, &format!("{number}{}", "x".repeat(1_500_000)));
        put(&server, "a", "v1", &document).await;
    }
    let (first, next) = page(&server, &format!("/v2/a/referrers/{subject}")).await;
    assert_eq!(first.len(), 2);
    let (second, next) = page(&server, &next.unwrap()).await;
    assert_eq!(second.len(), 2);
    assert_eq!(page(&server, &next.unwrap()).await.0.len(), 1);
}

#[tokio::test]
async fn indexes_that_older_clients_maintain_under_a_tag_are_merged() {
    let server = Server::start().await;
    for subject in [sha256(b"subject"), sha512(b"subject")] {
        // One that only the tag lists, one that both list, and one that does not exist.
        let kept = json!({
            "schemaVersion": 2, "mediaType": IMAGE, "artifactType": NOTE,
            "config": descriptor(EMPTY, b"{}"), "layers": [], "x.about": subject.to_string(),
        })
        .to_string();
        put(&server, "a", "kept", kept.as_bytes()).await;
        let own = artifact(&subject, SBOM, "own");
        put(&server, "a", "own", &own).await;
        let entry = |document: &[u8], kind: &str| {
            let mut entry = descriptor(IMAGE, document);
            entry["artifactType"] = json!(kind);
            entry
        };
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
            entry(kept.as_bytes(), NOTE), entry(&own, "stale/type"), entry(b"absent", NOTE),
            {"mediaType": IMAGE, "digest": "strange:0", "size": 1},
        ]})
        .to_string();
        let tag = format!("{}-{}", subject.algorithm().as_str(), &subject.hex()[..64]);
        let put = server.put_manifest("a", &tag, INDEX, index.as_bytes()).await;
        assert_eq!(put.status(), StatusCode::CREATED);

        let mut wanted = vec![entry(kept.as_bytes(), NOTE), expected(&own, SBOM, "own")];
        wanted.sort_by_key(|entry| entry["digest"].to_string());
        assert_eq!(listed(&server, "a", &subject).await, wanted);
        // A tag of that form that names no such index does no harm.
        let plain = server.push_image("a", &tag, "plain").await;
        assert!(!plain.is_empty());
        assert_eq!(listed(&server, "a", &subject).await, [expected(&own, SBOM, "own")]);
    }
}

#[tokio::test]
async fn an_entry_of_a_client_s_index_without_a_digest_of_this_registry_is_in_no_page_and_in_no_link() {
    let server = Server::start().await;
    let subject = sha256(b"subject");
    let own = artifact(&subject, SBOM, "own");
    put(&server, "a", "own", &own).await;
    // Both come before every digest of this registry.
    let strange = ["a+b.c:0=_-", "md5:d41d8cd98f00b204e9800998ecf8427e"];
    let entries: Vec<Value> =
        strange.map(|digest| json!({"mediaType": IMAGE, "digest": digest, "size": 1})).into();
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
    let tag = format!("sha256-{}", subject.hex());
    let put = server.put_manifest("a", &tag, INDEX, index.as_bytes()).await;
    assert_eq!(put.status(), StatusCode::CREATED);
    let first = page(&server, &format!("/v2/a/referrers/{subject}?n=1")).await;
    assert_eq!(first, (vec![expected(&own, SBOM, "own")], None));
}

#[tokio::test]
async fn a_partial_referrer_record_is_not_listed_and_a_push_repairs_it() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    let subject = sha256(b"subject");
    let note = artifact(&subject, NOTE, "1");
    put(&server, "a", "v1", &note).await;
    drop(server);
    let digest = sha256(&note);
    let repository = root.path().join("repos/a");
    let manifest = repository.join("_manifests/sha256").join(digest.hex());
    let record = repository.join(format!("_referrers/sha256/{}/sha256-{}", subject.hex(), digest.hex()));
    // Between the records of the referrer and of the manifest, of a put or of a delete.
    std::fs::remove_file(&manifest).unwrap();
    assert!(record.exists());
    std::fs::write(record.with_file_name("lost+found"), "not a record").unwrap();
    let server = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    assert!(listed(&server, "a", &subject).await.is_empty());
    put(&server, "a", "v1", &note).await;
    assert_eq!(listed(&server, "a", &subject).await, [expected(&note, NOTE, "1")]);
}
