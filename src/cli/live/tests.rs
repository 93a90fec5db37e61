//! Lists that follow what they list, into a pipe.

use serde_json::{Value, json};

use super::*;
use crate::cli::output::Format;

/// A list with the states of two jobs.
fn record(first: &str, second: &str, format: Format) -> Vec<Piece> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut output = Output::new(&mut out, &mut err, format);
    output.record = Some(Vec::new());
    if format.is_document() {
        let jobs = json!([{"job_id": "a", "status": first}, {"job_id": "b", "status": second}]);
        output.document(&json!({"jobs": jobs, "next": null})).unwrap();
    } else {
        let row = |id: &str, state: &str| {
            vec![id.to_owned(), state.to_owned(), "2026-01-01T00:00:00.000Z".to_owned()]
        };
        output.table(&["JOB", "STATUS", "CREATED"], &[row("a", first), row("b", second)]).unwrap();
    }
    output.record.unwrap()
}

fn appended(records: &[(&str, &str)], format: Format) -> String {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut output = Output::new(&mut out, &mut err, format);
    let mut appended = Appended::default();
    for (first, second) in records {
        appended.show(&record(first, second, format), &mut output).unwrap();
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn a_pipe_receives_the_rows_that_changed() {
    let text = appended(&[("queued", "queued"), ("queued", "queued"), ("running", "queued")], Format::Text);
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        words,
        [
            vec!["JOB", "STATUS", "CREATED"],
            vec!["a", "queued", "2026-01-01T00:00:00Z"],
            vec!["b", "queued", "2026-01-01T00:00:00Z"],
            vec!["a", "running", "2026-01-01T00:00:00Z"],
        ]
    );
}

#[test]
fn documents_are_appended_one_row_each() {
    let text = appended(&[("queued", "queued"), ("queued", "failed")], Format::Json);
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[2], json!({"job_id": "b", "status": "failed"}));
    assert_eq!(appended(&[("queued", "queued"), ("queued", "failed")], Format::Name), "a\nb\nb\n");
}
