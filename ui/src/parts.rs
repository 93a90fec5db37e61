//! Small pieces of HTML that escape what they show: their output is used in templates as it is.

use askama::Template;
use askama::filters::HtmlSafe;

/// An icon of the sprite in `icons.html`.
#[derive(Template)]
#[template(source = r##"<svg class="i" aria-hidden="true"><use href="#i-{{ name }}"/></svg>"##, ext = "html")]
pub(crate) struct Icon {
    pub(crate) name: &'static str,
}

impl HtmlSafe for Icon {}

/// A state in one word, with its icon.
#[derive(Template)]
#[template(
    source = r##"<span class="state {{ class }}"><svg class="i" aria-hidden="true"><use href="#i-{{ icon }}"/></svg>{{ word }}</span>"##,
    ext = "html"
)]
pub struct Badge {
    pub(crate) class: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) word: String,
}

impl HtmlSafe for Badge {}

/// A text that a button copies whole, shown in short.
#[derive(Template)]
#[template(
    source = r##"<button type="button" class="copy" data-copy="{{ text }}" aria-label="Copy {{ what }}: {{ shown }}">{{ shown }}<svg class="i" aria-hidden="true"><use href="#i-copy"/></svg></button>"##,
    ext = "html"
)]
pub(crate) struct Copy {
    pub(crate) what: &'static str,
    pub(crate) text: String,
    pub(crate) shown: String,
}

impl HtmlSafe for Copy {}

impl Copy {
    /// A text shown whole.
    pub(crate) fn whole(what: &'static str, text: &str) -> Self {
        Self { what, text: text.to_owned(), shown: text.to_owned() }
    }

    /// An id that can be copied: the page shows its first and last characters.
    pub(crate) fn id(what: &'static str, text: &str) -> Self {
        Self { what, text: text.to_owned(), shown: short_id(text) }
    }
}

/// The first and last characters of an id.
pub(crate) fn short_id(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= 20 {
        return text.to_owned();
    }
    let (head, tail) = (&characters[..8], &characters[characters.len() - 5..]);
    head.iter().chain(['…'].iter()).chain(tail).collect()
}

/// A sentence of the API or of a machine: what stands between backticks is code, and a time is one for people.
#[derive(Template)]
#[template(
    source = r##"{% for piece in pieces %}{% match piece %}{% when Piece::Text(text) %}{{ text }}{% when Piece::Code(text) %}<code>{{ text }}</code>{% when Piece::Time(iso, clock) %}<time datetime="{{ iso }}">{{ clock }} UTC</time>{% when Piece::Job(id) %}<a href="/ui/jobs/{{ id }}">{{ crate::parts::short_id(id) }}</a>{% endmatch %}{% endfor %}"##,
    ext = "html"
)]
pub(crate) struct Prose<'a> {
    pieces: Vec<Piece<'a>>,
}

impl HtmlSafe for Prose<'_> {}

