//! The device as a vhost-user backend (QEMU's docs/interop/vhost-user.rst): one queue, one guest at a time.
//!
//! One queue, so that a guest's requests have one order; QEMU's `num-queues=1` tells the guest.

use std::{
    io,
    ops::Deref,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc, Mutex, MutexGuard,
    },
};

use vhost::vhost_user::{Backend as Channel, Listener, VhostUserProtocolFeatures};
use vhost_user_backend::{VhostUserBackend, VhostUserDaemon, VringRwLock, VringT};
use virtio_queue::{QueueT, Reader, Writer};
use vm_memory::{GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::{
    epoll::EventSet,
    event::{new_event_consumer_and_notifier, EventConsumer, EventFlag, EventNotifier},
};

use crate::{
    block::{self, Kind, Traits},
    device::Device,
    error::ServeError,
    hold::Hold,
    relay,
    window::Window,
};

/// Feature bit 30: the front end speaks the protocol's extensions (such as GET_CONFIG).
const VHOST_USER_F_PROTOCOL_FEATURES: u64 = 1 << 30;

/// Bytes of configuration that a front end may ask for (VHOST_USER_CONFIG_SIZE of QEMU is 256).
const CONFIG_BYTES_MAX: usize = 4096;
/// Consecutive polls of a queue whose index claims requests but which yields none.
const EMPTY_ROUNDS_MAX: u32 = 3;

/// The device, shared by the guest's queue and the control connection.
pub struct Shared {
    device: Mutex<Option<Device>>,
    guest: AtomicBool,
    traits: Traits,
    /// The device as memory, for a guest that shares it; locked after the device.
    window: Mutex<Option<Window>>,
    /// Holds completions while a recording is made.
    pub hold: Arc<Hold>,
}

impl Shared {
    /// Without a device, and without a guest. `window`: for a guest that shares memory, if one may come. `traits`:
    /// what every other guest is told.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn new(window: Option<Window>, traits: Traits) -> io::Result<Self> {
        Ok(Self {
            window: Mutex::new(window),
            traits,
            device: Mutex::default(),
            guest: AtomicBool::default(),
            hold: Hold::start()?,
        })
    }

    /// None before the first `Open`.
    pub fn device(&self) -> MutexGuard<'_, Option<Device>> {
        self.device.lock().expect("no thread panics and lives on")
    }

    /// None if no guest shares memory.
    pub fn window(&self) -> MutexGuard<'_, Option<Window>> {
        self.window.lock().expect("no thread panics and lives on")
    }

    /// Whether a guest is connected, so that the size must stay.
    pub fn guest_is_connected(&self) -> bool {
        self.guest.load(Ordering::Acquire)
    }
}

/// What the daemon of one connection calls.
#[derive(Clone)]
struct Backend {
    shared: Arc<Shared>,
    memory: GuestMemoryAtomic<GuestMemoryMmap>,
    /// The channel for requests to the front end. Never used, but UML takes its end for the device's.
    channel: Arc<Mutex<Option<Channel>>>,
}

impl Backend {
    /// Carry out all requests in the queue. Returns whether there were any.
    fn drain(&self, vring: &VringRwLock) -> io::Result<bool> {
        let memory = self.memory.memory();
        let mut any = false;
        loop {
            let next = vring
                .get_mut()
                .get_queue_mut()
                .pop_descriptor_chain(memory.clone());
            let Some(chain) = next else {
                return Ok(any);
            };
            any = true;
            self.shared.hold.asked();
            let head = chain.head_index();
            let reader = Reader::new(memory.deref(), chain.clone());
            let writer = Writer::new(memory.deref(), chain);
            let (kind, answered) = match (reader, writer) {
                (Ok(reader), Ok(writer)) => {
                    let kind = block::kind(&mut reader.clone());
                    if kind == Kind::Flush {
                        self.shared.hold.flushes();
                    }
                    (kind, self.answer(reader, writer))
                }
                _ => (Kind::Other, None),
            };
            let used = answered.unwrap_or_else(|| self.note_unanswered());
            if kind == Kind::Write && self.shared.hold.take(vring, head, used) {
                continue;
            }
            if vring.add_used(head, used).is_err() {
                // the ring names a descriptor that it does not have
                self.note_unanswered();
                continue;
            }
            if vring.needs_notification().map_err(io::Error::other)? {
                vring.signal_used_queue()?;
            }
        }
    }

    /// Carry out one request. Returns the bytes written for the guest; None if there is no room for a
    /// status.
    fn answer(&self, mut reader: Reader, mut writer: Writer) -> Option<u32> {
        let room = writer.available_bytes().checked_sub(1)?;
        let mut status = writer.split_at(room).ok()?;
        let out_bytes = reader.available_bytes();
        let mut device = self.shared.device();
        let code = block::execute(device.as_mut(), &mut reader, out_bytes, &mut writer, room);
        status.write_obj(code).ok()?;
        u32::try_from(writer.bytes_written() + 1).ok()
    }

