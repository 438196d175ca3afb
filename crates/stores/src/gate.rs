//! The failure rule of [`millpond_core::Store`], kept in one place for the stores whose batches are answered by several
//! threads or futures.
//!
//! Whether a batch succeeds is decided under one lock, in the moment it is answered. So once one has failed, none that
//! was called before the next `connect` can still succeed.

use millpond_core::{StoreError, StoreErrorKind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which connection a batch was called on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass(u64);

struct State {
    /// Counts the connections.
    current: u64,
    /// Why nothing gets through; `None` while connected.
    closed: Option<StoreError>,
}

/// Lets batches through until one fails.
pub struct Gate(Mutex<State>);

impl Gate {
    /// A gate that the first `connect` opens.
    pub fn new() -> Self {
        let closed = StoreError::new(StoreErrorKind::Unavailable, "the store is not connected");
        Self(Mutex::new(State { current: 0, closed: Some(closed) }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `call` as one of a sequence that no failure and no other call can cut into.
    pub fn enter<T>(&self, call: impl FnOnce(Pass) -> T) -> Result<T, StoreError> {
        let state = self.lock();
        match &state.closed {
            None => Ok(call(Pass(state.current))),
            Some(error) => Err(error.clone()),
        }
    }

    /// Whether a batch may still take effect.
    pub fn check(&self, pass: Pass) -> Result<(), StoreError> {
        self.lock().check(pass)
    }

    /// Decides what a batch is answered, and has it answered.
    pub fn settle<T>(&self, pass: Pass, result: Result<T, StoreError>, answer: impl FnOnce(Result<T, StoreError>)) {
        let mut state = self.lock();
        let result = state.check(pass).and(result);
        if let Err(error) = &result
            && state.current == pass.0
        {
            state.closed.get_or_insert_with(|| error.clone());
        }
        answer(result);
    }

    /// Fails everything until the next [`Gate::open`].
    pub fn close(&self, error: StoreError) {
        self.lock().closed.get_or_insert(error);
    }

    /// Begins a `connect`: nothing that was called before it gets through any more.
    pub fn renew(&self) -> Pass {
        let mut state = self.lock();
        state.current += 1;
        state.closed = Some(StoreError::new(StoreErrorKind::Unavailable, "the store is being connected anew"));
        Pass(state.current)
    }

    /// Ends that `connect`, unless a later one has begun.
    pub fn open(&self, pass: Pass) -> Result<(), StoreError> {
        let mut state = self.lock();
        if state.current != pass.0 {
            return Err(superseded());
        }
        state.closed = None;
        Ok(())
    }
}

impl State {
    fn check(&self, pass: Pass) -> Result<(), StoreError> {
        if self.current != pass.0 {
            return Err(superseded());
        }
        self.closed.clone().map_or(Ok(()), Err)
    }
}

fn superseded() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the store has been connected anew since")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn after_a_failure_nothing_succeeds_until_the_next_connect() {
        let gate = Gate::new();
        assert!(gate.enter(|_| ()).is_err());
        gate.open(gate.renew()).unwrap();
        let (before, failing) = (gate.enter(|pass| pass).unwrap(), gate.enter(|pass| pass).unwrap());
        gate.settle(before, Ok(()), |answer| assert!(answer.is_ok()));
        let broken = StoreError::new(StoreErrorKind::Refused, "broken");
        gate.settle(failing, Err::<(), _>(broken.clone()), |answer| assert_eq!(answer, Err(broken.clone())));
        gate.settle(before, Ok(()), |answer| assert_eq!(answer, Err(broken.clone())));
        assert_eq!(gate.enter(|_| ()), Err(broken));
        let (first, second) = (gate.renew(), gate.renew());
        assert!(gate.open(first).is_err());
        gate.open(second).unwrap();
        // What belongs to the old connection fails, and does not close the new one.
        gate.settle(before, Ok(()), |answer| assert!(answer.is_err()));
        assert!(gate.check(before).is_err() && gate.check(second).is_ok());
    }
}
