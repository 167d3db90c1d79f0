//! How much of one thing an actor may have at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tower_tool::Principal;

type Actor = (Box<str>, Box<str>);

/// Places per actor.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    max: usize,
    taken: Arc<Mutex<HashMap<Actor, usize>>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    actor: Actor,
}

impl Slots {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, taken: Arc::default() }
    }

    pub(crate) fn take(&self, principal: &Principal) -> Option<Slot> {
        let actor: Actor = (principal.tenant().into(), principal.actor().into());
        let mut taken = self.lock();
        if taken.get(&actor).copied().unwrap_or_default() >= self.max {
            return None;
        }
        *taken.entry(actor.clone()).or_default() += 1;
        drop(taken);
        Some(Slot { slots: self.clone(), actor })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Actor, usize>> {
        // Counting leaves the map whole, so a poisoned lock says nothing.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        if let Some(count) = taken.get_mut(&self.actor) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.actor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_and_an_idle_actor_is_forgotten() {
        let slots = Slots::new(1);
        let (alice, bob) = (Principal::new("acme", "a"), Principal::new("acme", "b"));
        let first = slots.take(&alice);
        assert!(first.is_some());
        assert!(slots.take(&alice).is_none());
        assert!(slots.take(&bob).is_some());
        drop(first);
        assert!(slots.lock().is_empty());
        assert!(slots.take(&alice).is_some());
    }
}
