//! Requests for keys, through a running engine over a store in memory: order, and what becomes of them when their
//! client or the server goes away.

use super::*;
use bytes::Bytes;
use millpond_core::{Answer, BarrierKind, Batch, BoxFuture, Capabilities, Incarnation, Label, Op, Store, StoreError};
use millpond_crypto::{BlockCipher, EpochSecret, MasterKey, SchemeTag, StoreId};
use millpond_engine::{Config as Drive, Durability, Pace, Start, StateDir};
use millpond_schemes::{Coins, Pancake, Params};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;

/// Blocks in memory, each batch answered after a pause.
#[derive(Default)]
struct Slow {
    blocks: Arc<Mutex<HashMap<Label, Bytes>>>,
    claim: Arc<Mutex<Option<Bytes>>>,
}

impl Store for Slow {
    fn capabilities(&self) -> Capabilities {
        Capabilities { barrier: BarrierKind::Cheap, block_limit: 1 << 20 }
    }

    fn connect(&self) -> BoxFuture<Result<Incarnation, StoreError>> {
        Box::pin(async { Ok(Incarnation("one".to_owned())) })
    }

    fn execute(&self, batch: Arc<Batch>) -> BoxFuture<Result<Answer, StoreError>> {
        let mut blocks = self.blocks.lock().unwrap();
        let answer = match &batch.op {
            Op::Read(labels) => Answer::Blocks(labels.iter().map(|label| blocks.get(label).cloned()).collect()),
            Op::Write(writes) => {
                blocks.extend(writes.iter().cloned());
                Answer::Done
            }
            Op::Delete(labels) => {
                for label in labels {
                    blocks.remove(label);
                }
                Answer::Done
            }
        };
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Ok(answer)
        })
    }

    fn sync(&self) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn read_claim(&self) -> BoxFuture<Result<Option<Bytes>, StoreError>> {
        let claim = self.claim.lock().unwrap().clone();
        Box::pin(async { Ok(claim) })
    }

    fn write_claim(&self, claim: Bytes) -> BoxFuture<Result<(), StoreError>> {
        *self.claim.lock().unwrap() = Some(claim);
        Box::pin(async { Ok(()) })
    }
}

/// A server with one PANCAKE store, and its state directory.
async fn start_with_store(name: &str) -> (Running, PathBuf) {
    let dir = std::env::temp_dir().join(format!("millpond-server-{}-{name}", std::process::id()));
    std::fs::remove_dir_all(&dir).ok();
    let (id, limit) = (StoreId::generate(), 128);
    let (master, secret) = (MasterKey::generate(), EpochSecret::generate());
    let cipher = BlockCipher::new(&master, &secret, id, 0, SchemeTag::PANCAKE, Pancake::payload_limit(limit)).unwrap();
    let params = Params { store: name.to_owned(), capacity: 1024, batch: 3, value_limit: limit };
    let drive = Drive {
        durability: Durability::Os,
        pace: Pace::Idle,
        batch: 3,
        hold: 0,
        rounds: 4,
        round_batches: 64,
        deadline_us: 5_000_000,
        barrier_us: 1_000_000,
        checkpoint_bytes: 1 << 20,
    };
    let start = Start {
        name: name.to_owned(),
        value_limit: limit,
        store_id: id.0,
        incarnation: 1,
        config: drive,
        dir: StateDir::open(&dir).unwrap(),
        scheme: Box::new(Pancake::new(params, cipher, &Vec::new(), Coins::seeded(1)).unwrap()),
        store: Arc::new(Slow::default()),
    };
    let handle = millpond_engine::start(start).await.unwrap();
    let config = Config::load(None, &[]).unwrap();
    let served = Served::new(config.stores.first().unwrap(), handle);
    (start_serving(&[], vec![served]).await, dir)
}

fn set(key: usize, value: usize) -> String {
    format!("SET key{key} value{value}\r\n")
}

fn get(key: usize) -> String {
    format!("GET key{key}\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_from_the_store_and_from_here_come_in_order() {
    let (server, dir) = start_with_store("order").await;
    let (mut requests, mut replies) = (String::new(), String::new());
    for i in 0..300 {
        requests += &(set(i % 50, i) + &echo(&i.to_string()) + &get(i % 50) + "GET missing\r\nPING\r\n");
        replies += &("+OK\r\n".to_owned() + &bulk(&i.to_string()) + &bulk(&format!("value{i}")) + "$-1\r\n+PONG\r\n");
    }
    let mut stream = server.connect().await;
    stream.write_all(requests.as_bytes()).await.unwrap();
    expect(&mut stream, &replies).await;
    let text = crate::metrics::text(server.proxy.figures()).unwrap();
    for (command, count) in [("set", 300), ("get", 600)] {
        let line = format!("millpond_requests_total{{store=\"order\",command=\"{command}\"}} {count}.0");
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("key1") && !text.contains("value1"));
    wait_for_keys(&mut stream).await;
    std::fs::remove_dir_all(dir).unwrap();
}

/// DBSIZE and INFO follow the engine, a little later.
async fn wait_for_keys(stream: &mut TcpStream) {
    let since = Instant::now();
    loop {
        stream.write_all(b"DBSIZE\r\n").await.unwrap();
        let mut reply = [0; 16];
        let length = stream.read(&mut reply).await.unwrap();
        if &reply[..length] == b":50\r\n" {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stream.write_all(b"INFO\r\nQUIT\r\n").await.unwrap();
    let info = rest(stream).await;
    for part in ["redis_version:7.2.", "role:master", "db0:keys=50,expires=0", "store0:name=order,scheme=pancake"] {
        assert!(info.contains(part), "{part} is not in\n{info}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_finished_though_its_client_is_gone() {
    let (server, dir) = start_with_store("gone").await;
    let mut writer = server.connect().await;
    writer.write_all((0..100).map(|i| set(i, i)).collect::<String>().as_bytes()).await.unwrap();
    drop(writer);
    let mut reader = server.connect().await;
    let since = Instant::now();
    loop {
        reader.write_all(get(99).as_bytes()).await.unwrap();
        let mut reply = [0; 5];
        reader.read_exact(&mut reply).await.unwrap();
        if &reply == b"$7\r\nv" {
            break expect(&mut reader, "alue99\r\n").await;
        }
        assert!(&reply == b"$-1\r\n" && since.elapsed() < Duration::from_secs(5));
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_answers_what_is_under_way() {
    let (server, dir) = start_with_store("drain").await;
    let mut stream = server.connect().await;
    stream.write_all((set(1, 1) + &get(1).repeat(200)).as_bytes()).await.unwrap();
    expect(&mut stream, "+OK\r\n").await;
    server.drain.send(true).unwrap();
    assert_eq!(rest(&mut stream).await, bulk("value1").repeat(200));
    drop(stream);
    tokio::time::timeout(Duration::from_secs(5), server.task).await.unwrap().unwrap();
    server.proxy.stores()[0].handle.shutdown().await;
    std::fs::remove_dir_all(dir).unwrap();
}
