//! Lists that follow what they list, into a pipe.

use serde_json::{Value, json};

use super::*;
use crate::connection::changes;
use crate::output::Format;

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

#[tokio::test(start_paused = true)]
async fn a_list_that_failed_once_is_read_again_without_an_event() {
    let (events, changes) = changes();
    // One event, and then none: the stream stays open.
    events.send("data: {}\n\n").unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut output = Output::new(&mut out, &mut err, Format::Text);
    let mut reads = 0;
    let show = async |output: &mut Output<'_>| {
        reads += 1;
        match reads {
            1 => output.line("first"),
            2 => {
                Err(CliError::Refused { status: 503, body: json!({"error": "stopping", "message": "stops"}) })
            }
            3 => output.line("second"),
            _ => Err(CliError::failed("the end")),
        }
    };
    let followed = follow(changes, &mut output, show);
    // After the third read the list waits for the next event, for less time than a silent stream is trusted.
    tokio::time::timeout(Duration::from_secs(10), followed).await.unwrap_err();
    assert_eq!(String::from_utf8(out).unwrap(), "first\nsecond\n");
    drop(events);
}

#[test]
fn documents_are_appended_one_row_each() {
    let text = appended(&[("queued", "queued"), ("queued", "failed")], Format::Json);
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[2], json!({"job_id": "b", "status": "failed"}));
    assert_eq!(appended(&[("queued", "queued"), ("queued", "failed")], Format::Name), "a\nb\nb\n");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_followed_says_too_what_it_leaves_out() {
    let (events, changes) = changes();
    events.send("data: {}\n\n").unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut output = Output::new(&mut out, &mut err, Format::Text);
    let mut reads = 0;
    let show = async |output: &mut Output<'_>| {
        reads += 1;
        output.line("a row")?;
        output.note("there are more rows");
        if reads == 2 { Err(CliError::failed("the end")) } else { Ok(()) }
    };
    follow(changes, &mut output, show).await.unwrap_err();
    assert_eq!(String::from_utf8(out).unwrap(), "a row\n");
    assert_eq!(String::from_utf8(err).unwrap(), "there are more rows\n");
    drop(events);
}

#[test]
fn a_note_is_drawn_where_it_stands() {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut output = Output::new(&mut out, &mut err, Format::Text);
    output.record = Some(Vec::new());
    output.line("a row").unwrap();
    output.note("there are more rows");
    let record = output.record.take().unwrap();
    assert_eq!(drawn(&record, &output).unwrap(), ["a row", "there are more rows"]);
    // Each line of a drawing is one of the terminal.
    output.screen.width = Some(10);
    assert_eq!(drawn(&record, &output).unwrap(), ["a row", "there are", "more rows"]);
}
