//! Reading what is inserted, as a BMC does: a HEAD, then the ranges that decide what the image is.
//!
//! ```text
//!   HEAD                              200, Content-Length, no encoding
//!   GET Range: bytes=0-511            206 (or 200: a server without ranges), the boot signature 55 AA
//!   GET Range: bytes=32768-65535      the volume descriptors, 2048 bytes each:
//!                                       01 "CD001"  primary        label at 40, 32 bytes
//!                                       00 "CD001"  boot record    "EL TORITO SPECIFICATION" at 7
//!                                       FF "CD001"  terminator
//! ```
//!
//! Invariants: no redirect is followed; a certificate is never verified (BMCs cannot); at most 33 KiB of body are
//! kept whatever the server says; a total that changes between answers is a refusal.
//!
//! Reference: ECMA-119 clause 8 (descriptors), El Torito 1.0 figure 7, RFC 9110 clause 14 (ranges).

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use async_trait::async_trait;
use reqwest::{Client, Response, StatusCode, header, redirect};

use super::host::MediaUrl;

const SECTOR: usize = 2048;
const DESCRIPTORS: u64 = 32_768;
const DESCRIPTORS_END: u64 = 65_535;

/// What an image turned out to be.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MediaFacts {
    /// Its length in bytes.
    pub length: u64,
    /// The volume label, if it is an ISO 9660 image.
    pub volume_id: Option<String>,
    /// Whether it has an El Torito boot record.
    pub el_torito: bool,
    /// Whether the first sector ends with the boot signature (a disk or hybrid image).
    pub boot_signature: bool,
}

/// Why an image cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MediaRefusal {
    /// No connection, or it broke.
    #[error("the image server cannot be reached: {0}")]
    Unreachable(String),
    /// The server has no such image, or refuses it.
    #[error("the image server answered {0}")]
    Status(u16),
    /// The length is not told.
    #[error("the image server tells no Content-Length")]
    NoLength,
    /// The bytes are not those of a stable image.
    #[error("the image server's answer is not usable: {0}")]
    Unusable(&'static str),
    /// Too short, or not made of whole sectors.
    #[error("the image has an impossible size of {0} bytes")]
    Size(u64),
}

/// Reads enough of an image to know what it is. One reader serves any number of twins.
#[async_trait]
pub trait MediaReader: Send + Sync {
    /// Looks at the image behind the URL. The caller bounds the time.
    async fn inspect(&self, url: &MediaUrl) -> Result<MediaFacts, MediaRefusal>;
}

