//! Tools of the tests of this crate: documents, task images, virtual time, HTTP without and with a socket.

pub(crate) mod cut;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use iso9660::{ImageOptions, ImagePlan, Profile, Tree};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::http::{Http, HttpError, Request, Response};

/// A `job.json` with all keys.
pub(crate) fn job_json(serial: &str, created_at: &str) -> Value {
    json!({
        "job_id": "01890a5d-ac96-774b-bcce-b302099a8057",
        "server_serial": serial,
        "controller_url": "http://controller.test",
        "controller_ca": null,
        "webhook_url": format!("http://controller.test/api/v1/status-webhook/{serial}"),
        "webhook_token": "report-secret",
        "registry": {"url": "http://registry.test", "username": "job", "password": "pull-secret"},
        "recipe_schema_id": "https://shoal.dev/provisioner/recipe.schema.json",
        "created_at": created_at,
        "shoal_version": "0.1.0",
    })
}

/// A task image with `job.json` and other files in the folder `place`.
pub(crate) fn task_image(job: &Value, place: &str, files: &[(&str, &[u8])]) -> ImagePlan {
    let mut tree = Tree::new();
    tree.add_file(&format!("{place}job.json"), serde_json::to_vec(job).unwrap()).unwrap();
    for (name, bytes) in files {
        tree.add_file(&format!("{place}{name}"), bytes.to_vec()).unwrap();
    }
    ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "TASK_1", 1_700_000_000)).unwrap()
}

/// Time that passes only in `sleep`.
#[derive(Default)]
pub(crate) struct VirtualClock(Mutex<Vec<Duration>>);

impl VirtualClock {
    pub(crate) fn pauses(&self) -> Vec<Duration> {
        self.0.lock().unwrap().clone()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        "2026-06-01T00:00:00Z".parse::<Timestamp>().unwrap()
            + jiff::SignedDuration::try_from(self.elapsed()).unwrap()
    }

    fn elapsed(&self) -> Duration {
        self.0.lock().unwrap().iter().sum()
    }

    fn sleep(&self, pause: Duration) {
        self.0.lock().unwrap().push(pause);
    }
}

type Handler = dyn Fn(&Request) -> Result<(u16, Vec<(&'static str, String)>, Vec<u8>), String> + Send + Sync;

/// HTTP without a socket: a function from requests to responses.
pub(crate) struct FakeHttp {
    handler: Box<Handler>,
    requests: Mutex<Vec<Request>>,
}

impl FakeHttp {
    pub(crate) fn new(
        handler: impl Fn(&Request) -> Result<(u16, Vec<(&'static str, String)>, Vec<u8>), String>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { handler: Box::new(handler), requests: Mutex::new(Vec::new()) }
    }

    /// Responds with these statuses in order, and with the error of a controller to what it refuses; 0 is a broken connection.
    pub(crate) fn statuses(statuses: impl IntoIterator<Item = u16>) -> Self {
        let left = Mutex::new(statuses.into_iter().collect::<std::collections::VecDeque<_>>());
        Self::new(move |_| match left.lock().unwrap().pop_front().expect("one request too many") {
            0 => Err("the connection was refused".to_owned()),
            status @ 400.. => {
                let error = json!({"error": "a_code", "message": "m", "details": [], "request_id": "r"});
                Ok((status, Vec::new(), error.to_string().into_bytes()))
            }
            status => Ok((status, Vec::new(), Vec::new())),
        })
    }

    /// Adds a header to every response.
    pub(crate) fn with_header(self, name: &'static str, value: &'static str) -> Self {
        let inner = self.handler;
        Self::new(move |request| {
            let (status, mut headers, body) = inner(request)?;
            headers.push((name, value.to_owned()));
            Ok((status, headers, body))
        })
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.requests().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
    }
}

impl Http for FakeHttp {
    fn send(&self, request: &Request) -> Result<Response, HttpError> {
        self.requests.lock().unwrap().push(request.clone());
        let (status, headers, body) = (self.handler)(request).map_err(HttpError)?;
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(Response { status, headers, body: Box::new(std::io::Cursor::new(body)) })
    }
}

/// A request as the server received it.
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

type Reply = (u16, Vec<(&'static str, String)>, Vec<u8>);

/// An HTTP server on loopback; one request for each connection.
pub(crate) struct Server {
    url: String,
    authority: String,
}

impl Server {
    pub(crate) fn start(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let reply = Arc::new(reply);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let reply = Arc::clone(&reply);
                std::thread::spawn(move || serve(stream, &*reply));
            }
        });
        Self { url, authority: String::new() }
    }

    pub(crate) fn start_tls(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let authority = key.cert.pem();
        let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![key.cert.der().clone()], private.into())
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let reply = Arc::new(reply);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (reply, config) = (Arc::clone(&reply), Arc::clone(&config));
                std::thread::spawn(move || {
                    let session = rustls::ServerConnection::new(config).unwrap();
                    serve(rustls::StreamOwned::new(session, stream), &*reply);
                });
            }
        });
        Self { url, authority }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }
}

