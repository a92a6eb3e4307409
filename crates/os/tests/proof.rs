//! Copies between address spaces reach the one that they are meant for, or none. A test program of
//! its own, since it forks.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use ferroce_os::memory::{OtherProcess, Proof, ProofPage, Task};
use ferroce_os::random;
use ferroce_proto::ids::{Key, PdId};
use ferroce_proto::mr::{Access, Piece, Region, Rights};

const LEN: usize = 64 << 10;
const KEY: Key = Key(1);
const PD: PdId = PdId(1);

fn address(bytes: &mut [u8]) -> u64 {
    bytes.as_mut_ptr().expose_provenance() as u64
}

/// Reads all of `from` there into a buffer; the error, if it fails.
fn read(process: &OtherProcess, from: u64) -> Result<Vec<u8>, Option<i32>> {
    let mut here = vec![0; LEN];
    let addr = address(&mut here);
    let mut rights = Rights::default();
    let region = Region::new(PD, addr, LEN as u64, Access::LOCAL_WRITE);
    assert!(rights.insert(KEY, region));
    let span = rights.open(KEY, PD, addr, LEN as u64, Access::LOCAL_WRITE);
    let pieces = [Piece::Registered(span.expect("open"))];
    let read = process.read(from, &pieces, LEN);
    drop(rights);
    read.map(|()| here).map_err(|e| e.raw_os_error())
}

fn write(process: &OtherProcess, to: u64, byte: u8) -> Result<(), Option<i32>> {
    let bytes = [byte; LEN];
    let written = process.write(&[Piece::Inline(&bytes)], to, LEN);
    written.map_err(|e| e.raw_os_error())
}

#[test]
fn a_proof_opens_its_own_address_space_only() {
    let page = ProofPage::new(random::u64()).expect("a page");
    let proof = page.proof();
    let mut bytes = vec![1; LEN];
    let at = address(&mut bytes);
    let right = OtherProcess::open(Task::this(), proof).expect("this process");
    assert!(right.prove().expect("allowed") && right.memory().is_some() && !right.is_gone());
    assert_eq!(read(&right, at), Ok(vec![1; LEN]));
    assert_eq!(write(&right, at, 2), Ok(()));
    assert_eq!(read(&right, at), Ok(vec![2; LEN]));
    // Another word there: what was read is not used, and the page is as it was.
    let word = proof.word ^ 1;
    let other = OtherProcess::open(Task::this(), Proof { word, ..proof }).expect("this process");
    assert!(!other.prove().expect("allowed") && other.memory().is_none());
    assert_eq!(read(&other, at), Err(Some(libc::ESTALE)));
    // Nothing there.
    drop(page);
    assert!(right.prove().is_err());
    assert_eq!(read(&right, at), Err(Some(libc::EFAULT)));
    assert_eq!(write(&right, at, 3), Err(Some(libc::EFAULT)));
    assert!(bytes.iter().all(|byte| *byte == 2), "written");
    assert!(!right.is_gone(), "memory that lost the page is still there");
}

#[test]
fn a_thread_of_another_process_is_no_way() {
    let proof = Proof { addr: 0, word: 0 };
    let pid = std::process::id().cast_signed();
    for (pid, thread) in [(pid, 1), (pid, 0), (pid, -1), (1, pid)] {
        let opened = OtherProcess::open(Task { pid, thread }, proof);
        assert!(opened.is_err(), "{pid} {thread}");
    }
}

/// In the child: when it may go on, tells by its exit status whether the first bytes were left
/// alone and the others were not.
fn child(leave: i32, alone: &[u8], not: &[u8]) -> ! {
    let mut byte = 0_u8;
    // SAFETY: direct system calls on numbers and live stack memory; `_exit` runs nothing of the
    // parent's. Others change `alone` and `not` before the read returns, which the compiler cannot
    // know to be without effect on memory.
    unsafe {
        libc::read(leave, (&raw mut byte).cast(), 1);
        let good = alone.iter().all(|b| *b == 1) && not.iter().all(|b| *b == 9);
        libc::_exit(i32::from(!good))
    }
}

