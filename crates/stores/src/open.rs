//! From a URL to a back end.

use crate::{Embedded, Memory};
use millpond_core::{Store, StoreError, StoreErrorKind};
use std::path::Path;
use std::sync::Arc;

/// Opens the back end that `url` names; a relative path counts from `base`.
///
/// # Errors
/// If the URL names none that is supported, or it can't be opened.
pub fn open(url: &str, base: &Path) -> Result<Arc<dyn Store>, StoreError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Arc::new(Memory::default())),
        Some(("embedded", path)) if !path.is_empty() => Ok(Arc::new(Embedded::open(&base.join(path))?)),
        _ => {
            let text = "unknown back end: supported are embedded:PATH and memory:";
            Err(StoreError::new(StoreErrorKind::Fatal, text))
        }
    }
}
