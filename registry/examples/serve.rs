//! A registry on a directory and an address, open to everybody: `serve DIRECTORY ADDRESS`. For trying clients and
//! for measuring.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::ListenerExt;
use registry::{AllowAll, Config, Registry};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve DIRECTORY ADDRESS".into());
    };
    let registry = Registry::open(Config::new(directory)).await?;
    let router = registry.router(Arc::new(AllowAll));
    let listener = tokio::net::TcpListener::bind(address).await?.tap_io(|stream| {
        // Small answers go out at once; a failure to ask for that only costs latency.
        let _latency = stream.set_nodelay(true);
    });
    axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
