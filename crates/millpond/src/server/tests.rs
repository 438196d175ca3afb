//! Connections against the listener, without a store: order, limits, and how connections end.

mod data;

use super::*;
use crate::config::Config;
use crate::proxy::Served;
use std::net::SocketAddr;
use std::time::Instant;
use tokio::io::AsyncReadExt;
use tokio::task::JoinHandle;

struct Running {
    address: SocketAddr,
    proxy: Arc<Proxy>,
    drain: watch::Sender<bool>,
    task: JoinHandle<()>,
}

async fn start(sets: &[&str]) -> Running {
    start_serving(sets, Vec::new()).await
}

async fn start_serving(sets: &[&str], stores: Vec<Served>) -> Running {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let config = Config::load(None, &sets).unwrap();
    let password = config.server.password.as_ref().map(|source| source.read().unwrap());
    let proxy = Arc::new(Proxy::new(&config, password.as_ref()));
    proxy.open(stores);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (drain, draining) = watch::channel(false);
    let task = tokio::spawn(serve(listener, Arc::clone(&proxy), draining, Duration::from_secs(5)));
    Running { address, proxy, drain, task }
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// Reads until the server closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn expect(stream: &mut TcpStream, expected: &str) {
    let mut bytes = vec![0; expected.len()];
    tokio::time::timeout(Duration::from_secs(10), stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
}

fn echo(text: &str) -> String {
    format!("*2\r\n$4\r\nECHO\r\n${}\r\n{text}\r\n", text.len())
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

#[tokio::test]
async fn pipelined_replies_come_in_order_at_every_split() {
    let server = start(&[]).await;
    let requests: String = (0..200).map(|i| echo(&i.to_string())).collect();
    let replies: String = (0..200).map(|i| bulk(&i.to_string())).collect();
    for piece in [1, 7, 1000, requests.len()] {
        let mut stream = server.connect().await;
        stream.set_nodelay(true).unwrap();
        for part in requests.as_bytes().chunks(piece) {
            stream.write_all(part).await.unwrap();
        }
        expect(&mut stream, &replies).await;
    }
}

#[tokio::test]
async fn what_was_sent_before_the_end_is_answered() {
    let server = start(&[]).await;
    let mut stream = server.connect().await;
    stream.write_all((echo("a") + &echo("b") + "*1\r\n$4\r\nPI").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await, bulk("a") + &bulk("b"));
}

#[tokio::test]
async fn a_protocol_error_comes_after_earlier_replies_and_closes() {
    let server = start(&[]).await;
    for garbage in ["*1\r\nx", "*1\r\n$99999999999999999999\r\n", "*-5x\r\n"] {
        let mut stream = server.connect().await;
        stream.write_all((echo("a") + garbage + &echo("never")).as_bytes()).await.unwrap();
        let said = rest(&mut stream).await;
        assert!(said.starts_with(&(bulk("a") + "-ERR Protocol error: ")), "{said}");
        assert_eq!(said.lines().count(), 3, "{said}");
    }
    let mut nested = server.connect().await;
    nested.write_all("*1\r\n".repeat(200_000).as_bytes()).await.ok();
    assert!(rest(&mut nested).await.starts_with("-ERR Protocol error: "));
}

#[tokio::test]
async fn quit_answers_and_closes() {
    let server = start(&[]).await;
    let mut stream = server.connect().await;
    stream.write_all((echo("a") + "QUIT\r\n" + &echo("never")).as_bytes()).await.unwrap();
    assert_eq!(rest(&mut stream).await, bulk("a") + "+OK\r\n");
}

#[tokio::test]
async fn strangers_get_small_frames_until_they_authenticate() {
    let server = start(&["server.password=hush"]).await;
    let mut stream = server.connect().await;
    stream.write_all(b"PING\r\nAUTH wrong\r\nAUTH hush\r\n").await.unwrap();
    let refusals =
        "-NOAUTH Authentication required.\r\n-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    expect(&mut stream, &(refusals.to_owned() + "+OK\r\n")).await;
    let text = "x".repeat(20_000);
    stream.write_all(echo(&text).as_bytes()).await.unwrap();
    expect(&mut stream, &bulk(&text)).await;
    let mut stranger = server.connect().await;
    stranger.write_all(echo(&text).as_bytes()).await.ok();
    assert!(rest(&mut stranger).await.starts_with("-ERR Protocol error: unauthenticated bulk length"));
}

#[tokio::test]
async fn too_many_clients_are_refused_until_one_leaves() {
    let server = start(&["server.max_clients=2"]).await;
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    for stream in [&mut first, &mut second] {
        stream.write_all(b"PING\r\n").await.unwrap();
        expect(stream, "+PONG\r\n").await;
    }
    assert_eq!(rest(&mut server.connect().await).await, "-ERR max number of clients reached\r\n");
    drop(first);
    let since = Instant::now();
    while server.proxy.clients() > 1 {
        assert!(since.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut third = server.connect().await;
    third.write_all(b"PING\r\n").await.unwrap();
    expect(&mut third, "+PONG\r\n").await;
    assert_eq!((server.proxy.figures().connections, server.proxy.figures().refused), (3, 1));
}

#[tokio::test]
async fn a_client_that_never_reads_is_read_no_further() {
    let server = start(&[]).await;
    let mut stream = server.connect().await;
    let text = "x".repeat(64 << 10);
    let request = echo(&text);
    let mut sent = 0;
    // What it takes is bounded by the sockets' buffers, both ways, and ours.
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(500), stream.write_all(request.as_bytes())).await
    {
        written.unwrap();
        sent += 1;
        assert!(sent < 1024, "it took 64 MiB without sending anything");
    }
    // The last request was cut short; everything before it is answered as soon as somebody reads.
    for _ in 0..sent {
        expect(&mut stream, &bulk(&text)).await;
    }
}

#[tokio::test]
async fn draining_closes_idle_connections_and_takes_no_more() {
    let server = start(&[]).await;
    let mut stream = server.connect().await;
    stream.write_all(b"PING\r\n").await.unwrap();
    expect(&mut stream, "+PONG\r\n").await;
    server.drain.send(true).unwrap();
    assert_eq!(rest(&mut stream).await, "");
    drop(stream);
    tokio::time::timeout(Duration::from_secs(5), server.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
    assert_eq!(server.proxy.clients(), 0);
}
