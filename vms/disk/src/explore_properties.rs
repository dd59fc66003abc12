//! Compares exploration with a look at every single state of a crash time, over random logs, orders and guests.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use powercut_protocol::{
    limits, Choice, CrashTime, ExploredCrashTime as Explored, KnownOutcome, State,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    device::Device,
    explore::Bounds,
    log::{
        build::{log_bytes, Scratch, Step},
        Order,
    },
    properties::{Change, Random, SECTORS},
    Answer, BLOCK_SECTORS, SECTOR_BYTES,
};

/// Blocks that the guest reads for metadata; those behind them are read for data.
const METADATA_BLOCKS: u64 = 3;
/// Every subset of them is looked at.
const VOLATILE_MAX: usize = 7;

/// What is asked about one crash time.
#[derive(Clone, Debug, Default)]
struct Request {
    prefix: u64,
    absent: Vec<u64>,
    volatile: Vec<u64>,
    losses: u64,
    separate_data: bool,
    data_together: bool,
    to_visit_max: u64,
    known_outcomes_max: u64,
}

impl Request {
    fn crash_time(&self) -> CrashTime {
        CrashTime {
            state: State {
                prefix: self.prefix,
                dropped: self.absent.clone(),
                torn_sectors: None,
            },
            volatile: self.volatile.clone(),
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            losses: self.losses,
            separate_data: self.separate_data,
            data_together: self.data_together,
            to_visit_max: self.to_visit_max,
            known_outcomes_max: self.known_outcomes_max,
        }
    }
}

impl Device {
    fn explore(&self, request: &Request) -> Answer<Explored> {
        let mut found = self.explore_all(&[request.crash_time()], &request.bounds())?;
        Ok(found.remove(0))
    }
}

/// A device with an order, and the same as a list of chunks.
struct Made {
    base: Vec<u8>,
    /// First sector, and data.
    chunks: Vec<(u64, Vec<u8>)>,
    device: Device,
    _files: [Scratch; 2],
}

fn shuffled(random: &mut Random, mut items: Vec<u64>) -> Vec<u64> {
    for at in (1..items.len()).rev() {
        items.swap(at, random.below(at as u64 + 1) as usize);
    }
    items
}

fn split(change: &Change, unit: u64) -> Vec<(u64, Vec<u8>)> {
    let (first, data) = match change {
        Change::Nothing => return Vec::new(),
        Change::Write(sector, data) => (*sector, data.clone()),
        Change::Zero(sector, count) => (*sector, vec![0; *count as usize * SECTOR_BYTES]),
    };
    let mut chunks: Vec<(u64, Vec<u8>)> = Vec::new();
    for (sector, bytes) in (first..).zip(data.chunks(SECTOR_BYTES)) {
        match chunks.last_mut() {
            Some((_, chunk)) if sector % unit != 0 => chunk.extend_from_slice(bytes),
            _ => chunks.push((sector, bytes.to_vec())),
        }
    }
    chunks
}

fn made(random: &mut Random) -> Made {
    let log: Vec<_> = (0..1 + random.below(8)).map(|_| random.change()).collect();
    let unit_sectors = [8, 8, 4, 2, 1][random.below(5) as usize];
    made_of(random, &log, unit_sectors)
}

fn made_of(random: &mut Random, log: &[Change], unit_sectors: u64) -> Made {
    let base = random.letters(SECTORS);
    let steps: Vec<_> = log.iter().map(Change::step).collect();
    let files = [Scratch::new(&base), Scratch::new(&log_bytes(&steps))];
    let changing = (0..log.len()).filter(|n| log[*n].count() > 0);
    let order = shuffled(random, changing.map(|n| n as u64).collect());
    let chunks = order
        .iter()
        .flat_map(|n| split(&log[*n as usize], unit_sectors));
    let order = Order {
        entries: &order,
        unit_sectors,
    };
    Made {
        base,
        chunks: chunks.collect(),
        device: Device::open(&files[0].0, Some(&files[1].0), Some(order)).unwrap(),
        _files: files,
    }
}

