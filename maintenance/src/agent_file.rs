//! The places of the agent's program file.

use std::path::{Path, PathBuf};

/// The places of the agent, from the folder of the program `shoal`: the archive and a build (`cargo static-agent`), the Debian
/// package and the OCI image.
const PLACES: [&str; 2] = ["shoal-agent", "../lib/shoal/shoal-agent"];

/// The file of the agent that belongs to the program in `folder`. `None` when no place has one.
pub fn find_agent(folder: &Path) -> Option<PathBuf> {
    PLACES.iter().map(|place| folder.join(place)).find(|file| file.is_file())
}

/// The file of the agent that belongs to the running program. `None` when no place has one, or when the system does not show the
/// file of the running program (a root without `/proc`).
pub fn agent_of_this_program() -> Option<PathBuf> {
    find_agent(std::env::current_exe().ok()?.parent()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_found_beside_the_program_and_in_its_library_folder() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("bin");
        std::fs::create_dir(&folder).unwrap();
        assert_eq!(find_agent(&folder), None);
        // The last place first: each place comes before those that were filled before it.
        for place in PLACES.iter().rev() {
            let file = folder.join(place);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "agent").unwrap();
            assert_eq!(find_agent(&folder), Some(file));
        }
    }
}
