//! `ferroce demo`: the whole RDMA workflow between two processes of this host.
//!
//! This process is the client. It starts itself once more as the server, a process like any other:
//! they share nothing but what goes through the queue pair. The program is the example of the
//! `ferroce` library, in the order in which a newcomer meets things: `server` and `client`, then
//! `measure`.

mod client;
mod end;
mod measure;
mod message;
mod server;
mod tell;

use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::connection::Outcome;
use tell::tell;

/// After this time something hangs.
const DEADLINE: Duration = Duration::from_secs(30);
/// Time for the client to see that the server has ended.
const GRACE: Duration = Duration::from_secs(2);
/// How the server tells its port, on a line of its own.
const PORT_LINE: &str = "port ";

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Address of this host at which the two meet
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    address: IpAddr,
    /// Be the server (the demo starts it itself)
    #[arg(long, hide = true)]
    server: bool,
}

/// What the parts of the client's process tell its main thread.
enum News {
    /// The server listens on this port.
    Port(u16),
    /// The server has closed its output: it has ended.
    ServerEnded,
    /// The client is through.
    ClientDone(Outcome),
}

/// Runs one of the two sides.
pub(crate) fn demo(args: &DemoArgs) -> ExitCode {
    let outcome = if args.server {
        serve(args.address)
    } else {
        lead(args.address)
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!(
                "ferroce demo: {}: {e}",
                if args.server { "server" } else { "client" }
            );
            ExitCode::FAILURE
        }
    }
}

/// The server's process.
fn serve(address: IpAddr) -> Outcome {
    // The client holds the other end of this pipe; when it closes, the client is gone, and so must
    // we be.
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    server::run(address, |port| println!("{PORT_LINE}{port}"))
}

/// The client's process: starts the server, runs the client, and sees to it that both end.
fn lead(address: IpAddr) -> Outcome {
    println!(
        "Two processes of this host connect through RDMA CM and use every operation. Each byte is verified."
    );
    let begun = Instant::now();
    let program = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
    let mut command = Command::new(program);
    command.args(["demo", "--server", "--address", &address.to_string()]);
    let mut server = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start the server: {e}"))?;
    let outcome = watch(&mut server, address);
    if outcome.is_err() {
        // It may hang; that it is dead already is fine.
        let _ = server.kill();
    }
    let status = server.wait().map_err(|e| format!("the server: {e}"))?;
    outcome?;
    if !status.success() {
        return Err(format!("the server ended with {status}"));
    }
    println!(
        "\nAll of it was right. {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Waits for both sides to end, or for the first thing that goes wrong.
fn watch(server: &mut Child, address: IpAddr) -> Outcome {
    let (news, heard) = mpsc::channel();
    let lines = server.stdout.take().ok_or("the server has no output")?;
    let from_server = news.clone();
    thread::spawn(move || relay(lines, &from_server));
    let deadline = Instant::now() + DEADLINE;
    let News::Port(port) = next(&heard, deadline)? else {
        return Err("the server ended before it listened".into());
    };
    thread::spawn(move || {
        let outcome = client::run((address, port).into());
        let _ = news.send(News::ClientDone(outcome)); // nobody listens after a failure
    });
    // The two end in any order; a server that ends too early shows in its status, or as the
    // client's failure.
    let mut client_done = false;
    loop {
        match next(&heard, deadline)? {
            News::ClientDone(outcome) => {
                outcome?;
                client_done = true;
            }
            News::ServerEnded if client_done => return Ok(()),
            News::ServerEnded => return client_alone(&heard),
            News::Port(_) => return Err("the server tells its port again".into()),
        }
    }
}

/// The server has ended, and the client has not: it must be about to, or it has lost its peer.
fn client_alone(heard: &Receiver<News>) -> Outcome {
    match next(heard, Instant::now() + GRACE) {
        Ok(News::ClientDone(outcome)) => outcome,
        _ => Err("the server ended in the middle".into()),
    }
}

fn next(heard: &Receiver<News>, deadline: Instant) -> Outcome<News> {
    let left = deadline.saturating_duration_since(Instant::now());
    heard
        .recv_timeout(left)
        .map_err(|_| format!("not done after {} s", DEADLINE.as_secs()))
}

/// Prints the server's lines among our own.
fn relay(lines: impl Read, news: &Sender<News>) {
    for line in BufReader::new(lines).lines().map_while(Result::ok) {
        let port = line
            .strip_prefix(PORT_LINE)
            .and_then(|port| port.parse().ok());
        match port {
            Some(port) => drop(news.send(News::Port(port))),
            None => tell("server", &line),
        }
    }
    let _ = news.send(News::ServerEnded);
}
