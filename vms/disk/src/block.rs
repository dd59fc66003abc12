//! virtio-blk requests (Virtual I/O Device Version 1.2, section 5.2).

use std::io::{self, Read, Write};

use powercut_protocol::{Effect, RequestKind};
use virtio_bindings::bindings::{
    virtio_blk::{
        VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK,
        VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID,
        VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
    },
    virtio_config::VIRTIO_F_VERSION_1,
    virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC},
};

use crate::{device::Device, SECTOR_BYTES};

const FEATURES: u64 = 1 << VIRTIO_F_VERSION_1
    | 1 << VIRTIO_RING_F_INDIRECT_DESC
    | 1 << VIRTIO_RING_F_EVENT_IDX
    | 1 << VIRTIO_BLK_F_SEG_MAX
    | 1 << VIRTIO_BLK_F_BLK_SIZE
    | 1 << VIRTIO_BLK_F_TOPOLOGY
    | 1 << VIRTIO_BLK_F_DISCARD
    | 1 << VIRTIO_BLK_F_WRITE_ZEROES;

/// What a disk tells the guest of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Bytes of a logical sector, the unit of requests.
    logical: u32,
    /// How many logical sectors make a physical one, as a power of two.
    physical_exp: u8,
    /// It has no volatile cache.
    write_through: bool,
}

/// The largest sector: a page, beyond which no kernel of today goes (`blk_validate_block_size` before 6.15).
const SECTOR_BYTES_MAX: u32 = 4096;

impl Traits {
    /// None for sectors that no disk has: sizes are powers of two from 512 bytes to 4 KiB, and a physical one is
    /// no smaller than a logical one.
    #[must_use]
    pub fn new(logical: u32, physical: u32, write_through: bool) -> Option<Self> {
        let known = |bytes: u32| {
            bytes.is_power_of_two() && (SECTOR_BYTES as u32..=SECTOR_BYTES_MAX).contains(&bytes)
        };
        let physical_exp = physical.checked_div(logical)?.checked_ilog2()? as u8;
        (known(logical) && known(physical)).then_some(Self {
            logical,
            physical_exp,
            write_through,
        })
    }

    /// The features that are offered. VIRTIO_BLK_F_FLUSH without VIRTIO_BLK_F_CONFIG_WCE means a write-back cache
    /// that cannot be disabled, so the guest's kernel sends flushes; without both, it takes the disk for
    /// write-through, and sends none (5.2.5.2, 5.2.6.2).
    #[must_use]
    pub fn features(self) -> u64 {
        FEATURES | u64::from(!self.write_through) << VIRTIO_BLK_F_FLUSH
    }
}

impl Default for Traits {
    /// Sectors of 512 bytes, and a volatile cache.
    fn default() -> Self {
        Self {
            logical: SECTOR_BYTES as u32,
            physical_exp: 0,
            write_through: false,
        }
    }
}

/// Largest queue that a guest may set up.
pub const QUEUE_ENTRIES: usize = 1024;
/// Data segments of a request: a queue of 128 entries, QEMU's default, less header and status.
const SEGMENTS_MAX: u32 = 126;
/// Sectors that one discard or write-zeroes segment may cover: 2 GiB.
const ZERO_SECTORS_MAX: u32 = 1 << 22;
/// Bytes that one read or write may carry, so that a guest cannot make the disk run out of memory.
const TRANSFER_BYTES_MAX: usize = 64 << 20;
/// Segments of one discard or write-zeroes request, as advertised in the configuration.
const ZERO_SEGMENTS_MAX: usize = 1;
/// Bytes that GET_ID returns.
const ID_BYTES: usize = 20;
const ID: &[u8] = b"powercut";

/// What matters of a request to whoever holds completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It changes the device.
    Write,
    Flush,
    Other,
}

