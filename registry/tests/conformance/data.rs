//! The kinds of content a registry must carry.

use registry::{Algorithm, Digest};
use serde_json::{Map, Value, json};

use crate::support::{CONFIG, IMAGE, INDEX, noise};

const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const LAYER_TAR: &str = "application/vnd.oci.image.layer.v1.tar";
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
const FIRST_KIND: &str = "application/vnd.example.conformance.one";
const SECOND_KIND: &str = "application/vnd.example.conformance.two";

/// Content of one kind, in the order of the pushes.
pub(super) struct ContentSet {
    pub(super) group: &'static str,
    pub(super) blobs: Vec<(Digest, Vec<u8>)>,
    pub(super) manifests: Vec<Manifest>,
    /// The subject, and the descriptor that its list of referrers must contain.
    pub(super) referrers: Vec<(Digest, Value)>,
    algorithm: Algorithm,
    seed: u64,
}

pub(super) struct Manifest {
    pub(super) digest: Digest,
    pub(super) kind: &'static str,
    pub(super) document: Vec<u8>,
    pub(super) subject: Option<Digest>,
    pub(super) tags: Vec<String>,
    /// The tags are set by the push by digest, instead of by separate pushes.
    pub(super) tags_beside: bool,
    /// The registry must refuse the manifest because its digest differs.
    pub(super) spoiled: bool,
}

/// The differences of an image or index from a plain one.
#[derive(Clone, Default)]
struct Shape {
    artifact_type: Option<&'static str>,
    annotations: Map<String, Value>,
    subject: Option<Value>,
    embedded: bool,
    extra_field: bool,
    tag: Option<&'static str>,
}

impl ContentSet {
    fn new(group: &'static str, algorithm: Algorithm, seed: u64) -> Self {
        ContentSet {
            group,
            blobs: Vec::new(),
            manifests: Vec::new(),
            referrers: Vec::new(),
            algorithm,
            seed: seed << 16,
        }
    }

    fn fresh(&mut self, length: usize) -> Vec<u8> {
        self.seed += 1;
        noise(self.seed, length)
    }

    fn blob(&mut self, kind: &str, content: Vec<u8>, shape: &Shape) -> Value {
        let digest = Digest::of(self.algorithm, &content);
        let mut descriptor = json!({"mediaType": kind, "digest": digest.to_string(), "size": content.len()});
        if shape.embedded {
            use base64::Engine as _;
            descriptor["data"] = json!(base64::engine::general_purpose::STANDARD.encode(&content));
        }
        if !self.blobs.iter().any(|(known, _)| *known == digest) {
            self.blobs.push((digest, content));
        }
        descriptor
    }

    fn config(&mut self, shape: &Shape) -> Value {
        let unique = hex::encode(self.fresh(8));
        let mut config = json!({"architecture": "amd64", "os": "linux", "author": unique, "rootfs": {"type": "layers", "diff_ids": []}});
        if shape.extra_field {
            config["org.example.unknown"] = json!({"kept": true});
        }
        self.blob(CONFIG, config.to_string().into_bytes(), shape)
    }

    fn image(&mut self, layer_kind: &str, layers: usize, shape: &Shape) -> Value {
        let config = self.config(shape);
        let layers = (0..layers).map(|_| {
            let content = self.fresh(600);
            self.blob(layer_kind, content, shape)
        });
        let layers: Vec<Value> = layers.collect();
        self.manifest(config, layers, shape)
    }

    fn artifact(&mut self, layer_kind: &str, layer: Option<&[u8]>, shape: &Shape) -> Value {
        let config = self.blob(EMPTY, b"{}".to_vec(), shape);
        let content = layer.map_or_else(|| self.fresh(600), <[u8]>::to_vec);
        let layer = self.blob(layer_kind, content, shape);
        self.manifest(config, vec![layer], shape)
    }

    fn manifest(&mut self, config: Value, layers: Vec<Value>, shape: &Shape) -> Value {
        let kind = shape.artifact_type.map_or_else(|| config["mediaType"].clone(), |kind| json!(kind));
        let document = json!({"schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": layers});
        self.finish(IMAGE, document, Some(kind), shape)
    }

    fn index(&mut self, children: Vec<Value>, shape: &Shape) -> Value {
        let document = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": children});
        self.finish(INDEX, document, shape.artifact_type.map(|kind| json!(kind)), shape)
    }

