//! Paths of an image, taken apart.

/// Pushes the components of a path to a stack, first component on top.
pub(super) fn push_components(left: &mut Vec<String>, path: &str) {
    left.extend(components(path).rev().map(str::to_owned));
}

/// Returns the components of a path.
pub(super) fn components(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}
