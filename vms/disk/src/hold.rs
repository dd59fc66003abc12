//! Completions of writes that are held back, so that whoever does not wait for a write is caught every time.
//!
//! A real disk may take its time over any write, and need not complete them in the order in which it got them. A
//! disk that completes each at once hides a file system that forgets to wait: by the time it sends its flush, the
//! write that it did not wait for has completed, and is durable after all.
//!
//! So while a recording is made, writes are carried out at once but reported as completed as late as the guest
//! allows, the newest first: when it asks for a flush, when the queue is nearly full, or when it has asked for
//! nothing for a while, and so seems to wait. Reads and flushes are never held.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use vhost_user_backend::{VringRwLock, VringT};
use virtio_queue::QueueT;

/// How often the thread that watches sees whether it is still needed.
const GLANCE: Duration = Duration::from_secs(1);

/// A request that was carried out, and whose completion is held.
struct Held {
    vring: VringRwLock,
    head: u16,
    used: u32,
}

#[derive(Default)]
struct State {
    /// How long a guest asks for nothing until it counts as waiting; none: hold nothing.
    idle: Option<Duration>,
    held: Vec<Held>,
    /// When the guest asked for something last.
    asked: Option<Instant>,
}

/// Holds completions, while it is on.
#[derive(Default)]
pub struct Hold {
    state: Mutex<State>,
    changed: Condvar,
}

impl Hold {
    /// One that is off, with its own thread, which ends with it.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start() -> io::Result<Arc<Self>> {
        let hold = Arc::new(Self::default());
        let weak = Arc::downgrade(&hold);
        thread::Builder::new()
            .name("hold".into())
            .spawn(move || watch(&weak))?;
        Ok(hold)
    }

    /// Hold from now on, until the guest has asked for nothing for `idle`; None: release everything and hold no
    /// more.
    pub fn set(&self, idle: Option<Duration>) {
        let mut state = self.lock();
        state.idle = idle;
        if idle.is_none() {
            release(&mut state);
        }
    }

    /// The guest has asked for something: it does not wait.
    pub fn asked(&self) {
        self.lock().asked = Some(Instant::now());
    }

    /// Release everything: the guest wants a flush, which need not cover what is still held now.
    pub fn release(&self) {
        release(&mut self.lock());
    }

    /// Drop everything: the guest is gone.
    pub fn forget(&self) {
        self.lock().held.clear();
    }

    /// Take over the completion of a write. Returns false if it is not to be held.
    pub fn take(&self, vring: &VringRwLock, head: u16, used: u32) -> bool {
        let mut state = self.lock();
        if state.idle.is_none() {
            return false;
        }
        state.held.push(Held {
            vring: vring.clone(),
            head,
            used,
        });
        // A request takes at least three entries of the queue, if the guest uses no indirect ones.
        if state.held.len() >= usize::from(vring.get_ref().get_queue().size()) / 4 {
            release(&mut state);
        }
        self.changed.notify_one();
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is sound between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Complete what is held, the newest first, and tell the guest once.
fn release(state: &mut State) {
    let Some(first) = state.held.first() else {
        return;
    };
    let vring = first.vring.clone();
    for held in state.held.drain(..).rev() {
        // A ring that names a descriptor it does not have was refused before: such a request is not held.
        let _ = held.vring.add_used(held.head, held.used);
    }
    if vring.needs_notification().unwrap_or(true) {
        // A guest whose connection is gone needs no interrupt.
        let _ = vring.signal_used_queue();
    }
}

/// Release what is held whenever the guest has been idle for long enough; until `hold` is gone.
fn watch(hold: &Weak<Hold>) {
    while let Some(hold) = hold.upgrade() {
        let mut state = hold.lock();
        let idle = state.idle.unwrap_or_default();
        let left = idle.saturating_sub(state.asked.map_or(idle, |at| at.elapsed()));
        if !state.held.is_empty() && left.is_zero() {
            release(&mut state);
            continue;
        }
        // Nothing is held, or not for long enough. `GLANCE` bounds how long this thread outlives the disk.
        let wait = if state.held.is_empty() {
            GLANCE
        } else {
            left.min(GLANCE)
        };
        drop(hold.changed.wait_timeout(state, wait));
    }
}
