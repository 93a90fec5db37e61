//! XML, read one piece at a time with limits. No document type, no entity of its own.

use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::rc::Rc;

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesStart, Event};

use super::Malformed;
use super::encoding::too_long;

/// The deepest nesting of elements.
pub(super) const MAX_DEPTH: usize = 64;
/// The most bytes of one tag or text, besides what the buffer reads ahead.
const MAX_PIECE: u64 = 256 << 10;
/// The most attributes of one element.
const MAX_ATTRIBUTES: usize = 64;

/// One piece of a document.
#[derive(Debug)]
pub(super) enum Piece {
    /// An element begins.
    Start(Element),
    /// Text between tags, with its references resolved. One text may come in several pieces.
    Text(String),
    /// An element ends.
    End,
}

/// The beginning of an element.
#[derive(Debug)]
pub(super) struct Element {
    /// The name without its prefix.
    pub(super) name: String,
    attributes: Vec<(String, String)>,
}

impl Element {
    /// The value of an attribute.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A reader that allows a number of bytes for each piece.
struct Allowed<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Allowed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left.set(self.left.get().checked_sub(read as u64).ok_or_else(too_long)?);
        Ok(read)
    }
}

/// The pieces of a document.
pub(super) struct Xml<R: Read> {
    reader: Reader<BufReader<Allowed<R>>>,
    left: Rc<Cell<u64>>,
    buffer: Vec<u8>,
    depth: usize,
}

impl<R: Read> Xml<R> {
    pub(super) fn new(input: R) -> Self {
        let left = Rc::new(Cell::new(MAX_PIECE));
        let mut reader =
            Reader::from_reader(BufReader::new(Allowed { inner: input, left: Rc::clone(&left) }));
        reader.config_mut().expand_empty_elements = true;
        Self { reader, left, buffer: Vec::new(), depth: 0 }
    }

    /// The next piece; `None` at the end of the document.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, Malformed> {
        loop {
            self.buffer.clear();
            self.left.set(MAX_PIECE);
            let event = self.reader.read_event_into(&mut self.buffer).map_err(refused)?;
            let piece = match event {
                Event::Start(start) => {
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        return Err(Malformed::Depth);
                    }
                    Piece::Start(element(&start)?)
                }
                Event::End(_) => {
                    self.depth = self.depth.saturating_sub(1);
                    Piece::End
                }
                Event::Text(text) => Piece::Text(text.to_string()),
                Event::CData(text) => Piece::Text(text.to_string()),
                Event::GeneralRef(reference) => Piece::Text(resolved(&format!("&{};", &*reference))?),
                Event::DocType(_) => return Err(Malformed::Entity),
                Event::Eof if self.depth > 0 => {
                    return Err(Malformed::Xml("it ends in an element".to_owned()));
                }
                Event::Eof => return Ok(None),
                _ => continue,
            };
            return Ok(Some(piece));
        }
    }
}

fn element(start: &BytesStart<'_>) -> Result<Element, Malformed> {
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|why| Malformed::Xml(why.to_string()))?;
        if attributes.len() == MAX_ATTRIBUTES {
            return Err(Malformed::Size);
        }
        let name = attribute.key.local_name().as_ref().to_owned();
        attributes.push((name, resolved(&attribute.value)?));
    }
    Ok(Element { name: start.local_name().as_ref().to_owned(), attributes })
}

/// Resolves the five entities of XML and references to characters; any other entity is refused.
fn resolved(text: &str) -> Result<String, Malformed> {
    unescape(text).map(|text| text.into_owned()).map_err(|_| Malformed::Entity)
}

fn refused(error: quick_xml::Error) -> Malformed {
    match error {
        quick_xml::Error::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => Malformed::Size,
        other => Malformed::Xml(other.to_string()),
    }
}
