//! Packages, archives and programs for tests, made byte by byte.

use std::io::Write;

/// The time in the packages of the tests.
pub(crate) const TIME: u64 = 1_700_000_000;

pub(crate) fn gzip(data: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(data).unwrap();
    packed.finish().unwrap()
}

pub(crate) fn xz(data: &[u8]) -> Vec<u8> {
    let mut packed = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
    packed.write_all(data).unwrap();
    packed.finish().unwrap()
}

pub(crate) fn zstd(data: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
}

/// An ar archive.
pub(crate) fn ar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = b"!<arch>\n".to_vec();
    for (name, content) in members {
        file.extend(
            format!("{name:<16}{TIME:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, content.len()).bytes(),
        );
        file.extend(*content);
        if file.len() % 2 == 1 {
            file.push(b'\n');
        }
    }
    file
}

/// An entry of a package.
#[derive(Clone)]
pub(crate) enum Member<'a> {
    File(&'a str, Vec<u8>),
    Link(&'a str, &'a str),
    Hard(&'a str, &'a str),
}

/// A tar archive. Names are written as they are, also those that no archiver would write.
pub(crate) fn tar(members: &[Member<'_>]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for member in members {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_mtime(TIME);
        let (name, content, kind, target) = match member {
            Member::File(name, content) => (name, &content[..], tar::EntryType::Regular, ""),
            Member::Link(name, target) => (name, &[][..], tar::EntryType::Symlink, *target),
            Member::Hard(name, target) => (name, &[][..], tar::EntryType::Link, *target),
        };
        if name.len() > 100 {
            let mut long = tar::Header::new_gnu();
            long.as_gnu_mut().unwrap().name[..13].copy_from_slice(b"././@LongLink");
            long.set_entry_type(tar::EntryType::GNULongName);
            long.set_size(name.len() as u64 + 1);
            long.set_cksum();
            archive.append(&long, format!("{name}\0").as_bytes()).unwrap();
        }
        let shown = &name.as_bytes()[..name.len().min(100)];
        header.as_gnu_mut().unwrap().name[..shown.len()].copy_from_slice(shown);
        header.as_gnu_mut().unwrap().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        archive.append(&header, content).unwrap();
    }
    archive.into_inner().unwrap()
}

/// A package whose archives are packed by a function.
pub(crate) fn deb_packed(control: &str, members: &[Member<'_>], pack: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let control = pack(&tar(&[Member::File("./control", control.as_bytes().to_vec())]));
    ar(&[("debian-binary", b"2.0\n"), ("control.tar.xz", &control), ("data.tar.xz", &pack(&tar(members)))])
}

/// A package with this name.
pub(crate) fn deb(name: &str, members: &[Member<'_>]) -> Vec<u8> {
    let control = format!("Package: {name}\nVersion: 1.0-1\nArchitecture: amd64\nDescription: for a test\n");
    deb_packed(&control, members, gzip)
}

/// An ELF file with one segment per part: its first part lies at offset and address 0.
pub(crate) fn program(loader: Option<&str>, libraries: &[&str]) -> Vec<u8> {
    let mut strings = vec![0];
    let mut dynamic = Vec::new();
    for library in libraries {
        dynamic.extend([1_u64, strings.len() as u64]);
        strings.extend(library.bytes().chain([0]));
    }
    let (loader_at, headers) = (64 + 3 * 56, 3_u16);
    let loader_text: Vec<u8> = loader.iter().flat_map(|path| path.bytes().chain([0])).collect();
    let strings_at = loader_at + loader_text.len();
    let dynamic_at = strings_at + strings.len();
    dynamic.extend([5, strings_at as u64 + 0x1000, 0, 0]);
    let total = dynamic_at + dynamic.len() * 8;
    let mut file = header(64, headers, 0, 0, 0);
    let mut segment = |kind: u32, at: usize, address: u64, length: usize| {
        file.extend(kind.to_le_bytes());
        file.extend([0; 4]);
        for field in [at as u64, address, address, length as u64, length as u64, 1] {
            file.extend(field.to_le_bytes());
        }
    };
    segment(1, 0, 0x1000, total);
    segment(if loader.is_some() { 3 } else { 4 }, loader_at, 0, loader_text.len());
    segment(if libraries.is_empty() { 4 } else { 2 }, dynamic_at, 0, dynamic.len() * 8);
    file.extend(loader_text);
    file.extend(strings);
    file.extend(dynamic.iter().flat_map(|field| field.to_le_bytes()));
    file
}

/// A kernel module with this information.
pub(crate) fn module(pairs: &[&str]) -> Vec<u8> {
    let content: Vec<u8> = pairs.iter().flat_map(|pair| pair.bytes().chain([0])).collect();
    let names = b"\0.modinfo\0.shstrtab\0";
    let table = 64 + content.len() + names.len();
    let mut file = header(0, 0, table as u64, 3, 2);
    file.extend(&content);
    file.extend(names);
    for (name, at, length) in [(0_u32, 0, 0), (1, 64, content.len()), (10, 64 + content.len(), names.len())] {
        file.extend(name.to_le_bytes());
        file.extend([0; 20]);
        file.extend((at as u64).to_le_bytes());
        file.extend((length as u64).to_le_bytes());
        file.extend([0; 24]);
    }
    file
}

fn header(programs: u64, program_count: u16, sections: u64, section_count: u16, names: u16) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(32, 0);
    file.extend(programs.to_le_bytes());
    file.extend(sections.to_le_bytes());
    file.extend([0; 6]);
    for field in [56, program_count, 64, section_count, names] {
        file.extend(field.to_le_bytes());
    }
    file
}

/// A web site on loopback for the life of the value.
pub(crate) struct Site {
    address: std::net::SocketAddr,
}

impl Site {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let files: Vec<(String, Vec<u8>)> =
            files.iter().map(|(path, content)| ((*path).to_owned(), content.to_vec())).collect();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // The thread ends with the process of the test.
        std::thread::spawn(move || {
            while let Ok((mut socket, _)) = listener.accept() {
                let mut request = Vec::new();
                let mut part = [0; 1024];
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    match std::io::Read::read(&mut socket, &mut part) {
                        Ok(0) | Err(_) => break,
                        Ok(read) => request.extend(&part[..read]),
                    }
                }
                let text = String::from_utf8_lossy(&request).into_owned();
                let path = text.split(' ').nth(1).unwrap_or_default();
                let found = files.iter().find(|(known, _)| known == path);
                let (status, content) =
                    found.map_or(("404 Not Found", &b""[..]), |(_, content)| ("200 OK", content));
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    content.len()
                );
                let _sent = socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(content));
            }
        });
        Self { address }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}