impl Made {
    fn replayed(&self, state: &State) -> Vec<u8> {
        let mut bytes = self.base.clone();
        for (number, (sector, data)) in (0..state.prefix).zip(&self.chunks) {
            if !state.dropped.contains(&number) {
                let start = *sector as usize * SECTOR_BYTES;
                bytes[start..start + data.len()].copy_from_slice(data);
            }
        }
        bytes
    }

    fn crash_time(&self, random: &mut Random) -> Request {
        let prefix = random.below(self.chunks.len() as u64 + 1);
        let mut request = Request {
            prefix,
            to_visit_max: 1 + random.below(4),
            known_outcomes_max: limits::STATES as u64,
            ..Request::default()
        };
        for number in 0..prefix {
            match random.below(4) {
                0 => request.absent.push(number),
                1 | 2 if request.volatile.len() < VOLATILE_MAX => request.volatile.push(number),
                _ => {}
            }
        }
        request
    }
}

fn state_of(crash_time: &Request, choice: &Choice) -> State {
    let lost = |n: &u64| choice.kept == choice.except.contains(n);
    let mut dropped: Vec<u64> = crash_time.volatile.iter().copied().filter(lost).collect();
    dropped.extend(&crash_time.absent);
    dropped.sort_unstable();
    State {
        prefix: crash_time.prefix,
        dropped,
        torn_sectors: None,
    }
}

/// What a visit read, in order: block, content, whether it is data.
type Trace = Vec<(u64, u128, bool)>;

/// A recovery, a walk's data phase, and an unmount: which sectors are read or written next depends on what was
/// read. Returns a digest of everything read.
fn visit(device: &mut Device, state: &State, kind: u64) -> (Trace, u64) {
    device.switch(state).unwrap();
    let mut seen = kind;
    for step in 0..9u64 {
        let data = (5..8).contains(&step);
        if step == 5 || step == 8 {
            device.next_phase();
        }
        let mut random = Random(seen ^ step);
        let (from, to) = match data {
            true => (METADATA_BLOCKS * BLOCK_SECTORS, SECTORS),
            false => (0, METADATA_BLOCKS * BLOCK_SECTORS),
        };
        let sector = from + random.below(to - from);
        let count = 1 + random.below((to - sector).min(10));
        if !data && random.below(4) == 0 {
            device.write(sector, &random.letters(count));
        } else {
            let mut bytes = vec![0; count as usize * SECTOR_BYTES];
            device.guest_read(sector, &mut bytes);
            seen = xxh3_64_with_seed(&bytes, seen);
        }
    }
    let (index, recipe) = (&device.view().index, &device.view().recipe);
    let read = device.reads().iter();
    let trace = read.map(|r| (r.block, index.content(recipe, r.block), r.data));
    (trace.collect(), seen)
}

/// Explore and visit until nothing is to be visited. `digests` are the outcomes remembered so far.
fn explored(made: &mut Made, crash_time: &Request, kind: u64, digests: &mut Vec<u64>) -> Explored {
    loop {
        let explored = made.device.explore(crash_time).unwrap();
        assert_eq!(explored, made.device.explore(crash_time).unwrap());
        assert!(explored.to_visit.len() as u64 <= crash_time.to_visit_max);
        if explored.to_visit.is_empty() {
            return explored;
        }
        for choice in &explored.to_visit {
            let state = state_of(crash_time, choice);
            assert_eq!(made.device.recall(&state).unwrap(), None, "{choice:?}");
        }
        for choice in &explored.to_visit {
            let (_, digest) = visit(&mut made.device, &state_of(crash_time, choice), kind);
            let earlier = made.device.remember(digests.len() as u64).unwrap();
            assert_eq!(earlier, None, "two states to visit from one end");
            digests.push(digest);
        }
    }
}

/// Everything about one state of a crash time, found out by looking at it.
struct Look {
    trace: Trace,
    digest: u64,
    /// Contents of the blocks with volatile chunks.
    contents: BTreeMap<u64, u128>,
    /// The block of each volatile chunk, and whether that is kept.
    kept: Vec<(u64, bool)>,
}

