//! Checks the signature of a signed text (`InRelease`) with the keys of a keyring file (RFC 4880, RFC 9580 for version 4).
//!
//! ```text
//! -----BEGIN PGP SIGNED MESSAGE-----      packets of the signature: version, type, key and hash algorithm,
//! Hash: SHA256                            hashed part, numbers
//!                                              |
//! text, lines with "-" begin with "- "         v
//! -----BEGIN PGP SIGNATURE-----           hash(text with CR LF | hashed part | its length), compared with RSA or Ed25519
//! base64, checksum
//! -----END PGP SIGNATURE-----
//! ```
//!
//! What is checked: one good signature by one key in the keyring, of a type for texts, with SHA-256 or SHA-512. What is not: whether
//! a key is expired or revoked, and the certifications of a key by other keys. The keyring file is the trust: give one with the
//! distribution's keys only, such as `/usr/share/keyrings/debian-archive-keyring.gpg`.
//!
//! Invariant: the text that is returned is the text that was signed; what stands before or after it is not part of it.

use ring::digest;
use ring::signature::{
    ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents,
    UnparsedPublicKey,
};

/// The most keys of a keyring file.
const MOST_KEYS: usize = 1000;
/// The most signatures of one text; Debian's have up to four.
const MOST_SIGNATURES: usize = 16;
/// The identifier of Ed25519 in a key.
const ED25519_OID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01];

const SIGNATURE: u8 = 2;
const PUBLIC_KEY: u8 = 6;
const PUBLIC_SUBKEY: u8 = 14;
const RSA: u8 = 1;
const RSA_SIGN: u8 = 3;
const EDDSA: u8 = 22;
const ED25519_NEW: u8 = 27;
const SHA256: u8 = 8;
const SHA512: u8 = 10;

/// A key that can sign.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Key {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    Ed25519(Vec<u8>),
}

/// The keys of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Keyring(Vec<Key>);

/// A signature of a text.
struct Signature<'a> {
    algorithm: u8,
    hash: u8,
    /// The part of the packet that is signed too.
    hashed: &'a [u8],
    /// The first two bytes of the hash.
    check: [u8; 2],
    numbers: &'a [u8],
}

impl Keyring {
    /// Reads the keys of a file, binary or in base64 with its frame. Keys of other algorithms are passed over.
    ///
    /// # Errors
    /// A sentence: the file is damaged, or has no key that can be used.
    pub(super) fn parse(file: &[u8]) -> Result<Self, String> {
        let begin = b"-----BEGIN PGP PUBLIC KEY BLOCK-----";
        let mut binary = Vec::new();
        if file.trim_ascii_start().starts_with(begin) {
            let text = str::from_utf8(file).map_err(|_| "the keyring is not text")?;
            for block in text.split("-----BEGIN PGP PUBLIC KEY BLOCK-----").skip(1) {
                binary.extend(unarmor(block, "-----END PGP PUBLIC KEY BLOCK-----")?);
            }
        } else {
            binary.extend(file);
        }
        let mut keys = Vec::new();
        for packet in Packets(&binary) {
            let (tag, body) = packet?;
            if matches!(tag, PUBLIC_KEY | PUBLIC_SUBKEY) && keys.len() < MOST_KEYS {
                keys.extend(key(body));
            }
        }
        if keys.is_empty() {
            return Err("the keyring has no RSA or Ed25519 key".to_owned());
        }
        Ok(Self(keys))
    }

    /// Returns the text of a signed message.
    ///
    /// # Errors
    /// A sentence: the message is damaged, or no key of the keyring made one of its signatures.
    pub(super) fn open(&self, message: &str) -> Result<String, String> {
        let (text, signed, block) = parts(message)?;
        let binary = unarmor(block, "-----END PGP SIGNATURE-----")?;
        let mut count = 0;
        for packet in Packets(&binary) {
            let (tag, body) = packet?;
            let Some(signature) = (tag == SIGNATURE).then(|| signature(body)).flatten() else { continue };
            count += 1;
            if count > MOST_SIGNATURES {
                break;
            }
            if self.0.iter().any(|key| signature.is_of(key, signed.as_bytes())) {
                return Ok(text);
            }
        }
        Err(match count {
            0 => "it has no signature of a form that can be checked (RSA or Ed25519, SHA-256 or SHA-512)".to_owned(),
            _ => "no key of the keyring made its signature: the file was changed, or the keyring is not the distribution's".to_owned(),
        })
    }
}