    fn platforms(&mut self, shape: &Shape) -> Value {
        let child = Shape { tag: None, ..shape.clone() };
        let children = ["amd64", "arm64"].map(|architecture| {
            let mut image = self.image(LAYER_GZIP, 2, &child);
            image["platform"] = json!({"os": "linux", "architecture": architecture});
            image
        });
        self.index(children.to_vec(), shape)
    }

    /// Completes a manifest and adds it; returns its descriptor.
    fn finish(
        &mut self,
        kind: &'static str,
        mut document: Value,
        shown_kind: Option<Value>,
        shape: &Shape,
    ) -> Value {
        let mut annotations = shape.annotations.clone();
        if shape.subject.is_some() && !annotations.is_empty() {
            annotations.insert("org.example.unique".to_owned(), json!(hex::encode(self.fresh(8))));
        }
        if let Some(artifact_type) = shape.artifact_type {
            document["artifactType"] = json!(artifact_type);
        }
        if !annotations.is_empty() {
            document["annotations"] = Value::Object(annotations.clone());
        }
        if let Some(subject) = &shape.subject {
            document["subject"] = subject.clone();
        }
        if shape.extra_field {
            document["org.example.unknown"] = json!([1, {"kept": true}]);
        }
        let document = serde_json::to_vec_pretty(&document).unwrap();
        let digest = Digest::of(self.algorithm, &document);
        let descriptor = json!({"mediaType": kind, "digest": digest.to_string(), "size": document.len()});
        let subject =
            shape.subject.as_ref().map(|subject| subject["digest"].as_str().unwrap().parse().unwrap());
        if let Some(subject) = &subject {
            let mut listed = descriptor.clone();
            if let Some(shown) = shown_kind {
                listed["artifactType"] = shown;
            }
            if !annotations.is_empty() {
                listed["annotations"] = Value::Object(annotations);
            }
            self.referrers.push((Digest::clone(subject), listed));
        }
        let tags = shape.tag.map(str::to_owned).into_iter().collect();
        let manifest = Manifest { digest, kind, document, subject, tags, tags_beside: false, spoiled: false };
        self.manifests.push(manifest);
        descriptor
    }

    fn tags_beside(mut self, prefix: &str) -> Self {
        for (number, manifest) in self.manifests.iter_mut().enumerate() {
            manifest.tags_beside = true;
            manifest.tags.extend((0..10).map(|tag| format!("{prefix}-{number}-{tag}")));
        }
        self
    }
}

