//! The digest of a selection, such as of jobs or servers: a preview shows it, and the change that follows has it. A number alone does not
//! say that they are the same, since one may have come for each that has gone.

use sha2::{Digest, Sha256};

/// The characters of a digest.
const CHARS: usize = 16;

/// The digest of these names, in whatever order, in hex.
pub fn selection_digest(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<_> = names.into_iter().collect();
    let mut names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    names.sort_unstable();
    let mut digest = Sha256::new();
    for name in names {
        digest.update(name);
        digest.update("\n");
    }
    hex::encode(digest.finalize()).chars().take(CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_names_in_whatever_order_and_of_no_others() {
        let of = |names: &[&str]| selection_digest(names);
        assert_eq!(of(&["a", "b"]), of(&["b", "a"]));
        assert_eq!(of(&["a", "b"]).len(), CHARS);
        for other in [&["a"][..], &["a", "c"], &["a", "b", "b"], &["ab"], &[]] {
            assert_ne!(of(other), of(&["a", "b"]), "{other:?}");
        }
    }
}
