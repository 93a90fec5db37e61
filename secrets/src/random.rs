//! Random bytes of the operating system.

use thiserror::Error;

/// The operating system returned no random bytes.
#[derive(Debug, Error)]
#[error(
    "cannot read random bytes from the operating system ({0}); check that /dev/urandom exists where shoal runs"
)]
pub struct NoRandomness(getrandom::Error);

/// Random bytes of the operating system.
///
/// # Errors
/// [`NoRandomness`] when the operating system returns no random bytes.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes).map_err(NoRandomness)?;
    Ok(bytes)
}
