//! Listening sockets that a service manager opened and passed to this process (`LISTEN_FDS`, sd_listen_fds(3)).
//!
//! ```text
//!   shoal.socket   holds 0.0.0.0:8443 open ──LISTEN_FDS=1──> this process   takes the socket whose address a setting names
//!                  |                                              |
//!                  `── a connection during a restart waits in the kernel and is accepted by the next process
//! ```
//!
//! Invariant: the settings decide where the controller listens. A socket is used only for the setting that has its address, and a
//! socket that no setting names stops the start, because its clients would never receive a response.

use std::fmt;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;

use super::StartError;

/// The maximum of passed descriptors that are looked at; a controller has four addresses.
const MAX_SOCKETS: usize = 16;

/// The sockets that were passed and are not used yet.
pub struct InheritedSockets {
    sockets: Vec<(SocketAddr, TcpListener)>,
}

impl InheritedSockets {
    /// No socket was passed.
    pub fn none() -> Self {
        Self { sockets: Vec::new() }
    }

    /// Takes the descriptors of this process. The first call takes them; it is made once, before other files are opened.
    ///
    /// # Errors
    /// When a descriptor is no TCP listener.
    pub fn of_process() -> Result<Self, StartError> {
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for number in 0..passed.len().min(MAX_SOCKETS) {
            let failed = |source| StartError::PassedDescriptor { number, source };
            let Some(socket) = passed.take_tcp_listener(number).map_err(failed)? else { continue };
            socket.set_nonblocking(true).map_err(failed)?;
            sockets.push((socket.local_addr().map_err(failed)?, socket));
        }
        Ok(Self { sockets })
    }

    /// Takes the socket with exactly this address.
    pub(super) fn take(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let at = self.sockets.iter().position(|(bound, _)| *bound == address)?;
        let (address, socket) = self.sockets.swap_remove(at);
        tracing::info!(%address, "the socket of the service manager is used");
        Some(socket)
    }

    /// Checks that every passed socket was taken.
    pub(super) fn all_used(&self) -> Result<(), StartError> {
        match self.sockets.first() {
            None => Ok(()),
            Some((address, _)) => Err(StartError::UnusedSocket { address: *address }),
        }
    }
}

impl fmt::Debug for InheritedSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sockets.iter().map(|(address, _)| address)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_taken_by_its_exact_address_and_once() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let mut inherited = InheritedSockets { sockets: vec![(address, socket)] };
        assert!(inherited.take("127.0.0.1:0".parse().unwrap()).is_none());
        assert!(inherited.all_used().unwrap_err().to_string().contains("ListenStream="));
        assert!(inherited.take(address).is_some());
        assert!(inherited.take(address).is_none());
        inherited.all_used().unwrap();
    }
}