    /// The guest gets its request back without a status, and may take it for completed: the host must know.
    fn note_unanswered(&self) -> u32 {
        if let Some(device) = self.shared.device().as_mut() {
            device.stats.errors += 1;
        }
        0
    }
}

impl VhostUserBackend for Backend {
    type Bitmap = ();
    type Vring = VringRwLock;

    fn num_queues(&self) -> usize {
        1
    }

    fn max_queue_size(&self) -> usize {
        block::QUEUE_ENTRIES
    }

    fn features(&self) -> u64 {
        self.shared.traits.features() | VHOST_USER_F_PROTOCOL_FEATURES
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        // BACKEND_REQ, though the front end never gets a request: without it, UML's driver
        // (arch/um/drivers/virtio_uml.c) has no interrupt for the queue and fails with EBUSY.
        VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::BACKEND_REQ
    }

    fn set_backend_req_fd(&self, channel: Channel) {
        *self.channel.lock().expect("never poisoned") = Some(channel);
    }

    fn set_event_idx(&self, _enabled: bool) {
        // the vring knows, and it decides about notifications
    }

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let sectors = self
            .shared
            .device()
            .as_ref()
            .map_or(0, |device| device.view().sectors());
        let mut config = block::config(sectors, self.shared.traits).to_vec();
        let (start, size) = (offset as usize, size as usize);
        // a front end that knows later fields asks for more; those are zero
        let end = start.saturating_add(size).min(CONFIG_BYTES_MAX);
        config.resize(config.len().max(end), 0);
        config[start.min(end)..end].to_vec()
    }

    fn update_memory(&self, _memory: GuestMemoryAtomic<GuestMemoryMmap>) -> io::Result<()> {
        // the same object that `memory` refers to
        Ok(())
    }

    fn exit_event(&self, _thread: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::CLOEXEC | EventFlag::NONBLOCK).ok()
    }

    fn handle_event(
        &self,
        _event: u16,
        _set: EventSet,
        vrings: &[VringRwLock],
        _thread: usize,
    ) -> io::Result<()> {
        let vring = &vrings[0];
        let mut empty = 0;
        loop {
            vring.disable_notification().map_err(io::Error::other)?;
            empty = if self.drain(vring)? { 0 } else { empty + 1 };
            // requests that arrived between the last poll and this one have no kick of their own
            if !vring.enable_notification().map_err(io::Error::other)? {
                return Ok(());
            }
            if empty > EMPTY_ROUNDS_MAX {
                // The index claims requests, but the queue yields none (2.7.6): an index further ahead
                // than the queue is long stays so, and this would never end.
                self.note_unanswered();
                return Ok(());
            }
        }
    }
}

/// Serve one guest after the other, for ever. Errors of one connection are reported and survived; the
/// returned error is one after which no guest can be served.
pub fn serve(shared: &Arc<Shared>, guests: &UnixListener) -> ServeError {
    loop {
        if let Err(error) = serve_one(shared, guests) {
            return error;
        }
    }
}

fn serve_one(shared: &Arc<Shared>, guests: &UnixListener) -> Result<(), ServeError> {
    let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
    let backend = Backend {
        shared: Arc::clone(shared),
        memory: memory.clone(),
        channel: Arc::default(),
    };
    let mut daemon =
        VhostUserDaemon::new("vhost-user".into(), backend, memory).map_err(ServeError::Daemon)?;
    // the library serves only connections that it accepted itself, so the guest's messages take a second socket
    let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
    let name = format!("powercut-disk-{}-{number}", std::process::id());
    let address =
        SocketAddr::from_abstract_name(name).map_err(ServeError::call("abstract socket"))?;
    let inner = UnixListener::bind_addr(&address).map_err(ServeError::call("abstract socket"))?;
    let (guest, _) = guests.accept().map_err(ServeError::call("accept"))?;
    let library =
        UnixStream::connect_addr(&address).map_err(ServeError::call("abstract socket"))?;
    let relays = relay::between(guest, library).map_err(ServeError::call("relay"))?;
    daemon
        .start(&mut Listener::from(inner))
        .map_err(ServeError::Daemon)?;
    shared.guest.store(true, Ordering::Release);
    if let Err(error) = daemon.wait().or_else(is_farewell) {
        eprintln!("the guest's connection ended: {error}");
    }
    drop(daemon);
    shared.hold.forget();
    shared.guest.store(false, Ordering::Release);
    for thread in relays {
        // the threads end with the connection, and a panic would have ended the process
        let _ = thread.join();
    }
    Ok(())
}

/// Numbers the connections, for socket names.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// A guest that ends closes its socket; that is not an error.
fn is_farewell(error: vhost_user_backend::Error) -> vhost_user_backend::Result<()> {
    use vhost::vhost_user::Error::{Disconnected, PartialMessage};
    match error {
        vhost_user_backend::Error::HandleRequest(Disconnected | PartialMessage) => Ok(()),
        other => Err(other),
    }
}
