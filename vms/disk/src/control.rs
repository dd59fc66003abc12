//! The host's requests.

use std::{os::unix::net::UnixStream, path::Path, sync::Condvar, time::Duration};

use powercut_protocol::{chain, receive, send, DiskReply, DiskRequest, FrameError, MountCounter};

use crate::{
    device::Device, error::DiskError, explore, hash, log::Order, vhost::Shared, Answer,
    BLOCK_SECTORS,
};

/// Serve requests until the host goes. Calls `opened` after each `Open`.
///
/// # Errors
/// Errors of the connection; a farewell when the host has gone, which is how a run ends.
pub fn serve(shared: &Shared, opened: &Condvar, stream: &mut UnixStream) -> Result<(), FrameError> {
    loop {
        let request: DiskRequest = receive(stream)?;
        let reply = answer(shared, request).unwrap_or_else(|error| DiskReply::Failed {
            what: chain(&error),
        });
        if matches!(reply, DiskReply::Opened { .. }) {
            opened.notify_all();
        }
        send(stream, &reply)?;
    }
}

/// Carry out one request.
pub fn answer(shared: &Shared, request: DiskRequest) -> Answer<DiskReply> {
    if let DiskRequest::Open {
        base,
        log,
        order,
        unit_sectors,
        keep_memo,
        mount_counters,
    } = request
    {
        let order = order.as_deref().map(|entries| Order {
            entries,
            unit_sectors,
        });
        return open(
            shared,
            &base,
            log.as_deref(),
            order,
            keep_memo,
            &mount_counters,
        );
    }
    if let DiskRequest::Completions {
        hold_us,
        guest,
        order,
        seed,
    } = request
    {
        let idle = hold_us.map(Duration::from_micros);
        shared.hold.set(idle, guest, order, seed);
        return Ok(DiskReply::Noted {});
    }
    let mut guard = shared.device();
    let device = guard.as_mut().ok_or(DiskError::NothingOpen)?;
    let mut window = shared.window();
    if let Some(window) = window.as_mut() {
        window.take(device);
        match request {
            DiskRequest::NoteWrites {} => return Err(DiskError::SharedWrites),
            DiskRequest::Inject { .. } => return Err(DiskError::SharedFault),
            _ => {}
        }
    }
    let shows = matches!(
        request,
        DiskRequest::Switch { .. } | DiskRequest::RollBack {}
    );
    let reply = carry_out(device, request)?;
    if let Some(window) = window.as_mut().filter(|_| shows) {
        window.publish(device)?;
    }
    Ok(reply)
}

fn carry_out(device: &mut Device, request: DiskRequest) -> Answer<DiskReply> {
    match request {
        DiskRequest::Open { .. } | DiskRequest::Completions { .. } => {
            unreachable!("answered above")
        }
        DiskRequest::Switch { state } => {
            device.switch(&state)?;
            Ok(DiskReply::Switched {})
        }
        DiskRequest::Image { path } => {
            let copied_bytes = device.image(Path::new(&path))?;
            let hash = hash::text(device.view().hash());
            Ok(DiskReply::Imaged { copied_bytes, hash })
        }
        DiskRequest::Hashes { states } => {
            let text = |state| device.state_hash(state).map(hash::text);
            let hashes = states.iter().map(text).collect::<Answer<_>>()?;
            Ok(DiskReply::Hashed { hashes })
        }
        DiskRequest::Compare { log, order } => {
            let order = order.as_deref().map(|entries| Order {
                entries,
                unit_sectors: BLOCK_SECTORS,
            });
            let sector = device.view().compare(Path::new(&log), order)?;
            Ok(DiskReply::Compared {
                equal: sector.is_none(),
                first_difference: sector.map(|s| s * crate::SECTOR_BYTES as u64),
            })
        }
        DiskRequest::Stats {} => Ok(DiskReply::Counted(device.counted())),
        DiskRequest::AlsoRead { blocks } => {
            device.also_read(&blocks)?;
            Ok(DiskReply::Noted {})
        }
        DiskRequest::Snapshot {} => {
            device.snapshot();
            Ok(DiskReply::Noted {})
        }
        DiskRequest::RollBack {} => Ok(DiskReply::RolledBack {
            blocks: device.roll_back()?,
        }),
        DiskRequest::NoteWrites {} => {
            device.note_writes();
            Ok(DiskReply::Noted {})
        }
        DiskRequest::LogWrites { path } => {
            let logged = device.log_writes(Path::new(&path))?;
            Ok(DiskReply::Logged {
                state: logged.state,
                entries: logged.entries,
                complete: logged.complete,
            })
        }
        DiskRequest::Requests {} => Ok(DiskReply::RequestsSeen {
            requests: device.requests()?,
        }),
        DiskRequest::Inject { fault } => {
            device.inject(fault)?;
            Ok(DiskReply::Noted {})
        }
        DiskRequest::EndFault {} => Ok(DiskReply::FaultEnded {
            hits: device.end_fault()?,
        }),
        DiskRequest::BlockHashes { blocks } => {
            let hashes = device.view().block_hashes(&blocks)?;
            Ok(DiskReply::BlocksHashed { hashes })
        }
        DiskRequest::Reads {} => {
            let (blocks, data) = device.was_read()?;
            Ok(DiskReply::WereRead { blocks, data })
        }
        DiskRequest::Learn {
            state,
            blocks,
            data,
            outcome,
        } => {
            let earlier = device.learn(&state, &blocks, &data, outcome)?;
            Ok(DiskReply::Remembered { earlier })
        }
        DiskRequest::Explore {
            crash_times,
            losses,
            separate_data,
            data_together,
            to_visit_max,
            known_outcomes_max,
        } => Ok(DiskReply::Explored {
            crash_times: device.explore_all(
                &crash_times,
                &explore::Bounds {
                    losses,
                    separate_data,
                    data_together,
                    to_visit_max,
                    known_outcomes_max,
                },
            )?,
        }),
    }
}

fn open(
    shared: &Shared,
    base: &str,
    log: Option<&str>,
    order: Option<Order>,
    keep_memo: bool,
    mount_counters: &[MountCounter],
) -> Answer<DiskReply> {
    let mut device = Device::open(Path::new(base), log.map(Path::new), order)?;
    device.count(mount_counters)?;
    let (size_bytes, entries) = (device.view().size_bytes(), device.view().entries());
    let mut guard = shared.device();
    if let Some(old) = guard.as_ref().filter(|_| shared.guest_is_connected()) {
        if old.view().size_bytes() != size_bytes {
            return Err(DiskError::OtherSize {
                path: base.into(),
                bytes: size_bytes,
                connected: old.view().size_bytes(),
            });
        }
    }
    if let Some(old) = guard.take() {
        device.inherit(old, keep_memo);
    }
    if let Some(window) = shared.window().as_mut() {
        window.open(&device, Path::new(base), log.map(Path::new))?;
    }
    *guard = Some(device);
    Ok(DiskReply::Opened {
        size_bytes,
        entries,
    })
}
