//! Serves a registry in a directory at an address, for testing clients and for measuring.
//!
//! ```text
//!  serve DIRECTORY ADDRESS                                    open to all callers
//!        --htpasswd FILE                                      open to the users of the file
//!        --tokens                                             with the token flow
//!        --rule '<repositories> <subjects> <rights>'          repeatable; without a rule, users have full access
//!        --immutable '<repositories> <tags>'                  repeatable
//!        --anonymous-read --anonymous-write                   where no rule matches
//! ```

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use registry::{
    AccessControl, AllowAll, Config, Htpasswd, HtpasswdOptions, ImmutableTags, LocalAddress, Policy,
    READ_BUFFER, Realm, Registry, Rights, SendfileStream, TokenAuthority, TokenOptions,
};
use tokio::net::TcpStream;
use tower::ServiceExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve DIRECTORY ADDRESS [--htpasswd FILE] [--tokens] [--rule RULE]... \
                    [--immutable 'REPOSITORIES TAGS']... [--anonymous-read] [--anonymous-write]"
            .into());
    };
    let (mut users, mut tokens, mut policy) = (None, false, Policy::default());
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--htpasswd" => users = Some(Htpasswd::open(value()?, HtpasswdOptions::default()).await?),
            "--tokens" => tokens = true,
            "--rule" => policy.rules.push(value()?.parse()?),
            "--immutable" => {
                let text = value()?;
                let (repositories, tags) = text.split_once(' ').ok_or("write '<repositories> <tags>'")?;
                policy
                    .immutable
                    .push(ImmutableTags { repositories: repositories.parse()?, tags: tags.parse()? });
            }
            "--anonymous-read" => policy.anonymous_read = true,
            "--anonymous-write" => policy.anonymous_write = true,
            _ => return Err(format!("unknown option {flag}").into()),
        }
    }
    if policy.rules.is_empty() {
        policy.authenticated = Rights::ALL;
    }
    let registry = Registry::open(Config::new(directory)).await?;
    let router = match users {
        None => registry.router(Arc::new(AllowAll)),
        Some(users) => {
            let control = AccessControl::new(Arc::new(users), policy);
            if tokens {
                let authority = Arc::new(TokenAuthority::new(control, token_options()));
                registry.router(Arc::clone(&authority) as _).merge(authority.token_router())
            } else {
                registry.router(Arc::new(control))
            }
        }
    };
    let listener = tokio::net::TcpListener::bind(address).await?;
    loop {
        let (stream, peer) = listener.accept().await?;
        tokio::spawn(connection(stream, peer, router.clone()));
    }
}

/// The options of tokens that the controller uses.
fn token_options() -> TokenOptions {
    TokenOptions { realm: Realm::AsReached { plain: None }, ..TokenOptions::default() }
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: axum::Router) {
    // Small responses are sent at once; a failure of this option only costs latency.
    let _latency = stream.set_nodelay(true);
    let local = stream.local_addr().ok().map(LocalAddress);
    let wire = SendfileStream::new(stream);
    let sender = wire.file_sender();
    let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        if let Some(local) = local {
            request.extensions_mut().insert(local);
        }
        if let Some(sender) = &sender {
            request.extensions_mut().insert(sender.clone());
        }
        router.clone().oneshot(request.map(axum::body::Body::new))
    });
    // A broken connection concerns only its client.
    let connection =
        http1::Builder::new().max_buf_size(READ_BUFFER).serve_connection(TokioIo::new(wire), service);
    let _broken = connection.await;
}