fn looks(made: &mut Made, crash_time: &Request, kind: u64) -> Vec<Look> {
    let volatile = &crash_time.volatile;
    let blocks: BTreeSet<u64> = volatile
        .iter()
        .map(|n| made.chunks[*n as usize].0 / BLOCK_SECTORS)
        .collect();
    let mut looks = Vec::new();
    // the first has lost all, the last has kept all
    for mask in 0..1u64 << volatile.len() {
        let lost = (0..volatile.len()).filter(|bit| mask & (1 << bit) == 0);
        let choice = Choice {
            kept: true,
            except: lost.map(|bit| volatile[bit]).collect(),
        };
        let (trace, digest) = visit(&mut made.device, &state_of(crash_time, &choice), kind);
        let (index, recipe) = (&made.device.view().index, &made.device.view().recipe);
        let hash = |block: &u64| index.block_hash(recipe, index.slot(*block).unwrap());
        let contents = blocks.iter().map(|block| (*block, hash(block))).collect();
        let block_of = |n: &u64| made.chunks[*n as usize].0 / BLOCK_SECTORS;
        let kept =
            (0..volatile.len()).map(|bit| (block_of(&volatile[bit]), mask & (1 << bit) != 0));
        looks.push(Look {
            trace,
            digest,
            contents,
            kept: kept.collect(),
        });
    }
    looks
}

/// How often a state deviates from each default in the blocks that were read; None: it follows that default not
/// in all its data blocks, nor, where it may, the other one.
fn deviations(look: &Look, defaults: [&Look; 2], crash_time: &Request) -> [Option<u64>; 2] {
    let follows = defaults.map(|default| follows_in_data(look, default));
    let either = crash_time.data_together && follows.contains(&true);
    [0, 1].map(|at| {
        let default = defaults[at];
        if crash_time.separate_data && !follows[at] && !either {
            return None;
        }
        let differs = |block: &u64| look.contents.get(block) != default.contents.get(block);
        let mut count = 0;
        for (block, _, data) in &look.trace {
            count += u64::from(differs(block) && !(*data && crash_time.separate_data));
        }
        Some(count)
    })
}

/// Within how many losses a content of a data block is a state of its own: no chunk, one chunk or several have another
/// fate than in one of the defaults.
fn losses_alone(looks: &[Look], defaults: &[&Look; 2], block: u64, other: &Look) -> u64 {
    let content = other.contents[&block];
    let alike = looks.iter().filter(|l| l.contents[&block] == content);
    let fates = alike.map(|l| {
        let kept = l.kept.iter().filter(|(of, _)| *of == block);
        let count = kept.clone().count();
        let kept = kept.filter(|(_, kept)| *kept).count();
        kept.min(count - kept)
    });
    if defaults.iter().any(|d| d.contents[&block] == content) {
        return 0;
    }
    fates.min().unwrap_or(0).min(2) as u64
}

fn follows_in_data(look: &Look, default: &Look) -> bool {
    let mut data = look.trace.iter().filter(|(_, _, data)| *data);
    data.all(|(block, _, _)| look.contents.get(block) == default.contents.get(block))
}

/// The traces that a request asks for: on main paths with the deviations of each, and with one data block changed.
fn expected(looks: &[Look], crash_time: &Request) -> (BTreeMap<Trace, u64>, BTreeSet<Trace>, bool) {
    let defaults = [&looks[0], &looks[looks.len() - 1]];
    let by_contents: HashMap<_, _> = looks.iter().map(|l| (&l.contents, l)).collect();
    let (mut main, mut changed, mut left_out) = (BTreeMap::new(), BTreeSet::new(), false);
    for look in looks {
        let counts = deviations(look, defaults, crash_time);
        let Some(least) = counts.iter().flatten().min() else {
            continue;
        };
        if *least > crash_time.losses {
            left_out = true;
            continue;
        }
        main.insert(look.trace.clone(), *least);
        let follows = defaults.map(|default| follows_in_data(look, default));
        let nearer = match (crash_time.data_together, follows) {
            (true, [true, false]) => defaults[0],
            (true, [false, true]) => defaults[1],
            _ => defaults[usize::from(counts[1] == Some(*least))],
        };
        let in_defaults =
            |block: &u64, content: &u128| defaults.iter().any(|d| d.contents[block] == *content);
        let read: BTreeSet<u64> = look.trace.iter().map(|(block, _, _)| *block).collect();
        let unread = look.contents.iter().filter(|(b, _)| !read.contains(b));
        if !crash_time.separate_data || unread.into_iter().any(|(b, c)| nearer.contents[b] != *c) {
            continue;
        }
        for (block, _, _) in look.trace.iter().filter(|(_, _, data)| *data) {
            for other in looks {
                let of_a_default = || {
                    other
                        .contents
                        .get(block)
                        .is_some_and(|c| in_defaults(block, c))
                };
                if crash_time.data_together && of_a_default() {
                    continue;
                }
                if other.contents.contains_key(block)
                    && losses_alone(looks, &defaults, *block, other) > crash_time.losses
                {
                    left_out = true;
                    continue;
                }
                let mut contents = look.contents.clone();
                if let Some(content) = contents.get_mut(block) {
                    *content = other.contents[block];
                }
                changed.insert(by_contents[&contents].trace.clone());
            }
        }
    }
    (main, changed, left_out)
}