/// The kind of the request whose header begins `out`.
pub fn kind(out: &mut impl Read) -> Kind {
    let mut word = [0; 4];
    match out.read_exact(&mut word).map(|()| u32::from_le_bytes(word)) {
        Ok(VIRTIO_BLK_T_OUT | VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES) => Kind::Write,
        Ok(VIRTIO_BLK_T_FLUSH) => Kind::Flush,
        _ => Kind::Other,
    }
}

/// struct virtio_blk_config up to the write-zeroes fields, for a device of `sectors`.
#[must_use]
pub fn config(sectors: u64, traits: Traits) -> [u8; 60] {
    let mut config = [0; 60];
    let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &sectors.to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    put(20, &traits.logical.to_le_bytes()); // blk_size
    put(24, &[traits.physical_exp]);
    put(36, &ZERO_SECTORS_MAX.to_le_bytes()); // max_discard_sectors
    put(40, &(ZERO_SEGMENTS_MAX as u32).to_le_bytes()); // max_discard_seg
    put(44, &(traits.logical / SECTOR_BYTES as u32).to_le_bytes()); // discard_sector_alignment
    put(48, &ZERO_SECTORS_MAX.to_le_bytes()); // max_write_zeroes_sectors
    put(52, &(ZERO_SEGMENTS_MAX as u32).to_le_bytes()); // max_write_zeroes_seg
    put(56, &[1]); // write_zeroes_may_unmap
    config
}

/// Carry out one request. `out` is what the guest sends, header first; `into` takes `room` bytes of
/// reply without the status byte. Returns that status. `device` is None before the first `Open`.
pub fn execute(
    device: Option<&mut Device>,
    out: &mut impl Read,
    out_bytes: usize,
    into: &mut impl Write,
    room: usize,
) -> u8 {
    let Some(device) = device else {
        return VIRTIO_BLK_S_IOERR as u8;
    };
    let mut header = [0; 16];
    let done = out.read_exact(&mut header).and_then(|()| {
        let kind = u32::from_le_bytes(header[..4].try_into().expect("4 bytes"));
        let sector = u64::from_le_bytes(header[8..].try_into().expect("8 bytes"));
        let data_bytes = out_bytes - header.len();
        match kind {
            VIRTIO_BLK_T_IN => read(device, sector, into, room),
            VIRTIO_BLK_T_OUT => write(device, sector, out, data_bytes),
            VIRTIO_BLK_T_FLUSH => Ok(flush(device)),
            VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => zero(device, out, data_bytes),
            VIRTIO_BLK_T_GET_ID => {
                // the agent's marks around the reading of files' contents (vms/agent/src/phases.rs)
                device.next_phase();
                identify(into, room)
            }
            _ => Ok(VIRTIO_BLK_S_UNSUPP),
        }
    });
    let status = done.unwrap_or(VIRTIO_BLK_S_IOERR);
    if status == INJECTED {
        return VIRTIO_BLK_S_IOERR as u8;
    }
    if status != VIRTIO_BLK_S_OK {
        device.stats.errors += 1;
    }
    status as u8
}

/// For VIRTIO_BLK_S_IOERR where the host asked for it: no error of this disk's. The guest never sees the number.
const INJECTED: u32 = 1 << 8;

fn flush(device: &mut Device) -> u32 {
    match device.asked(RequestKind::Flush, 0, 0) {
        Some(Effect::Error {}) => INJECTED,
        _ => {
            device.flush();
            VIRTIO_BLK_S_OK
        }
    }
}

/// Whether `bytes` from `sector` can be transferred.
fn fits(device: &Device, sector: u64, bytes: usize) -> bool {
    bytes.is_multiple_of(SECTOR_BYTES)
        && bytes <= TRANSFER_BYTES_MAX
        && device.view().holds(sector, (bytes / SECTOR_BYTES) as u64)
}

