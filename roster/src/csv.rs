//! CSV as spreadsheets write it (RFC 4180): quotation marks, CRLF or LF, an optional byte order mark, comma, semicolon or tab.
//!
//! Invariants: no input makes the reader panic; every row has the line on which it begins; a quotation mark that is not closed is
//! an error with its line, so that the rest of a file is never read as one field.

/// The maximum of columns: the fields of a server and the labels that it may have are fewer.
pub(crate) const MAX_COLUMNS: usize = 256;

/// A table with a header.
#[derive(Debug, PartialEq)]
pub(crate) struct Table {
    /// The fields of the first row.
    pub(crate) header: Vec<String>,
    /// The other rows, each with the number of its first line.
    pub(crate) rows: Vec<(usize, Vec<String>)>,
}

/// Reads a table of at most `most` rows. Empty lines are left out.
///
/// # Errors
/// When the text is empty, a quotation mark is not closed, or there are too many columns or rows. A row may have another number of
/// fields than the header.
pub(crate) fn read(text: &str, most: usize) -> Result<Table, String> {
    let text = super::without_mark(text);
    let separator = separator(text);
    let mut rows = records(text, separator, most.saturating_add(1))?.into_iter();
    let Some((_, header)) = rows.next() else { return Err("the file is empty".to_owned()) };
    let header: Vec<String> = header.iter().map(|field| field.trim().to_owned()).collect();
    Ok(Table { header, rows: rows.collect() })
}

/// The separator that the first line has most often.
fn separator(text: &str) -> char {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let count = |separator: char| first.matches(separator).count();
    // The first of equals, so a header without any separator is read with commas.
    if count(';') > count(',') && count(';') >= count('\t') {
        ';'
    } else if count('\t') > count(',') {
        '\t'
    } else {
        ','
    }
}

/// The records of a text, the header among them. What is too much is refused where it begins, before the rest is read.
fn records(text: &str, separator: char, most: usize) -> Result<Vec<(usize, Vec<String>)>, String> {
    let (mut records, mut fields, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut closed, mut opened, mut line, mut begins) = (false, false, 0, 1, 1);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' if quoted => (quoted, closed) = (false, true),
            // Blanks before a quotation mark are those of a list that is easy to read.
            '"' if !closed && field.trim().is_empty() => {
                field.clear();
                (quoted, opened) = (true, line);
            }
            '\n' | '\r' if !quoted => {
                if character == '\r' && characters.peek() == Some(&'\n') {
                    characters.next();
                }
                fields.push(whole(&mut field, &mut closed));
                end(&mut records, &mut fields, begins);
                if records.len() > most {
                    return Err(format!(
                        "the table has more than {} rows; divide it",
                        most.saturating_sub(1)
                    ));
                }
                line += 1;
                begins = line;
            }
            _ if character == separator && !quoted => {
                fields.push(whole(&mut field, &mut closed));
                if fields.len() >= MAX_COLUMNS {
                    return Err(format!("line {line} has more than {MAX_COLUMNS} fields"));
                }
            }
            _ if closed && character.is_whitespace() => {}
            _ if closed => {
                return Err(format!(
                    "line {line} has text behind a closing quotation mark; a quotation mark within a field is written twice"
                ));
            }
            _ => {
                line += usize::from(character == '\n');
                field.push(character);
            }
        }
    }
    if quoted {
        return Err(format!("the quotation mark on line {opened} is not closed"));
    }
    fields.push(whole(&mut field, &mut closed));
    end(&mut records, &mut fields, begins);
    if records.len() > most {
        return Err(format!("the table has more than {} rows; divide it", most.saturating_sub(1)));
    }
    Ok(records)
}

/// A field that has ended. Blanks around it belong to it within quotation marks only.
fn whole(field: &mut String, closed: &mut bool) -> String {
    let text = std::mem::take(field);
    match std::mem::take(closed) {
        true => text,
        false => text.trim().to_owned(),
    }
}

