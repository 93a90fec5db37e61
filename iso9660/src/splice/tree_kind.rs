//! The kinds of trees of an image.

/// The kind of identifiers of a tree.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TreeKind {
    Primary,
    Joliet,
    Enhanced,
}

impl TreeKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            TreeKind::Primary => "primary",
            TreeKind::Joliet => "Joliet",
            TreeKind::Enhanced => "enhanced",
        }
    }
}
