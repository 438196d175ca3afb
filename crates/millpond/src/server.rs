//! The listener for clients: takes connections in, and lets them finish when the server stops.

use crate::connection::Connection;
use crate::proxy::Proxy;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Takes connections in until `draining` turns true, then waits at most `patience` for those that are there. No
/// connection is left when it returns.
pub async fn serve(listener: TcpListener, proxy: Arc<Proxy>, mut draining: watch::Receiver<bool>, patience: Duration) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_one(stream, Arc::clone(&proxy), draining.clone()));
                }
                Err(error) => {
                    // Out of file descriptors, most likely; it passes when connections close.
                    tracing::warn!("can't take a connection: {error}; raise `ulimit -n` or lower server.max_clients");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = stopping(&mut draining) => break,
        }
    }
    drop(listener);
    let all_done = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(patience, all_done).await.is_err() {
        tracing::warn!("{} connections were still waiting for replies and were closed", connections.len());
        connections.shutdown().await;
    }
}

/// Waits until the server stops.
pub async fn stopping(draining: &mut watch::Receiver<bool>) {
    // A sender that is gone means the same.
    drop(draining.wait_for(|draining| *draining).await);
}

async fn serve_one(mut stream: TcpStream, proxy: Arc<Proxy>, draining: watch::Receiver<bool>) {
    // Replies are written whole, so there is nothing to gain from waiting for more.
    stream.set_nodelay(true).ok();
    let Some(admission) = proxy.admit() else {
        stream.write_all(b"-ERR max number of clients reached\r\n").await.ok();
        return;
    };
    Connection::new(Arc::clone(&proxy), proxy.session(admission.id)).run(stream, draining).await;
}

#[cfg(test)]
mod tests;