fn check_known_outcome(
    made: &mut Made,
    crash_time: &Request,
    kind: u64,
    known_outcome: &KnownOutcome,
    digest: u64,
) -> Trace {
    let state = state_of(crash_time, &known_outcome.choice);
    let (trace, seen) = visit(&mut made.device, &state, kind);
    assert_eq!(seen, digest, "{known_outcome:?}");
    assert_eq!(
        made.device.recall(&state).unwrap(),
        Some(known_outcome.outcome)
    );
    trace
}

#[test]
fn states_of_chunks_are_what_a_plain_replay_in_order_gives() {
    let mut random = Random(4);
    for _ in 0..300 {
        let mut made = made(&mut random);
        let mut hashes = HashMap::new();
        for _ in 0..10 {
            let crash_time = made.crash_time(&mut random);
            let state = State {
                prefix: crash_time.prefix,
                dropped: [crash_time.absent, crash_time.volatile].concat(),
                torn_sectors: None,
            };
            let mut state = state;
            state.dropped.sort_unstable();
            made.device.switch(&state).unwrap();
            let plain = made.replayed(&state);
            let mut shown = vec![0xee; plain.len()];
            made.device.view().read(0, &mut shown);
            assert_eq!(shown, plain, "{state:?}");
            let hash = made.device.state_hash(&state).unwrap();
            assert_eq!(*hashes.entry(hash).or_insert(plain.clone()), plain);
            let (index, recipe) = (&made.device.view().index, &made.device.view().recipe);
            let blocks = (0..index.slot_count()).map(|s| index.block_hash(recipe, s as u32));
            assert_eq!(blocks.fold(0, u128::wrapping_add), hash, "{state:?}");
        }
    }
}

/// The heart of it: exactly the outcomes of all legal states, each once, each from as few visits as there are
/// outcomes, and `unexplored` is 0 exactly if nothing was left out.
#[test]
fn exploration_finds_what_a_look_at_every_state_finds() {
    let mut random = Random(5);
    let (mut known_outcomes, mut states, mut with_data) = (0, 0, 0);
    for kind in 0..400 {
        let mut made = made(&mut random);
        let mut crash_time = made.crash_time(&mut random);
        crash_time.separate_data = kind % 3 != 0;
        crash_time.data_together = kind % 3 == 2;
        let looks = looks(&mut made, &crash_time, kind);
        let digests_of: HashMap<_, _> = looks.iter().map(|l| (l.trace.clone(), l.digest)).collect();
        let mut digests = Vec::new();
        for losses in [0, 1, 2, u64::MAX] {
            crash_time.losses = losses;
            let explored = explored(&mut made, &crash_time, kind, &mut digests);
            let (main, changed, left_out) = expected(&looks, &crash_time);
            assert_eq!(explored.unexplored > 0, left_out, "losses {losses}");
            let mut found = BTreeSet::new();
            for known_outcome in &explored.known_outcomes {
                let digest = digests[known_outcome.outcome as usize];
                let trace =
                    check_known_outcome(&mut made, &crash_time, kind, known_outcome, digest);
                assert_eq!(digests_of[&trace], digest);
                assert_eq!(known_outcome.data, !main.contains_key(&trace));
                if !known_outcome.data {
                    assert_eq!(known_outcome.losses, main[&trace]);
                }
                assert!(
                    found.insert(trace),
                    "a known outcome twice: {known_outcome:?}"
                );
            }
            let due: BTreeSet<_> = main.into_keys().chain(changed).collect();
            assert_eq!(found, due, "losses {losses} of {crash_time:?}");
            with_data += explored
                .known_outcomes
                .iter()
                .filter(|known_outcome| known_outcome.data)
                .count();
        }
        let (main, changed, _) = expected(&looks, &crash_time);
        let all = main.keys().chain(&changed).collect::<BTreeSet<_>>().len();
        assert_eq!(digests.len(), all, "as many visits as outcomes");
        known_outcomes += all;
        states += looks.len();
    }
    assert!(
        known_outcomes * 2 < states,
        "{known_outcomes} of {states}: folding is not tested"
    );
    assert!(
        known_outcomes > 2500 && with_data > 500,
        "{known_outcomes}, {with_data}"
    );
}