fn read(device: &mut Device, sector: u64, into: &mut impl Write, room: usize) -> io::Result<u32> {
    if !fits(device, sector, room) {
        return Ok(VIRTIO_BLK_S_IOERR);
    }
    device.stats.reads += 1;
    let sectors = (room / SECTOR_BYTES) as u64;
    if let Some(Effect::Error {}) = device.asked(RequestKind::Read, sector, sectors) {
        return Ok(INJECTED);
    }
    let mut data = vec![0; room];
    device.guest_read(sector, &mut data);
    into.write_all(&data)?;
    Ok(VIRTIO_BLK_S_OK)
}

fn write(device: &mut Device, sector: u64, out: &mut impl Read, bytes: usize) -> io::Result<u32> {
    if !fits(device, sector, bytes) || !device.has_room(sector, (bytes / SECTOR_BYTES) as u64, true)
    {
        return Ok(VIRTIO_BLK_S_IOERR);
    }
    device.stats.writes += 1;
    let mut data = vec![0; bytes];
    out.read_exact(&mut data)?;
    let sectors = (bytes / SECTOR_BYTES) as u64;
    let lands = match device.asked(RequestKind::Write, sector, sectors) {
        Some(Effect::Error {}) => return Ok(INJECTED),
        Some(Effect::Lose {}) => return Ok(VIRTIO_BLK_S_OK),
        Some(Effect::Divert { sector }) => sector,
        Some(Effect::Flip { .. }) | None => sector,
    };
    if !fits(device, lands, bytes) || !device.has_room(lands, sectors, true) {
        return Ok(VIRTIO_BLK_S_IOERR);
    }
    device.write(lands, &data);
    Ok(VIRTIO_BLK_S_OK)
}

/// A discarded sector reads as zeros, as `DISCARD` entries of a log do.
fn zero(device: &mut Device, out: &mut impl Read, bytes: usize) -> io::Result<u32> {
    device.stats.discards += 1;
    let mut segment = [0; 16];
    let segments = bytes / segment.len();
    if !bytes.is_multiple_of(segment.len()) || !(1..=ZERO_SEGMENTS_MAX).contains(&segments) {
        return Ok(VIRTIO_BLK_S_IOERR);
    }
    for _ in 0..segments {
        out.read_exact(&mut segment)?;
        let sector = u64::from_le_bytes(segment[..8].try_into().expect("8 bytes"));
        let count = u32::from_le_bytes(segment[8..12].try_into().expect("4 bytes"));
        let count = u64::from(count);
        if count > u64::from(ZERO_SECTORS_MAX)
            || !device.view().holds(sector, count)
            || !device.has_room(sector, count, false)
        {
            return Ok(VIRTIO_BLK_S_IOERR);
        }
        device.zero(sector, count);
    }
    Ok(VIRTIO_BLK_S_OK)
}

fn identify(into: &mut impl Write, room: usize) -> io::Result<u32> {
    let mut id = [0; ID_BYTES];
    id[..ID.len()].copy_from_slice(ID);
    into.write_all(&id[..room.min(ID_BYTES)])?;
    Ok(VIRTIO_BLK_S_OK)
}

#[cfg(test)]
mod tests {
    use powercut_protocol::{Fault, State};

    use super::*;
    use crate::{device::tests::device, log::build::Step};

