//! The wire that a program chooses.
#![cfg(feature = "software")]

mod common;

use std::net::TcpListener;

use ferroce::endpoint::Endpoint;
use ferroce::{Provider, Wire};

/// One test: a process has one software device.
#[test]
fn a_program_chooses_its_wire_once() {
    let provider = Provider::software_over(Wire::Iwarp).unwrap();
    let endpoint = Endpoint::new(&provider).unwrap();
    let listener = endpoint.listen("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let taken = TcpListener::bind(address).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    let server = std::thread::spawn(move || {
        let connection = listener.accept().wait().unwrap().accept().wait().unwrap();
        connection.disconnected().wait().unwrap();
    });
    let connection = endpoint.connect(address).wait().unwrap();
    connection.disconnect().wait().unwrap();
    server.join().unwrap();
    Provider::software_over(Wire::Iwarp).unwrap();
    let refused = Provider::software_over(Wire::Both).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
    assert!(refused.to_string().contains("has begun"), "{refused}");
}