enum Piece<'a> {
    Text(&'a str),
    Code(&'a str),
    Time(&'a str, String),
    Job(&'a str),
}

impl<'a> Prose<'a> {
    /// Divides a sentence into pieces. With `links`, "job" and an id after it lead to that job; within a link nothing does.
    pub(crate) fn of(text: &'a str, links: bool) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, code, after)) = code(rest) {
            plain(before, links, &mut pieces);
            pieces.push(Piece::Code(code));
            rest = after;
        }
        plain(rest, links, &mut pieces);
        Self { pieces }
    }
}

/// Splits a text into the part before its first code, the code, and the part after it. A single backtick begins no code.
fn code(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('`')?;
    let (code, after) = rest.split_once('`')?;
    Some((before, code, after))
}

/// The pieces of a text without code.
fn plain<'a>(text: &'a str, links: bool, pieces: &mut Vec<Piece<'a>>) {
    let (mut begun, mut at, mut former) = (0, 0, "");
    for word in text.split_inclusive(' ') {
        let core = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let from = at + word.find(core).unwrap_or_default();
        let piece = match time(core) {
            Some(clock) => Some(Piece::Time(core, clock)),
            None if links && former == "job" && is_id(core) => Some(Piece::Job(core)),
            None => None,
        };
        if let Some(piece) = piece {
            pieces.push(Piece::Text(&text[begun..from]));
            pieces.push(piece);
            begun = from + core.len();
        }
        at += word.len();
        former = core;
    }
    pieces.push(Piece::Text(&text[begun..]));
}

/// A time that machines read as people read it.
fn time(word: &str) -> Option<String> {
    let is_time = word.len() >= 20 && word.ends_with('Z') && word.as_bytes().get(10) == Some(&b'T');
    let at = word.parse::<jiff::Timestamp>().ok().filter(|_| is_time)?;
    Some(at.strftime("%F %T").to_string())
}

fn is_id(word: &str) -> bool {
    word.len() == 36 && word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// A bar of a part out of a whole.
#[derive(Template)]
#[template(
    source = r##"<svg class="meter" role="meter" aria-valuenow="{{ percent }}" aria-valuemin="0" aria-valuemax="100" aria-label="{{ label }}"><rect class="rail" width="100%" height="100%" rx="4"/><rect class="fill-{{ fill }}" width="{{ percent }}%" height="100%" rx="4"/></svg>"##,
    ext = "html"
)]
pub(crate) struct Meter {
    percent: u64,
    fill: &'static str,
    label: String,
}

impl HtmlSafe for Meter {}

impl Meter {
    /// The bar; an empty one when the whole is nothing.
    pub(crate) fn new(part: u64, whole: u64, fill: &'static str, label: &str) -> Self {
        let percent = part.saturating_mul(100).checked_div(whole).unwrap_or(0).min(100);
        Self { percent, fill, label: label.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_escapes_what_it_shows() {
        let evil = "<script>\"'&";
        let badge = Badge { class: "failed", icon: "failed", word: evil.to_owned() }.to_string();
        let copy = Copy::whole("id", evil).to_string();
        let meter = Meter::new(1, 2, "working", evil).to_string();
        for html in [badge, copy, meter] {
            assert!(!html.contains("<script>") && !html.contains("\"'&"), "{html}");
        }
    }

    #[test]
    fn a_sentence_shows_code_times_and_jobs_as_what_they_are() {
        let id = "01a205f1-1b43-71f3-9bb7-46f5185387f1";
        for (text, links, html) in [
            ("run `shoal bmc probe A`, then", false, "run <code>shoal bmc probe A</code>, then".to_owned()),
            ("one ` stays", false, "one ` stays".to_owned()),
            (
                "since 2026-11-23T14:20:40.000Z (UTC)",
                false,
                "since <time datetime=\"2026-11-23T14:20:40.000Z\">2026-11-23 14:20:40 UTC</time> (UTC)"
                    .to_owned(),
            ),
            (
                &format!("job {id} is active"),
                true,
                format!("job <a href=\"/ui/jobs/{id}\">01a205f1…387f1</a> is active"),
            ),
            (&format!("job {id} is active"), false, format!("job {id} is active")),
            (&format!("batch {id}"), true, format!("batch {id}")),
            ("`<b>` & \"", true, "<code>&#60;b&#62;</code> &#38; &#34;".to_owned()),
        ] {
            assert_eq!(Prose::of(text, links).to_string(), html, "{text}");
        }
    }

    #[test]
    fn a_bar_is_never_longer_than_its_rail() {
        assert_eq!(Meter::new(3, 2, "working", "").percent, 100);
        assert_eq!(Meter::new(1, 0, "working", "").percent, 0);
        assert_eq!(
            Meter::new(u64::MAX, u64::MAX, "working", "").percent,
            1,
            "a product that saturates is no panic"
        );
    }

    #[test]
    fn an_id_is_shown_by_its_ends() {
        assert_eq!(short_id("01a205f1-1b43-71f3-9bb7-46f5185387f1"), "01a205f1…387f1");
        assert_eq!(short_id("9F86W24"), "9F86W24");
    }
}
