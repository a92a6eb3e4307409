//! A server for a thousand clients in one thread: streams on a tokio runtime.
//!
//! However many connections there are, an endpoint has one descriptor, and one task serves it.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::{Outcome, Side};
use ferroce::Provider;
use ferroce::endpoint::{Endpoint, Listener};
use ferroce::stream::{Stream, StreamRoom};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

const CLIENTS: usize = 1000;
/// All begin at once, and the last is reached when the others are served.
const PATIENCE: Duration = Duration::from_secs(60);
/// Small, since there are many.
const ROOM: StreamRoom = StreamRoom::new(2, 256);

pub(crate) fn main() -> Outcome {
    let (side, mut address) = common::arguments()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let endpoint = Endpoint::new(&Provider::auto())?;
        let driver = tokio::spawn(endpoint.driver().run_on_tokio());
        if side == Side::Client {
            clients(endpoint.clone(), address).await?;
        } else {
            let listener = endpoint.listen(address)?;
            address.set_port(listener.port());
            println!("listening at port {}", address.port());
            if side == Side::Server {
                server(listener).await?;
            } else {
                tokio::try_join!(server(listener), clients(endpoint.clone(), address))?;
            }
        }
        driver.abort();
        Ok(())
    })
}

/// Answers each line of each client, until all clients have come and gone.
async fn server(listener: Listener) -> Outcome {
    let mut served = JoinSet::new();
    for _ in 0..CLIENTS {
        let incoming = listener.accept().await?.timeout(PATIENCE);
        served.spawn(async move {
            let mut stream = Stream::accept(incoming, ROOM).await?;
            let mut line = String::new();
            let mut lines = 0;
            while stream.read_line(&mut line).await? > 0 {
                stream
                    .write_all(format!("you said {line}").as_bytes())
                    .await?;
                line.clear();
                lines += 1;
            }
            stream.shutdown().await?;
            Outcome::Ok(lines)
        });
    }
    let mut lines = 0;
    while let Some(done) = served.join_next().await {
        lines += done??;
    }
    println!("server: answered {lines} lines of {CLIENTS} clients");
    Ok(())
}

async fn clients(endpoint: Endpoint, address: SocketAddr) -> Outcome {
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let connector = endpoint.connector().timeout(PATIENCE);
        clients.spawn(async move {
            let mut stream = Stream::connect(&connector, address, ROOM).await?;
            let said = format!("hello from client {number}\nand good-bye\n");
            stream.write_all(said.as_bytes()).await?;
            stream.shutdown().await?;
            let mut answers = String::new();
            stream.read_to_string(&mut answers).await?;
            let expected = format!("you said hello from client {number}\nyou said and good-bye\n");
            assert_eq!(answers, expected);
            Outcome::Ok(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    println!("client: {CLIENTS} clients were answered");
    Ok(())
}