/// Serves one request. Errors end the connection: a client that refuses a certificate is one.
fn serve<S: Connection>(stream: S, reply: &(dyn Fn(&Received) -> Reply + Send + Sync)) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if !matches!(stream.read_line(&mut head), Ok(read) if read > 0) {
            return;
        }
    }
    let mut received = Received { head, body: Vec::new() };
    let length = received.header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    received.body = vec![0; length];
    if stream.read_exact(&mut received.body).is_err() {
        return;
    }
    let (status, headers, body) = reply(&received);
    let mut text = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "content-length") {
        text += &format!("content-length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    let out = stream.get_mut();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\r\n"));
    let _ = out.write_all(&body).and_then(|()| out.flush());
    out.close();
}

/// A stream that can say that it ends.
trait Connection: Read + Write {
    fn close(&mut self) {}
}

impl Connection for TcpStream {}

impl Connection for rustls::StreamOwned<rustls::ServerConnection, TcpStream> {
    fn close(&mut self) {
        self.conn.send_close_notify();
        let _ = self.flush();
    }
}

/// An image file of `size` bytes, all of them `fill`, in a folder that lives as long as the first value.
pub(crate) fn disk_image(size: u64, fill: u8) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let mut file = std::fs::File::create(&path).unwrap();
    if fill == 0 {
        file.set_len(size).unwrap();
    } else {
        let block = vec![fill; 1 << 20];
        let mut left = size;
        while left > 0 {
            let length = left.min(1 << 20);
            file.write_all(&block[..length as usize]).unwrap();
            left -= length;
        }
    }
    (folder, path)
}

/// A sysfs in a temporary folder.
pub(crate) struct FakeSys(tempfile::TempDir);

impl Default for FakeSys {
    fn default() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("block")).unwrap();
        Self(folder)
    }
}

impl FakeSys {
    pub(crate) fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    pub(crate) fn file(&self, path: &str, content: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// A disk of `mib` MiB below `devices/parent`, with files of its folder in `/sys/block`.
    pub(crate) fn disk(&self, name: &str, parent: &str, mib: u64, files: &[(&str, &str)]) {
        let device = format!("devices/{parent}");
        let folder = format!("{device}/block/{name}");
        self.file(&format!("{folder}/size"), &format!("{}\n", mib * 2048));
        std::os::unix::fs::symlink(self.path().join(&device), self.path().join(&folder).join("device"))
            .unwrap();
        for (file, content) in files {
            self.file(&format!("{folder}/{file}"), content);
        }
        std::os::unix::fs::symlink(self.path().join(&folder), self.path().join("block").join(name)).unwrap();
    }
}

/// A disk image with a GPT of one partition and bytes that do not repeat.
pub(crate) fn bootable_image(size: u64, sector: u64) -> Vec<u8> {
    use crate::device::{Disk as _, FileDisk};

    let (_folder, path) = disk_image(size, 0);
    let block: Vec<u8> =
        (0..1_u32 << 14).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut noise = block.repeat(size as usize / block.len());
    for (index, part) in noise.chunks_mut(block.len()).enumerate() {
        part[7] = index as u8;
    }
    std::fs::write(&path, noise).unwrap();
    let disk = FileDisk::open(&path, sector).unwrap();
    disk.zero(0..64 * 1024).unwrap();
    let part = recipe::Partition::new(
        recipe::PartitionSize::Rest,
        recipe::PartitionType::LINUX_FILESYSTEM,
        recipe::FsFormat::Raw,
    );
    let placed = recipe::partition::resolve(&[part], size, sector).unwrap();
    crate::gpt::Table::new(&disk, &placed, || uuid::Uuid::from_u128(7)).unwrap().write(&disk).unwrap();
    std::fs::read(&path).unwrap()
}

/// Whether all bytes are `fill`. Comparing slices is fast without optimisation too.
pub(crate) fn is_filled(bytes: &[u8], fill: u8) -> bool {
    let block = [fill; 4096];
    bytes.chunks(block.len()).all(|part| *part == block[..part.len()])
}
