//! The language of filters.

use proptest::prelude::*;

use super::*;

fn now() -> Time {
    "2026-11-20T08:00:00Z".parse().unwrap()
}

fn parse(text: &str) -> Filter {
    Filter::parse(Subject::Jobs, text, now()).unwrap()
}

fn refused(subject: Subject, text: &str) -> Vec<String> {
    let errors = Filter::parse(subject, text, now()).unwrap_err();
    errors.iter().map(FilterError::to_string).collect()
}

#[test]
fn every_form_of_a_term_has_one_meaning() {
    let canonical = |text: &str| parse(text).to_string();
    assert_eq!(canonical(""), "");
    assert_eq!(canonical("  condition:waiting,held   -step:a "), "condition:waiting,held -step:a");
    assert_eq!(canonical("site=a rack!=7"), "label:site=a -label:rack=7");
    assert_eq!(canonical("-site=a -rack!=7"), "-label:site=a label:rack=7");
    assert_eq!(canonical("label:gpu site=\"new york\""), "label:gpu label:\"site=new york\"");
    assert_eq!(canonical("carrier \"a:b\" -x"), "\"carrier\" \"a:b\" -\"x\"");
    assert_eq!(canonical("since:2h"), "since:2026-11-20T06:00:00.000Z");
    assert_eq!(
        canonical("until:2026-11-01 since:1w"),
        "until:2026-11-01T00:00:00.000Z since:2026-11-13T08:00:00.000Z"
    );
    assert_eq!(canonical("serial:SH-*,X?"), "serial:SH-*,X?");
    assert_eq!(canonical("url=http://a:1"), "label:url=http://a:1");
}

#[test]
fn a_selector_joins_its_parts_with_and() {
    let canonical = |text: &str| Filter::selector(text).unwrap().to_string();
    assert_eq!(canonical("site=a,rack!=7"), "label:site=a -label:rack=7");
    assert_eq!(canonical("gpu,!spare"), "label:gpu -label:spare");
    assert_eq!(Filter::selector("site=a,").unwrap_err().at, 7);
    assert!(Filter::selector("=a").is_err());
}

#[test]
fn a_selector_of_another_language_is_refused() {
    for text in ["site==north", "site in (a,b)", "site notin (a)", "site = a", "site!==a"] {
        let error = Filter::selector(text).unwrap_err();
        assert!(error.message.contains("KEY=VALUE"), "{text}: {error}");
    }
    assert!(refused(Subject::Servers, "site==north")[0].contains("one `=`"));
}

#[test]
fn the_value_of_a_selector_may_have_any_character_of_a_label() {
    let canonical = |text: &str| Filter::selector(text).unwrap().to_string();
    assert_eq!(canonical("digest=YWI=="), "label:digest=YWI==");
    assert_eq!(canonical("digest!=YWI=="), "-label:digest=YWI==");
    assert_eq!(canonical("rule=a!=b"), "label:rule=a!=b");
    assert_eq!(canonical("place=hall (2) in Kiel"), "label:\"place=hall (2) in Kiel\"");
    let of_value =
        |value: &str| Filter::of_value(Subject::Servers, "label", value, now()).unwrap().to_string();
    assert_eq!(of_value("rule=a!=b"), "label:rule=a!=b");
    assert_eq!(of_value("rule!=a=b"), "-label:rule=a=b");
}

#[test]
fn an_empty_text_is_refused_because_it_is_in_everything() {
    for text in ["\"\"", "-\"\"", "\"  \"", "site=a \"\""] {
        assert!(refused(Subject::Jobs, text)[0].contains("must not be empty"), "{text}");
    }
}

#[test]
fn a_refused_term_names_its_place_and_what_was_meant() {
    let keys = "condition, status, outcome, failure, class, failed_step, step, wait, hold, serial, label, workflow, batch, by, since, until";
    assert_eq!(
        refused(Subject::Jobs, "site=a stpe:x"),
        [format!(
            "stpe:x at character 8: did you mean step? the key is one of {keys}; put a text with a colon into quotation marks"
        )]
    );
    assert_eq!(
        refused(Subject::Jobs, "condition:waitng outcome:ok"),
        [
            "condition:waitng at character 1: did you mean waiting? condition is one of queued, restored, gated, blocked, \
             working, cancelling, abandoned, waiting, retrying, due, held, ended",
            "outcome:ok at character 18: outcome is one of succeeded, failed, cancelled",
        ]
    );
    assert_eq!(
        refused(Subject::Jobs, "failure:opn"),
        ["failure:opn at character 1: did you mean open? failure is one of open"]
    );
    assert!(refused(Subject::Servers, "outcome:failed")[0].contains("the key is one of state, serial"));
    assert!(refused(Subject::Jobs, "serial:[a]")[0].contains("pattern"));
    assert!(refused(Subject::Jobs, "step:")[0].contains("step needs a value"));
    assert!(refused(Subject::Jobs, "\"open")[0].contains("not closed"));
    assert!(refused(Subject::Jobs, "- x")[0].contains("without a blank"));
    assert!(refused(Subject::Jobs, "since:yesterday")[0].contains("an age such as"));
    assert!(refused(Subject::Jobs, "label:site!=a")[0].contains("a minus in front"));
}

#[test]
fn a_filter_is_bounded() {
    let words = |count: usize| vec!["a"; count];
    assert!(Filter::parse(Subject::Jobs, &words(MAX_TERMS).join(" "), now()).is_ok());
    assert_eq!(refused(Subject::Jobs, &words(MAX_TERMS + 1).join(" ")), ["a filter has at most 32 terms"]);
    let step = |count| format!("step:{}", words(count).join(","));
    assert!(Filter::parse(Subject::Jobs, &step(MAX_VALUES), now()).is_ok());
    assert!(refused(Subject::Jobs, &step(MAX_VALUES + 1))[0].contains("at most 32 values"));
    assert_eq!(refused(Subject::Jobs, &"é".repeat(MAX_FILTER_BYTES)).len(), 1);
    assert_eq!(refused(Subject::Jobs, &"x:y ".repeat(200)).len(), 8);
    let full = parse(&words(MAX_TERMS).join(" "));
    assert!(full.and(parse("b")).is_err());
}

#[test]
fn the_value_of_a_parameter_is_taken_whole() {
    let of = |key: &str, value: &str| {
        Filter::of_value(Subject::Jobs, key, value, now()).map(|filter| filter.to_string())
    };
    assert_eq!(of("label", "site=a,b").unwrap(), "label:\"site=a,b\"");
    assert_eq!(of("label", "site!=a").unwrap(), "-label:site=a");
    assert_eq!(of("text", "a b:c").unwrap(), "\"a b:c\"");
    assert_eq!(of("condition", "held").unwrap(), "condition:held");
    assert!(of("condition", "held,due").is_err());
    assert!(of("nothing", "x").unwrap_err().unknown);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// No text stops the parser, and what it accepts is the same filter when its text is parsed again.
    #[test]
    fn the_text_of_a_filter_is_the_same_filter(
        words in proptest::collection::vec(
            "(-)?(condition:held|failure:open|step:[a-z\",\\\\]{1,4}|label:[a-z=!,\"]{1,5}|[a-z]{1,3}!?=[a-z:,]{0,3}|since:[0-9]{1,2}[hdx]|.{0,6})",
            0..6,
        ),
    ) {
        let text = words.join(" ");
        for subject in [Subject::Jobs, Subject::Servers] {
            if let Ok(filter) = Filter::parse(subject, &text, now()) {
                prop_assert_eq!(Filter::parse(subject, &filter.to_string(), now()).unwrap(), filter);
            }
        }
    }
}
