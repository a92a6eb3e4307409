//! What the running processes of a host say of their paths: which ones they have, which ones their
//! queue pairs use, and why not better ones. `ferroce devices --paths` shows it.
//!
//! A process that asks connects to the slot of each process (`link/local`) and sends one record,
//! in the place of a hello; the device thread answers with one record of text
//! (`engine/tell.rs`). Only processes of its own user, and root, are answered.
//!
//! | module | holds |
//! |---|---|
//! | `ask` | the side that asks: all processes of this network namespace |
//! | `text` | the answer as text |

mod ask;
mod text;

pub use ask::{Process, Said, process, processes};

/// Report of a process about its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// What the process has to reach others with.
    pub means: Vec<Means>,
    /// Processes of this host to which the process has talked.
    pub neighbours: Vec<Neighbour>,
    /// Its queue pairs, those alike together.
    pub flows: Vec<Flow>,
    /// Queue pairs that are in no entry of `flows`, since there would be too many.
    pub untold: usize,
    /// What its devices have counted about paths, and what was denied to others; zeros are left
    /// out.
    pub counts: Vec<Count>,
    /// What its devices have counted under the names of the kernel's soft-RoCE; zeros are left out.
    pub statistics: Vec<Count>,
    /// How many objects of a kind its devices have (`pd`, `cq`, `qp`, `mr`, `srq`, `ctx`).
    pub objects: Vec<Count>,
    /// Its queue pairs, one by one; not all if there are very many.
    pub queue_pairs: Vec<QueuePair>,
}

/// A queue pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuePair {
    /// Name of the queue pair's device.
    pub device: String,
    /// Queue pair number.
    pub number: u32,
    /// Its type, by the number of `enum ibv_qp_type`.
    pub kind: u32,
    /// Its state, by the number of `enum ibv_qp_state`.
    pub state: u32,
    /// The number of its peer; 0: it has none.
    pub peer: u32,
    /// PSN of the next packet to send.
    pub sq_psn: u32,
    /// PSN of the next packet to receive.
    pub rq_psn: u32,
}

/// Something to reach others with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Means {
    /// `direct`, `rings`, `wire`, `segments` or `joined`.
    pub name: String,
    /// Whether it is to be had.
    pub usable: bool,
    /// What the means is, or why it is not to be had.
    pub why: String,
}

/// Another process of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// Slot of the process.
    pub slot: u16,
    /// Whether READs and WRITEs of its memory are done without it.
    pub direct: bool,
    /// Why not, if so.
    pub why: String,
}

/// Queue pairs that do the same: same device, transport, destination and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Number of these queue pairs.
    pub count: usize,
    /// The number of one of them.
    pub example: u32,
    /// Their device.
    pub device: String,
    /// Their transport: `RC`, `UC`, `UD` …
    pub transport: String,
    /// Where they lead: an address, or nothing as long as they are not connected (datagrams have an
    /// address each).
    pub to: String,
    /// The slot of the process there, if it is one of this host.
    pub slot: Option<u16>,
    /// What carried their last packets ([`Carrier`](crate::Carrier)); nothing: none were sent so
    /// far.
    pub packets: String,
    /// Why nothing better carries them, if anything better could.
    pub packets_why: String,
    /// Their last WRITE or READ: whether it was done directly. None: there was none that could be.
    pub direct: Option<bool>,
    /// Reason why no such copy was made.
    pub direct_why: String,
    /// A WRITE or READ was done in memory of the other process that this one has mapped.
    pub mapped: bool,
    /// Their last atomic: whether it was done directly. None: there was none that could be.
    pub atomics: Option<bool>,
    /// Reason why the memory was not mapped.
    pub atomics_why: String,
}

/// A counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The device, or `process` for what belongs to none.
    pub device: String,
    /// What was counted, as under `hw_counters`.
    pub what: String,
    /// Count.
    pub value: u64,
}