/// The text for readers, the text that is signed, and the block of the signature.
fn parts(message: &str) -> Result<(String, String, &str), &'static str> {
    let rest = message.strip_prefix("-----BEGIN PGP SIGNED MESSAGE-----").ok_or("it is not a signed text")?;
    let mut lines = rest.split_inclusive('\n');
    let mut used = lines.next().ok_or("it is cut")?.len();
    for line in lines.by_ref() {
        used += line.len();
        match line.trim_end() {
            "" => break,
            header if header.starts_with("Hash:") => {}
            _ => return Err("its head has a line that is not expected"),
        }
    }
    let body = &rest[used..];
    let (mut text, mut signed) = (String::new(), String::new());
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        if line.trim_end() == "-----BEGIN PGP SIGNATURE-----" {
            return Ok((text, signed, &body[at + line.len()..]));
        }
        at += line.len();
        let line = line.trim_end_matches(['\r', '\n']);
        let line = match line.strip_prefix("- ") {
            Some(line) => line,
            None if line.starts_with('-') => return Err("a line in it begins with a dash"),
            None => line,
        };
        // Spaces at the end of a line are not signed, so a reader must not see them.
        let line = line.trim_end_matches([' ', '\t']);
        if !text.is_empty() {
            signed.push_str("\r\n");
        }
        signed.push_str(line);
        text.push_str(line);
        text.push('\n');
    }
    Err("its signature is missing")
}

/// The bytes of a block of base64: headers, an empty line, data, a checksum, the end.
fn unarmor(block: &str, end: &str) -> Result<Vec<u8>, &'static str> {
    let inner = block
        .split(end)
        .next()
        .filter(|inner| inner.len() < block.len())
        .ok_or("a block of base64 does not end")?;
    // Headers such as `Version: 1` have a colon, which base64 has not.
    let lines = inner.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains(':'));
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for line in lines {
        // A checksum of 24 bits; the signature is a better one.
        if line.starts_with('=') {
            break;
        }
        for sign in line.bytes().filter(|sign| *sign != b'=') {
            let value = match sign {
                b'A'..=b'Z' => sign - b'A',
                b'a'..=b'z' => sign - b'a' + 26,
                b'0'..=b'9' => sign - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return Err("a block of base64 has another sign"),
            };
            bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
            count += 6;
            if count >= 8 {
                count -= 8;
                bytes.push((bits >> count) as u8);
            }
        }
    }
    Ok(bytes)
}

/// The packets of a binary file: tag and body.
struct Packets<'a>(&'a [u8]);

impl<'a> Iterator for Packets<'a> {
    type Item = Result<(u8, &'a [u8]), &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let packet = self.take();
        if packet.is_err() {
            self.0 = &[];
        }
        Some(packet)
    }
}

impl<'a> Packets<'a> {
    fn take(&mut self) -> Result<(u8, &'a [u8]), &'static str> {
        const CUT: &str = "a packet in it is cut";
        let head = *self.0.first().ok_or(CUT)?;
        if head & 0x80 == 0 {
            return Err("it is not made of OpenPGP packets");
        }
        let byte = |at: usize| self.0.get(at).map(|byte| usize::from(*byte)).ok_or(CUT);
        let number = |at: usize, count: usize| {
            (0..count).try_fold(0, |sum, n| Ok::<usize, &str>(sum << 8 | byte(at + n)?))
        };
        let (tag, (start, length)) = if head & 0x40 == 0 {
            let size = match head & 3 {
                0 => 1,
                1 => 2,
                2 => 4,
                _ => return Err("a packet in it has no length"),
            };
            (head >> 2 & 15, (1 + size, number(1, size)?))
        } else {
            let length = match byte(1)? {
                first @ 0..=191 => (2, first),
                first @ 192..=223 => (3, ((first - 192) << 8) + byte(2)? + 192),
                255 => (6, number(2, 4)?),
                _ => return Err("a packet in it comes in parts"),
            };
            (head & 63, length)
        };
        let end = start.checked_add(length).ok_or(CUT)?;
        let body = self.0.get(start..end).ok_or(CUT)?;
        self.0 = &self.0[end..];
        Ok((tag, body))
    }
}

/// A number of variable length: bits in two bytes, then the bytes.
fn mpi<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let bits = usize::from(u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]));
    let end = 2 + bits.div_ceil(8);
    let number = bytes.get(2..end)?;
    *bytes = &bytes[end..];
    Some(number)
}

