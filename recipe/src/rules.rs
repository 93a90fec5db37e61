//! Rules that a JSON schema cannot express. Each has its code.
//!
//! | code | rule |
//! |---|---|
//! | `whole_disk` | `target_disk` under `/dev/disk/by-…` is a disk, not one of its partitions |
//! | `rest_twice` | at most one partition takes the rest (`100%`): a second one would be empty |
//! | `percent_sum` | shares fit on the disk: at most 100% together, less when another partition takes the rest |

use super::Recipe;
use super::error::FieldError;
use super::partition::PartitionSize;

/// Returns the errors of all broken rules.
pub(super) fn errors(recipe: &Recipe) -> Vec<FieldError> {
    let mut errors = Vec::new();
    whole_disk(recipe, &mut errors);
    rest_once(recipe, &mut errors);
    percent_sum(recipe, &mut errors);
    errors
}

fn whole_disk(recipe: &Recipe, errors: &mut Vec<FieldError>) {
    let Some(disk) = recipe.target_disk.as_deref().filter(|disk| disk.starts_with("/dev/disk/by-")) else {
        return;
    };
    // udev names a partition after its disk: NAME-part1.
    let partition = disk
        .rsplit_once("-part")
        .filter(|(_, number)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    if let Some((whole, _)) = partition {
        let message = format!("`target_disk` names a partition; give the whole disk, {whole}.");
        errors.push(FieldError::new("/target_disk", "whole_disk", message));
    }
}

fn rest_once(recipe: &Recipe, errors: &mut Vec<FieldError>) {
    let rests =
        recipe.partition_layout.iter().enumerate().filter(|(_, part)| part.size == PartitionSize::Rest);
    for (index, _) in rests.skip(1) {
        let message = format!(
            "`partition_layout/{index}/size` is a second 100%. 100% means the space that the other partitions leave, \
             so only one partition can have it; set a size or a share such as 50% here."
        );
        errors.push(FieldError::new(&format!("/partition_layout/{index}/size"), "rest_twice", message));
    }
}

fn percent_sum(recipe: &Recipe, errors: &mut Vec<FieldError>) {
    let sum: u32 = recipe
        .partition_layout
        .iter()
        .map(|part| if let PartitionSize::Percent(percent) = part.size { u32::from(percent) } else { 0 })
        .sum();
    let rest = recipe.partition_layout.iter().any(|part| part.size == PartitionSize::Rest);
    let message = if sum > 100 {
        format!(
            "The shares in `partition_layout` add up to {sum}%; they are shares of the whole disk, at most 100%."
        )
    } else if sum == 100 && rest {
        "The shares in `partition_layout` add up to 100% of the disk and leave nothing for the partition of size 100%, \
         which means the rest."
            .to_owned()
    } else {
        return;
    };
    errors.push(FieldError::new("/partition_layout", "percent_sum", message));
}
