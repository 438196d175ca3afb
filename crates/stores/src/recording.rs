//! What the store's operator sees: every batch, in order, and every answer.

use bytes::Bytes;
use millpond_core::{Answer, Batch, BoxFuture, Capabilities, Incarnation, Store, StoreError};
use std::sync::{Arc, Mutex, PoisonError};

/// Hears of a batch when it is called (`None`), and again when it is answered. Batches that fail have no answer.
type Listener = Arc<dyn Fn(&Batch, Option<&Answer>) + Send + Sync>;

/// A store that tells a listener all that crosses its boundary. It keeps nothing itself.
pub struct Recording {
    inner: Arc<dyn Store>,
    listener: Listener,
    /// Held while a batch is reported and called, so that both happen in one order.
    order: Mutex<()>,
}

impl Recording {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>, listener: impl Fn(&Batch, Option<&Answer>) + Send + Sync + 'static) -> Self {
        Self { inner, listener: Arc::new(listener), order: Mutex::new(()) }
    }
}

impl Store for Recording {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn connect(&self) -> BoxFuture<Result<Incarnation, StoreError>> {
        self.inner.connect()
    }

    fn execute(&self, batch: Arc<Batch>) -> BoxFuture<Result<Answer, StoreError>> {
        let listener = Arc::clone(&self.listener);
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        listener(&batch, None);
        let answer = self.inner.execute(Arc::clone(&batch));
        drop(order);
        Box::pin(async move {
            let answer = answer.await?;
            listener(&batch, Some(&answer));
            Ok(answer)
        })
    }

    fn sync(&self) -> BoxFuture<Result<(), StoreError>> {
        self.inner.sync()
    }

    fn read_claim(&self) -> BoxFuture<Result<Option<Bytes>, StoreError>> {
        self.inner.read_claim()
    }

    fn write_claim(&self, claim: Bytes) -> BoxFuture<Result<(), StoreError>> {
        self.inner.write_claim(claim)
    }
}
