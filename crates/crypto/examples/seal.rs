//! Times labels, seals and opens of 1 KiB: `cargo run --release -p millpond-crypto --example seal`.

use millpond_crypto::{BlockCipher, EpochSecret, Header, KeyError, MasterKey, SchemeTag, StoreId, random_nonces};
use std::hint::black_box;
use std::time::Instant;

const TIMES: u64 = 1_000_000;
const PAYLOAD_BYTES: usize = 1024;

/// Prints what one of many calls takes, best of five.
fn time(what: &str, mut work: impl FnMut(u64)) {
    let mut best_ns = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        (0..TIMES / 5).for_each(&mut work);
        best_ns = best_ns.min(start.elapsed().as_secs_f64() * 1e9 / (TIMES / 5) as f64);
    }
    println!("{what:32} {best_ns:7.0} ns");
}

fn main() -> Result<(), KeyError> {
    let (master, secret) = (MasterKey::generate(), EpochSecret::generate());
    let (store, payload) = (StoreId::generate(), vec![7; PAYLOAD_BYTES]);
    let sealed = BlockCipher::new(&master, &secret, store, 0, SchemeTag::SEALED, PAYLOAD_BYTES)?;
    let plain = BlockCipher::plaintext(store, PAYLOAD_BYTES);
    let nonces = random_nonces(1024);
    let header = Header { incarnation: 1, counter: 2, key: 3, seq: 4 };

    time("label", |slot| {
        black_box(sealed.label(slot));
    });
    time("150 nonces in one call, each", |n| {
        if n % 150 == 0 {
            black_box(random_nonces(150));
        }
    });
    for (name, cipher) in [("sealed", &sealed), ("plain", &plain)] {
        let label = cipher.label(5);
        let Ok(block) = cipher.seal([9; 24], &label, &header, &payload) else { continue };
        time(&format!("{name}: seal"), |n| {
            black_box(cipher.seal(nonces[n as usize % 1024], &label, &header, &payload).ok());
        });
        time(&format!("{name}: seal of nothing"), |n| {
            black_box(cipher.seal(nonces[n as usize % 1024], &label, &header, &[]).ok());
        });
        time(&format!("{name}: open"), |_| {
            black_box(cipher.open(&label, &block).ok());
        });
    }
    Ok(())
}
