//! A key-value service for two hundred clients in one thread: messages of a channel, on a tokio
//! runtime. A request is `put KEY VALUE` or `get KEY`; the answer is the value, or nothing.
//!
//! A channel has flow control, so neither side counts receives. A client has several requests under
//! way, and reads the answers in order.

mod common;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use common::{Outcome, Side};
use ferroce::Provider;
use ferroce::channel::{self, StreamRoom};
use ferroce::endpoint::{Endpoint, Incoming, Listener};
use tokio::task::{JoinSet, LocalSet};

const CLIENTS: usize = 200;
/// Keys of each client.
const KEYS: usize = 10;
/// Messages that may be under way in each direction, and bytes of the longest.
const ROOM: StreamRoom = StreamRoom::new(8, 128);
/// All begin at once, and the last is reached when the others are served.
const PATIENCE: Duration = Duration::from_secs(60);

/// What all clients see. The one thread serves it, so it needs no lock.
type Table = Rc<RefCell<HashMap<String, String>>>;

pub(crate) fn main() -> Outcome {
    let (side, mut address) = common::arguments()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let work = async {
        let endpoint = Endpoint::new(&Provider::auto())?;
        let driver = tokio::spawn(endpoint.driver().run_on_tokio());
        if side == Side::Client {
            clients(&endpoint, address).await?;
        } else {
            let listener = endpoint.listen(address)?;
            address.set_port(listener.port());
            println!("listening at port {}", address.port());
            if side == Side::Server {
                serve(&listener).await?;
            } else {
                tokio::try_join!(serve(&listener), clients(&endpoint, address))?;
            }
        }
        driver.abort();
        Ok(())
    };
    LocalSet::new().block_on(&runtime, work)
}

/// Serves each client in a task, until all have come and gone.
async fn serve(listener: &Listener) -> Outcome {
    let table = Table::default();
    let mut serving = JoinSet::new();
    for _ in 0..CLIENTS {
        let incoming = listener.accept().await?.timeout(PATIENCE);
        serving.spawn_local(serve_one(incoming, Rc::clone(&table)));
    }
    let mut requests = 0;
    while let Some(served) = serving.join_next().await {
        requests += served??;
    }
    let keys = table.borrow().len();
    println!("server: {requests} requests of {CLIENTS} clients, {keys} keys");
    Ok(())
}

/// Answers the requests of a client; how many there were.
async fn serve_one(incoming: Incoming, table: Table) -> Outcome<usize> {
    let (mut answers, mut requests) = channel::accept(incoming, ROOM).await?;
    let mut count = 0;
    while let Some(request) = requests.recv().await? {
        let answer = act(&String::from_utf8(request)?, &table)?;
        answers.send(answer).await?;
        count += 1;
    }
    answers.close().await?;
    Ok(count)
}

/// Does what a request says; the answer.
fn act(request: &str, table: &Table) -> io::Result<String> {
    let mut words = request.splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some("put"), Some(key), Some(value)) => {
            let new = (key.to_owned(), value.to_owned());
            table.borrow_mut().insert(new.0, new.1);
            Ok(String::new())
        }
        (Some("get"), Some(key), None) => Ok(table.borrow().get(key).cloned().unwrap_or_default()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, request)),
    }
}

async fn clients(endpoint: &Endpoint, address: SocketAddr) -> Outcome {
    let mut running = JoinSet::new();
    for number in 0..CLIENTS {
        running.spawn_local(client(endpoint.clone(), address, number));
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    println!("client: {CLIENTS} clients put and got {KEYS} keys each");
    Ok(())
}

/// Puts its keys, and gets them, with requests and answers under way together.
async fn client(endpoint: Endpoint, address: SocketAddr, number: usize) -> Outcome {
    let connector = endpoint.connector().timeout(PATIENCE);
    let (mut requests, mut answers) = channel::connect(&connector, address, ROOM).await?;
    let asking = async {
        for key in 0..KEYS {
            let value = key * number;
            requests
                .send(format!("put {number}/{key} it is {value}"))
                .await?;
            requests.send(format!("get {number}/{key}")).await?;
        }
        requests.close().await
    };
    let hearing = async {
        for key in 0..KEYS {
            let expected = format!("it is {}", key * number);
            for expected in [String::new(), expected] {
                let answer = answers.recv().await?;
                assert_eq!(answer, Some(expected.into_bytes()));
            }
        }
        assert_eq!(answers.recv().await?, None);
        Ok(())
    };
    tokio::try_join!(asking, hearing)?;
    Ok(())
}