/// The process that is hardest to tell from another one whose number it has got: its child, with
/// the same memory at the same addresses.
#[test]
fn a_process_with_the_same_addresses_is_not_taken_for_the_other() {
    let page = ProofPage::new(random::u64()).expect("a page");
    let mut word = Box::new(random::u64());
    let (mut alone, mut not) = (vec![1; LEN], vec![1; LEN]);
    let (at_alone, at_not) = (address(&mut alone), address(&mut not));
    let (leave, mut say) = std::io::pipe().expect("a pipe");
    // SAFETY: the child makes direct system calls and looks at memory only.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        child(leave.as_raw_fd(), &alone, &not);
    }
    assert!(pid > 0);
    let task = Task { pid, thread: pid };
    let wrong = OtherProcess::open(task, page.proof()).expect("the child");
    assert!(wrong.prove().is_err() && wrong.memory().is_none());
    assert_eq!(write(&wrong, at_alone, 9), Err(Some(libc::EFAULT)));
    assert_eq!(read(&wrong, at_alone), Err(Some(libc::EFAULT)));
    // It is the page that makes the difference: a word that the child has, too, opens its memory.
    let proof = Proof {
        addr: (&raw mut *word).expose_provenance() as u64,
        word: *word,
    };
    let taken = OtherProcess::open(task, proof).expect("the child");
    assert!(taken.memory().is_some());
    assert_eq!(write(&taken, at_not, 9), Ok(()));
    assert!(!taken.is_gone());
    say.write_all(b"x").expect("told");
    let mut status = -1;
    // SAFETY: the pointer is to a live int.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    assert!(taken.is_gone() && taken.has_ended());
    assert_eq!(write(&taken, at_not, 9), Err(Some(libc::ESRCH)));
    assert!(taken.memory().expect("opened").is_gone(at_not));
    assert_eq!((alone, not), (vec![1; LEN], vec![1; LEN]));
}

/// A process with nothing to do, whose memory is a copy of this one's. It ends with this one.
struct Idle(i32);

impl Idle {
    fn start() -> Self {
        // SAFETY: the child makes direct system calls only.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: the child makes direct system calls only.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            }
        }
        assert!(pid > 0);
        Self(pid)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // SAFETY: a child of this object's own, which nobody else waits for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Nanoseconds of a call, in the mean of some.
fn time(times: u32, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..times).for_each(|_| call());
    start.elapsed().as_secs_f64() * 1e9 / f64::from(times)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
#[ignore = "measures: docs/design/direct-copies.md"]
fn what_the_proof_costs() {
    const MOST: usize = 1 << 20;
    let word = Box::new(random::u64());
    let mut there = vec![1_u8; MOST];
    let (from, to) = (vec![2_u8; MOST], address(&mut there));
    let idle = Idle::start();
    let (pid, thread) = (idle.0, idle.0);
    let addr = (&raw const *word).expose_provenance() as u64;
    let proof = Proof { addr, word: *word };
    let process = OtherProcess::open(Task { pid, thread }, proof).expect("the child");
    let memory = std::fs::File::options()
        .write(true)
        .open(format!("/proc/{pid}/mem"));
    let memory = memory.expect("its memory");
    println!("bytes: ns by number, with the proof, by the file of its memory");
    for len in [8, 4096, 8192, 16 << 10, 64 << 10, 256 << 10, MOST] {
        let times = u32::try_from((1 << 21) / len).expect("few").clamp(4, 400);
        let pieces = [Piece::Inline(&from[..len])];
        let mut found = [const { Vec::new() }; 3];
        for _ in 0..41 {
            found[0].push(time(times, || by_number(pid, &from[..len], to)));
            found[1].push(time(times, || {
                process.write(&pieces, to, len).expect("written")
            }));
            found[2].push(time(times, || {
                memory.write_all_at(&from[..len], to).expect("written");
            }));
        }
        let [number, proof, file] = found.map(median);
        let (with, by) = (number / proof, number / file);
        println!("{len}: {number:.0}, {proof:.0} ({with:.2}), {file:.0} ({by:.2})");
    }
}

fn by_number(pid: i32, from: &[u8], to: u64) {
    let piece = |at: u64| libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(usize::try_from(at).expect("64 bits")),
        iov_len: from.len(),
    };
    let (local, remote) = (piece(from.as_ptr().expose_provenance() as u64), piece(to));
    // SAFETY: the kernel checks both ranges, and only reads the first.
    let n = unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    assert_eq!(usize::try_from(n), Ok(from.len()));
}