fn refusal(device: &Device, request: &Request) -> String {
    powercut_protocol::chain(&device.explore(request).unwrap_err())
}

fn device_of(steps: &[Step], order: Option<Order>) -> (Device, [Scratch; 2]) {
    let base = vec![b'.'; 8 * BLOCK_SECTORS as usize * SECTOR_BYTES];
    let files = [Scratch::new(&base), Scratch::new(&log_bytes(steps))];
    let device = Device::open(&files[0].0, Some(&files[1].0), order).unwrap();
    (device, files)
}

fn request(prefix: u64, volatile: Vec<u64>) -> Request {
    Request {
        prefix,
        volatile,
        losses: 9,
        to_visit_max: 9,
        known_outcomes_max: 9,
        ..Request::default()
    }
}

#[test]
fn requests_that_fit_no_crash_time_are_refused() {
    let steps = [Step::Write(0, &[b'X'; 512]), Step::Write(8, &[b'Y'; 512])];
    let order = Order {
        entries: &[0, 1],
        unit_sectors: 8,
    };
    let (device, _files) = device_of(&steps, None);
    assert!(refusal(&device, &request(2, vec![0])).contains("without an order"));
    let (device, _files) = device_of(&steps, Some(order));
    device.explore(&request(2, vec![0, 1])).unwrap();
    assert!(refusal(&device, &request(3, vec![])).contains("the log has 2"));
    assert!(refusal(&device, &request(1, vec![1])).contains("below the prefix"));
    assert!(refusal(&device, &request(2, vec![1, 1])).contains("must ascend"));
    let mut both = request(2, vec![0, 1]);
    both.absent = vec![1];
    assert!(refusal(&device, &both).contains("chunk 1 is both absent and volatile"));
    let mut many = request(2, vec![0]);
    many.known_outcomes_max = 50_001;
    assert!(refusal(&device, &many).contains("50001 known outcomes, the limit is 50000"));
    many.to_visit_max = 0;
    assert!(refusal(&device, &many).contains("no state may be visited"));
}

/// With sectors as the unit, four writes to one block are 32 volatile chunks: 5 to the 8 contents.
#[test]
fn a_block_of_too_many_contents_is_crowded_only_if_it_was_read() {
    let letters = [b'a', b'b', b'c', b'd'].map(|letter| vec![letter; 4096]);
    let mut steps: Vec<_> = letters.iter().map(|data| Step::Write(0, data)).collect();
    steps.push(Step::Write(8, &[b'X'; 512]));
    let order = Order {
        entries: &[0, 1, 2, 3, 4],
        unit_sectors: 1,
    };
    let (mut device, _files) = device_of(&steps, Some(order));
    let crash_time = request(33, (0..33).collect());
    let whole = |device: &mut Device, sector, outcome| {
        let state = State {
            prefix: 33,
            ..State::default()
        };
        device.switch(&state).unwrap();
        device.guest_read(sector, &mut [0; 512]);
        device.remember(outcome).unwrap();
    };
    whole(&mut device, 8, 7);
    let explored = device.explore(&crash_time).unwrap();
    let lost = Choice {
        kept: false,
        except: Vec::new(),
    };
    assert_eq!((explored.to_visit, explored.crowded), (vec![lost], 0));
    let (mut device, _files) = device_of(&steps, Some(order));
    whole(&mut device, 0, 7);
    assert_eq!(device.explore(&crash_time).unwrap().crowded, 1);
}

