//! The check before a file is sent.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::{Component, FirmwareFile, Sha256Digest, VerifiedFirmware, VerifyError};

fn stored(bytes: &[u8]) -> Arc<File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Arc::new(file)
}

fn described(bytes: &[u8]) -> FirmwareFile {
    let sha256 = Sha256Digest::new(Sha256::digest(bytes).into());
    let of = ("dell".parse().unwrap(), ["M".parse().unwrap()].into(), Component::Bios);
    FirmwareFile::new(of, "1.0", ("f.bin".parse().unwrap(), sha256, bytes.len() as u64)).unwrap()
}

#[test]
fn the_right_bytes_are_read_after_the_check_and_end_where_the_file_ends() {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let verified = VerifiedFirmware::check(stored(&bytes), described(&bytes)).unwrap();
    let mut buffer = vec![0; 10];
    assert_eq!(verified.read_at(&mut buffer, 1_000_000).unwrap(), 10);
    assert_eq!(buffer, bytes[1_000_000..1_000_010]);
    assert_eq!(verified.read_at(&mut buffer, 2_999_995).unwrap(), 5);
    assert_eq!(verified.read_at(&mut buffer, 3_000_000).unwrap(), 0);
    assert_eq!(verified.read_at(&mut buffer, u64::MAX).unwrap(), 0);
}

#[test]
fn bytes_in_memory_are_verified_and_read_as_those_of_a_file() {
    let bytes: Vec<u8> = (0..700_u32).map(|number| number.to_le_bytes()[0]).collect();
    let verified = VerifiedFirmware::check_bytes(bytes.clone().into(), described(&bytes)).unwrap();
    assert_eq!(verified.in_memory(), Some(&bytes[..]));
    let mut buffer = vec![0; 10];
    assert_eq!(verified.read_at(&mut buffer, 695).unwrap(), 5);
    assert_eq!(buffer[..5], bytes[695..]);
    assert_eq!(verified.read_at(&mut buffer, 700).unwrap(), 0);
    assert_eq!(verified.read_at(&mut buffer, u64::MAX).unwrap(), 0);
    let mut changed = bytes.clone();
    changed[3] ^= 1;
    let refused = VerifiedFirmware::check_bytes(changed.into(), described(&bytes)).unwrap_err();
    assert!(matches!(refused, VerifyError::OtherBytes { .. }), "{refused}");
    let refused = VerifiedFirmware::check_bytes(bytes[..5].to_vec().into(), described(&bytes)).unwrap_err();
    assert!(matches!(refused, VerifyError::OtherSize { expected: 700, actual: 5, .. }), "{refused}");
}

#[test]
fn changed_short_and_long_bytes_are_refused_before_any_of_them_is_given_out() {
    let bytes = b"firmware of a BMC".to_vec();
    let mut changed = bytes.clone();
    changed[3] ^= 1;
    let refused = VerifiedFirmware::check(stored(&changed), described(&bytes)).unwrap_err();
    assert!(matches!(refused, VerifyError::OtherBytes { .. }), "{refused}");
    assert!(refused.to_string().contains("nothing was sent"), "{refused}");
    for other in [&bytes[..5], &[&bytes[..], b"x"].concat()[..], b""] {
        let refused = VerifiedFirmware::check(stored(other), described(&bytes)).unwrap_err();
        assert!(matches!(refused, VerifyError::OtherSize { expected: 17, .. }), "{refused}");
    }
}
