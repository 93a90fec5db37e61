//! Parts of X.509 that the TLS library checks and does not show: elements, and the validity and names of a certificate.
//!
//! ```text
//!  Certificate { TBSCertificate { [0] version?, serial, algorithm, issuer, Validity { from, until },
//!                                 subject { { { type, value } … } … }, key, [1]? [2]?, [3] { { type, critical?, value } … }? }, … }
//! ```
//!
//! Specification: RFC 5280 section 4.1; X.690. Invariant: no input leads to a panic or to a read beyond it.

use model::Time;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
/// UTF8String, PrintableString and IA5String.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
/// The attributes of a subject that name it: commonName and serialNumber.
const NAMES: [&[u8]; 2] = [&[0x55, 4, 3], &[0x55, 4, 5]];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// The maximum of names of one certificate that are read.
const MAX_NAMES: usize = 64;

/// The validity of a certificate in DER: the first and the last time at which it is accepted.
pub(super) fn validity(certificate: &[u8]) -> Option<(Time, Time)> {
    let (certificate, _) = sequence(certificate)?;
    let (fields, _) = sequence(certificate)?;
    let (tag, _, rest) = element(fields)?;
    // The version is absent in version 1; then the first element is the serial number.
    let rest = if tag == VERSION { element(rest)?.2 } else { rest };
    let (_, _, rest) = element(rest)?;
    let (_, _, rest) = element(rest)?;
    let (validity, _) = sequence(rest)?;
    let (from, content, rest) = element(validity)?;
    let from = time(from, content)?;
    let (until, content, _) = element(rest)?;
    Some((from, time(until, content)?))
}

/// The content of a SEQUENCE, and what follows it.
pub(crate) fn sequence(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(input)?;
    (tag == SEQUENCE).then_some((content, rest))
}

/// Tag and content of the first element, and what follows it.
pub(crate) fn element(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..0x85 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The names of a certificate in DER: commonName and serialNumber of its subject, then its DNS names.
pub(crate) fn names(certificate: &[u8]) -> Option<Vec<String>> {
    let (certificate, _) = sequence(certificate)?;
    let (fields, _) = sequence(certificate)?;
    let (tag, _, rest) = element(fields)?;
    let mut rest = if tag == VERSION { element(rest)?.2 } else { rest };
    for _ in ["algorithm", "issuer", "validity"] {
        rest = element(rest)?.2;
    }
    let (mut subject, mut rest) = sequence(rest)?;
    let mut names = Vec::new();
    let mut add = |bytes: &[u8]| {
        if let (Ok(name), true) = (str::from_utf8(bytes), names.len() < MAX_NAMES) {
            names.push(name.to_owned());
        }
    };
    while !subject.is_empty() {
        let (tag, mut attributes, others) = element(subject)?;
        subject = others;
        (tag == SET).then_some(())?;
        while !attributes.is_empty() {
            let (attribute, others) = sequence(attributes)?;
            attributes = others;
            let (tag, kind, value) = element(attribute)?;
            let (form, value, _) = element(value)?;
            if tag == OBJECT_IDENTIFIER && NAMES.contains(&kind) && TEXTS.contains(&form) {
                add(value);
            }
        }
    }
    while !rest.is_empty() {
        let (tag, content, others) = element(rest)?;
        rest = others;
        if tag != EXTENSIONS {
            continue;
        }
        let (mut extensions, _) = sequence(content)?;
        while !extensions.is_empty() {
            let (extension, others) = sequence(extensions)?;
            extensions = others;
            let (_, kind, mut value) = element(extension)?;
            if kind != SUBJECT_ALT_NAME {
                continue;
            }
            let content = loop {
                let (tag, content, others) = element(value)?;
                if tag == OCTET_STRING {
                    break content;
                }
                value = others;
            };
            let (mut entries, _) = sequence(content)?;
            while !entries.is_empty() {
                let (tag, name, others) = element(entries)?;
                entries = others;
                if tag == DNS_NAME {
                    add(name);
                }
            }
        }
    }
    Some(names)
}

fn time(tag: u8, content: &[u8]) -> Option<Time> {
    let text = str::from_utf8(content).ok().filter(|text| text.is_ascii())?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let century = if year >= "50" { "19" } else { "20" };
            (format!("{century}{year}"), rest)
        }
        GENERALIZED_TIME => text.split_at_checked(4).map(|(year, rest)| (year.to_owned(), rest))?,
        _ => return None,
    };
    // "No end", which is later than a time of this program can be.
    if year == "9999" {
        return "9999-01-01T00:00:00Z".parse().ok();
    }
    let parts: Vec<&str> = [0, 2, 4, 6, 8].iter().map(|at| rest.get(*at..at + 2)).collect::<Option<_>>()?;
    let [month, day, hour, minute, second] = parts.as_slice() else { return None };
    (rest.get(10..) == Some("Z"))
        .then(|| format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_validity_of_a_certificate_is_what_it_was_made_with() {
        for (year, form) in [(2031, "UTCTime"), (2061, "GeneralizedTime")] {
            let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(2026, 2, 3);
            params.not_after = rcgen::date_time_ymd(year, 12, 31);
            let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            let (from, until) = validity(certificate.der()).unwrap();
            assert_eq!(from.to_string(), "2026-02-03T00:00:00.000Z", "{form}");
            assert_eq!(until.to_string(), format!("{year}-12-31T00:00:00.000Z"), "{form}");
        }
    }

    #[test]
    fn the_names_of_a_certificate_are_those_of_its_subject_and_its_dns_names() {
        let mut params =
            rcgen::CertificateParams::new(vec!["a.example".to_owned(), "192.0.2.1".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "SN-1");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "not a name");
        params.is_ca = rcgen::IsCa::ExplicitNoCa;
        let serial_number = rcgen::DnType::CustomDnType(vec![2, 5, 4, 5]);
        let text = rcgen::DnValue::PrintableString("SN-2".try_into().unwrap());
        params.distinguished_name.push(serial_number, text);
        let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let mut found = names(made.der()).unwrap();
        found.retain(|name| name != "rcgen self signed cert");
        assert_eq!(found, ["SN-1", "SN-2", "a.example"]);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_validity_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = (validity(&bytes), names(&bytes));
        }

        #[test]
        fn a_changed_certificate_is_read_without_a_panic(at in 0usize..400, to in any::<u8>()) {
            let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
            let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            let mut bytes = made.der().to_vec();
            let at = at % bytes.len();
            bytes[at] = to;
            let _ = (validity(&bytes), names(&bytes));
            let _ = (validity(&bytes[..at]), names(&bytes[..at]));
        }
    }
}