/// It counted as explored: its only end was another crash time's, so nothing was to be visited of it, and nothing
/// known.
#[test]
fn a_crash_time_that_needs_what_an_earlier_one_wants_waits_for_it() {
    let steps = [Step::Write(0, &[b'X'; 4096])];
    let order = Order {
        entries: &[0],
        unit_sectors: 8,
    };
    let (device, _files) = device_of(&steps, Some(order));
    let asked = request(1, vec![0]);
    let both = [asked.crash_time(), asked.crash_time()];
    let found = device.explore_all(&both, &asked.bounds()).unwrap();
    assert_eq!((found[0].to_visit.len(), found[0].waits), (1, false));
    assert_eq!((found[1].to_visit.len(), found[1].waits), (0, true));
}

/// A way that loses less represents its content: the write below one that covers it need not be lost.
#[test]
fn a_state_loses_no_more_than_its_contents_need() {
    let steps = [
        Step::Write(0, &[b'a'; 4096]),
        Step::Write(0, &[b'b'; 4096]),
        Step::Write(0, &[b'c'; 4096]),
    ];
    let order = Order {
        entries: &[0, 1, 2],
        unit_sectors: 8,
    };
    let (mut device, _files) = device_of(&steps, Some(order));
    let mut outcomes = Vec::new();
    let crash_time = request(3, vec![0, 1, 2]);
    loop {
        let explored = device.explore(&crash_time).unwrap();
        let Some(choice) = explored.to_visit.first() else {
            assert_eq!(explored.known_outcomes.len(), 4);
            break;
        };
        outcomes.push(choice.clone());
        device.switch(&state_of(&crash_time, choice)).unwrap();
        device.guest_read(0, &mut [0; 512]);
        device.remember(0).unwrap();
    }
    let kept = |except: &[u64]| Choice {
        kept: true,
        except: except.to_vec(),
    };
    let lost = Choice {
        kept: false,
        except: Vec::new(),
    };
    assert_eq!(outcomes, [kept(&[]), lost, kept(&[1, 2]), kept(&[2])]);
}

#[test]
fn known_outcomes_over_the_limit_count_as_unexplored() {
    let steps: Vec<_> = (0..6)
        .map(|block| Step::Write(block * BLOCK_SECTORS, &[b'X'; 4096]))
        .collect();
    let order = Order {
        entries: &[0, 1, 2, 3, 4, 5],
        unit_sectors: 8,
    };
    let (mut device, _files) = device_of(&steps, Some(order));
    let mut crash_time = request(6, (0..6).collect());
    crash_time.known_outcomes_max = 10;
    loop {
        let explored = device.explore(&crash_time).unwrap();
        if explored.to_visit.is_empty() {
            assert_eq!(explored.known_outcomes.len(), 10);
            assert!(explored.unexplored > 0);
            return;
        }
        for choice in &explored.to_visit {
            device.switch(&state_of(&crash_time, choice)).unwrap();
            device.guest_read(0, &mut [0; 6 * 4096]);
            device.remember(1).unwrap();
        }
    }
}

