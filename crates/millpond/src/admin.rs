//! The admin endpoint: `/metrics`, `/livez`, `/readyz` and `/status` over HTTP/1.1. Read-only, and for the trusted side.

use crate::proxy::Proxy;
use crate::{metrics, status};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections at a time.
const CONNECTIONS: usize = 64;
/// A client that says nothing for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(30);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves for ever.
pub async fn serve(listener: TcpListener, proxy: Arc<Proxy>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let response = respond(request.method(), request.uri().path(), &proxy);
                async { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            // A client that goes away is its own business.
            connection.await.ok();
            drop(place);
        });
    }
}

fn respond(method: &Method, path: &str, proxy: &Proxy) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        return answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
    }
    match path {
        "/livez" => answer(StatusCode::OK, TEXT, "ok\n"),
        "/readyz" => match proxy.not_ready() {
            None => answer(StatusCode::OK, TEXT, "ok\n"),
            Some(reason) => answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, reason + "\n"),
        },
        "/metrics" => match metrics::text(proxy.figures()) {
            Ok(text) => answer(StatusCode::OK, OPEN_METRICS, text),
            Err(_) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "the metrics can't be rendered\n"),
        },
        "/status" => answer(StatusCode::OK, JSON, status::json(proxy).to_string() + "\n"),
        _ => answer(StatusCode::NOT_FOUND, TEXT, "there are: /metrics /livez /readyz /status\n"),
    }
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn get(address: &str, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn readiness_follows_the_proxy_and_everything_answers() {
        let proxy = Arc::new(Proxy::new(&Config::load(None, &[]).unwrap(), None));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(serve(listener, Arc::clone(&proxy)));
        assert!(get(&address, "GET /livez").await.starts_with("HTTP/1.1 200"));
        let unready = get(&address, "GET /readyz").await;
        assert!(unready.starts_with("HTTP/1.1 503") && unready.contains("opening the stores"), "{unready}");
        proxy.open(Vec::new());
        assert!(get(&address, "GET /readyz").await.starts_with("HTTP/1.1 200"));
        assert!(get(&address, "GET /metrics").await.contains("millpond_clients 0"));
        assert!(get(&address, "GET /status").await.contains("\"ready\":true"));
        assert!(get(&address, "GET /nothing").await.starts_with("HTTP/1.1 404"));
        assert!(get(&address, "POST /status").await.starts_with("HTTP/1.1 405"));
        proxy.drain();
        assert!(get(&address, "GET /readyz").await.contains("shutting down"));
        assert!(get(&address, "GET /livez").await.starts_with("HTTP/1.1 200"));
    }
}
