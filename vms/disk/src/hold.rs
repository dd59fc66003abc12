//! Completions of writes that are held back, so that whoever does not wait for a write is caught every time.
//!
//! A real disk may take its time over any write, and need not complete them in the order in which it got them. A
//! disk that completes each at once hides a file system that forgets to wait: by the time it sends its flush, the
//! write that it did not wait for has completed, and is durable after all.
//!
//! So while a recording is made, writes are carried out at once but reported as completed as late as the guest
//! allows, the newest first: when it asks for a flush, when the queue is nearly full, or when it has asked for
//! nothing for a while, and so seems to wait. Reads and flushes are never held.
//!
//! Where the host tells whether the guest's machine sleeps, that decides, not the clock: it waits if it is asleep at two
//! looks between which it asked for nothing. A guest that works, or that a busy host does not let run, gets
//! [`PATIENCE`] times as long.
//!
//! That is one schedule of many, and in it no write outlives a flush or the wait for another write. In the others,
//! a wait releases half of what is held: so a guest that waits for its journal gets that, while data that it does
//! not wait for stays incomplete, across flushes too.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use powercut_protocol::HoldOrder;
use vhost_user_backend::{VringRwLock, VringT};
use virtio_queue::QueueT;

use crate::asleep;

/// How long a guest asks for nothing until it is looked at, and between two looks. A guest that sleeps for so long sleeps
/// until something happens, or for a tick of its clock, which is longer than any hold.
const LOOK: Duration = Duration::from_micros(400);
/// By how much longer a guest is waited for that can be seen to work.
const PATIENCE: u32 = 20;
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
    /// The process of the guest's machine, if it is known.
    guest: Option<u32>,
    order: HoldOrder,
    chance: Chance,
    held: Vec<Held>,
    /// When the guest asked for something last, or something was released.
    asked: Option<Instant>,
}

/// Numbers that follow from a seed: Marsaglia's xorshift with 64 bits.
#[derive(Default)]
struct Chance(u64);

impl Chance {
    fn of(seed: u64) -> Self {
        // Zero would stay zero; near seeds would begin alike.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }
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

    /// Hold from now on, until the guest, whose machine is the process `guest`, sleeps, or has asked for nothing for
    /// `idle` if that cannot be seen, and then release in `order`; None: release everything and hold no more. `seed`:
    /// of what is left to chance.
    pub fn set(&self, idle: Option<Duration>, guest: Option<u32>, order: HoldOrder, seed: u64) {
        let mut state = self.lock();
        release_all(&mut state);
        state.idle = idle;
        state.guest = guest;
        state.order = order;
        state.chance = Chance::of(seed);
    }

    /// The guest has asked for something: it does not wait.
    pub fn asked(&self) {
        self.lock().asked = Some(Instant::now());
    }

    /// The guest wants a flush, which need not cover what is still held now. Release what `order` says.
    pub fn flushes(&self) {
        let mut state = self.lock();
        match state.order {
            HoldOrder::All | HoldOrder::Oldest => release_all(&mut state),
            HoldOrder::Newest => {}
            HoldOrder::Random => {
                let count = state.chance.next() as usize % (state.held.len() + 1);
                release(&mut state, count);
            }
        }
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
            release_some(&mut state);
        }
        self.changed.notify_one();
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is sound between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The guest waits, or needs room in its queue: release everything or half of it, as `order` says.
fn release_some(state: &mut State) {
    match state.order {
        HoldOrder::All => release_all(state),
        _ => release(state, (state.held.len() / 2).max(1)),
    }
}

fn release_all(state: &mut State) {
    release(state, state.held.len());
}

/// Complete `count` of what is held, in turn as `order` says, and tell the guest once.
fn release(state: &mut State, count: usize) {
    let mut last = None;
    for _ in 0..count.min(state.held.len()) {
        let place = match state.order {
            HoldOrder::All | HoldOrder::Newest => state.held.len() - 1,
            HoldOrder::Oldest => 0,
            HoldOrder::Random => state.chance.next() as usize % state.held.len(),
        };
        let held = state.held.remove(place);
        // A ring that names a descriptor it does not have was refused before: such a request is not held.
        let _ = held.vring.add_used(held.head, held.used);
        last = Some(held.vring);
    }
    let Some(vring) = last else {
        return;
    };
    state.asked = Some(Instant::now());
    if vring.needs_notification().unwrap_or(true) {
        // A guest whose connection is gone needs no interrupt.
        let _ = vring.signal_used_queue();
    }
}

/// Release what is held whenever the guest waits; until `hold` is gone.
fn watch(hold: &Weak<Hold>) {
    let mut seen = Asleep::default();
    while let Some(hold) = hold.upgrade() {
        let state = hold.lock();
        let (asked, guest) = (state.asked, state.guest);
        let idle = state.idle.unwrap_or_default();
        let quiet = asked.map_or(idle, |at| at.elapsed());
        let nothing_held = state.held.is_empty();
        drop(state);
        let waits = if nothing_held {
            Waits::NotYet(GLANCE)
        } else {
            seen.waits(
                guest.filter(|_| quiet < idle * PATIENCE),
                asked,
                quiet,
                idle,
            )
        };
        let mut state = hold.lock();
        match waits {
            Waits::Now if state.asked == asked => release_some(&mut state),
            Waits::Now => {}
            // Nothing is held, or not for long enough. `GLANCE` bounds how long this thread outlives the disk.
            Waits::NotYet(left) if state.held.is_empty() == nothing_held => {
                drop(hold.changed.wait_timeout(state, left.min(GLANCE)));
            }
            Waits::NotYet(_) => {}
        }
    }
}

/// Whether the guest waits for a write.
enum Waits {
    Now,
    /// As far as can be seen; look again after this time.
    NotYet(Duration),
}

/// The last look at a guest that slept, and when that guest had asked for something last.
#[derive(Default)]
struct Asleep(Option<(Instant, Option<Instant>)>);

impl Asleep {
    /// `guest`: its process, if it may be looked at; `asked`: when it asked for something last, `quiet` ago; `idle`: for
    /// how long it asks for nothing until it counts as waiting, where nothing can be seen of it.
    fn waits(
        &mut self,
        guest: Option<u32>,
        asked: Option<Instant>,
        quiet: Duration,
        idle: Duration,
    ) -> Waits {
        if guest.is_some() && quiet < LOOK {
            return Waits::NotYet(LOOK - quiet);
        }
        match guest.and_then(asleep::sleeps) {
            None if quiet >= idle => Waits::Now,
            None => Waits::NotYet(idle - quiet),
            Some(false) => {
                self.0 = None;
                Waits::NotYet(LOOK)
            }
            Some(true) => {
                let slept = self
                    .0
                    .filter(|(_, then)| *then == asked)
                    .map(|(at, _)| at.elapsed());
                if slept.is_some_and(|for_long| for_long >= LOOK) {
                    self.0 = None;
                    return Waits::Now;
                }
                if slept.is_none() {
                    self.0 = Some((Instant::now(), asked));
                }
                Waits::NotYet(LOOK)
            }
        }
    }
}
