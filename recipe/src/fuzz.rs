//! The body of the fuzz target `recipe`: any text is accepted or refused within the limits of this crate.

use std::sync::LazyLock;

use crate::{MAX_ERRORS, Recipe, RecipeSchemas};

/// Validates a recipe, and reads an accepted one again as later steps of a job do.
///
/// # Panics
/// When an accepted text is changed or cannot be read again, or a refusal has no error or too many.
pub fn recipe(data: &[u8]) {
    static SCHEMAS: LazyLock<RecipeSchemas> = LazyLock::new(RecipeSchemas::builtin);
    match SCHEMAS.validate_bytes(data) {
        Ok(recipe) => {
            assert!(recipe.raw.as_bytes() == data, "an accepted recipe is the submitted text");
            let again = Recipe::accepted(&recipe.raw, &recipe.schema_id);
            assert!(
                again.is_ok_and(|again| again == recipe),
                "an accepted recipe is read again with another result"
            );
            let _ = (recipe.lints(), recipe.summary(), format!("{recipe:?}"));
        }
        Err(errors) => {
            assert!((1..=MAX_ERRORS).contains(&errors.len()), "a refusal has {} errors", errors.len());
            for error in errors {
                let _ = error.to_string();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_seeds_of_the_fuzz_target_and_their_damaged_forms_break_no_promise() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/recipe");
        let mut seeds = 0;
        for seed in std::fs::read_dir(corpus).unwrap().flatten() {
            let seed = std::fs::read(seed.path()).unwrap();
            super::recipe(&seed);
            for end in (0..seed.len()).step_by(37) {
                super::recipe(&seed[..end]);
                let mut changed = seed.clone();
                changed[end] = b"\"{}[],:0\\"[end % 9];
                super::recipe(&changed);
            }
            seeds += 1;
        }
        assert!(seeds > 0);
    }
}
