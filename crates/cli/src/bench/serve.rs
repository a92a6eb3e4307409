//! The other host's side: a passive worker for each caller, in a process of its own.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Child;

use super::lead;
use crate::connection::Outcome;

/// Callers that are served at once.
const CALLERS: usize = 16;

/// Serves for ever.
pub(super) fn serve(address: SocketAddr) -> Outcome {
    let listener = TcpListener::bind(address).map_err(|e| format!("{address}: {e}"))?;
    println!("serving at {address}; on the other host: ferroce bench HOST");
    let mut workers: Vec<Child> = Vec::new();
    loop {
        let (caller, from) = listener.accept().map_err(|e| format!("{address}: {e}"))?;
        workers.retain_mut(|worker| matches!(worker.try_wait(), Ok(None)));
        if workers.len() == CALLERS {
            eprintln!("{from} is one too many");
            continue;
        }
        println!("{from}");
        match attend(caller) {
            Ok(worker) => workers.push(worker),
            Err(e) => eprintln!("{from}: {e}"),
        }
    }
}

/// Starts a worker whose input and output are the caller.
fn attend(caller: TcpStream) -> Outcome<Child> {
    caller.set_nodelay(true).map_err(|e| e.to_string())?;
    let input = OwnedFd::from(caller);
    let output = input.try_clone().map_err(|e| e.to_string())?;
    lead::command()?
        .stdin(input)
        .stdout(output)
        .spawn()
        .map_err(|e| format!("cannot start a worker: {e}"))
}