    fn ask(device: &mut Device, kind: u32, sector: u64, data: &[u8], room: usize) -> (u8, Vec<u8>) {
        let mut out = kind.to_le_bytes().to_vec();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&sector.to_le_bytes());
        out.extend_from_slice(data);
        let mut into = Vec::new();
        let status = execute(Some(device), &mut &out[..], out.len(), &mut into, room);
        (status, into)
    }

    #[test]
    fn the_configuration_tells_of_sectors_and_the_features_of_the_cache() {
        let told = |logical, physical| {
            let config = config(20, Traits::new(logical, physical, false).unwrap());
            let blk_size = u32::from_le_bytes(config[20..24].try_into().unwrap());
            let alignment = u32::from_le_bytes(config[44..48].try_into().unwrap());
            (config[0], blk_size, config[24], alignment)
        };
        assert_eq!(told(512, 512), (20, 512, 0, 1));
        assert_eq!(told(512, 4096), (20, 512, 3, 1));
        assert_eq!(told(4096, 4096), (20, 4096, 0, 8));
        let flushes = |traits: Traits| traits.features() >> VIRTIO_BLK_F_FLUSH & 1;
        assert_eq!(flushes(Traits::default()), 1);
        assert_eq!(flushes(Traits::new(512, 512, true).unwrap()), 0);
        for (logical, physical) in [
            (512, 256),
            (4096, 512),
            (0, 0),
            (520, 520),
            (512, 8192),
            (512, 1536),
        ] {
            assert_eq!(Traits::new(logical, physical, false), None);
        }
    }

    fn segment(sector: u64, count: u32) -> Vec<u8> {
        let mut segment = sector.to_le_bytes().to_vec();
        segment.extend_from_slice(&count.to_le_bytes());
        segment.extend_from_slice(&[0; 4]);
        segment
    }

    #[test]
    fn writes_are_read_back() {
        let (mut device, _files) = device(&[]);
        let status = ask(&mut device, VIRTIO_BLK_T_OUT, 3, &[b'X'; 1024], 0).0;
        assert_eq!(status, 0);
        let (status, data) = ask(&mut device, VIRTIO_BLK_T_IN, 4, &[], 1024);
        assert_eq!((status, data[0], data[512]), (0, b'X', b'f'));
        let zeros = segment(4, 2);
        assert_eq!(
            ask(&mut device, VIRTIO_BLK_T_WRITE_ZEROES, 0, &zeros, 0).0,
            0
        );
        assert_eq!(ask(&mut device, VIRTIO_BLK_T_IN, 5, &[], 512).1, [0; 512]);
        assert_eq!(ask(&mut device, VIRTIO_BLK_T_FLUSH, 0, &[], 0).0, 0);
        let stats = device.counted();
        assert_eq!((stats.reads, stats.writes, stats.flushes), (2, 1, 1));
        assert_eq!((stats.discards, stats.errors), (1, 0));
    }

    #[test]
    fn requests_past_the_end_or_broken_fail_and_are_counted() {
        let (mut device, _files) = device(&[]);
        let past = segment(19, 2);
        let two = [segment(0, 1), segment(1, 1)].concat();
        let failing: [(u32, u64, &[u8], usize); 10] = [
            (VIRTIO_BLK_T_IN, 19, &[], 1024),
            (VIRTIO_BLK_T_IN, u64::MAX, &[], 1024),
            (VIRTIO_BLK_T_IN, 0, &[], 100),
            (VIRTIO_BLK_T_OUT, 20, &[0; 512], 0),
            (VIRTIO_BLK_T_OUT, 0, &[0; 100], 0),
            (VIRTIO_BLK_T_DISCARD, 0, &past, 0),
            (VIRTIO_BLK_T_DISCARD, 0, &[], 0),
            (VIRTIO_BLK_T_DISCARD, 0, &two, 0),
            (VIRTIO_BLK_T_WRITE_ZEROES, 0, &[0; 20], 0),
            (99, 0, &[], 0),
        ];
        for (kind, sector, data, room) in failing {
            assert_ne!(
                ask(&mut device, kind, sector, data, room).0,
                0,
                "{kind} at {sector}"
            );
        }
        assert_eq!(device.counted().errors, 10);
        assert_eq!(
            execute(None, &mut &[0u8; 16][..], 16, &mut Vec::new(), 0),
            1
        );
        let short = execute(Some(&mut device), &mut &[0u8; 3][..], 3, &mut Vec::new(), 0);
        assert_eq!(short, 1);
    }

    /// The agent reads the serial number in front of the files' contents and behind them.
    #[test]
    fn what_is_read_between_two_identifications_alone_is_data() {
        let (mut device, _files) = device(&[
            Step::Write(0, &[b'X'; 512]),
            Step::Write(8, &[b'X'; 512]),
            Step::Write(16, &[b'X'; 512]),
        ]);
        let mut ask = |kind, sector, room| ask(&mut device, kind, sector, &[], room).0;
        assert_eq!(ask(VIRTIO_BLK_T_IN, 0, 512), 0);
        assert_eq!(ask(VIRTIO_BLK_T_GET_ID, 0, 20), 0);
        assert_eq!(ask(VIRTIO_BLK_T_IN, 0, 20 * 512), 0);
        assert_eq!(ask(VIRTIO_BLK_T_GET_ID, 0, 20), 0);
        assert_eq!(ask(VIRTIO_BLK_T_IN, 16, 512), 0);
        let data: Vec<bool> = device.reads().iter().map(|read| read.data).collect();
        assert_eq!(data, [false, true, false]);
    }

    /// The hang watch asked for the serial number, too: the walk's metadata was then taken for data, and legal
    /// states were missing.
    #[test]
    fn what_was_read_is_not_told_while_a_mark_is_missing() {
        let (mut device, _files) = device(&[Step::Write(0, &[b'X'; 512])]);
        let mut marked = |times: usize| {
            for _ in 0..times {
                ask(&mut device, VIRTIO_BLK_T_GET_ID, 0, &[], 20);
            }
            ask(&mut device, VIRTIO_BLK_T_IN, 0, &[], 512);
            // a program on the host reads no data, whatever the guest does
            device.also_read(&[1]).unwrap();
            let told = device.was_read().map_err(|error| error.to_string());
            (told, device.remember(7).is_ok())
        };
        assert_eq!(marked(2), (Ok((vec![0, 1], vec![])), true));
        let (told, remembered) = marked(1);
        assert!(told.unwrap_err().contains("an odd number of times"));
        assert!(!remembered);
        assert_eq!(marked(1), (Ok((vec![0, 1], vec![])), true));
    }

    #[test]
    fn says_who_it_is() {
        let (mut device, _files) = device(&[]);
        let (status, id) = ask(&mut device, VIRTIO_BLK_T_GET_ID, 0, &[], 20);
        assert_eq!((status, &id[..9]), (0, &b"powercut\0"[..]));
    }

    fn fault(kind: RequestKind, sector: u64, effect: Effect) -> Fault {
        Fault {
            kind,
            sector,
            nth: 1,
            stays: false,
            effect,
        }
    }

    fn text(device: &mut Device, sector: u64) -> char {
        ask(device, VIRTIO_BLK_T_IN, sector, &[], 512).1[0] as char
    }

    /// An error that was asked for is none of the disk's own: those make a state undecided.
    #[test]
    fn an_injected_error_fails_one_request_whole_and_is_not_counted() {
        let (mut device, _files) = device(&[]);
        device
            .inject(fault(RequestKind::Write, 4, Effect::Error {}))
            .unwrap();
        let write = |device: &mut Device| ask(device, VIRTIO_BLK_T_OUT, 3, &[b'X'; 1024], 0).0;
        assert_eq!(write(&mut device), VIRTIO_BLK_S_IOERR as u8);
        assert_eq!((text(&mut device, 3), text(&mut device, 4)), ('d', 'e'));
        assert_eq!(write(&mut device), VIRTIO_BLK_S_OK as u8);
        assert_eq!((text(&mut device, 3), text(&mut device, 4)), ('X', 'X'));
        assert_eq!(
            (device.end_fault().unwrap(), device.counted().errors),
            (1, 0)
        );
        assert!(device.end_fault().is_err());
    }

    #[test]
    fn reads_and_flushes_fail_as_asked_for_and_a_switch_ends_the_fault() {
        let (mut device, _files) = device(&[]);
        let read = |device: &mut Device| ask(device, VIRTIO_BLK_T_IN, 0, &[], 4096).0;
        let flush = |device: &mut Device| ask(device, VIRTIO_BLK_T_FLUSH, 0, &[], 0).0;
        device
            .inject(fault(RequestKind::Read, 7, Effect::Error {}))
            .unwrap();
        assert_eq!(
            [read(&mut device), read(&mut device), flush(&mut device)],
            [1, 0, 0]
        );
        device
            .inject(fault(RequestKind::Flush, 0, Effect::Error {}))
            .unwrap();
        assert_eq!(
            [read(&mut device), flush(&mut device), flush(&mut device)],
            [0, 1, 0]
        );
        assert_eq!(device.counted().flushes, 2, "a flush that failed is none");
        device
            .inject(fault(RequestKind::Flush, 0, Effect::Error {}))
            .unwrap();
        device.switch(&State::default()).unwrap();
        assert_eq!(flush(&mut device), 0);
        assert!(device.end_fault().is_err(), "the switch ended it");
    }

    #[test]
    fn a_bit_is_changed_until_the_fault_ends_or_it_is_written_anew() {
        let (mut device, _files) = device(&[]);
        let rot = Fault {
            stays: true,
            ..fault(RequestKind::Read, 2, Effect::Flip { bit: 1 })
        };
        device.inject(rot.clone()).unwrap();
        assert_eq!((text(&mut device, 2), text(&mut device, 3)), ('a', 'd')); // c is 0x63, a is 0x61
        assert_eq!(device.end_fault().unwrap(), 1);
        assert_eq!(text(&mut device, 2), 'c');
        device.inject(rot).unwrap();
        ask(&mut device, VIRTIO_BLK_T_OUT, 2, &[b'N'; 512], 0);
        assert_eq!(text(&mut device, 2), 'N');
        assert_eq!(device.end_fault().unwrap(), 0, "nobody saw it");
        assert_eq!(text(&mut device, 2), 'N', "what was written stays");
    }

    #[test]
    fn an_acknowledged_write_is_lost_or_lands_elsewhere() {
        let (mut device, _files) = device(&[]);
        let write = |device: &mut Device| ask(device, VIRTIO_BLK_T_OUT, 3, &[b'X'; 512], 0).0;
        device
            .inject(fault(RequestKind::Write, 3, Effect::Lose {}))
            .unwrap();
        assert_eq!((write(&mut device), text(&mut device, 3)), (0, 'd'));
        let elsewhere = Effect::Divert { sector: 9 };
        device
            .inject(fault(RequestKind::Write, 3, elsewhere))
            .unwrap();
        assert_eq!(write(&mut device), 0);
        assert_eq!((text(&mut device, 3), text(&mut device, 9)), ('d', 'X'));
        assert_eq!((write(&mut device), text(&mut device, 3)), (0, 'X'));
    }

    #[test]
    fn a_fault_past_the_end_is_refused() {
        let (mut device, _files) = device(&[]);
        for (sector, effect) in [
            (20, Effect::Error {}),
            (0, Effect::Flip { bit: 4096 }),
            (0, Effect::Divert { sector: 20 }),
        ] {
            assert!(device
                .inject(fault(RequestKind::Write, sector, effect))
                .is_err());
        }
    }

    #[test]
    fn what_the_guest_asks_for_is_noted_in_its_order_but_not_in_snapshots() {
        let (mut device, _files) = device(&[]);
        assert!(device.requests().is_err());
        device.note_writes();
        text(&mut device, 5);
        ask(&mut device, VIRTIO_BLK_T_OUT, 3, &[b'X'; 1024], 0);
        ask(&mut device, VIRTIO_BLK_T_FLUSH, 0, &[], 0);
        device.snapshot();
        text(&mut device, 6);
        device.roll_back().unwrap();
        let noted: Vec<_> = device.requests().unwrap();
        let told: Vec<_> = noted
            .iter()
            .map(|r| (r.kind, r.sector, r.sectors))
            .collect();
        assert_eq!(
            told,
            [
                (RequestKind::Read, 5, 1),
                (RequestKind::Write, 3, 2),
                (RequestKind::Flush, 0, 0)
            ]
        );
    }
}
