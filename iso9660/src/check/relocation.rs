//! Rock Ridge attributes across records: link counts and relocated directories.
//!
//! ```text
//! /1/2/3/4/5/6/7/8    an empty record, CL -> sector of the directory            its original place
//! /RR_MOVED/8         the directory; its record has RE; its ".." has PL -> sector of /1/2/.../7
//! ```

use std::collections::HashMap;

use super::report::shown;
use super::walk::Hierarchy;
use super::{Checker, Rule};

/// Checks the directories of a hierarchy with Rock Ridge.
pub(super) fn check(checker: &mut Checker<'_>, hierarchy: &Hierarchy) {
    if hierarchy.rock_ridge {
        relocations(checker, hierarchy);
        links(checker, hierarchy);
    }
}

fn relocations(checker: &mut Checker<'_>, hierarchy: &Hierarchy) {
    let directories = &hierarchy.directories;
    let by_extent: HashMap<u32, usize> =
        directories.iter().enumerate().map(|(index, directory)| (directory.extent, index)).collect();
    let mut wanted: HashMap<usize, usize> = HashMap::new();
    for link in &hierarchy.child_links {
        match by_extent.get(&link.target) {
            Some(target) if *target != 0 && wanted.insert(*target, link.directory).is_none() => {}
            Some(_) => {
                let message =
                    format_args!("a second CL points to sector {}, or CL points to the root", link.target);
                checker.find(Rule::RockRidgeRelocation, link.offset, message);
            }
            None => {
                let message = format_args!("CL points to sector {}, which is not a directory", link.target);
                checker.find(Rule::RockRidgeRelocation, link.offset, message);
            }
        }
    }
    for (index, directory) in directories.iter().enumerate() {
        let belongs = wanted.get(&index).map(|parent| directories[*parent].extent);
        let says = directory.above.parent_link;
        let name = shown(&directory.identifier);
        if belongs.is_some() && !directory.named.relocated {
            let message = format_args!("CL points to {name}, which has no RE");
            checker.find(Rule::RockRidgeRelocation, directory.record, message);
        }
        if says.map(|(_, extent)| extent) != belongs {
            let offset = says.map_or(directory.record, |(offset, _)| offset);
            let says = match says {
                Some((_, extent)) => format!("PL points to sector {extent}"),
                None => "there is no PL".to_owned(),
            };
            let belongs = match belongs {
                Some(extent) => format!("its CL is in the directory in sector {extent}"),
                None => "no CL points to it".to_owned(),
            };
            let message = format_args!("{name}: {says}, and {belongs}");
            checker.find(Rule::RockRidgeRelocation, offset, message);
        }
    }
}

fn links(checker: &mut Checker<'_>, hierarchy: &Hierarchy) {
    let directories = &hierarchy.directories;
    // The subdirectories as stored, and as Rock Ridge shows them.
    let (mut lying, mut shown_as) = (vec![0_u32; directories.len()], vec![0_u32; directories.len()]);
    for directory in directories.iter().skip(1) {
        lying[directory.parent] += 1;
        if !directory.named.relocated {
            shown_as[directory.parent] += 1;
        }
    }
    for link in &hierarchy.child_links {
        shown_as[link.directory] += 1;
    }
    for (index, directory) in directories.iter().enumerate() {
        for (offset, _, links) in
            [&directory.named, &directory.itself].into_iter().filter_map(|rock| rock.posix)
        {
            let counted = [2 + lying[index], 2 + shown_as[index]];
            if links > 1 && !counted.contains(&links) {
                let message = format_args!(
                    "{} has {links} links and {} subdirectories",
                    shown(&directory.identifier),
                    shown_as[index]
                );
                checker.find(Rule::RockRidgeLinks, offset + 12, message);
            }
        }
    }
}
