//! What is prepared once per table and kept until the server says that the table has changed.

use std::sync::{Arc, Mutex, PoisonError};

use consign_core::ports::StoreError;

/// A value made at first use and again after it was found outdated.
#[derive(Debug)]
pub(crate) struct Kept<T>(Mutex<Option<Arc<T>>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Kept<T> {
    /// The value, made by `make` when there is none. Two callers may both make it; either result serves.
    pub(crate) async fn get(
        &self,
        make: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Arc<T>, StoreError> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(value) = kept {
            return Ok(value);
        }
        let value = Arc::new(make.await?);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&value));
        Ok(value)
    }

    /// Passes a result on; one that says the schema does not fit makes the next call look again.
    pub(crate) fn noting<R>(&self, result: Result<R, StoreError>) -> Result<R, StoreError> {
        if matches!(result, Err(StoreError::Schema(_))) {
            self.forget();
        }
        result
    }

    /// Drops the value.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