/// Four writes to one block, all in flight, were refused by sectors: the refusal was taken for a lost disk.
#[test]
fn of_a_block_with_too_many_contents_few_are_followed_and_that_is_told() {
    let mut random = Random(7);
    let rewrites = |count: usize| -> Vec<Change> {
        let letters = |n: usize| vec![b'0' + n as u8; BLOCK_SECTORS as usize * SECTOR_BYTES];
        let mut log: Vec<_> = (0..count).map(|n| Change::Write(0, letters(n))).collect();
        log.push(Change::Write(BLOCK_SECTORS, letters(9)));
        log
    };
    for (count, crowded) in [(2, 0), (4, 1)] {
        let log = rewrites(count);
        let mut made = made_of(&mut random, &log, 1);
        let chunks = made.chunks.len() as u64;
        let mut request = Request {
            prefix: chunks,
            volatile: (0..chunks).collect(),
            to_visit_max: 64,
            known_outcomes_max: limits::STATES as u64,
            ..Request::default()
        };
        let mut seen = BTreeSet::new();
        loop {
            let explored = made.device.explore(&request).unwrap();
            if explored.to_visit.is_empty() {
                let all_in_reach = request.losses == 1;
                assert_eq!(explored.crowded, crowded);
                if all_in_reach {
                    break;
                }
                request.losses = 1;
            }
            for choice in &explored.to_visit {
                let state = state_of(&request, choice);
                made.device.switch(&state).unwrap();
                let mut block = vec![0; BLOCK_SECTORS as usize * SECTOR_BYTES];
                made.device.guest_read(0, &mut block);
                assert_eq!(block, made.replayed(&state)[..block.len()]);
                assert!(seen.insert(block), "{choice:?}");
                made.device.remember(seen.len() as u64).unwrap();
            }
        }
        // the last write whole, or without one of its sectors; nothing, or one sector of any write
        let few = 2 + 8 + 8 * count;
        assert_eq!(seen.len(), if crowded == 0 { 3usize.pow(8) } else { few });
    }
}

/// Each version of a block was followed through all later ones, and named what it has lost of them: 4,000 versions were
/// more than the limit, and 32 crash times of 1,700 took longer than anybody waits for an answer.
#[test]
fn a_block_that_is_often_written_whole_is_followed_in_all_its_versions() {
    let data: Vec<Vec<u8>> = (0..4000u32).map(|n| n.to_le_bytes().repeat(1024)).collect();
    let steps: Vec<_> = data.iter().map(|data| Step::Write(0, data)).collect();
    let entries: Vec<u64> = (0..4000).collect();
    let order = Order {
        entries: &entries,
        unit_sectors: 8,
    };
    let (mut device, _files) = device_of(&steps, Some(order));
    let mut crash_time = request(4000, entries.clone());
    let state = state_of(
        &crash_time,
        &Choice {
            kept: true,
            except: Vec::new(),
        },
    );
    device.switch(&state).unwrap();
    device.guest_read(0, &mut [0; 512]);
    device.remember(0).unwrap();
    crash_time.losses = 0;
    let explored = device.explore(&crash_time).unwrap();
    assert_eq!((explored.crowded, explored.unexplored), (0, 3999));
    crash_time.losses = 1;
    let explored = device.explore(&crash_time).unwrap();
    let named = explored.to_visit.iter().map(|choice| choice.except.len());
    assert_eq!(
        named.collect::<Vec<_>>(),
        [0, 3999, 3998, 3997, 3996, 3995, 3994, 3993, 3992]
    );
}

/// All that are asked of together had to be explored within the time in which an answer is waited for.
#[test]
fn crash_times_that_take_long_wait_for_the_next_answer() {
    let data = [b'a', b'b', b'c'].map(|letter| vec![letter; 8 * 4096]);
    let steps: Vec<_> = data.iter().map(|data| Step::Write(0, data)).collect();
    let order = Order {
        entries: &[0, 1, 2],
        unit_sectors: 1,
    };
    let (mut device, _files) = device_of(&steps, Some(order));
    let whole = State {
        prefix: 192,
        ..State::default()
    };
    device.switch(&whole).unwrap();
    device.guest_read(0, &mut [0; 8 * 4096]);
    device.remember(0).unwrap();
    let asked: Vec<_> = (0..8)
        .map(|k| {
            let volatile = (0..192).filter(|n| *n >= 64 || n % 8 >= k);
            request(192, volatile.collect()).crash_time()
        })
        .collect();
    let bounds = request(192, Vec::new()).bounds();
    let bounds = Bounds {
        losses: 0,
        known_outcomes_max: 99,
        to_visit_max: 99,
        ..bounds
    };
    let known = |found: &Explored| found.known_outcomes.len();
    let found = device.explore_all(&asked, &bounds).unwrap();
    assert_eq!((known(&found[0]), found[0].waits), (1, false));
    assert_eq!((known(&found[7]), found[7].waits), (0, true));
    let alone = device.explore_all(&asked[7..], &bounds).unwrap();
    assert_eq!((known(&alone[0]), alone[0].waits), (1, false));
}
