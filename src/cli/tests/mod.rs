//! The command line end to end: arguments, output and exit code, with a small HTTP server as controller.

mod accounts;
mod arguments;
mod authority;
mod batches;
mod documents;
mod ids;
mod images;
mod jobs;
mod local;
mod maintenance;
mod media;
mod names;
mod online;
mod operations;
mod quoted;
mod readiness;
mod reference;
mod registry;
mod repeats;
mod selectors;
mod servers;
mod sessions;
mod several;
mod shell;
mod watching;
mod webhooks;
mod without_json;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::IntoResponse;
use clap::Parser;
use serde_json::Value;
use tokio::sync::oneshot;

use super::{Cli, dispatch, report};
use client::output::{Output, Screen};

/// Output and exit code of a command.
pub(super) struct Ran {
    pub(super) out: String,
    pub(super) err: String,
    code: ExitCode,
}

impl Ran {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }

    #[track_caller]
    pub(super) fn ends_with(self, code: u8) -> Self {
        assert_eq!(self.code, ExitCode::from(code), "out: {}\nerr: {}", self.out, self.err);
        self
    }
}

/// Runs a command line.
pub(super) fn shoal(arguments: &[&str]) -> Ran {
    let (cli, format) = Cli::read(std::iter::once("shoal").chain(arguments.iter().copied())).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut output = Output::new(&mut out, &mut err, format).on(Screen::PIPE, cli.times());
    let code = match dispatch(cli.command, &mut output) {
        Ok(code) => code,
        Err(error) => report(&error, &mut output),
    };
    Ran { out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap(), code }
}

fn read(arguments: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("shoal").chain(arguments.iter().copied()))
}

/// The clap error of an invalid command line.
fn refused(arguments: &[&str]) -> String {
    read(arguments).unwrap_err().to_string()
}

/// A request as the fake controller received it.
#[derive(Clone, Debug)]
struct Seen {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
}

impl Seen {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// The status of a response that never arrives.
const LOST: u16 = 0;

type Script = dyn Fn(&Seen) -> (u16, Value) + Send + Sync;

struct Fake {
    script: Box<Script>,
    seen: Mutex<Vec<Seen>>,
}

/// A fake controller with scripted responses, on a socket and a separate thread.
struct Controller {
    url: String,
    fake: Arc<Fake>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Controller {
    fn start(script: impl Fn(&Seen) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let fake = Arc::new(Fake { script: Box::new(script), seen: Mutex::default() });
        let listener = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let router = Router::new().fallback(respond).with_state(Arc::clone(&fake));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let stopped = async { drop(stopped.await) };
                axum::serve(listener, router).with_graceful_shutdown(stopped).await.unwrap();
            });
        });
        Self { url, fake, stop: Some(stop), thread: Some(thread) }
    }

    /// Runs a client command against the fake controller.
    fn shoal(&self, arguments: &[&str]) -> Ran {
        shoal(&[arguments, &["--url", &self.url, "--token", "shoal_canary"]].concat())
    }

    fn seen(&self) -> Vec<Seen> {
        self.fake.seen.lock().unwrap().clone()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

async fn respond(
    State(fake): State<Arc<Fake>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> impl IntoResponse {
    let seen = Seen { method, uri, headers, body: String::from_utf8(body.to_vec()).unwrap() };
    let (status, body) = (fake.script)(&seen);
    fake.seen.lock().unwrap().push(seen);
    if status == LOST {
        // The connection is closed without a response; no hook writes about it.
        std::panic::resume_unwind(Box::new("lost"));
    }
    // A string is sent as text, all other values as JSON.
    let body = match body {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    };
    (StatusCode::from_u16(status).unwrap(), [("location", "/elsewhere")], body)
}
