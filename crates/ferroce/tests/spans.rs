//! What an endpoint does is told to the program's own subscriber, in spans.

mod common;

use tracing_subscriber::fmt::format::FmtSpan;

use common::door::{endpoint, listener};
use common::told::Told;

#[test]
fn a_subscriber_of_the_program_sees_spans() {
    let told = Told::default();
    let writer = told.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("ferroce::endpoint=debug")
        .with_ansi(false)
        .with_span_events(FmtSpan::NEW)
        .with_writer(move || writer.clone())
        .finish();
    let (listener, address) = listener(&endpoint());
    let server = std::thread::spawn(move || {
        let connection = listener.accept().wait().unwrap().accept().wait().unwrap();
        connection.disconnected().wait().unwrap();
    });
    tracing::subscriber::with_default(subscriber, || {
        let connection = endpoint().connect(address).wait().unwrap();
        connection.disconnect().wait().unwrap();
    });
    server.join().unwrap();
    let told = told.text();
    for span in [
        format!("connect{{to={address}}}: ferroce::endpoint: new"),
        format!("connect{{to={address}}}:resolve{{to={address}}}: ferroce::endpoint: new"),
        "disconnect{queue_pair=".to_owned(),
    ] {
        assert!(told.contains(&span), "{span} is not in\n{told}");
    }
}