fn end(records: &mut Vec<(usize, Vec<String>)>, fields: &mut Vec<String>, line: usize) {
    let record = std::mem::take(fields);
    if record.iter().any(|field| !field.trim().is_empty()) {
        records.push((line, record));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str) -> Result<Table, String> {
        read(text, usize::MAX)
    }

    #[test]
    fn a_table_with_too_many_rows_or_columns_is_refused_where_it_is_too_much() {
        assert_eq!(read("a\n1\n2\n", 2).unwrap().rows.len(), 2);
        assert_eq!(read("a\n1\n2\n3", 2).unwrap_err(), "the table has more than 2 rows; divide it");
        assert_eq!(read("a\n1\n2\n3\n\"", 2).unwrap_err(), "the table has more than 2 rows; divide it");
        let wide = |columns: usize| vec!["x"; columns].join(",");
        assert!(read(&wide(MAX_COLUMNS), 2).is_ok());
        assert_eq!(read(&wide(MAX_COLUMNS + 1), 2).unwrap_err(), "line 1 has more than 256 fields");
    }

    #[test]
    fn quotation_marks_line_ends_and_separators_are_those_of_spreadsheets() {
        let table =
            all("\u{feff}serial;bmc\r\nA;\"10.0.0.1\"\r\n\r\n\"B;1\";\"say \"\"x\"\"\ny\"\r\n").unwrap();
        assert_eq!(table.header, ["serial", "bmc"]);
        let row = |line, fields: [&str; 2]| (line, fields.map(str::to_owned).to_vec());
        assert_eq!(table.rows, [row(2, ["A", "10.0.0.1"]), row(4, ["B;1", "say \"x\"\ny"])]);
        assert_eq!(all("a\tb\n1\t2").unwrap().rows, [row(2, ["1", "2"])]);
        assert_eq!(all("a,b\n1").unwrap().rows, [(2, vec!["1".to_owned()])]);
        assert_eq!(all("a,b\n\"1,2\n3").unwrap_err(), "the quotation mark on line 2 is not closed");
        assert_eq!(all(" \n").unwrap_err(), "the file is empty");
    }

    #[test]
    fn blanks_belong_to_a_field_within_quotation_marks_only() {
        let fields = |text: &str| all(&format!("a,b\n{text}")).map(|table| table.rows[0].1.clone());
        assert_eq!(fields("root, \"s3cret\" ").unwrap(), ["root", "s3cret"]);
        assert_eq!(fields("root,\" s3cret \"").unwrap(), ["root", " s3cret "]);
        assert_eq!(fields(" root , s3 cret ").unwrap(), ["root", "s3 cret"]);
        assert_eq!(fields("root,s3\"cret").unwrap(), ["root", "s3\"cret"]);
        let behind = "line 2 has text behind a closing quotation mark; a quotation mark within a field is written twice";
        assert_eq!(fields("root,\"s3\"cret").unwrap_err(), behind);
        assert_eq!(fields("root,\"s3\" \"cret\"").unwrap_err(), behind);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Reads a written table again; and no text stops the reader.
        #[test]
        fn a_written_table_is_read_again(
            rows in proptest::collection::vec(proptest::collection::vec("[a-z\",;\t\r\n ]{0,4}[a-z]", 3), 1..6),
            any in ".{0,40}",
        ) {
            let quote = |field: &String| format!("\"{}\"", field.replace('"', "\"\""));
            let line = |fields: &Vec<String>| fields.iter().map(quote).collect::<Vec<_>>().join(",");
            let text = format!("one,two,three\n{}", rows.iter().map(line).collect::<Vec<_>>().join("\n"));
            let read_again: Vec<Vec<String>> = all(&text).unwrap().rows.into_iter().map(|(_, row)| row).collect();
            prop_assert_eq!(read_again, rows);
            let _ = all(&any);
        }
    }
}