/// Every kind of content. `sparse` adds those whose content is not complete.
pub(super) fn all(sparse: bool) -> Vec<ContentSet> {
    let plain = Shape::default();
    let tagged = |tag| Shape { tag: Some(tag), ..Shape::default() };
    let mut seed = 0;
    let mut sets = Vec::new();
    let mut add = |group, algorithm, fill: &dyn Fn(&mut ContentSet)| {
        seed += 1;
        let mut set = ContentSet::new(group, algorithm, seed);
        fill(&mut set);
        sets.push(set);
    };
    let sha256 = Algorithm::Sha256;
    add("data: image", sha256, &|set| drop(set.image(LAYER_GZIP, 2, &tagged("image"))));
    add("data: image uncompressed", sha256, &|set| drop(set.image(LAYER_TAR, 2, &tagged("image-tar"))));
    add("data: image, large manifest", sha256, &|set| {
        let long = |number| (format!("large-annotation-{number}"), json!("A".repeat(10_000)));
        let shape = Shape { annotations: (0..390).map(long).collect(), ..tagged("large") };
        set.image(LAYER_GZIP, 2, &shape);
    });
    add("data: index", sha256, &|set| drop(set.platforms(&tagged("index"))));
    add("data: nested index", sha256, &|set| {
        let children = vec![set.platforms(&plain), set.platforms(&plain)];
        set.index(children, &tagged("index-of-index"));
    });
    add("data: empty index", sha256, &|set| drop(set.index(Vec::new(), &tagged("empty-index"))));
    let one = |tag| Shape { artifact_type: Some(FIRST_KIND), ..tagged(tag) };
    add("data: artifact", sha256, &|set| drop(set.artifact(FIRST_KIND, None, &one("artifact"))));
    add("data: artifact index", sha256, &|set| {
        let child =
            set.artifact(FIRST_KIND, None, &Shape { artifact_type: Some(FIRST_KIND), ..Shape::default() });
        set.index(vec![child], &one("artifact-index"));
    });
    add("data: artifact without layers", sha256, &|set| {
        set.artifact(EMPTY, Some(b"{}"), &one("artifact-without-layers"));
    });
    let about = |subject: Value, kind, tag| Shape {
        artifact_type: kind,
        subject: Some(subject),
        annotations: [("org.example.hello".to_owned(), json!("conformance"))].into_iter().collect(),
        tag,
        ..Shape::default()
    };
    add("data: artifacts with subject", sha256, &|set| {
        let subject = set.image(LAYER_GZIP, 2, &tagged("subject"));
        // One has nothing but a type.
        let bare = Shape { annotations: Map::new(), ..about(subject.clone(), None, None) };
        set.image(LAYER_GZIP, 1, &bare);
        set.artifact(FIRST_KIND, None, &about(subject.clone(), Some(FIRST_KIND), Some("first")));
        set.artifact(SECOND_KIND, None, &about(subject, Some(SECOND_KIND), Some("second")));
    });
    add("data: index with subject", sha256, &|set| {
        let subject = set.platforms(&tagged("index-subject"));
        set.platforms(&about(subject.clone(), Some(FIRST_KIND), Some("index-referrer")));
        set.index(Vec::new(), &about(subject, None, None));
    });
    add("data: missing subject", sha256, &|set| {
        let digest = Digest::of(Algorithm::Sha256, b"missing content").to_string();
        let subject = json!({"mediaType": IMAGE, "digest": digest, "size": 123});
        set.artifact(FIRST_KIND, None, &about(subject, Some(FIRST_KIND), Some("lonely")));
    });
    add("data: data field", sha256, &|set| {
        drop(set.image(LAYER_GZIP, 2, &Shape { embedded: true, ..tagged("data-field") }));
    });
    add("data: non-distributable layers", sha256, &|set| {
        let config = set.config(&plain);
        let mut layers: Vec<Value> = ["tar+gzip", "tar"]
            .map(|form| {
                let digest = Digest::of(Algorithm::Sha256, form.as_bytes());
                json!({
                    "mediaType": format!("application/vnd.oci.image.layer.nondistributable.v1.{form}"),
                    "digest": digest.to_string(), "size": 12345,
                    "urls": [format!("https://store.example.com/{}", digest.hex())],
                })
            })
            .to_vec();
        let here = set.fresh(500);
        layers.push(set.blob(LAYER_GZIP, here, &plain));
        set.manifest(config, layers, &tagged("elsewhere"));
    });
    add("data: custom fields", sha256, &|set| {
        drop(set.platforms(&Shape { extra_field: true, ..tagged("custom-fields") }));
    });
    add("data: no layers", sha256, &|set| drop(set.image(LAYER_GZIP, 0, &tagged("no-layers"))));
    if sparse {
        add("data: sparse manifests", sha256, &|set| {
            set.image(LAYER_GZIP, 2, &tagged("sparse-image"));
            set.blobs.pop();
            let there = set.image(LAYER_GZIP, 1, &plain);
            let digest = Digest::of(Algorithm::Sha256, b"a manifest that is never pushed").to_string();
            let absent = json!({"mediaType": IMAGE, "digest": digest, "size": 1024});
            set.index(vec![there, absent], &tagged("sparse-index"));
        });
    }
    // A tag beside the digest is the only way to tag with another algorithm than the default.
    add("data: sha512", Algorithm::Sha512, &|set| drop(set.platforms(&plain)));
    add("data: bad digest image", sha256, &|set| {
        set.image(LAYER_GZIP, 2, &plain);
        for manifest in &mut set.manifests {
            manifest.document.extend_from_slice(b"  ");
            manifest.spoiled = true;
        }
    });
    for (group, prefix, algorithm) in [
        ("data: tag param", "param-sha256", sha256),
        ("data: tag param sha512", "param-sha512", Algorithm::Sha512),
    ] {
        seed += 1;
        let mut set = ContentSet::new(group, algorithm, seed);
        set.platforms(&plain);
        sets.push(set.tags_beside(prefix));
    }
    sets
}