/// The key of a packet, if it is version 4 and of an algorithm that is checked here.
fn key(body: &[u8]) -> Option<Key> {
    if *body.first()? != 4 {
        return None;
    }
    let mut rest = body.get(6..)?;
    match *body.get(5)? {
        RSA | RSA_SIGN => {
            let modulus = mpi(&mut rest)?.to_vec();
            Some(Key::Rsa { modulus, exponent: mpi(&mut rest)?.to_vec() })
        }
        EDDSA => {
            let oid = rest.get(1..1 + usize::from(*rest.first()?))?;
            rest = rest.get(1 + oid.len()..)?;
            // A point begins with 0x40.
            let point = mpi(&mut rest)?.strip_prefix(&[0x40])?;
            (oid == ED25519_OID && point.len() == 32).then(|| Key::Ed25519(point.to_vec()))
        }
        ED25519_NEW => rest.get(..32).map(|key| Key::Ed25519(key.to_vec())),
        _ => None,
    }
}

/// The signature of a packet, if it is version 4, of a text or of bytes, and with a hash that is checked here.
fn signature(body: &[u8]) -> Option<Signature<'_>> {
    let &[version, kind, algorithm, hash, high, low] = body.get(..6)? else { return None };
    // Type 0 is of bytes, type 1 of a text. Certifications and others must not count for a text.
    if version != 4 || kind > 1 || ![SHA256, SHA512].contains(&hash) {
        return None;
    }
    let hashed = body.get(..6 + usize::from(u16::from_be_bytes([high, low])))?;
    let rest = &body[hashed.len()..];
    let unhashed = usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]));
    let rest = rest.get(2 + unhashed..)?;
    let check = [*rest.first()?, *rest.get(1)?];
    Some(Signature { algorithm, hash, hashed, check, numbers: &rest[2..] })
}

impl Signature<'_> {
    /// Whether this key made the signature of the text.
    fn is_of(&self, key: &Key, text: &[u8]) -> bool {
        let mut numbers = self.numbers;
        let mut message = text.to_vec();
        message.extend(self.hashed);
        // The hashed part has at most 64 KiB.
        message.extend([4, 0xff].into_iter().chain((self.hashed.len() as u32).to_be_bytes()));
        let algorithm = if self.hash == SHA256 { &digest::SHA256 } else { &digest::SHA512 };
        let hash = digest::digest(algorithm, &message);
        if hash.as_ref()[..2] != self.check {
            return false;
        }
        match key {
            Key::Rsa { modulus, exponent } if matches!(self.algorithm, RSA | RSA_SIGN) => {
                let Some(number) = mpi(&mut numbers) else { return false };
                // A signature is as long as the modulus; leading zeros are not written.
                let Some(zeros) = modulus.len().checked_sub(number.len()) else { return false };
                let padded = [&vec![0; zeros][..], number].concat();
                let parameters = if self.hash == SHA256 {
                    &RSA_PKCS1_2048_8192_SHA256
                } else {
                    &RSA_PKCS1_2048_8192_SHA512
                };
                RsaPublicKeyComponents { n: modulus, e: exponent }
                    .verify(parameters, &message, &padded)
                    .is_ok()
            }
            Key::Ed25519(point) if self.algorithm == EDDSA => {
                let mut half = || {
                    let number = mpi(&mut numbers)?;
                    Some([&vec![0; 32_usize.checked_sub(number.len())?][..], number].concat())
                };
                let (Some(first), Some(second)) = (half(), half()) else { return false };
                let signature = [first, second].concat();
                UnparsedPublicKey::new(&ED25519, point).verify(hash.as_ref(), &signature).is_ok()
            }
            Key::Ed25519(point) if self.algorithm == ED25519_NEW => {
                numbers.get(..64).is_some_and(|signature| {
                    UnparsedPublicKey::new(&ED25519, point).verify(hash.as_ref(), signature).is_ok()
                })
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