/// Why there is no HTTP reader.
#[derive(Debug, thiserror::Error)]
pub enum MediaReaderError {
    /// The TLS provider refused its own protocol versions.
    #[error("setting up TLS for reading media failed; the build lacks a usable TLS version")]
    Tls(#[source] rustls::Error),
    /// The HTTP client could not be built.
    #[error("building the HTTP client for reading media failed; check the limits of this process")]
    Client(#[source] reqwest::Error),
}

/// Reads over real HTTP or HTTPS.
#[derive(Clone, Debug)]
pub struct HttpMediaReader {
    client: Client,
}

impl HttpMediaReader {
    /// A reader with a client of its own, meant to be shared by all twins of a process.
    pub fn new() -> Result<Self, MediaReaderError> {
        let tls =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(MediaReaderError::Tls)?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(any_certificate::AnyCertificate::new()))
                .with_no_client_auth();
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(4)
            .pool_idle_timeout(Duration::from_secs(5))
            .user_agent("Twin-VirtualMedia/1.0")
            .build()
            .map_err(MediaReaderError::Client)?;
        Ok(Self { client })
    }

    async fn length(&self, url: &MediaUrl) -> Result<u64, MediaRefusal> {
        let answer = self.client.head(url.as_str()).send().await.map_err(unreachable)?;
        if answer.status() != StatusCode::OK {
            return Err(MediaRefusal::Status(answer.status().as_u16()));
        }
        if answer.headers().contains_key(header::CONTENT_ENCODING) {
            return Err(MediaRefusal::Unusable("it is compressed"));
        }
        header_number(&answer, header::CONTENT_LENGTH.as_str()).ok_or(MediaRefusal::NoLength)
    }

    async fn range(
        &self,
        url: &MediaUrl,
        range: RangeInclusive<u64>,
        total: u64,
    ) -> Result<Vec<u8>, MediaRefusal> {
        let (first, last) = (*range.start(), (*range.end()).min(total.saturating_sub(1)));
        if first > last {
            return Ok(Vec::new());
        }
        let request = self.client.get(url.as_str()).header(header::RANGE, format!("bytes={first}-{last}"));
        let answer = request.send().await.map_err(unreachable)?;
        let skip = match answer.status() {
            StatusCode::PARTIAL_CONTENT => {
                let told = answer.headers().get(header::CONTENT_RANGE).and_then(|value| value.to_str().ok());
                if told != Some(format!("bytes {first}-{last}/{total}").as_str()) {
                    return Err(MediaRefusal::Unusable("its Content-Range is not what was asked for"));
                }
                0
            }
            StatusCode::OK => first,
            status => return Err(MediaRefusal::Status(status.as_u16())),
        };
        take(answer, skip, last - first + 1).await
    }
}

#[async_trait]
impl MediaReader for HttpMediaReader {
    async fn inspect(&self, url: &MediaUrl) -> Result<MediaFacts, MediaRefusal> {
        let length = self.length(url).await?;
        let first = self.range(url, 0..=511, length).await?;
        let descriptors = self.range(url, DESCRIPTORS..=DESCRIPTORS_END, length).await?;
        Ok(understand(length, &first, &descriptors))
    }
}

/// The bytes `skip..skip + count` of a body; the rest is not read.
async fn take(mut answer: Response, mut skip: u64, count: u64) -> Result<Vec<u8>, MediaRefusal> {
    let count = usize::try_from(count).map_err(|_| MediaRefusal::Unusable("it is too long"))?;
    let mut bytes = Vec::with_capacity(count.min(SECTOR * 16));
    while bytes.len() < count {
        let Some(chunk) = answer.chunk().await.map_err(unreachable)? else {
            return Err(MediaRefusal::Unusable("its body ends too early"));
        };
        let passed = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
        skip -= passed as u64;
        let wanted = chunk.len().saturating_sub(passed).min(count - bytes.len());
        bytes.extend_from_slice(&chunk[passed..passed + wanted]);
    }
    Ok(bytes)
}

fn understand(length: u64, first: &[u8], descriptors: &[u8]) -> MediaFacts {
    let mut facts = MediaFacts {
        length,
        boot_signature: first.get(510..512) == Some(&[0x55, 0xAA]),
        ..MediaFacts::default()
    };
    for sector in descriptors.chunks_exact(SECTOR) {
        if &sector[1..6] != b"CD001" {
            break;
        }
        match sector[0] {
            0 if sector[7..].starts_with(b"EL TORITO SPECIFICATION") => facts.el_torito = true,
            1 if facts.volume_id.is_none() => {
                facts.volume_id = Some(String::from_utf8_lossy(&sector[40..72]).trim_end().to_owned());
            }
            255 => break,
            _ => {}
        }
    }
    facts
}

fn header_number(answer: &Response, name: &str) -> Option<u64> {
    answer.headers().get(name)?.to_str().ok()?.parse().ok()
}

/// The cause without the URL, whose path is a secret.
fn unreachable(error: reqwest::Error) -> MediaRefusal {
    let error = error.without_url();
    let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    MediaRefusal::Unreachable(cause)
}

mod any_certificate {
    //! A verifier that takes any certificate: most BMCs have no way to know ours.

    use rustls::{
        DigitallySignedStruct, Error, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
        pki_types::{CertificateDer, ServerName, UnixTime},
    };

    #[derive(Debug)]
    pub(super) struct AnyCertificate(WebPkiSupportedAlgorithms);

    impl AnyCertificate {
        pub(super) fn new() -> Self {
            Self(ring::default_provider().signature_verification_algorithms)
        }
    }

    impl ServerCertVerifier for AnyCertificate {
        fn verify_server_cert(
            &self,
            _end_entity: &CertificateDer<'_>,
            _intermediates: &[CertificateDer<'_>],
            _server_name: &ServerName<'_>,
            _ocsp_response: &[u8],
            _now: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, cert, signature, &self.0)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, cert, signature, &self.0)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.supported_schemes()
        }
    }
}
